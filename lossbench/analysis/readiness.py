"""Whether networks have learned enough for a verdict to mean something: at chance, undertrained.

`at chance`: the accuracy of a loss is hardly above that of guessing. Its network says nothing about the loss, so
comparisons and claims that use it are not testable.

`undertrained`: the baseline's training loss was still falling clearly when training ended. A difference found there may
vanish, or turn round, with more steps; reports say so beside every verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lossbench import stats
from lossbench.core.point import Point

if TYPE_CHECKING:
    from lossbench.analysis.measured import LossAt
    from lossbench.analysis.records import RunData

ABOVE = 10.0  # points above chance at most: twice chance for ten classes and more
TAIL = 0.1  # of the steps: the last tenth is compared with the one before it
CLEARLY = 0.01  # of ln C, the loss of guessing: a fall of that much per tenth of the steps


def at_chance(data: RunData) -> dict[LossAt, str]:
    """The losses whose accuracy interval over seeds reaches twice chance, or ten points above it if that is less."""
    found = {}
    task = dict(zip(data.trained["point"], data.trained["task"], strict=True))
    for (point, loss), values in data.measured.values.get("accuracy", {}).items():
        chance = 50.0 if task[point] == "verification" else 100 / point["classes"]
        bound = chance + min(chance, ABOVE)
        mean, low, _ = stats.mean_interval(list(values.values()))
        if (mean if math.isnan(low) else low) <= bound:
            found[point, loss] = f"{loss} is at chance{data.at(point)}: accuracy {mean:.1f} %, chance {chance:.1f} %"
    return found


def undertrained(data: RunData) -> dict[Point, str]:
    """The points at which the baseline's training loss still fell clearly, on average over its seeds."""
    baseline = data.trained[data.trained["label"] == data.info.baseline]
    falls: dict[Point, list[float]] = {}
    for point, curve in zip(baseline["point"], baseline["curve"], strict=True):
        if (fall := last_fall(curve)) is not None:
            falls.setdefault(point, []).append(fall / math.log(point["classes"]))
    return {
        point: f"{data.info.baseline} was still improving{data.at(point)} when training ended"
        for point, found in falls.items()
        if float(np.mean(found)) > CLEARLY
    }


def last_fall(curve: Sequence[Mapping[str, float]]) -> float | None:
    """By how much the mean training loss of the last tenth of a curve is below that of the tenth before it."""
    losses = [each["loss"] for each in curve if math.isfinite(each.get("loss", math.nan))]
    tail = math.ceil(TAIL * len(losses))
    if len(losses) < 4:
        return None
    return float(np.mean(losses[-2 * tail : -tail]) - np.mean(losses[-tail:]))
