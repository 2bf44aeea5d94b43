"""Pairs and thresholds, shared by the metrics of verification.

A pair is accepted as *same* if its score is at least a threshold. P pairs of the same class ("positives") and N of
different classes ("negatives") give, at threshold t,

    TPR(t) = TAR(t) = #{positives ≥ t} / P,      FPR(t) = FAR(t) = #{negatives ≥ t} / N,      FNR = 1 − TPR.

No threshold separates pairs of equal score: they are accepted together or not at all.

Intervals are over the pairs alone, taken as independent draws of positives and of negatives; they do not include the
variation over training seeds. None is a bootstrap, which never exceeds the highest observed negative and gives zero
width at 100 %: where few errors are left, its 95 % intervals cover far less. Tests measure both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

LEVEL = 0.05

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """A score with its (1 − level) interval."""

    value: float
    low: float
    high: float


def labelled(scores: ArrayLike, same: ArrayLike) -> tuple[Floats, Bools]:
    """Scores and labels (P,) that every metric of pairs can work with."""
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(same)
    if values.ndim != 1 or labels.shape != values.shape:
        raise ValueError(f"scores and labels must be vectors of one length, got {values.shape} and {labels.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"scores must be finite, {int((~np.isfinite(values)).sum())} of {len(values)} are not")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("labels must be true (same) or false (different)")
    labels = labels.astype(bool)
    if labels.all() or not labels.any():
        raise ValueError("labels must hold pairs of both kinds, same and different")
    return values, labels


def operating_points(values: Floats, labels: Bools) -> tuple[Floats, Ints, Ints]:
    """Thresholds ∞ and the distinct scores, falling; false and true accepts at each (score ≥ t). All K + 1 long."""
    order = np.argsort(-values)
    falling = values[order]
    last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))  # of each group of equal scores
    accepted = np.append(0, last + 1)
    true_accepts = np.append(0, np.cumsum(labels[order], dtype=np.int64)[last])
    return np.append(np.inf, falling[last]), accepted - true_accepts, true_accepts


def likely_counts(total: int, share: float) -> tuple[Ints, Floats]:
    """The values of Bin(total, share) that matter, with their probabilities; by Bernstein, 1e-7 at most is left out."""
    mean, reach = total * share, 7 * math.sqrt(total * share * (1 - share)) + 10
    count = np.arange(max(0, math.floor(mean - reach)), min(total, math.ceil(mean + reach)) + 1)
    more = special.bdtrc(np.append(count[0] - 1, count), total, share)  # Pr[Bin > j]; in all intervals
    return count, more[:-1] - more[1:]


def least_reaching(rising: Callable[[float], float], target: float) -> float:
    """The least x in [0, 1] at which a rising function reaches its target, by halving."""
    if rising(0.0) >= target:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(32):  # to 2e-10
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) >= target else (middle, high)
    return high
