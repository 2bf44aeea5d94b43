"""Area under the ROC: how often a same-class pair scores higher than a pair of different classes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lossbench.metrics import Evaluation
from lossbench.metrics._pairs import LEVEL, Bools, Estimate, Floats, labelled

UNIT, BETTER, TASKS = "points", "higher", ("verification",)
TITLE = "AUC"


def measure(test: Evaluation) -> float:
    assert test.scores is not None and test.same is not None
    below, above = _ranks(*labelled(test.scores, test.same))
    return 100 * _area(below, above)


def with_interval(scores: ArrayLike, same: ArrayLike, level: float = LEVEL) -> Estimate:
    """The area under the ROC: how often a positive scores higher than a negative, ties counting half (Mann–Whitney).

    By midranks r among all pairs and r⁺, r⁻ among their own kind, a positive's share of negatives below it is
    V⁺ = (r − r⁺) / N, a negative's of positives above it V⁻ = 1 − (r − r⁻) / P; A = mean V⁺ = mean V⁻, and DeLong's
    variance is var V⁺ / P + var V⁻ / N. The interval is logit A ± z · sd / (A (1 − A)), so it stays within (0, 1).

    Where there is no such variance (A is 0 or 1, all scores equal, one pair of a kind) it is Clopper and Pearson's for
    A as a share of n = min(P, N): as many comparisons that have no pair in common are the least the scores hold. With
    A = 1 that is ((level / 2)^(1/n), 1).
    """
    below, above = _ranks(*labelled(scores, same))
    positives, negatives = len(below), len(above)
    area = _area(below, above)
    fewest = min(positives, negatives)
    variance = 0.0
    if fewest > 1:
        variance += float(below.var(ddof=1)) / (negatives**2 * positives)
        variance += float(above.var(ddof=1)) / (positives**2 * negatives)
    if variance == 0:
        won = area * fewest
        low = float(special.betaincinv(won, fewest - won + 1, level / 2)) if won > 0 else 0.0
        high = float(special.betaincinv(won + 1, fewest - won, 1 - level / 2)) if won < fewest else 1.0
        return Estimate(area, low, high)
    half = float(special.ndtri(1 - level / 2)) * math.sqrt(variance) / (area * (1 - area))
    middle = math.log(area / (1 - area))
    return Estimate(area, float(special.expit(middle - half)), float(special.expit(middle + half)))


def _ranks(values: Floats, labels: Bools) -> tuple[Floats, Floats]:
    """Negatives below each positive and positives below each negative; ties count half.

    Twice the differences of ranks are whole numbers, so equal ones have a variance of exactly 0.
    """
    ranks = _midranks(values)
    return ranks[labels] - _midranks(values[labels]), ranks[~labels] - _midranks(values[~labels])


def _midranks(values: Floats) -> Floats:
    """As scipy.stats.rankdata, whose import would take most of a small cell's time."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


def _area(below: Floats, above: Floats) -> float:
    return float(below.sum()) / (len(below) * len(above))
