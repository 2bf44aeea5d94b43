"""Points of the grid, where losses are compared seed by seed, and the numbers that were measured there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from lossbench import stats
from lossbench.plugins.metrics import METRICS

POINT = ["experiment", "dataset", "backbone", "classes", "width"]

Place = tuple[Any, ...]  # the values of POINT, and a label
Point = Mapping[str, Any]


def points(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Each point of a frame of records with its rows, in the order of the plan."""
    for values, group in frame.groupby(POINT, sort=False):
        yield dict(zip(POINT, values, strict=True)), group


def place(row: Mapping[str, Any], label: str) -> Place:
    return (*(row[name] for name in POINT), label)


class Measured:
    """The finished accuracy cells as `values[metric][place][seed]`: looked up by every comparison."""

    def __init__(self, trained: pd.DataFrame) -> None:
        keys = list(zip(*(trained[name] for name in (*POINT, "label")), strict=True))
        seeds = [int(seed) for seed in trained["seed"]]
        self.values: dict[str, dict[Place, dict[int, float]]] = {}
        for name, metric in METRICS.items():
            found: dict[Place, dict[int, float]] = {}
            column = trained[metric.column].astype(float) if metric.column else []
            for key, seed, value in zip(keys, seeds, column, strict=False):
                if not math.isnan(value):
                    found.setdefault(key, {})[seed] = value
            self.values[name] = found
        self.spacing: dict[Place, float] = {}
        for key, curve in zip(keys, trained["curve"], strict=True):
            if len(curve) > 1:
                between = (curve[-1]["step"] - curve[0]["step"]) / (len(curve) - 1)
                self.spacing[key] = max(between, self.spacing.get(key, 0.0))
        self.totals: dict[Place, float] = {}
        for key, total in zip(keys, trained["total"].astype(float), strict=True):
            self.totals[key] = max(total, self.totals.get(key, 0.0))

    def at(self, metric: str, point: Point, label: str) -> dict[int, float]:
        """By seed; empty where nothing was measured."""
        return self.values[metric].get(place(point, label), {})

    def over(self, metric: str, where: Sequence[Point], label: str) -> dict[int, float]:
        """Means over points within a seed, of the seeds that are complete there: a point is no replication."""
        found = [self.at(metric, point, label) for point in where]
        whole = [seed for seed in found[0] if all(seed in values for values in found)] if found else []
        return {seed: sum(values[seed] for values in found) / len(found) for seed in whole}

    def resolution(self, metric: str, where: Sequence[Point], label: str) -> float:
        """The least step of a metric: one test example, one point of the learning curve; 0 where it is continuous."""
        keys = [key for point in where if (key := place(point, label)) in self.totals]
        if metric == "steps_to_converge":
            return max((self.spacing.get(key, 0.0) for key in keys), default=0.0)
        most = max((self.totals[key] for key in keys), default=0.0)
        return METRICS[metric].step / most if most > 0 else 0.0


def paired_values(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """The values of the seeds that both have."""
    both = [seed for seed in a if seed in b]
    return [a[seed] for seed in both], [b[seed] for seed in both]


class Contrast(NamedTuple):
    """One side minus the other, as the columns of comparisons.csv have it."""

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


def contrast(
    a: Mapping[int, float], b: Mapping[int, float], unit: str, margin: float | None, resolution: float
) -> Contrast:
    """a − b, paired by seed."""
    first, second = paired_values(a, b)
    found = stats.paired(first, second, resolution=resolution)
    tost_p = stats.tost(first, second, margin, resolution=resolution) if margin else math.nan
    correlation = stats.correlation(first, second)
    return Contrast(found.n, found.delta, found.low, found.high, found.p, found.dz, tost_p, unit, correlation, found.sd)


def time_contrast(a: Sequence[float], b: Sequence[float], margin: float | None = None) -> Contrast:
    """How much longer a takes than b in percent, 0 meaning equal, from paired rounds."""
    ratio = stats.time_ratio(a, b)
    delta, low, high = (100 * (value - 1) for value in (ratio.delta, ratio.low, ratio.high))
    tost_p = math.nan
    if margin:
        logs = [math.log(value) for value in a], [math.log(value) for value in b]
        tost_p = stats.tost(*logs, math.log1p(margin / 100))
    return Contrast(ratio.n, delta, low, high, ratio.p, ratio.dz, tost_p, "%", math.nan, ratio.sd)
