"""The paired difference: its t interval, what it is worth beside chance, and Holm's adjustment of a family.

A comparison is paired: element i of `a` and of `b` come from the same seed. Differences are a − b.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.05
FEWEST_SEEDS = 3  # below this a t interval says next to nothing


@dataclass(frozen=True)
class Paired:
    """A paired difference: mean, t interval, two-sided p, standardised effect; NaN where n is too small for one."""

    n: int
    delta: float
    low: float
    high: float
    p: float
    dz: float
    sd: float


def paired(a: ArrayLike, b: ArrayLike, level: float = LEVEL, *, resolution: float = 0.0) -> Paired:
    """Mean of a − b (n pairs) with its (1 − level) t interval and p.

        Δ ± t(1 − level/2; n − 1) · SD/√n        d_z = Δ/SD

    Valid from three pairs on: coverage is exact for normal differences and near 0.9 for very skewed ones.

    `resolution` is the least step of what is measured (one test image, for an accuracy): the spread counts as at least
    that much, since few seeds can differ by the same step by chance. Without it, differences that are all equal are
    taken for certain (bytes, which no seed changes): p is 1 where they are zero and 0 where they are not.
    """
    sample = differences(a, b)
    n = len(sample)
    if n == 0:
        return Paired(0, *[math.nan] * 6)
    delta = float(sample.mean())
    if n < FEWEST_SEEDS:
        return Paired(n, delta, *[math.nan] * 5)
    sd = spread(sample, resolution)
    if sd == 0:
        return Paired(n, delta, delta, delta, float(delta == 0), math.copysign(math.inf, delta) if delta else 0.0, 0.0)
    error = sd / math.sqrt(n)
    # The bare functions: a report has thousands of pairs, and scipy.stats checks for longer than it counts.
    half = float(scipy.special.stdtrit(n - 1, 1 - level / 2)) * error
    p = float(2 * scipy.special.stdtr(n - 1, -abs(delta) / error))
    return Paired(n, delta, delta - half, delta + half, p, delta / sd, sd)


def mean_interval(values: ArrayLike, level: float = LEVEL) -> tuple[float, float, float]:
    """(mean, low, high) of one sample by the t interval; NaN bounds below three values."""
    sample = np.asarray(values, dtype=float)
    zeros = np.zeros_like(sample)
    found = paired(sample, zeros, level)
    return found.delta, found.low, found.high


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of one family of p values; NaN stays NaN and does not count.

    p₍ᵢ₎ → max over j ≤ i of min(1, (m − j + 1)·p₍ⱼ₎). Keeps the chance of any false alarm in the family at the level or
    below, however the tests depend on each other.
    """
    adjusted = [math.nan] * len(p_values)
    order = sorted((index for index, p in enumerate(p_values) if not math.isnan(p)), key=lambda index: p_values[index])
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Pearson's r of the paired seeds: what pairing gains. NaN when either side does not vary."""
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if len(first) < FEWEST_SEEDS or first.std() == 0 or second.std() == 0:
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


@dataclass(frozen=True)
class Wins:
    """How often a beats b: of n pairs, `ties` were even; `share` of the others were won, with an exact interval."""

    n: int
    wins: int
    ties: int
    share: float
    low: float
    high: float


def wins(a: ArrayLike, b: ArrayLike, level: float = LEVEL) -> Wins:
    """P(A > B | A ≠ B): share of the decided pairs that a wins, with the exact (Clopper–Pearson) binomial interval.

    Valid for any number of pairs, if wide: three wins in three give [0.29, 1]. Without a decided pair it is NaN.
    """
    sample = rounded_differences(a, b)
    won, lost = int((sample > 0).sum()), int((sample < 0).sum())
    ties = len(sample) - won - lost
    if won + lost == 0:
        return Wins(len(sample), 0, ties, *[math.nan] * 3)
    low = float(scipy.special.betaincinv(won, lost + 1, level / 2)) if won else 0.0
    high = float(scipy.special.betaincinv(won + 1, lost, 1 - level / 2)) if lost else 1.0
    return Wins(len(sample), won, ties, won / (won + lost), low, high)


def differences(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """a − b of two vectors of one length."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"paired samples must be vectors of one length, got {first.shape} and {second.shape}")
    return first - second


def rounded_differences(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """a − b to twelve digits of the larger side, for what counts ties: 0.3 − 0.2 and 0.2 − 0.1 are one difference."""
    sample = differences(a, b)
    if not np.isfinite(sample).all():
        raise ValueError("ranks and signs need finite numbers; leave out what was not measured, in pairs")
    scale = float(max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0)))
    return np.round(sample / scale, 12) * scale if scale else sample


def spread(sample: NDArray[np.float64], resolution: float) -> float:
    """The standard deviation, at least `resolution`; what is only rounding counts as none."""
    sd = float(sample.std(ddof=1))
    return max(resolution, 0.0 if sd <= 1e-12 * max(1.0, float(np.abs(sample).max())) else sd)
