"""Arrays → intervals, tests, verdicts. Pure functions over numpy and scipy: no I/O, no frames, no global state.

A comparison is paired: element i of `a` and of `b` come from the same seed. Differences are a − b.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.05
FEWEST_SEEDS = 3  # below this a t interval says next to nothing

Verdict = Literal["different", "equivalent", "different but negligible", "undecided"]


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

    `resolution` is the least step of what is measured (one test image, for an accuracy): the spread counts as at least
    that much, since few seeds can differ by the same step by chance. Without it, differences that are all equal are
    taken for certain (bytes, which no seed changes): p is 1 where they are zero and 0 where they are not.
    """
    differences = _differences(a, b)
    n = len(differences)
    if n == 0:
        return Paired(0, *[math.nan] * 6)
    delta = float(differences.mean())
    if n < FEWEST_SEEDS:
        return Paired(n, delta, *[math.nan] * 5)
    sd = _spread(differences, resolution)
    if sd == 0:
        return Paired(n, delta, delta, delta, float(delta == 0), math.copysign(math.inf, delta) if delta else 0.0, 0.0)
    error = sd / math.sqrt(n)
    half = float(scipy.stats.t.ppf(1 - level / 2, n - 1)) * error
    p = float(2 * scipy.stats.t.sf(abs(delta) / error, n - 1))
    return Paired(n, delta, delta - half, delta + half, p, delta / sd, sd)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of one family of p values; NaN stays NaN and does not count."""
    adjusted = [math.nan] * len(p_values)
    order = sorted((index for index, p in enumerate(p_values) if not math.isnan(p)), key=lambda index: p_values[index])
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def tost(a: ArrayLike, b: ArrayLike, margin: float, *, resolution: float = 0.0) -> float:
    """p of "the difference is at least `margin` in size": small means equivalent (two one-sided paired t tests)."""
    differences = _differences(a, b)
    n = len(differences)
    if n < FEWEST_SEEDS:
        return math.nan
    distance = margin - abs(float(differences.mean()))  # to the nearer end of the band
    sd = _spread(differences, resolution)
    return float(scipy.stats.t.sf(distance / (sd / math.sqrt(n)), n - 1)) if sd else float(distance <= 0)


def verdict(p_adjusted: float, tost_p: float, level: float = LEVEL) -> Verdict:
    """One word for a pair: whether the data tell the two apart, and whether the difference matters."""
    different, equivalent = p_adjusted < level, tost_p < level  # NaN compares false: undecided
    if different:
        return "different but negligible" if equivalent else "different"
    return "equivalent" if equivalent else "undecided"


def power(dz: float, n: int, level: float = LEVEL) -> float:
    """Chance that a two-sided paired t test on n pairs finds a standardised effect dz."""
    if n < 2:
        return 0.0
    df, shift = n - 1, abs(dz) * math.sqrt(n)
    critical = float(scipy.stats.t.ppf(1 - level / 2, df))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy's lower tail is NaN for large effects at few seeds, and nearly 0 there
        upper, lower = scipy.stats.nct.sf(critical, df, shift), scipy.stats.nct.cdf(-critical, df, shift)
    return float(np.nan_to_num(upper, nan=1.0) + np.nan_to_num(lower, nan=0.0))


def seeds_needed(dz: float, target: float = 0.8, level: float = LEVEL, most: int = 10_000) -> int | None:
    """The fewest seeds at which an effect of this size would be found with chance `target`; None above `most`."""
    if math.isnan(dz) or dz == 0:
        return None
    if power(dz, most, level) < target:
        return None
    low, high = 1, 2
    while power(dz, high, level) < target:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(dz, middle, level) >= target else (middle, high)
    return max(high, FEWEST_SEEDS)


def detectable_effect(n: int, target: float = 0.8, level: float = LEVEL) -> float:
    """The standardised effect that n pairs find with chance `target`."""
    low, high = 0.0, 100.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, n, level) >= target else (middle, high)
    return high


def mean_interval(values: ArrayLike, level: float = LEVEL) -> tuple[float, float, float]:
    """(mean, low, high) of one sample by the t interval; NaN bounds below three values."""
    sample = np.asarray(values, dtype=float)
    zeros = np.zeros_like(sample)
    found = paired(sample, zeros, level)
    return found.delta, found.low, found.high


def wilson(correct: int, total: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of an accuracy (as a share) for the size of the test set alone."""
    interval = scipy.stats.binomtest(correct, total).proportion_ci(1 - level, method="wilson")
    return float(interval.low), float(interval.high)


def time_ratio(a: ArrayLike, b: ArrayLike, level: float = LEVEL) -> Paired:
    """How much longer a takes than b, from paired rounds: exp of the mean log ratio with its log-t interval.

    `delta`, `low` and `high` are ratios (1: equal); p, dz and sd are of the log ratios.
    """
    found = paired(np.log(np.asarray(a, dtype=float)), np.log(np.asarray(b, dtype=float)), level)
    ratio, low, high = (math.exp(value) for value in (found.delta, found.low, found.high))
    return Paired(found.n, ratio, low, high, found.p, found.dz, found.sd)


def correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Pearson's r of the paired seeds: what pairing gains. NaN when either side does not vary."""
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if len(first) < FEWEST_SEEDS or first.std() == 0 or second.std() == 0:
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


def _spread(differences: NDArray[np.float64], resolution: float) -> float:
    """The standard deviation, at least `resolution`; what is only rounding counts as none."""
    sd = float(differences.std(ddof=1))
    return max(resolution, 0.0 if sd <= 1e-12 * max(1.0, float(np.abs(differences).max())) else sd)


def _differences(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"paired samples must be vectors of one length, got {first.shape} and {second.shape}")
    return first - second
