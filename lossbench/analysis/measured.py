"""The measured values by metric, point, loss and seed, and paired differences between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lossbench import stats
from lossbench.core.metric import Metric
from lossbench.core.point import COLUMNS, Point

POINT = ["point", *COLUMNS]  # the columns of a point, see `Point.row`
LossAt = tuple[Point, str]  # a loss, by its label, at a point


class Contrast(NamedTuple):
    """One side minus the other, paired by seed (by process, for step times): what a verdict is computed from.

    Step times are logarithms; `written` turns a difference of them into percent.
    """

    a: NDArray[np.float64]
    b: NDArray[np.float64]
    unit: str
    resolution: float = 0.0
    noise: float = 0.0  # standard error due to the choice of test examples
    deviation: float = 0.0  # how far off a seed was seen to be at these points
    logarithms: bool = False

    @property
    def flipped(self) -> Contrast:
        return self._replace(a=self.b, b=self.a)

    def written(self, value: float) -> float:
        """A difference in the unit."""
        return 100 * math.expm1(value) if self.logarithms else value

    def read(self, margin: float) -> float:
        """A margin, given in the unit, on the scale of the values."""
        return math.log1p(margin / 100) if self.logarithms else margin


class Measured:
    """The finished accuracy cells as `values[metric][point, loss][seed]`."""

    def __init__(self, trained: pd.DataFrame, metrics: Mapping[str, Metric]) -> None:
        at = losses_at(trained)
        self.metrics = metrics
        self.values: dict[str, dict[LossAt, dict[int, float]]] = {}
        for name, metric in metrics.items():
            found = self.values.setdefault(name, {})
            column = trained[metric.column].astype(float) if metric.column else []
            for key, seed, value in zip(at, trained["seed"], column, strict=False):
                if not math.isnan(value):
                    found.setdefault(key, {})[int(seed)] = value
        self.totals: dict[LossAt, float] = {}  # test examples, or pairs
        for key, total in zip(at, trained["total"].astype(float), strict=True):
            self.totals[key] = max(total, self.totals.get(key, 0.0))
        self.grain: dict[str, dict[LossAt, float]] = {}  # by metric: the smallest possible difference

    def add(
        self, values: Mapping[str, dict[LossAt, dict[int, float]]], grain: Mapping[str, dict[LossAt, float]]
    ) -> Self:
        """Take in metrics that are computed across records."""
        self.values |= values
        self.grain |= grain
        return self

    def at(self, metric: str, point: Point, loss: str) -> dict[int, float]:
        """By seed; empty where nothing was measured."""
        return self.values[metric].get((point, loss), {})

    def over(self, metric: str, where: Sequence[Point], loss: str) -> dict[int, float]:
        """Means over points by seed, for the seeds that every point has: points are not replications."""
        found = [self.at(metric, point, loss) for point in where]
        complete = [seed for seed in found[0] if all(seed in values for values in found)] if found else []
        return {seed: sum(values[seed] for values in found) / len(found) for seed in complete}

    def resolution(self, metric: str, where: Sequence[Point], loss: str) -> float:
        """The smallest possible difference: one test example, or one score of the learning curve; 0 if continuous."""
        known = [(point, loss) for point in where if (point, loss) in self.totals]
        if metric in self.grain:
            return max((self.grain[metric].get(key, 0.0) for key in known), default=0.0)
        per_class = self.metrics[metric].step_of == "class"
        total = max((self.totals[key] / (key[0]["classes"] if per_class else 1) for key in known), default=0.0)
        return self.metrics[metric].step / total if total > 0 else 0.0

    def deviation(self, metric: str, where: Sequence[Point], losses: Sequence[str], baseline: str) -> float:
        """How far off a seed of these losses was seen to be, see `stats.largest_deviation`."""
        found = {loss: self.over(metric, where, loss) for loss in losses}
        return stats.largest_deviation(list(found.values()), found.get(baseline, {}))


def losses_at(frame: pd.DataFrame) -> list[LossAt]:
    """The point and loss of every row of a frame of records."""
    return list(zip(frame["point"], frame["label"], strict=True))


def contrast(a: Mapping[int, float], b: Mapping[int, float], unit: str, **numbers: Any) -> Contrast:
    """a − b, paired by seed."""
    shared = [seed for seed in a if seed in b]
    first, second = (np.array([side[seed] for seed in shared], dtype=np.float64) for side in (a, b))
    return Contrast(first, second, unit, **numbers)
