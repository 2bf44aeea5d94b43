"""Which losses of one table do not differ significantly: the compact letter display."""

from __future__ import annotations

import math
import string

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

from lossbench.stats.pairs import FEWEST_SEEDS, LEVEL, holm


def pair_p_values(values: ArrayLike, *, resolution: float = 0.0) -> NDArray[np.float64]:
    """The two-sided p of the paired t test of every pair of losses.

    `values` is seeds × losses, NaN where a seed is missing. Each pair uses the seeds that both have; NaN below three.
    The same numbers as `paired`, vectorised over all pairs.
    """
    table = np.asarray(values, dtype=np.float64)
    gaps = table[:, :, None] - table[:, None, :]
    n = np.isfinite(gaps).sum(axis=0)
    enough = n >= FEWEST_SEEDS
    many = np.maximum(n, FEWEST_SEEDS)
    mean = np.nansum(gaps, axis=0) / many
    sd = np.sqrt(np.nansum((gaps - mean) ** 2, axis=0) / (many - 1))
    largest = np.nanmax(np.abs(np.nan_to_num(gaps)), axis=0, initial=0.0)
    sd = np.maximum(np.where(sd <= 1e-12 * np.maximum(1.0, largest), 0.0, sd), resolution)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * scipy.special.stdtr(many - 1, -np.abs(mean) / (sd / np.sqrt(many)))
    p = np.where(sd == 0, (mean == 0).astype(float), p)  # no spread at all: certain either way
    return np.where(enough, p, math.nan)


def tie_letters(values: ArrayLike, level: float = LEVEL, *, resolution: float = 0.0) -> list[str]:
    """The letters of each loss: two losses share a letter if and only if they are not significantly different.

    `values` is seeds × losses, higher is better. Pairs are compared by the paired t test, Holm-adjusted over all pairs
    of the table; a pair with too few common seeds counts as not different. `a` goes to the best mean. Empty where no
    pair has enough seeds.
    """
    table = np.asarray(values, dtype=np.float64)
    losses = table.shape[1]
    p = pair_p_values(table, resolution=resolution)
    upper = np.triu_indices(losses, 1)
    if not losses or (losses > 1 and np.isnan(p[upper]).all()):
        return [""] * losses
    different = np.zeros((losses, losses), dtype=bool)
    different[upper] = np.array(holm(p[upper].tolist())) < level
    with np.errstate(invalid="ignore"):
        known = np.isfinite(table)
        means = np.where(known.any(axis=0), np.nansum(table, axis=0) / np.maximum(known.sum(axis=0), 1), -math.inf)
    order = [int(place) for place in np.argsort(-means, kind="stable")]
    letters = [""] * losses
    for number, group in enumerate(letter_groups((different | different.T)[np.ix_(order, order)])):
        for place in group:
            letters[order[place]] += _letter(number)
    return letters


def letter_groups(different: ArrayLike) -> list[tuple[int, ...]]:
    """Groups of a compact letter display: two items are in a common group if and only if they are not different.

    `different` is symmetric, items in the order in which groups are listed. No group is contained in another, and none
    is redundant. Piepho's insert-and-absorb (2004) first makes all maximal groups, of which there may be 3^(items/3);
    this makes only those that some pair needs, at most one per pair.
    """
    alike = ~np.asarray(different, dtype=bool)
    np.fill_diagonal(alike, val=True)
    items = len(alike)
    shared = np.zeros((items, items), dtype=int)  # how many groups hold both
    groups = []
    for first in range(items):
        for second in range(first, items):
            # An item is a pair with itself: one that differs from all others is a group of its own.
            alone = first == second and alike[first].sum() > 1
            if alike[first, second] and not shared[first, second] and not alone:
                group = _grown([first, second], alike, shared)
                groups.append(group)
                shared[np.ix_(group, group)] += 1
    for group in groups[::-1]:
        if (shared[np.ix_(group, group)] > 1).all():  # other groups hold all its pairs
            groups.remove(group)
            shared[np.ix_(group, group)] -= 1
    return sorted(groups)


def _grown(pair: list[int], alike: NDArray[np.bool_], shared: NDArray[np.int_]) -> tuple[int, ...]:
    """A maximal group around a pair, adding first what has most pairs with the group that share no group yet."""
    group = sorted(set(pair))
    while len(fitting := np.setdiff1d(np.flatnonzero(alike[group].all(axis=0)), group)):
        gain = (shared[fitting][:, group] == 0).sum(axis=1)
        group.append(int(fitting[gain.argmax()]))
    return tuple(sorted(group))


def _letter(number: int) -> str:
    """a…z, A…Z, then a1…Z1, and so on."""
    again, place = divmod(number, len(string.ascii_letters))
    return string.ascii_letters[place] + (str(again) if again else "")
