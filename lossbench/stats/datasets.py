"""Losses over several datasets, by ranks (Demšar, JMLR 2006).

N is the number of datasets, never datasets × seeds: seeds on one dataset agree about what is particular to it, and
pooling them gives false alarms in a quarter of all studies or more. So these tests take `DatasetMeans`, which
`over_datasets` makes by averaging over the seeds inside each dataset.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

from lossbench.stats.exact import Exact, rank_biserial, ranked, signed_rank
from lossbench.stats.pairs import LEVEL, holm

FEWEST_DATASETS = 5  # below this the F approximation is off, and ranks say little


@dataclass(frozen=True)
class DatasetMeans:
    """One value a dataset and loss: `means[i, j]` is the mean over seeds of `losses[j]` on `datasets[i]`."""

    datasets: tuple[str, ...]
    losses: tuple[str, ...]
    means: NDArray[np.float64]


def over_datasets(values: Mapping[str, Mapping[str, Sequence[float]]]) -> DatasetMeans:
    """values[dataset][loss] = one number a seed → the means over seeds. Every dataset needs every loss."""
    if not isinstance(values, Mapping) or not all(isinstance(by_loss, Mapping) for by_loss in values.values()):
        raise ValueError("expected values[dataset][loss][seed]; N is the number of datasets, so seeds are not pooled")
    if len(values) < 2:
        raise ValueError(f"a comparison over datasets needs two datasets or more, got {len(values)}")
    losses = tuple(next(iter(values.values())))
    if len(losses) < 2:
        raise ValueError(f"a comparison over datasets needs two losses or more, got {len(losses)}")
    means = np.empty((len(values), len(losses)))
    for row, (dataset, by_loss) in enumerate(values.items()):
        if set(by_loss) != set(losses):
            odd = ", ".join(sorted(set(by_loss) ^ set(losses)))
            raise ValueError(f"ranks need every loss on every dataset; {odd} is not on all of them (see '{dataset}')")
        for column, loss in enumerate(losses):
            seeds = np.asarray(by_loss[loss], dtype=np.float64)
            if seeds.ndim != 1 or len(seeds) == 0 or not np.isfinite(seeds).all():
                raise ValueError(f"'{dataset}', '{loss}': expected one finite number a seed")
            means[row, column] = seeds.mean()
    return DatasetMeans(tuple(values), losses, means)


def average_ranks(table: DatasetMeans, *, higher_is_better: bool = True) -> NDArray[np.float64]:
    """Each loss's mean rank over the datasets, 1 the best; equal values share their mean rank."""
    mean: NDArray[np.float64] = _ranks(table, higher_is_better).mean(axis=0)
    return mean


@dataclass(frozen=True)
class Friedman:
    """Whether the losses' ranks differ at all over N datasets: χ² and the better F, each with its p."""

    datasets: int
    ranks: NDArray[np.float64]
    chi2: float
    chi2_p: float
    f: float
    p: float


def friedman(table: DatasetMeans, *, higher_is_better: bool = True) -> Friedman:
    """Friedman's test, corrected for ties, and the F of Iman and Davenport, which is less conservative.

        χ² = 12N/(k(k+1)) · (Σ R̄ⱼ² − k(k+1)²/4) / (1 − Σ(t³ − t)/(N(k³ − k)))        χ²(k − 1)
        F  = (N − 1)χ² / (N(k − 1) − χ²)                                             F(k − 1, (k − 1)(N − 1))

    with t the sizes of the groups of ties. Use `p` (of F): from five datasets and three losses on its false alarms are
    within 0.02 of the level; NaN below, where the ranks take too few values (compare two losses by `pairwise`).
    """
    ranks = _ranks(table, higher_is_better)
    n, k = ranks.shape
    ties = sum(float((np.unique(row, return_counts=True)[1] ** 3.0).sum()) - k for row in ranks)
    return friedman_of_ranks(ranks.mean(axis=0), n, tied=ties / (n * (k**3 - k)))


def friedman_of_ranks(ranks: ArrayLike, datasets: int, *, tied: float = 0.0) -> Friedman:
    """`friedman` from the mean ranks alone; `tied` is Σ(t³ − t)/(N(k³ − k)), 1 if every dataset is one tie."""
    mean = np.asarray(ranks, dtype=np.float64)
    k = len(mean)
    if tied >= 1 - 1e-12:
        chi2 = 0.0  # every dataset is one tie: nothing differs
    else:
        chi2 = 12 * datasets / (k * (k + 1)) * (float((mean**2).sum()) - k * (k + 1) ** 2 / 4) / (1 - tied)
    room = datasets * (k - 1) - chi2
    f = (datasets - 1) * chi2 / room if room > 1e-9 * datasets else math.inf  # all datasets rank alike
    if datasets < FEWEST_DATASETS or k < 3:
        return Friedman(datasets, mean, chi2, math.nan, f, math.nan)
    chi2_p = float(scipy.special.chdtrc(k - 1, chi2))
    return Friedman(datasets, mean, chi2, chi2_p, f, float(scipy.special.fdtrc(k - 1, (k - 1) * (datasets - 1), f)))


def critical_difference(losses: int, datasets: int, level: float = LEVEL) -> float:
    """Nemenyi's: mean ranks of two of k losses over N datasets differ where they are at least this far apart.

        CD = q(level; k, ∞)/√2 · √(k(k + 1)/(6N))

    q is the studentised range, so all k(k − 1)/2 pairs are covered at once. Wilcoxon with Holm (`pairwise`) finds more.
    """
    return _nemenyi_quantile(losses, level) * math.sqrt(losses * (losses + 1) / (6 * datasets))


def nemenyi(table: DatasetMeans, *, higher_is_better: bool = True) -> NDArray[np.float64]:
    """Nemenyi's p of every pair of losses, adjusted for all of them; the diagonal is 1."""
    ranks = average_ranks(table, higher_is_better=higher_is_better)
    n, k = table.means.shape
    apart = np.abs(ranks[:, None] - ranks) / math.sqrt(k * (k + 1) / (6 * n))
    from scipy.stats import studentized_range  # takes a second to import, for what few reports have

    p: NDArray[np.float64] = studentized_range.sf(apart * math.sqrt(2), k, math.inf)
    return np.minimum(p, 1.0)


def tie_groups(ranks: ArrayLike, difference: float) -> list[tuple[int, ...]]:
    """The bars of a critical-difference diagram: largest sets of losses (indices) less than `difference` apart."""
    mean = np.asarray(ranks, dtype=np.float64)
    order = [int(index) for index in np.argsort(mean, kind="stable")]
    groups: list[tuple[int, ...]] = []
    for start, first in enumerate(order):
        group = tuple(index for index in order[start:] if mean[index] - mean[first] < difference)
        if len(group) > 1 and not (groups and set(group) <= set(groups[-1])):
            groups.append(group)
    return groups


@dataclass(frozen=True)
class RankedPair:
    """Two losses over the datasets: signed-rank test, its p after Holm, and the balance of ranks (−1…1)."""

    a: str
    b: str
    test: Exact
    p_holm: float
    effect: float


def pairwise(table: DatasetMeans, level: float = LEVEL, *, baseline: str | None = None) -> list[RankedPair]:
    """Wilcoxon's signed-rank test over datasets, Holm-adjusted: of every pair of losses, or of each with the baseline.

    With m pairs Holm first asks for p < level/m, so below 6 datasets for m = 1 (9 for m = 6, all pairs of four losses)
    nothing could be found: then p is NaN and the test's reason says so.
    """
    if baseline is None:
        pairs = list(itertools.combinations(table.losses, 2))
    else:
        pairs = [(loss, baseline) for loss in table.losses if loss != baseline]
    column = {loss: table.means[:, index] for index, loss in enumerate(table.losses)}
    tests = [signed_rank(column[a], column[b], level / len(pairs)) for a, b in pairs]
    adjusted = holm([test.p for test in tests])
    return [
        RankedPair(a, b, test, p, rank_biserial(column[a], column[b]))
        for (a, b), test, p in zip(pairs, tests, adjusted, strict=True)
    ]


def _ranks(table: DatasetMeans, higher_is_better: bool) -> NDArray[np.float64]:
    scale = float(np.abs(table.means).max()) or 1.0
    rounded = np.round(table.means / scale, 12)  # means of the same seeds in another order are ties
    return np.array([ranked(row) for row in (-rounded if higher_is_better else rounded)])


def _nemenyi_quantile(losses: int, level: float) -> float:
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(1 - level, losses, math.inf)) / math.sqrt(2)
