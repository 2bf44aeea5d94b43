"""Whether networks have learned enough for a verdict to mean something: at chance, undertrained.

`at chance`: the accuracy of a loss is hardly above that of guessing. Its network says nothing about the loss, so
comparisons and claims that use it are not testable.

`undertrained`: the baseline's training loss was still falling clearly when training ended. A difference found there may
vanish, or turn round, with more steps; reports say so beside every verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lossbench import stats
from lossbench.core.point import Point

ABOVE = 10.0  # points above chance at most: twice chance for ten classes and more
TAIL = 0.1  # of the steps: the last tenth is compared with the one before it
CLEARLY = 0.01  # of ln C, the loss of guessing: a fall of that much per tenth of the steps

Curve = Sequence[Mapping[str, float]]


def chance(task: str, classes: int, counts: Mapping[str, int]) -> float | None:
    """The accuracy of guessing, in percent; None if the record does not have what it depends on.

    classification   1 / C
    verification     the share of the more frequent kind of pair, same or different: one half if there are as many
    retrieval        recall@1 of a random ranking: the mean over queries of R / (N − 1), where R of the N − 1 other
                     images are of the query's class
    """
    if task == "classification":
        return 100 / classes
    if task == "verification":
        same, different = counts.get("same", 1), counts.get("different", 1)
        return 100 * max(same, different) / (same + different)
    if "relevant" not in counts:
        return None
    return 100 * counts["relevant"] / (counts["queries"] * counts["gallery"])


def at_chance(accuracies: Sequence[float], chance: float) -> bool:
    """Whether the interval of these accuracies over seeds reaches twice chance, or ten points above it if that is less.

    All in percent. Below three seeds there is no interval, and the mean counts.
    """
    mean, low, _ = stats.mean_interval(list(accuracies))
    return (mean if math.isnan(low) else low) <= chance + min(chance, ABOVE)


def undertrained(curves: Iterable[tuple[Point, Curve]]) -> list[Point]:
    """The points at which the training loss still fell clearly, on average over the curves of the baseline's seeds."""
    falls: dict[Point, list[float]] = {}
    for point, curve in curves:
        if (fall := last_fall(curve)) is not None:
            falls.setdefault(point, []).append(fall / math.log(point["classes"]))
    return [point for point, found in falls.items() if float(np.mean(found)) > CLEARLY]


def last_fall(curve: Curve) -> float | None:
    """By how much the mean training loss of the last tenth of a curve is below that of the tenth before it."""
    losses = [each["loss"] for each in curve if math.isfinite(each.get("loss", math.nan))]
    tail = math.ceil(TAIL * len(losses))
    if len(losses) < 4:
        return None
    return float(np.mean(losses[-2 * tail : -tail]) - np.mean(losses[-tail:]))
