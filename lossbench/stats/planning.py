"""Power: the seeds that a decision needs, and the effect that n seeds detect."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy.special
from numpy.typing import NDArray

from lossbench.stats.pairs import FEWEST_SEEDS, LEVEL

FEWEST_FOR_PLANNING = 5  # seeds of the pilot
MOST_SEEDS = 10_000
POWER = 0.8
CAUTION = 0.6  # the confidence of the bounds behind the upper end of a range


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
    known = [0.0 if math.isnan(chance) else float(chance) for chance in (below, lower)]
    return 1 - known[0] + known[1]


class SeedsNeeded(NamedTuple):
    """How many seeds would decide an undecided comparison; `high` is None above `MOST_SEEDS`."""

    low: int
    high: int | None


def seeds_needed(
    delta: float,
    sd: float,
    n: int,
    level: float = LEVEL,
    margin: float = 0.0,
    *,
    beyond: float = 0.0,
    noise: float = 0.0,
) -> SeedsNeeded | None:
    """The seeds at which a comparison is decided with 80 % power, as a range, from n seeds that left it undecided.

    It is decided by an interval outside ±`beyond` (0: that excludes zero), or that lies inside ±margin, whichever needs
    fewer seeds. `low` takes the estimates as the truth. `high` allows for their uncertainty: it takes the ends of
    one-sided intervals of |Δ| and SD that make the decision harder. None below five seeds (SD is hardly known), without
    spread, and where even `low` is above `MOST_SEEDS`, as it is where the noise of the test examples alone leaves it
    undecided.
    """
    if n < FEWEST_FOR_PLANNING or not sd > 0:
        return None
    floor = float(scipy.special.ndtri(1 - level / 2)) * noise
    rooms = abs(delta) - beyond, margin - abs(delta)
    low = _decided(rooms, 0.0, sd, level, floor)
    if low is None:
        return None
    off = float(scipy.special.stdtrit(n - 1, CAUTION)) * sd / math.sqrt(n)
    wide = sd * math.sqrt((n - 1) / (2 * float(scipy.special.gammaincinv((n - 1) / 2, 1 - CAUTION))))
    high = _decided(rooms, off, wide, level, floor)
    low = max(low, n + 1)
    return SeedsNeeded(low, None if high is None else max(high, low))


def _decided(rooms: tuple[float, float], off: float, sd: float, level: float, floor: float) -> int | None:
    """The seeds for the easier of both decisions, outside and inside, if Δ is `off` nearer to the bound than `rooms`.

    `floor` is left with any seeds.
    """
    scaled = [math.sqrt(max(max(room - off, 0.0) ** 2 - floor**2, 0.0)) / sd for room in rooms]
    ways = [fewest(room, level) for fewest, room in zip((_fewest_for, _fewest_for_equivalence), scaled, strict=True)]
    return min((way for way in ways if way is not None), default=None)


def _fewest_for(dz: float, level: float) -> int | None:
    """The fewest seeds that find an effect of this size."""
    if not dz > 0:
        return None
    # Guenther's approximation, mostly right or next to it.
    first, second = scipy.special.ndtri(1 - level / 2), scipy.special.ndtri(POWER)
    near = math.ceil(min(MOST_SEEDS, ((first + second) / dz) ** 2 + first**2 / 2))
    return _fewest(lambda n: power(dz, n, level), near)


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
    """Chance that the (1 − level) interval of n pairs lies inside ±margin if nothing differs; `margin` in SDs.

        E_S[ 2Φ(√n·margin − t(1 − level/2; n − 1)·S) − 1 ]₊ ,   S² ~ χ²(n − 1)/(n − 1)

    by the midpoint rule on the quantiles of S. Normal differences.
    """
    if n < FEWEST_SEEDS:
        return 0.0
    room = math.sqrt(n) * margin - float(scipy.special.stdtrit(n - 1, 1 - level / 2)) * _spreads(n)
    return float((2 * scipy.special.ndtr(np.maximum(room, 0)) - 1).mean())


@lru_cache(maxsize=4096)
def _spreads(n: int) -> NDArray[np.float64]:
    """The quantiles of S; cached, since searches for the seeds needed halve the same range."""
    points = 4000 if n <= 100 else 500  # S hardly varies where n is large
    quantiles = (np.arange(points) + 0.5) / points
    spreads: NDArray[np.float64] = np.sqrt(2 * scipy.special.gammaincinv((n - 1) / 2, quantiles) / (n - 1))
    return spreads


def _fewest_for_equivalence(margin: float, level: float) -> int | None:
    """The fewest seeds that find equivalence if nothing differs; `margin` in SDs."""
    if not margin > 0:
        return None
    quantiles = scipy.special.ndtri(1 - level / 2) + scipy.special.ndtri((1 + POWER) / 2)  # as if SD were known
    near = math.ceil(min(MOST_SEEDS, (quantiles / margin) ** 2 + 3))
    return _fewest(lambda n: equivalence_power(margin, n, level), near)


def _fewest(chance: Callable[[int], float], near: int) -> int | None:
    """The smallest n whose chance, which grows with n, reaches `POWER`; the search begins `near` it.

    Steps away from there double until n lies between two of them: few chances are computed where it is right.
    """
    low, high = 0, MOST_SEEDS + 1
    step, reached = 1, chance(near) >= POWER
    low, high = (low, near) if reached else (near + 1, high)
    while low < high and (other := near - step if reached else near + step) in range(low, high):
        if (chance(other) >= POWER) == reached:
            low, high = (low, other) if reached else (other + 1, high)
            step *= 2
        else:
            low, high = (other + 1, high) if reached else (low, other)
            break
    found = bisect.bisect_left(range(MOST_SEEDS + 1), POWER, low, high, key=chance)
    return max(found, FEWEST_SEEDS) if found <= MOST_SEEDS else None
