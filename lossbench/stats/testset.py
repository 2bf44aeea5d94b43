"""Uncertainty due to the choice of test examples, from one value per example, such as the stored correctness bits.

An error bar over seeds holds the test set fixed. Another test set of the same kind would move the accuracy of every
seed at once, so more seeds do not reduce this error.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray

from lossbench.stats.pairs import FEWEST_SEEDS, LEVEL


def test_set_noise_dominates(a: ArrayLike, b: ArrayLike, level: float = LEVEL) -> bool:
    """Whether the difference of two losses is no larger than what the choice of test examples alone explains.

        |Δ| ≤ z(1 − level/2) · SE + 1/E,    SE = SD over examples of the mean difference over seeds, /√E

    Values per example, or seeds × examples. The last term, for bits only, is one example, Edwards's correction: with it
    six examples, all on one side, are the fewest that count, as in McNemar's exact test.
    """
    gaps = _gaps(a, b)
    by_example = gaps.mean(axis=0)
    examples = len(by_example)
    error = float(by_example.std(ddof=1)) / math.sqrt(examples) if examples > 1 else math.nan
    one = 1 / examples if _bits(a) and _bits(b) else 0.0
    return bool(abs(gaps.mean()) <= float(scipy.stats.norm.ppf(1 - level / 2)) * error + one)


class TwoWay(NamedTuple):
    """A difference of accuracies with its interval over other seeds *and* other test examples."""

    delta: float
    low: float
    high: float


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
        return TwoWay(delta, math.nan, math.nan)
    rows, columns = gaps.mean(axis=1) - delta, gaps.mean(axis=0) - delta
    rest = gaps - delta - rows[:, None] - columns
    freedom = (seeds - 1, examples - 1, (seeds - 1) * (examples - 1))
    squares = examples * (rows**2).sum(), seeds * (columns**2).sum(), (rest**2).sum()
    of_seeds, of_examples, of_both = (float(sum_) / free for sum_, free in zip(squares, freedom, strict=True))
    variance = (max(of_seeds - of_both, 0) + max(of_examples - of_both, 0) + of_both) / gaps.size
    if variance == 0:
        return TwoWay(delta, delta, delta)
    mean_squares = zip((of_seeds, of_examples, of_both), freedom, strict=True)
    df = variance**2 / sum((square / gaps.size) ** 2 / free for square, free in mean_squares)
    half = float(scipy.stats.t.ppf(1 - level / 2, df)) * math.sqrt(variance)
    return TwoWay(delta, delta - half, delta + half)


def _gaps(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """a − b as seeds × examples."""
    first, second = np.atleast_2d(np.asarray(a)), np.atleast_2d(np.asarray(b))
    if first.shape != second.shape or first.ndim != 2 or first.size == 0:
        raise ValueError(f"expected seeds × examples of one shape for both, got {first.shape} and {second.shape}")
    if not all(_bits(side) or (side.dtype.kind == "f" and np.isfinite(side).all()) for side in (first, second)):
        raise ValueError("expected one bit (0 or 1) or one finite number per example")
    return first.astype(np.float64) - second.astype(np.float64)


def _bits(values: ArrayLike) -> bool:
    return bool(np.isin(values, (0, 1)).all())
