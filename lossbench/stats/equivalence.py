"""Is a difference too small to matter? By two tests, and by a posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass

import scipy.special
from numpy.typing import ArrayLike

from lossbench.stats.pairs import FEWEST_SEEDS, differences, spread


def tost(a: ArrayLike, b: ArrayLike, margin: float, *, resolution: float = 0.0) -> float:
    """p of "the difference is at least `margin` in size": small means equivalent (two one-sided paired t tests).

        p = P(T ≥ (margin − |Δ|)/(SD/√n)),  T ~ t(n − 1)

    p < level exactly when the (1 − 2·level) t interval lies inside ±margin. Valid from three pairs on, but weak there:
    `equivalence_power` says how weak.
    """
    sample = differences(a, b)
    n = len(sample)
    if n < FEWEST_SEEDS:
        return math.nan
    distance = margin - abs(float(sample.mean()))  # to the nearer end of the band
    sd = spread(sample, resolution)
    return float(scipy.special.stdtr(n - 1, -distance / (sd / math.sqrt(n)))) if sd else float(distance <= 0)


def beyond(a: ArrayLike, b: ArrayLike, margin: float, *, resolution: float = 0.0) -> float:
    """p of "the difference is at most `margin` in size": small means that it matters beyond doubt.

        p = 2·P(T ≥ (|Δ| − margin)/(SD/√n)),  T ~ t(n − 1)

    p < level exactly when the (1 − level) t interval lies outside ±margin; at margin 0 it is the p of `paired`. The
    counterpart of `tost`: both small cannot be. NaN below three pairs.
    """
    sample = differences(a, b)
    n = len(sample)
    if n < FEWEST_SEEDS:
        return math.nan
    distance = abs(float(sample.mean())) - margin
    sd = spread(sample, resolution)
    if sd == 0:
        return float(distance <= 0)
    return min(1.0, 2 * float(scipy.special.stdtr(n - 1, -distance / (sd / math.sqrt(n)))))


def noninferior(a: ArrayLike, b: ArrayLike, margin: float, *, resolution: float = 0.0) -> float:
    """p of "a is below b by `margin` or more": small means that a is as good as b but for the margin, or better.

        p = P(T ≥ (Δ + margin)/(SD/√n)),  T ~ t(n − 1)

    One-sided: p < level exactly when the (1 − 2·level) t interval lies above −margin, p > 1 − level/2 when the
    (1 − level) interval lies below it. NaN below three pairs.
    """
    sample = differences(a, b)
    n = len(sample)
    if n < FEWEST_SEEDS:
        return math.nan
    distance = float(sample.mean()) + margin
    sd = spread(sample, resolution)
    return float(scipy.special.stdtr(n - 1, -distance / (sd / math.sqrt(n)))) if sd else float(distance <= 0)


@dataclass(frozen=True)
class Rope:
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
    n = len(sample)
    if n < FEWEST_SEEDS:
        return Rope(*[math.nan] * 3)
    delta, sd = float(sample.mean()), spread(sample, resolution)
    if sd == 0:
        return Rope(float(delta > margin), float(abs(delta) <= margin), float(delta < -margin))
    error = sd / math.sqrt(n)
    better = float(scipy.special.stdtr(n - 1, (delta - margin) / error))
    worse = float(scipy.special.stdtr(n - 1, (-margin - delta) / error))
    return Rope(better, max(0.0, 1 - better - worse), worse)
