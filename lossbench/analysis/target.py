"""Time to target: how long a cell trains until it first reaches the baseline's final accuracy minus one point.

A point of the grid has one target: the mean over the baseline's seeds of the accuracy after the last step, − 1. With
`evaluations` in the schedule the learning curve scores the test set at some steps. T is the first of them with at least
the target, counted from the cell's own first step (a warm start is shared by all losses). A cell that never reaches it
is censored: T = H, its number of steps. A mean over seeds is so a restricted mean, mean min(T, H). It exists whatever
the number of censored seeds, but understates the time of a loss that has many, so their number is always given.

Seconds are T × seconds per step: the median round of the loss's timing cell, which runs alone; without one the median
step of the cell itself, if all cells of the point ran in one environment. Else they do not exist. The time that scoring
the test set takes is in neither.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from lossbench.analysis.measured import LossAt, losses_at
from lossbench.core.point import Point

BELOW = 1.0  # points below the baseline's final accuracy
STEPS, SECONDS = "steps_to_target", "seconds_to_target"


@dataclass(frozen=True)
class Reached:
    """Times to target by metric, point and loss, and seed."""

    values: dict[str, dict[LossAt, dict[int, float]]] = field(default_factory=lambda: {STEPS: {}, SECONDS: {}})
    # From one score to the next: a smaller difference cannot be seen.
    grain: dict[str, dict[LossAt, float]] = field(default_factory=lambda: {STEPS: {}, SECONDS: {}})
    censored: dict[LossAt, set[int]] = field(default_factory=dict)  # the seeds that do not reach it


def targets(trained: pd.DataFrame, baseline: str) -> dict[Point, float]:
    """The accuracy to reach at every point where the baseline has finished cells with test scores, in percent."""
    found: dict[Point, list[float]] = {}
    trained = _scored(trained)
    for (point, loss), accuracy in zip(losses_at(trained), trained["accuracy"], strict=True):
        if loss == baseline:
            found.setdefault(point, []).append(float(accuracy))
    return {point: statistics.fmean(accuracies) - BELOW for point, accuracies in found.items()}


def reached(
    trained: pd.DataFrame,
    goals: Mapping[Point, float],
    warm: Mapping[str, int],
    rounds: Mapping[Point, Mapping[str, Iterable[float]]],
) -> Reached:
    """The times of the finished cells (`trained`) that have test scores, at the points that have a target.

    `warm` are the steps of the warm start by the key of the cell, `rounds` those of timing cells by point and loss.
    """
    found, trained = Reached(), _scored(trained)
    at = losses_at(trained)
    pace = _pace(trained, at, rounds)
    columns = (trained[name] for name in ("key", "seed", "curve", "total"))
    for mine, key, seed, curve, total in zip(at, *columns, strict=True):
        scored = [(one["step"] - warm.get(key, 0), 100 * one["correct"] / total) for one in curve if "correct" in one]
        if mine[0] not in goals:
            continue
        first = next((step for step, accuracy in scored if accuracy >= goals[mine[0]]), None)
        steps = scored[-1][0] if first is None else first
        if first is None:
            found.censored.setdefault(mine, set()).add(int(seed))
        for metric, scale in ((STEPS, 1.0), (SECONDS, pace.get(key))):
            if scale is not None:
                found.values[metric].setdefault(mine, {})[int(seed)] = steps * scale
                apart = scored[-1][0] / len(scored) * scale
                found.grain[metric][mine] = max(apart, found.grain[metric].get(mine, 0.0))
    return found


def _scored(trained: pd.DataFrame) -> pd.DataFrame:
    """The cells with test scores on their curve; its last point is always one."""
    return trained[np.array([bool(curve) and "correct" in curve[-1] for curve in trained["curve"]], dtype=bool)]


def _pace(
    trained: pd.DataFrame, at: list[LossAt], rounds: Mapping[Point, Mapping[str, Iterable[float]]]
) -> dict[str, float]:
    """Seconds per step by the key of the cell; at a point, all are from its timing cell or all from the cells."""
    places: dict[Point, set[str]] = {}
    machines: dict[Point, set[str | None]] = {}
    for (point, loss), machine in zip(at, trained["fingerprint"], strict=True):
        places.setdefault(point, set()).add(loss)
        machines.setdefault(point, set()).add(machine)
    found = {}
    for (point, loss), key, own in zip(at, trained["key"], trained["seconds_step_median"].astype(float), strict=True):
        if places[point] <= rounds.get(point, {}).keys():
            found[key] = statistics.median(rounds[point][loss])
        elif len(machines[point]) == 1 and own > 0:
            found[key] = own
    return found
