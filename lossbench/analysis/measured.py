"""The measured values by metric, point, loss and seed, and paired differences between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import pandas as pd

from lossbench import stats
from lossbench.core.metric import Metric
from lossbench.core.point import COLUMNS, Point

POINT = ["point", *COLUMNS]  # the columns of a point, see `Point.row`
LossAt = tuple[Point, str]  # a loss, by its label, at a point


class Contrast(NamedTuple):
    """One side minus the other: the columns of comparisons.csv, then what further tests need."""

    n: int
    delta: float
    low: float
    high: float
    p: float
    dz: float
    tost_p: float
    unit: str
    correlation: float
    sd: float
    sides: tuple[Sequence[float], Sequence[float]]  # the paired values (mean logarithms of times by process)
    resolution: float


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

    def contrast(
        self, metric: str, where: Sequence[Point], a: str, b: str, margin: float | None, *, than_metric: str = ""
    ) -> Contrast:
        """a − b, paired by seed; means over the points within each seed. `margin` is that of equivalence."""
        sides = self.over(metric, where, a), self.over(than_metric or metric, where, b)
        # Equal differences on few test examples are chance, not certainty: hence the resolution.
        return contrast(*sides, self.metrics[metric].unit, margin, self.resolution(metric, where, a))


def losses_at(frame: pd.DataFrame) -> list[LossAt]:
    """The point and loss of every row of a frame of records."""
    return list(zip(frame["point"], frame["label"], strict=True))


def contrast(
    a: Mapping[int, float], b: Mapping[int, float], unit: str, margin: float | None, resolution: float
) -> Contrast:
    """a − b, paired by seed."""
    shared = [seed for seed in a if seed in b]
    sides = [a[seed] for seed in shared], [b[seed] for seed in shared]
    found = stats.paired(*sides, resolution=resolution)
    tost_p = stats.tost(*sides, margin, resolution=resolution) if margin else math.nan
    numbers = found.n, found.delta, found.low, found.high, found.p, found.dz, tost_p
    return Contrast(*numbers, unit, stats.correlation(*sides), found.sd, sides, resolution)


def time_contrast(
    a: Sequence[float], b: Sequence[float], process: Sequence[int], margin: float | None = None
) -> Contrast:
    """How much longer a takes than b in percent, from paired rounds of these processes; 0: equal."""
    found = stats.time_ratio(a, b, process)
    delta, low, high = (100 * (ratio - 1) for ratio in (found.delta, found.low, found.high))
    logs = stats.log_times(a, process).tolist(), stats.log_times(b, process).tolist()
    tost_p = stats.tost(*logs, math.log1p(margin / 100)) if margin else math.nan
    return Contrast(found.n, delta, low, high, found.p, found.dz, tost_p, "%", math.nan, found.sd, logs, 0.0)
