"""Which losses of one table cannot be told apart."""

from __future__ import annotations

import math

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

from lossbench.stats.pairs import FEWEST_SEEDS, LEVEL, holm


def pair_p_values(values: ArrayLike, *, resolution: float = 0.0) -> NDArray[np.float64]:
    """The two-sided p of the paired t test of every pair of losses.

    `values` is seeds × losses, NaN where a seed is missing. Each pair uses the seeds that both have; NaN below three.
    The same numbers as `paired`, all pairs at once.
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
    """Letters of groups: losses that share one are not told apart from each other.

    `values` is seeds × losses, higher listed first. Pairs are judged by the paired t test, Holm-adjusted over all pairs
    of the table. A group is a run in the order of the means, as long as can be; `a` holds the best. A pair with too few
    common seeds is not told apart. Empty where no pair has enough.
    """
    table = np.asarray(values, dtype=np.float64)
    losses = table.shape[1]
    p = pair_p_values(table, resolution=resolution)
    upper = np.triu_indices(losses, 1)
    if not losses or (losses > 1 and np.isnan(p[upper]).all()):
        return [""] * losses
    apart = np.zeros((losses, losses), dtype=bool)
    apart[upper] = np.array(holm(p[upper].tolist())) < level
    apart |= apart.T
    with np.errstate(invalid="ignore"):
        known = np.isfinite(table)
        means = np.where(known.any(axis=0), np.nansum(table, axis=0) / np.maximum(known.sum(axis=0), 1), -math.inf)
    order = [int(place) for place in np.argsort(-means, kind="stable")]
    letters = [""] * losses
    reached = 0
    count = 0
    for start in range(losses):
        stop = start + 1
        while stop < losses and not apart[order[stop], order[start:stop]].any():
            stop += 1
        if stop <= reached:
            continue  # inside the group before
        reached = stop
        for place in order[start:stop]:
            letters[place] += _letter(count)
        count += 1
    return letters


def _letter(number: int) -> str:
    """a…z, then a1…z1, and so on."""
    return chr(ord("a") + number % 26) + (str(number // 26) if number >= 26 else "")
