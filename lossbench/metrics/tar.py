"""True accept rate at a fixed false accept rate: the share of same-class pairs that are accepted."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lossbench.metrics import Evaluation
from lossbench.metrics._pairs import LEVEL, Estimate, Ints, labelled, least_reaching, likely_counts, operating_points

UNIT, BETTER, TASKS = "points", "higher", ("verification",)
AT, TITLE = "far", "TAR at FAR {far:g}"
NAMES = {
    "tar@0.1": ("TAR at FAR 10 %", {"far": 0.1}),
    "tar@0.01": ("TAR at FAR 1 %", {"far": 0.01}),
    "tar@0.001": ("TAR at FAR 0.1 %", {"far": 0.001}),
}
STEP = 200.0  # one pair of the half that are of one kind


def measure(test: Evaluation, *, far: float) -> float:
    assert test.scores is not None and test.same is not None
    return 100 * at(test.scores, test.same, far)


def at(scores: ArrayLike, same: ArrayLike, far: float) -> float:
    """The largest share of positives that is accepted with no more than `far` of the negatives."""
    _, false_accepts, true_accepts = operating_points(*labelled(scores, same))
    return _share(true_accepts, _place(false_accepts, far)[0])


@dataclass(frozen=True)
class Rate(Estimate):
    """The TAR at one FAR.

    `allowed` false accepts are ⌊far · N⌋; `threshold` is the lowest score accepted (∞: none is). Not `resolved`: fewer
    than 1 / far negatives, so that the value is the TAR without any false accept, at an unknown FAR.
    """

    far: float
    threshold: float
    allowed: int
    resolved: bool


def with_interval(scores: ArrayLike, same: ArrayLike, far: float, level: float = LEVEL) -> Rate:
    """The largest TAR at which no more than `far` of the negatives are accepted: an operating point, no interpolation.

    The interval allows for both the threshold and the positives being a sample. Let K(j) be the true accepts while j
    false ones are allowed, K(−1) = 0. Above the threshold whose real FAR is `far` lie J ~ Bin(N, far) of the negatives;
    if J = j, then it lies between the j-th and the next highest negative, and between K(j−1) and K(j) of the positives
    are above it. Clopper and Pearson's bounds, averaged over j:

        Σ_j Pr[J = j] Pr[Bin(P, low) ≥ K(j−1)] = level / 2,      Σ_j Pr[J = j] Pr[Bin(P, high) ≤ K(j)] = level / 2.

    `low` is 0 if Pr[J = 0] ≥ level / 2, that is below 3.7 / far negatives at 95 % (LFW's 3000 at 0.001, too): often
    enough none of them reaches the threshold, and nothing then tells how far above them all it lies.
    """
    if not 0 < far < 1:
        raise ValueError(f"far must lie between 0 and 1, got {far}")
    thresholds, false_accepts, true_accepts = operating_points(*labelled(scores, same))
    negatives, positives = int(false_accepts[-1]), int(true_accepts[-1])
    chosen, allowed = _place(false_accepts, far)

    def hits(count: Ints) -> Ints:
        return np.where(count < 0, 0, true_accepts[np.searchsorted(false_accepts, count, side="right") - 1])

    count, weight = likely_counts(negatives, far)
    least, most = hits(count - 1), hits(count)
    low = least_reaching(lambda share: float(weight @ special.bdtrc(least - 1, positives, share)), level / 2)
    high = 1 - least_reaching(lambda rest: float(weight @ (1 - special.bdtrc(most, positives, 1 - rest))), level / 2)
    return Rate(_share(true_accepts, chosen), low, high, far, float(thresholds[chosen]), allowed, allowed > 0)


def _place(false_accepts: Ints, far: float) -> tuple[int, int]:
    """The last operating point that keeps the FAR, and the false accepts that it allows."""
    allowed = int(Fraction(str(float(far))) * int(false_accepts[-1]))  # in decimals: 0.29 of 100 is 29, not 28
    return int(np.searchsorted(false_accepts, allowed, side="right")) - 1, allowed


def _share(true_accepts: Ints, chosen: int) -> float:
    return float(true_accepts[chosen]) / int(true_accepts[-1])
