"""One loss against another, paired by seed: element i of `a` and of `b` come from the same seed. Differences are a − b.

`resolution` is the smallest step of what is measured (one test image, for an accuracy). The spread counts as at least
that much, since a few seeds can differ by the same step by chance. Without it, differences that are all equal count as
certain (bytes, which no seed changes).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.05
FEWEST_SEEDS = 3  # with fewer, a t interval is too wide to be useful

Verdict = Literal["different", "equivalent", "different but negligible", "undecided"]
ClaimVerdict = Literal["supported", "contradicted", "undecided"]


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

    Valid from three pairs on: coverage is exact for normal differences and near 0.9 for very skewed ones. Without any
    spread p is 1 where the differences are zero and 0 where they are not.
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
    # scipy.special: a report has thousands of pairs, and scipy.stats spends most of its time on checks.
    half = float(scipy.special.stdtrit(n - 1, 1 - level / 2)) * error
    p = float(2 * scipy.special.stdtr(n - 1, -abs(delta) / error))
    return Paired(n, delta, delta - half, delta + half, p, delta / sd, sd)


def mean_interval(values: ArrayLike, level: float = LEVEL) -> tuple[float, float, float]:
    """(mean, low, high) of one sample by the t interval; NaN bounds below three values."""
    found = paired(values, np.zeros_like(values, dtype=float), level)
    return found.delta, found.low, found.high


def time_ratio(a: ArrayLike, b: ArrayLike, process: ArrayLike, level: float = LEVEL) -> Paired:
    """How much longer a takes than b, from paired rounds: exp of the mean log ratio with its log-t interval.

        r_p = mean of log(a/b) over the rounds of process p        exp(r̄ ± t(1 − level/2; P − 1) · SD(r)/√P)

    `process` is that of each round. Processes are independent of each other; rounds of one process need not be, as they
    share a memory layout. `n` is P; `delta`, `low` and `high` are ratios (1: equal); p, dz and sd are those of r.
    Rounds must be interleaved: drift of the machine then affects both sides and cancels.
    """
    found = paired(log_times(a, process), log_times(b, process), level)
    ratio, low, high = (math.exp(value) for value in (found.delta, found.low, found.high))
    return Paired(found.n, ratio, low, high, found.p, found.dz, found.sd)


def log_times(times: ArrayLike, process: ArrayLike) -> NDArray[np.float64]:
    """The mean logarithm of the times of each process, by its number."""
    seconds, numbers = np.asarray(times, dtype=np.float64), np.asarray(process)
    if seconds.shape != numbers.shape or seconds.ndim != 1:
        raise ValueError(f"every time needs a process, got {seconds.shape} and {numbers.shape}")
    if (seconds <= 0).any():
        raise ValueError("times must be above zero")
    return np.array([np.log(seconds[numbers == number]).mean() for number in np.unique(numbers)])


def tost(a: ArrayLike, b: ArrayLike, margin: float, *, resolution: float = 0.0) -> float:
    """p of "the difference is at least `margin` in size": small means equivalent (two one-sided paired t tests).

        p = P(T ≥ (margin − |Δ|)/(SD/√n)),  T ~ t(n − 1)

    p < level exactly when the (1 − 2·level) t interval lies inside ±margin. Valid from three pairs on, but weak there:
    `equivalence_power` says how weak.
    """
    sample = differences(a, b)
    return _tail(sample, margin - abs(_mean(sample)), resolution)


def beyond(a: ArrayLike, b: ArrayLike, margin: float, *, resolution: float = 0.0) -> float:
    """p of "the difference is at most `margin` in size": small means that it is larger than the margin.

        p = 2·P(T ≥ (|Δ| − margin)/(SD/√n)),  T ~ t(n − 1)

    p < level exactly when the (1 − level) t interval lies outside ±margin; at margin 0 it is the p of `paired`. The
    counterpart of `tost`: at most one of the two is small.
    """
    sample = differences(a, b)
    return min(2 * _tail(sample, abs(_mean(sample)) - margin, resolution), 1.0)  # in this order NaN stays NaN


def noninferior(a: ArrayLike, b: ArrayLike, margin: float, *, resolution: float = 0.0) -> float:
    """p of "a is below b by `margin` or more": small means that a is at most `margin` worse than b.

        p = P(T ≥ (Δ + margin)/(SD/√n)),  T ~ t(n − 1)

    One-sided: p < level exactly when the (1 − 2·level) t interval lies above −margin, p > 1 − level/2 when the
    (1 − level) interval lies below it.
    """
    sample = differences(a, b)
    return _tail(sample, _mean(sample) + margin, resolution)


class Rope(NamedTuple):
    """Posterior chances that a − b is above the band of ±margin, inside, or below; they add up to one."""

    better: float
    equivalent: float
    worse: float


def rope(a: ArrayLike, b: ArrayLike, margin: float, *, resolution: float = 0.0) -> Rope:
    """Region of practical equivalence: the shares of the posterior of the mean difference outside and inside ±margin.

        Δ | data ~ Δ̄ + SD/√n · t(n − 1)

    which is the posterior for normal differences and a flat prior on (Δ, log σ). The chances are about the mean over
    seeds, not about the next seed (see `wins`). NaN below three pairs.
    """
    sample = differences(a, b)
    delta = _mean(sample)
    if len(sample) >= FEWEST_SEEDS and spread(sample, resolution) == 0:
        return Rope(float(delta > margin), float(abs(delta) <= margin), float(delta < -margin))
    better, worse = (_tail(sample, margin - way * delta, resolution) for way in (1, -1))
    return Rope(better, max(1 - better - worse, 0.0), worse)


class Wins(NamedTuple):
    """In how many pairs a is above b, and in how many the two are equal."""

    wins: int
    ties: int


def wins(a: ArrayLike, b: ArrayLike) -> Wins:
    sample = rounded_differences(a, b)
    return Wins(int((sample > 0).sum()), int((sample == 0).sum()))


def correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Pearson's r of the paired seeds: what pairing gains. NaN when either side does not vary."""
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if len(first) < FEWEST_SEEDS or first.std() == 0 or second.std() == 0:
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


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


def verdict(p_adjusted: float, tost_p: float, level: float = LEVEL) -> Verdict:
    """The verdict on a pair: whether the difference is significant, and whether it is within the margin."""
    different, equivalent = p_adjusted < level, tost_p < level  # NaN compares false: undecided
    if different:
        return "different but negligible" if equivalent else "different"
    return "equivalent" if equivalent else "undecided"


def claim_verdict(p_adjusted: float, right_way: bool, level: float = LEVEL) -> ClaimVerdict:
    """The verdict on a claim, from its two-sided p and whether the data point the way the claim says."""
    if not p_adjusted < level:  # NaN compares false: undecided
        return "undecided"
    return "supported" if right_way else "contradicted"


def differences(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """a − b of two vectors of one length."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"paired samples must be vectors of one length, got {first.shape} and {second.shape}")
    return first - second


def rounded_differences(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """a − b to twelve digits of the larger side, for counting ties: 0.3 − 0.2 and 0.2 − 0.1 are one difference."""
    sample = differences(a, b)
    if not np.isfinite(sample).all():
        raise ValueError("ranks and signs need finite numbers; leave out what was not measured, in pairs")
    scale = float(max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0)))
    return np.round(sample / scale, 12) * scale if scale else sample


def spread(sample: NDArray[np.float64], resolution: float) -> float:
    """The standard deviation, at least `resolution`; rounding errors count as zero."""
    sd = float(sample.std(ddof=1))
    return max(resolution, 0.0 if sd <= 1e-12 * max(1.0, float(np.abs(sample).max())) else sd)


def _mean(sample: NDArray[np.float64]) -> float:
    return float(sample.mean()) if len(sample) else math.nan


def _tail(sample: NDArray[np.float64], distance: float, resolution: float) -> float:
    """P(T ≥ distance/(SD/√n)) for T ~ t(n − 1); NaN below three pairs, 0 or 1 without any spread."""
    n = len(sample)
    if n < FEWEST_SEEDS:
        return math.nan
    sd = spread(sample, resolution)
    return float(scipy.special.stdtr(n - 1, -distance / (sd / math.sqrt(n)))) if sd else float(distance <= 0)
