"""Equal error rate: the error rate at the threshold where false accept and false reject rates are equal."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lossbench.metrics import Evaluation
from lossbench.metrics._pairs import (
    LEVEL,
    Estimate,
    Floats,
    Ints,
    labelled,
    least_reaching,
    likely_counts,
    operating_points,
)

UNIT, BETTER, TASKS = "points", "lower", ("verification",)
TITLE = "EER"
STEP = 200.0  # one pair of the half that are of one kind


def measure(test: Evaluation) -> float:
    assert test.scores is not None and test.same is not None
    _, accepts, hits = operating_points(*labelled(test.scores, test.same))
    return 100 * _crossing(accepts, hits)


def with_interval(scores: ArrayLike, same: ArrayLike, level: float = LEVEL) -> Estimate:
    """The error rate e at which FPR = FNR, on the ROC with straight lines between its points.

    At the threshold where both are e, the false accepts and false rejects of a sample are J ~ Bin(N, e) and
    I ~ Bin(P, e), independent; (J, I) lies on the sample's own line of false rejects against false accepts. The
    interval holds every e for which a fresh (J, I) is neither above that line nor below it too surely:

        Pr[(J, I) on or above] ≥ level / 2,      Pr[(J, I) on or below] ≥ level / 2.

    The first rises with e, the second falls. Scores without an error give 0 and, at 95 % and P = N, an upper bound of
    4.4 / N, where a bootstrap gives 0. Scores of three or four values only may be covered less than the level says.
    """
    _, accepts, hits = operating_points(*labelled(scores, same))
    negatives, positives = int(accepts[-1]), int(hits[-1])
    rejects = positives - hits

    def chances(rate: float) -> tuple[float, float]:
        count, weight = likely_counts(negatives, rate)
        least, most = _rejects_at(accepts, rejects, count)
        above, below = special.bdtrc(least - 1, positives, rate), 1 - special.bdtrc(most, positives, rate)
        return float(weight @ above), float(weight @ below)

    low = least_reaching(lambda rate: chances(rate)[0], level / 2)
    high = 1 - least_reaching(lambda rest: chances(1 - rest)[1], level / 2)
    return Estimate(_crossing(accepts, hits), low, high)


def _crossing(accepts: Ints, hits: Ints) -> float:
    """Where the line through the operating points has as large a share of false accepts as of false rejects."""
    negatives, positives = int(accepts[-1]), int(hits[-1])
    excess = accepts / negatives - (positives - hits) / positives  # FPR − FNR, from −1 to 1, rising
    after = int(np.argmax(excess >= 0))
    part = excess[after - 1] / (excess[after - 1] - excess[after])
    return float(accepts[after - 1] + part * (accepts[after] - accepts[after - 1])) / negatives


def _rejects_at(accepts: Ints, rejects: Ints, count: Ints) -> tuple[Floats, Floats]:
    """The least and the most false rejects on the line through the operating points, at `count` false accepts.

    Equal scores of both kinds make the line slant: between two of its points, the whole numbers next to it.
    """
    first = np.searchsorted(accepts, count, side="left")  # the first point with `count` false accepts or more
    last = np.searchsorted(accepts, count, side="right") - 1  # the last with `count` or fewer
    met = first <= last
    gap = np.where(met, 1, accepts[first] - accepts[last])
    least = rejects[last] + (count - accepts[last]) * (rejects[first] - rejects[last]) / gap
    most = np.where(met, rejects[first], least)
    return np.ceil(least - 1e-9), np.floor(most + 1e-9)  # what rounding makes of a whole number is one
