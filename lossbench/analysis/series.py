"""Data that only figures show: small frames, one function each, the lines along axes, and points as text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lossbench import stats
from lossbench.analysis.comparisons import row_of
from lossbench.analysis.results import Results
from lossbench.analysis.verdicts import Asked
from lossbench.core import plain
from lossbench.core.geometry import minimum_width
from lossbench.core.labels import distinct
from lossbench.core.point import Point, is_number, varied
from lossbench.core.point import told as axis_told

LABELS = ("dataset", "backbone")  # the axes whose values are labels
EVERYWHERE: Mapping[str, Any] = {}
PAIR_COLUMNS = ["a", "b", "n", "delta", "low", "high", "level", "verdict", "flags", "points"]


class Curve(NamedTuple):
    """A learning curve of a loss: mean and interval over the `n` seeds of each step; `series` is loss or accuracy."""

    loss: str
    series: str
    steps: NDArray[np.int64]
    n: NDArray[np.int64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """Points that differ in one axis alone, by its value; `rest` is what they share."""

    rest: Point
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Along:
    """A numeric axis of an experiment, and the lines along it that have at least two values."""

    experiment: str
    axis: str
    lines: tuple[Line, ...]

    @property
    def values(self) -> list[Any]:
        return sorted({point[self.axis] for line in self.lines for point in line.points})


def followed(results: Results, experiment: str) -> list[Along]:
    """The numeric axes along which an experiment has points with values of the headline metric."""
    points = [point for point in results.main_at if point["experiment"] == experiment]
    names = [name for name in varied(points) if all(is_number(point.get(name, 0)) for point in points)]
    found = [Along(experiment, name, tuple(_lines(points, name))) for name in names]
    return [along for along in found if along.lines]


def _lines(points: Sequence[Point], axis: str) -> Iterator[Line]:
    """The lines along an axis. Along the classes, minimum widths form a line too, though they differ."""
    found: dict[Point, list[Point]] = {}
    for point in (point for point in points if axis in point):
        found.setdefault(point.without(axis), []).append(point)
        if axis == "classes" and point["width"] == minimum_width(point["classes"]):
            rest = Point({**point.without(axis), "width": "M = C − 1"})
            found.setdefault(rest, []).append(point)
    for rest, mine in found.items():
        if len(mine) > 1:
            yield Line(rest, tuple(sorted(mine, key=lambda point: point[axis])))


def at_one_point(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the point that represents others in a figure: that with the largest value of each numeric axis."""
    if frame.empty:
        return frame
    first = max(dict.fromkeys(frame["point"]), key=lambda point: [v for v in point.values() if is_number(v)])
    return frame[[point is first or point == first for point in frame["point"]]]


def lying(frame: pd.DataFrame, experiment: str, at: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of an experiment whose points have these values."""
    mine = frame[frame["experiment"] == experiment]
    if not at or mine.empty:
        return mine
    return mine[[all(point[name] == value for name, value in at.items()) for point in mine["point"]]]


def where(point: Point) -> str:
    """A point as text."""
    return plain.line(point.told())


def told(point: Point, names: Sequence[str]) -> list[str]:
    """These axes of a point as text."""
    return [axis_told(name, point[name]) for name in names if name in point]


def parts(points: Sequence[Point]) -> list[list[str]]:
    """For each point the axes that distinguish it from the others, as short texts: labels are cut to what differs."""
    names = varied(points)
    brief: dict[str, dict[str, str]] = {}
    for name in names:
        values = dict.fromkeys(point[name] for point in points if name in point)
        if name in LABELS and all(isinstance(value, str) for value in values):
            brief[name] = distinct(list(values))
    return [
        [brief[name][point[name]] if name in brief else axis_told(name, point[name]) for name in names if name in point]
        for point in points
    ]


def order(results: Results, present: Sequence[str] | pd.Series[Any]) -> list[str]:
    """The losses that are present, in the order of the suite."""
    found = set(present)
    return [label for label in results.labels if label in found]


def pairs(results: Results, experiment: str, at: Mapping[str, Any] = EVERYWHERE) -> pd.DataFrame:
    """Every pair of losses (a − b), paired by seed; means over the points that have both.

    A pair that the table or a claim compares has the same verdict here; the others are a family of their own.
    """
    metric = results.headline.name
    by_loss: dict[str, list[Point]] = {}
    for point, loss in results.measured.values[metric]:
        if point["experiment"] == experiment and all(point[name] == value for name, value in at.items()):
            by_loss.setdefault(loss, []).append(point)
    found = []
    for a, b in itertools.combinations(order(results, list(by_loss)), 2):
        both = set(by_loss[b])
        found.append(Asked(metric, tuple(point for point in by_loss[a] if point in both), a, b))
    judged = results.verdicts.among(f"pairs of {experiment}", found)
    rows = [
        {"a": asked.a, "b": asked.b, **row_of(verdict), "points": list(asked.where)}
        for asked, verdict in zip(found, judged, strict=True)
        if verdict.n
    ]
    return pd.DataFrame(rows, columns=PAIR_COLUMNS)


def curves(results: Results, point: Point) -> list[Curve]:
    """The learning curves at a point, by loss and series."""
    values: dict[tuple[str, str], dict[int, list[float]]] = {}
    rows = results.trained_at.get(point, results.trained.iloc[:0])
    for label, curve, total in zip(rows["label"], rows["curve"], rows["total"], strict=True):
        for series, name, scale in (("loss", "loss", 1.0), ("accuracy", "correct", 100 / (total or 1))):
            known = [one for one in curve if one.get(name) is not None]
            by_step = values.setdefault((label, series), {}) if known else {}
            for one in known:
                by_step.setdefault(one["step"], []).append(scale * one[name])
    found = []
    for (label, series), by_step in values.items():
        steps = sorted(by_step)
        samples = [by_step[step] for step in steps]
        counts = np.array([len(sample) for sample in samples])
        found.append(Curve(label, series, np.array(steps), counts, *stats.mean_intervals(samples)))
    return found


def timed(results: Results, experiment: str, at: Mapping[str, Any] = EVERYWHERE) -> pd.DataFrame:
    """The phases at one timed point: that of the first table if it was timed, else the first."""
    mine = lying(results.phases, experiment, at)
    if mine.empty:
        return mine
    stated = {column.point for column in results.answer.columns}
    points = list(dict.fromkeys(mine["point"]))
    chosen = next((point for point in points if point in stated), points[0])
    return mine[[point == chosen for point in mine["point"]]]


def front(results: Results, experiment: str, at: Mapping[str, Any] = EVERYWHERE) -> pd.DataFrame:
    """The headline metric against step time at the point of `timed`, as the tables state them: point, loss, n, rounds,
    value, low, high, ratio, ratio_low, ratio_high, chance; and best: no other loss is as good and as fast.
    """
    keys = ["point", "loss"]
    rounds = timed(results, experiment, at)[[*keys, "rounds"]]
    frame = results.front.rename(columns={"front_time": "chance"}).merge(rounds, on=keys)
    if results.info.baseline not in set(rounds["loss"]) or frame.empty:
        return frame.iloc[:0]
    frame = frame.merge(results.main[[*keys, "n", "low", "high"]], on=keys)
    times = results.comparisons[results.comparisons["metric"] == "step_seconds"]
    ratios = {"delta": "ratio", "low": "ratio_low", "high": "ratio_high"}
    frame = frame.merge(times[[*keys, *ratios]].rename(columns=ratios), on=keys, how="left")
    frame.loc[frame["loss"] == results.info.baseline, [*ratios.values()]] = 0.0  # compared with itself
    frame[[*ratios.values()]] = 1 + frame[[*ratios.values()]] / 100
    return frame.assign(best=stats.pareto_front(results.headline.sign * frame["value"], frame["ratio"]))


@dataclass(frozen=True)
class Plane:
    """Test features of a network of width 2, and the directions of its class weights."""

    point: Point
    loss: str
    seed: int
    features: NDArray[np.float64]  # N×2
    labels: NDArray[np.int64]
    weights: NDArray[np.float64]  # C×2
    accuracy: float


def planes(results: Results, experiment: str, at: Mapping[str, Any] = EVERYWHERE) -> list[Plane]:
    """The feature plane of every loss at width 2, for its first seed; empty if no record kept one."""
    frame = lying(results.trained, experiment, at)
    frame = at_one_point(frame[(frame["width"] == 2) & frame["features"].notna()])
    found = []
    for label in order(results, frame["label"]):
        row = frame[frame["label"] == label].sort_values("seed").iloc[0]
        kept, labels = row["features"], np.asarray(row["features"]["labels"], int)
        features, weights = (np.asarray(kept[name], float).reshape(-1, 2) for name in ("points", "weights"))
        found.append(Plane(row["point"], label, int(row["seed"]), features, labels, weights, float(row["accuracy"])))
    return found
