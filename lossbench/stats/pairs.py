"""One loss against another, paired by seed: element i of `a` and of `b` come from the same seed. Differences are a − b.

A comparison has one interval and one verdict, and the verdict is read off the interval. The interval covers new seeds
*and* new test examples:

    Δ ± √( (t(1 − level/2; n − 1) · SD/√n)² + (z(1 − level/2) · noise)² )

`noise` is the standard error that the choice of test examples adds (`testset.example_error`); 0 where it is unknown.
With level = 0.05/m for a family of m comparisons (Bonferroni), all verdicts of the family are right with a chance of
0.95 or more.

`resolution` is the smallest step of what is measured (one test image, for an accuracy). The spread counts as at least
that much, since a few seeds can differ by the same step by chance. Without it, differences that are all equal count as
certain (bytes, which no seed changes).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.05
FEWEST_SEEDS = 3  # with fewer, a t interval is too wide to be useful

NOTHING: Mapping[int, float] = {}

Verdict = Literal["better", "worse", "equivalent", "undecided"]


@dataclass(frozen=True)
class Paired:
    """A paired difference: mean, interval, two-sided p, standardised effect; NaN where n is too small for one."""

    n: int
    delta: float
    low: float
    high: float
    p: float
    dz: float
    sd: float


def paired(a: ArrayLike, b: ArrayLike, level: float = LEVEL, *, resolution: float = 0.0, noise: float = 0.0) -> Paired:
    """Mean of a − b (n pairs) with its (1 − level) interval and p; d_z = Δ/SD.

    Valid from three pairs on: coverage is exact for normal differences and near 0.9 for very skewed ones. p is the
    level at which the interval would end at zero. Without any spread or noise it is 1 where the differences are zero,
    and 0 where they are not.
    """
    sample = differences(a, b)
    n = len(sample)
    if n == 0:
        return Paired(0, *[math.nan] * 6)
    delta = float(sample.mean())
    if n < FEWEST_SEEDS:
        return Paired(n, delta, *[math.nan] * 5)
    sd = spread(sample, resolution)
    if sd == 0 and noise == 0:
        return Paired(n, delta, delta, delta, float(delta == 0), math.copysign(math.inf, delta) if delta else 0.0, 0.0)
    half = float(half_width(sd, n, level, noise))
    dz = delta / sd if sd else math.copysign(math.inf, delta) if delta else 0.0
    return Paired(n, delta, delta - half, delta + half, p_value(delta, sd, n, noise), dz, sd)


def half_width(sd: ArrayLike, n: int, level: float, noise: float = 0.0) -> NDArray[np.float64]:
    """Half of the (1 − level) interval of a mean of n differences with this SD; elementwise over `sd`."""
    # scipy.special: a report has thousands of pairs, and scipy.stats spends most of its time on checks.
    # Lower quantiles: 1 − level/2 rounds to 1 below a level of 1e-16.
    seeds = scipy.special.stdtrit(n - 1, level / 2) * np.asarray(sd, dtype=np.float64) / math.sqrt(n)
    half: NDArray[np.float64] = np.hypot(seeds, scipy.special.ndtri(level / 2) * noise)
    return half


def p_value(delta: float, sd: float, n: int, noise: float = 0.0) -> float:
    """The level at which the interval of `half_width` ends at zero."""
    if noise == 0:
        return float(2 * scipy.special.stdtr(n - 1, -abs(delta) / (sd / math.sqrt(n))))

    def room(log_p: float) -> float:
        return float(half_width(sd, n, math.exp(log_p), noise)) - abs(delta)

    least = math.log(1e-100)  # the interval widens as p falls; scipy has no quantiles much below this
    return math.exp(scipy.optimize.brentq(room, least, 0.0, xtol=1e-10) if room(least) > 0 else least)


def verdict(low: float, high: float, margin: float = 0.0, sign: int = 1) -> Verdict:
    """The verdict that an interval allows. `sign` is −1 if smaller values are better.

    equivalent: the interval lies inside ±margin, or nothing differs at all; better, worse: it excludes zero;
    undecided: neither.
    """
    if -margin < low <= high < margin or low == high == 0:
        return "equivalent"
    if low > 0 or high < 0:
        return "better" if (low > 0) == (sign > 0) else "worse"
    return "undecided"  # NaN compares false


def one_seed_decides(
    sample: ArrayLike,
    deviation: float,
    read: Callable[[float, float], object],
    level: float = LEVEL,
    *,
    resolution: float = 0.0,
    noise: float = 0.0,
) -> bool:
    """Whether what is read off the interval, `read(low, high)`, changes with one seed less, or one seed more.

    `sample` are the paired differences. Each of them is left out once. Then one is added at the median plus and minus
    `deviation`, how far off a seed was seen to be at this point (`largest_deviation`): a loss whose
    rare bad seeds did not occur among its own n may have them as the losses beside it do. Always true for three seeds,
    of which two would be left; never without spread, where no seed changes anything.
    """
    gaps = np.asarray(sample, dtype=np.float64)
    n, sd = len(gaps), spread(gaps, resolution) if len(gaps) >= FEWEST_SEEDS else 0.0
    if sd == 0:
        return False
    if n == FEWEST_SEEDS:
        return True
    mean = float(gaps.mean())
    half = float(half_width(sd, n, level, noise))
    found = read(mean - half, mean + half)
    off = gaps - mean
    new = np.median(gaps) + deviation * np.array([-1, 1]) - mean
    squares = float((off**2).sum())  # and as each change leaves them
    fewer = mean - off / (n - 1), squares - off**2 * n / (n - 1), n - 1
    more = mean + new / (n + 1), squares + new**2 * n / (n + 1), n + 1
    for centre, total, count in (fewer, more):
        spreads = np.maximum(np.sqrt(np.maximum(total, 0) / (count - 1)), resolution)
        halves = half_width(spreads, count, level, noise)
        if any(read(low, high) != found for low, high in zip(centre - halves, centre + halves, strict=True)):
            return True
    return False


def largest_deviation(samples: Sequence[Mapping[int, float]], reference: Mapping[int, float] = NOTHING) -> float:
    """How far off a seed was seen to be: the largest deviation of a value from the median of its sample, by seed.

    It is that of the values or that of their differences from the `reference`, whichever is less: what all losses have
    in common at a seed is in no difference, and the noise of the reference is in every difference.
    """
    apart = [
        {seed: value - reference[seed] for seed, value in sample.items()}
        if sample.keys() <= reference.keys()
        else sample
        for sample in samples
    ]
    return min(_deviation(samples), _deviation(apart))


def _deviation(samples: Iterable[Mapping[int, float]]) -> float:
    middles = [(statistics.median(sample.values()), sample) for sample in samples if sample]
    return max((abs(value - middle) for middle, sample in middles for value in sample.values()), default=0.0)


def mean_interval(values: ArrayLike, level: float = LEVEL) -> tuple[float, float, float]:
    """(mean, low, high) of one sample by the t interval; NaN bounds below three values."""
    found = paired(values, np.zeros_like(values, dtype=float), level)
    return found.delta, found.low, found.high


def mean_intervals(samples: Sequence[Sequence[float]]) -> tuple[NDArray[np.float64], ...]:
    """(means, lows, highs) of many samples, as `mean_interval` gives those of one; samples of one length at a time."""
    found = np.full((3, len(samples)), math.nan)
    by_length: dict[int, list[int]] = {}
    for place, sample in enumerate(samples):
        by_length.setdefault(len(sample), []).append(place)
    for n, places in by_length.items():
        table = np.array([samples[place] for place in places], dtype=np.float64)  # samples × n
        found[0, places] = means = table.mean(axis=1)
        if n >= FEWEST_SEEDS:
            halves = half_width(spreads(table, 0.0), n, LEVEL)
            found[1:, places] = means - halves, means + halves
    return tuple(found)


def log_times(times: ArrayLike, process: ArrayLike) -> NDArray[np.float64]:
    """The mean logarithm of the times of each process, by its number; `process` is that of each round.

    The ratio of two losses is exp of the mean difference of these, and its interval is that of `paired` over processes:
    rounds of one process share a memory layout and depend on each other, processes do not. Rounds must visit all losses
    in turn, so that drift of the machine affects both sides and cancels.
    """
    seconds, numbers = np.asarray(times, dtype=np.float64), np.asarray(process)
    if seconds.shape != numbers.shape or seconds.ndim != 1:
        raise ValueError(f"every time needs a process, got {seconds.shape} and {numbers.shape}")
    if (seconds <= 0).any():
        raise ValueError("times must be above zero")
    return np.array([np.log(seconds[numbers == number]).mean() for number in np.unique(numbers)])


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
    first, second = first - first.mean(), second - second.mean()
    # Not np.corrcoef: the last bits of its matrix product depend on the CPU.
    found = (first * second).sum() / math.sqrt((first**2).sum()) / math.sqrt((second**2).sum())
    return min(1.0, max(-1.0, float(found)))


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


def spreads(table: NDArray[np.float64], resolution: float) -> NDArray[np.float64]:
    """`spread` of every row of a table."""
    sd = table.std(axis=1, ddof=1)
    rounding = sd <= 1e-12 * np.maximum(1.0, np.abs(table).max(axis=1))
    return np.maximum(resolution, np.where(rounding, 0.0, sd))
