"""What the size of the test set leaves open, from the stored correctness bits (one an example, in shares, not points).

A seed's error bar holds the test set fixed. Another test set of the same kind would move every seed's accuracy at once,
however many seeds there are; the functions below measure by how much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray

from lossbench.stats.pairs import FEWEST_SEEDS, LEVEL

FEWEST_FOR_BOOTSTRAP = 10  # seeds; fewer have too few distinct resamples to show their own tails


def wilson(correct: int, total: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of an accuracy (as a share) for the size of the test set alone."""
    interval = scipy.stats.binomtest(correct, total).proportion_ci(1 - level, method="wilson")
    return float(interval.low), float(interval.high)


class McNemar(NamedTuple):
    """The examples that only one of two models gets right, and the exact two-sided p of their balance."""

    only_a: int
    only_b: int
    p: float


def mcnemar(a: ArrayLike, b: ArrayLike) -> McNemar:
    """McNemar's exact test of two trained models on one test set, from their correctness bits.

    Under equal accuracy only_a ~ Binomial(only_a + only_b, ½). Valid always, but about these two models: it knows
    nothing of other seeds, and bits of several seeds must not be strung together (one example is not many).
    """
    gaps = _gaps(a, b)
    if len(gaps) > 1:
        raise ValueError(f"McNemar's test compares two models, got {len(gaps)} seeds; see two_way")
    only_a, only_b = int((gaps > 0).sum()), int((gaps < 0).sum())
    p = float(scipy.stats.binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0
    return McNemar(only_a, only_b, p)


def test_set_error(correct: ArrayLike) -> float:
    """Standard error of an accuracy for the choice of test examples: SD over examples of the mean over seeds, /√E.

    `correct` is examples, or seeds × examples; for one seed it is √(acc·(1 − acc)/(E − 1)). More seeds do not bring it
    to zero: all of them sit the same exam. Also takes a difference of two such arrays. NaN below two examples.
    """
    by_example = np.atleast_2d(np.asarray(correct, dtype=np.float64)).mean(axis=0)
    return float(by_example.std(ddof=1)) / math.sqrt(len(by_example)) if len(by_example) > 1 else math.nan


def test_set_noise_dominates(a: ArrayLike, b: ArrayLike, level: float = LEVEL) -> bool:
    """Whether the difference of two losses is no larger than what the choice of test examples alone explains.

        |Δ| ≤ z(1 − level/2) · SE_examples(a − b) + 1/E

    Bits as examples, or seeds × examples. The last term, one example, is Edwards's correction: with it six examples,
    all on one side, are the fewest that count, as in the exact test.
    """
    gaps = _gaps(a, b)
    floor = float(scipy.stats.norm.ppf(1 - level / 2)) * test_set_error(gaps) + 1 / gaps.shape[1]
    return bool(abs(gaps.mean()) <= floor)


@dataclass(frozen=True)
class TwoWay:
    """A difference of accuracies (shares) over other seeds *and* other test examples.

    The three parts are variances of `delta` and add up to `error`²: what seeds shift alike for all examples, what
    examples shift alike for all seeds, and what is particular to a seed on an example.
    """

    seeds: int
    examples: int
    delta: float
    low: float
    high: float
    error: float
    df: float
    seeds_part: float
    examples_part: float
    joint_part: float


def two_way(a: ArrayLike, b: ArrayLike, level: float = LEVEL) -> TwoWay:
    """Δ of two losses with an interval for new seeds and new examples; a, b are bits, seeds × examples, both paired.

        d_se = Δ + α_s + β_e + γ_se,  all random, so  Var(Δ̂) = σ²_α/S + σ²_β/E + σ²_γ/(S·E)

    With the mean squares MS_α, MS_β, MS_γ of the two-way layout the three parts are (MS_α − MS_γ)₊, (MS_β − MS_γ)₊ and
    MS_γ, each over S·E; the interval is Δ̂ ± t(df)·√(their sum) with Satterthwaite's df. Valid from three seeds and some
    tens of examples on (conservative where γ is most of it and seeds are few); NaN below three seeds.
    """
    gaps = _gaps(a, b)
    seeds, examples = gaps.shape
    delta = float(gaps.mean())
    if seeds < FEWEST_SEEDS or examples < 2:
        return TwoWay(seeds, examples, delta, *[math.nan] * 7)
    of_seeds, of_examples, of_both = _mean_squares(gaps)
    joint = of_both / gaps.size
    seeds_part, examples_part = max(of_seeds - of_both, 0) / gaps.size, max(of_examples - of_both, 0) / gaps.size
    variance = seeds_part + examples_part + joint
    if variance == 0:
        return TwoWay(seeds, examples, delta, delta, delta, 0.0, math.inf, 0.0, 0.0, 0.0)
    squares, freedom = (of_seeds, of_examples, of_both), (seeds - 1, examples - 1, (seeds - 1) * (examples - 1))
    df = variance**2 / sum((square / gaps.size) ** 2 / free for square, free in zip(squares, freedom, strict=True))
    half = float(scipy.stats.t.ppf(1 - level / 2, df)) * math.sqrt(variance)
    bounds = delta - half, delta + half
    return TwoWay(seeds, examples, delta, *bounds, math.sqrt(variance), df, seeds_part, examples_part, joint)


def two_way_bootstrap(
    a: ArrayLike, b: ArrayLike, rng: np.random.Generator, level: float = LEVEL, *, resamples: int = 10_000
) -> TwoWay:
    """`two_way` with its bounds from a bootstrap over seeds and over examples, which keeps their skewness.

    Seeds and examples are drawn anew, each with replacement; a draw shifts Δ̂ by the mean of the drawn rows' deviations
    plus that of the drawn columns'. Drawing rows and columns of the table itself would count γ three times (Owen 2007),
    and a loss against itself is almost all γ; so the shifts are scaled to the variance of `two_way`. The percentiles
    are those at which a normal has the t quantile's tails (Hesterberg 2015). Valid from ten seeds on; NaN bounds below.
    """
    found = two_way(a, b, level)
    if found.seeds < FEWEST_FOR_BOOTSTRAP:
        return replace(found, low=math.nan, high=math.nan)
    if found.error == 0:
        return found
    gaps = _gaps(a, b)
    seeds, examples = gaps.shape
    by_seed = gaps.mean(axis=1) - found.delta
    # Columns count by their sum alone, and there are at most 2·S + 1 sums: drawing those is drawing examples.
    sums, counts = np.unique(gaps.sum(axis=0), return_counts=True)
    by_example = sums / seeds - found.delta
    shifts = rng.multinomial(seeds, np.full(seeds, 1 / seeds), resamples) @ by_seed / seeds
    shifts *= math.sqrt(seeds / (seeds - 1))  # what a plug-in variance lacks
    shifts += rng.multinomial(examples, counts / examples, resamples) @ by_example / examples
    of_seeds, of_examples, _ = _mean_squares(gaps)
    shifts *= found.error / math.sqrt((of_seeds + of_examples) / gaps.size)
    tail = float(scipy.stats.norm.sf(scipy.stats.t.ppf(1 - level / 2, found.df)))
    low, high = np.quantile(shifts, [tail, 1 - tail]) + found.delta
    return replace(found, low=float(low), high=float(high))


def _mean_squares(gaps: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean squares of rows, columns and what is left, of the two-way layout with one value a cell."""
    seeds, examples = gaps.shape
    rows, columns, mean = gaps.mean(axis=1), gaps.mean(axis=0), gaps.mean()
    left = gaps - rows[:, None] - columns + mean
    return (
        float(examples * ((rows - mean) ** 2).sum() / (seeds - 1)),
        float(seeds * ((columns - mean) ** 2).sum() / (examples - 1)),
        float((left**2).sum() / ((seeds - 1) * (examples - 1))),
    )


def _gaps(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """a − b as seeds × examples, each −1, 0 or 1."""
    first, second = np.atleast_2d(np.asarray(a)), np.atleast_2d(np.asarray(b))
    if first.shape != second.shape or first.ndim != 2 or first.size == 0:
        raise ValueError(f"correctness must be seeds × examples, alike for both, got {first.shape} and {second.shape}")
    if not (np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all()):
        raise ValueError("correctness is one bit an example: 0 or 1")
    return first.astype(np.float64) - second.astype(np.float64)
