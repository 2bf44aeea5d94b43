"""Power: the seeds that an effect needs, and the effect that n seeds detect."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy.special
from numpy.typing import NDArray

from lossbench.stats.pairs import FEWEST_SEEDS, LEVEL


def power(dz: float, n: int, level: float = LEVEL) -> float:
    """Chance that a two-sided paired t test on n pairs finds a standardised effect dz.

    P(|T| > t(1 − level/2; n − 1)) for T noncentral t with n − 1 degrees and shift d_z·√n. Normal differences; any n.
    """
    if n < 2:
        return 0.0
    df, shift = n - 1, abs(dz) * math.sqrt(n)
    critical = float(scipy.special.stdtrit(df, 1 - level / 2))
    # scipy.special: a report asks thousands of times, and scipy.stats spends most of its time on checks.
    with np.errstate(all="ignore"):
        below, lower = scipy.special.nctdtr(df, shift, critical), scipy.special.nctdtr(df, shift, -critical)
    # For large effects scipy returns NaN for either tail, where next to nothing is below: the power is 1 there.
    return float(1 - np.nan_to_num(below, nan=0.0) + np.nan_to_num(lower, nan=0.0))


def seeds_needed(dz: float, target: float = 0.8, level: float = LEVEL, most: int = 10_000) -> int | None:
    """The fewest seeds at which an effect of this size would be found with chance `target`; None above `most`."""
    if math.isnan(dz) or dz == 0:
        return None
    # Guenther's approximation, mostly right or next to it.
    first, second = scipy.special.ndtri(1 - level / 2), scipy.special.ndtri(target)
    near = math.ceil(min(most, ((first + second) / dz) ** 2 + first**2 / 2))
    return _fewest(lambda n: power(dz, n, level), target, most, near)


def detectable_effect(n: int, target: float = 0.8, level: float = LEVEL) -> float:
    """The standardised effect that n pairs find with chance `target`; infinite below two pairs."""
    if n < 2:
        return math.inf
    low, high = 0.0, 1.0
    while power(high, n, level) < target:
        low, high = high, high * 2
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, n, level) >= target else (middle, high)
    return high


def equivalence_power(margin: float, n: int, level: float = LEVEL) -> float:
    """Chance that TOST on n pairs grants equivalence where nothing differs; `margin` in SDs of the differences.

        E_S[ 2Φ(√n·margin − t(1 − level; n − 1)·S) − 1 ]₊ ,   S² ~ χ²(n − 1)/(n − 1)

    by the midpoint rule on the quantiles of S. Normal differences. For one SD it is 0.13, 0.29, 0.80, 0.99 at n = 3, 5,
    10, 20.
    """
    if n < FEWEST_SEEDS:
        return 0.0
    room = math.sqrt(n) * margin - float(scipy.special.stdtrit(n - 1, 1 - level)) * _spreads(n)
    return float((2 * scipy.special.ndtr(np.maximum(room, 0)) - 1).mean())


@lru_cache(maxsize=4096)
def _spreads(n: int) -> NDArray[np.float64]:
    """The quantiles of S; cached, since searches for the seeds needed halve the same range."""
    points = 4000 if n <= 100 else 500  # S hardly varies where n is large
    quantiles = (np.arange(points) + 0.5) / points
    spreads: NDArray[np.float64] = np.sqrt(2 * scipy.special.gammaincinv((n - 1) / 2, quantiles) / (n - 1))
    return spreads


def seeds_for_equivalence(margin: float, target: float = 0.8, level: float = LEVEL, most: int = 10_000) -> int | None:
    """The fewest seeds at which TOST grants equivalence with chance `target` if nothing differs; None above `most`."""
    if not margin > 0:
        return None
    return _fewest(lambda n: equivalence_power(margin, n, level), target, most)


def _fewest(chance: Callable[[int], float], target: float, most: int, near: int | None = None) -> int | None:
    """The smallest n whose chance, which grows with n, reaches the target; the search begins `near` it, if told to.

    Steps away from there double until n lies between two of them: few chances are computed where it is right.
    """
    low, high = 0, most + 1
    if near is not None:
        step, reached = 1, chance(near) >= target
        low, high = (low, near) if reached else (near + 1, high)
        while low < high and (other := near - step if reached else near + step) in range(low, high):
            if (chance(other) >= target) == reached:
                low, high = (low, other) if reached else (other + 1, high)
                step *= 2
            else:
                low, high = (other + 1, high) if reached else (low, other)
                break
    found = bisect.bisect_left(range(most + 1), target, low, high, key=chance)
    return max(found, FEWEST_SEEDS) if found <= most else None
