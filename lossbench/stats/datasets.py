"""Losses over several datasets, by ranks (Demšar, JMLR 2006).

N is the number of datasets, never datasets × seeds: seeds on one dataset are not independent datasets, and
pooling them gives false alarms in a quarter of all studies or more. So these tests take `DatasetMeans`, which
`over_datasets` makes by averaging over the seeds inside each dataset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

from lossbench.stats.exact import Exact, mean_ranks, rank_biserial, signed_rank
from lossbench.stats.pairs import LEVEL, holm

FEWEST_DATASETS = 5  # below this the F approximation is off


@dataclass(frozen=True)
class DatasetMeans:
    """One value per dataset and loss: `means[i, j]` is the mean over seeds of `losses[j]` on `datasets[i]`."""

    datasets: tuple[str, ...]
    losses: tuple[str, ...]
    means: NDArray[np.float64]


def over_datasets(values: Mapping[str, Mapping[str, Sequence[float]]]) -> DatasetMeans:
    """values[dataset][loss] = one number per seed → the means over seeds. Every dataset needs every loss."""
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
                raise ValueError(f"'{dataset}', '{loss}': expected one finite number per seed")
            means[row, column] = seeds.mean()
    return DatasetMeans(tuple(values), losses, means)


@dataclass(frozen=True)
class Friedman:
    """Whether the mean ranks of the losses (1 is best) differ over N datasets: χ², and F with its p."""

    datasets: int
    ranks: NDArray[np.float64]
    chi2: float
    f: float
    p: float


def friedman(table: DatasetMeans) -> Friedman:
    """Friedman's test, corrected for ties, and the F of Iman and Davenport, which is less conservative.

        χ² = 12N/(k(k+1)) · (Σ R̄ⱼ² − k(k+1)²/4) / (1 − Σ(t³ − t)/(N(k³ − k)))        χ²(k − 1)
        F  = (N − 1)χ² / (N(k − 1) − χ²)                                             F(k − 1, (k − 1)(N − 1))

    with t the sizes of the groups of ties. From five datasets and three losses on the false alarms of F are within 0.02
    of the level; below, the ranks take too few values and p is NaN (compare two losses by `pairwise`).
    """
    scale = float(np.abs(table.means).max()) or 1.0
    # Rounded: means of the same seeds in another order are ties.
    by_dataset = np.stack([mean_ranks(row) for row in -np.round(table.means / scale, 12)])
    n, k = by_dataset.shape
    ties = sum(float((np.unique(row, return_counts=True)[1] ** 3.0).sum()) - k for row in by_dataset)
    tied = ties / (n * (k**3 - k))
    ranks = by_dataset.mean(axis=0)
    if tied >= 1 - 1e-12:
        chi2 = 0.0  # on every dataset all losses tie
    else:
        chi2 = 12 * n / (k * (k + 1)) * (float((ranks**2).sum()) - k * (k + 1) ** 2 / 4) / (1 - tied)
    room = n * (k - 1) - chi2
    f = (n - 1) * chi2 / room if room > 1e-9 * n else math.inf  # all datasets give the same ranks
    enough = n >= FEWEST_DATASETS and k >= 3
    p = float(scipy.special.fdtrc(k - 1, (k - 1) * (n - 1), f)) if enough else math.nan
    return Friedman(n, ranks, chi2, f, p)


def critical_difference(losses: int, datasets: int, level: float = LEVEL) -> float:
    """Nemenyi's: the mean ranks of two of k losses over N datasets differ if they are at least this far apart.

        CD = q(level; k, ∞)/√2 · √(k(k + 1)/(6N))

    q is the studentised range, so all k(k − 1)/2 pairs are covered at once. Wilcoxon with Holm (`pairwise`) finds more.
    """
    import scipy.stats  # takes a second, and only a report over datasets needs it

    quantile = float(scipy.stats.studentized_range.ppf(1 - level, losses, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(losses * (losses + 1) / (6 * datasets))


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


def pairwise(table: DatasetMeans, level: float = LEVEL, *, baseline: str) -> list[RankedPair]:
    """Wilcoxon's signed-rank test over datasets of each loss against the baseline, Holm-adjusted.

    With m pairs Holm first asks for p < level/m, which takes 6 datasets for m = 1 and 9 for m = 6. With fewer, p is NaN
    and the test states the reason.
    """
    column = dict(zip(table.losses, table.means.T, strict=True))
    against = column.pop(baseline)
    tests = [signed_rank(mine, against, level / len(column)) for mine in column.values()]
    return [
        RankedPair(loss, baseline, test, p, rank_biserial(mine, against))
        for (loss, mine), test, p in zip(column.items(), tests, holm([test.p for test in tests]), strict=True)
    ]
