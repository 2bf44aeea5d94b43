"""Data that only figures show: small frames, one function each, and the labels of points in figures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lossbench import stats
from lossbench.analysis.results import Results
from lossbench.core import plain
from lossbench.core.point import Point
from lossbench.core.point import told as axis_told

CURVE_COLUMNS = ["loss", "series", "step", "n", "mean", "low", "high"]
PAIR_COLUMNS = ["a", "b", "n", "delta", "low", "high", "p", "p_holm", "verdict", "points"]


def at_one_point(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the point that represents an experiment in a figure: most classes, then widest."""
    if frame.empty:
        return frame
    first = frame.sort_values(["classes", "width"], ascending=False, kind="stable").iloc[0]
    return frame[frame["point"] == first["point"]]


def where(point: Point) -> str:
    """A point as text; the backbone only where others may stand beside it."""
    return plain.line(point.told(name for name in point if name not in ("experiment", "backbone")))


def varied(group: pd.DataFrame) -> list[str]:
    """The axes that distinguish the points of a frame."""
    points = list(dict.fromkeys(group["point"]))
    names = dict.fromkeys(name for point in points for name in point if name != "experiment")
    return [name for name in names if len({point.get(name) for point in points}) > 1]


def told(point: Point, names: Sequence[str]) -> list[str]:
    """These axes of a point as text."""
    return [axis_told(name, point[name]) for name in names if name in point]


def order(results: Results, present: Sequence[str] | pd.Series[Any]) -> list[str]:
    """The losses that are present, in the order of the suite."""
    found = set(present)
    return [label for label in results.labels if label in found]


def pairs(results: Results, experiment: str) -> pd.DataFrame:
    """Every pair of losses (a − b), paired by seed; means over the points that have both. Holm over all pairs."""
    metric, margin = results.headline.name, results.info.margin
    by_loss: dict[str, list[Point]] = {}
    for point, loss in results.measured.values[metric]:
        if point["experiment"] == experiment:
            by_loss.setdefault(loss, []).append(point)
    rows = []
    for a, b in itertools.combinations(order(results, list(by_loss)), 2):
        shared = [point for point in by_loss[a] if point in by_loss[b]]
        found = results.measured.contrast(metric, shared, a, b, margin)
        if found.n:
            rows.append({"a": a, "b": b, **found._asdict(), "points": len(shared)})
    for row, p in zip(rows, stats.holm([row["p"] for row in rows]), strict=True):
        row["p_holm"], row["verdict"] = p, stats.verdict(p, row["tost_p"])
    return pd.DataFrame(rows, columns=PAIR_COLUMNS)


def curves(results: Results, experiment: str) -> pd.DataFrame:
    """Learning curves at one point: mean and interval over seeds by loss, series (loss, accuracy) and step."""
    frame = results.trained[results.trained["experiment"] == experiment]
    values: dict[tuple[str, str, int], list[float]] = {}
    for row in at_one_point(frame).to_dict("records"):
        for point in row["curve"]:
            for series, name, scale in (("loss", "loss", 1.0), ("accuracy", "correct", 100 / (row["total"] or 1))):
                if point.get(name) is not None:
                    values.setdefault((row["label"], series, point["step"]), []).append(scale * point[name])
    rows = [(*key, len(found), *stats.mean_interval(found)) for key, found in values.items()]
    return pd.DataFrame(rows, columns=CURVE_COLUMNS)


def first_timed(frame: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """The rows of the first timing cell of an experiment."""
    mine = frame[frame["experiment"] == experiment]
    return mine[mine["point"] == mine["point"].iloc[0]] if len(mine) else mine


def front(results: Results, experiment: str) -> pd.DataFrame:
    """The headline metric against step time at the first timed point, as the tables state them: point, loss, n, rounds,
    value, low, high, ratio, ratio_low, ratio_high, chance; and best: no other loss is as good and as fast.
    """
    at = ["point", "loss"]
    rounds = first_timed(results.phases, experiment)[[*at, "rounds"]]
    frame = results.front.rename(columns={"front_time": "chance"}).merge(rounds, on=at)
    if results.info.baseline not in set(rounds["loss"]) or frame.empty:
        return frame.iloc[:0]
    frame = frame.merge(results.main[[*at, "n", "low", "high"]], on=at)
    times = results.comparisons[results.comparisons["metric"] == "step_seconds"]
    ratios = {"delta": "ratio", "low": "ratio_low", "high": "ratio_high"}
    frame = frame.merge(times[[*at, *ratios]].rename(columns=ratios), on=at, how="left")
    # The baseline has no comparison: its ratio to itself is 1.
    frame[[*ratios.values()]] = 1 + frame[[*ratios.values()]].fillna(0.0) / 100
    return frame.assign(best=stats.pareto_front(results.headline.sign * frame["value"], frame["ratio"]))


@dataclass(frozen=True)
class Plane:
    """Test features of a network of width 2, and the directions of its class weights."""

    loss: str
    seed: int
    points: NDArray[np.float64]  # N×2
    labels: NDArray[np.int64]
    weights: NDArray[np.float64]  # C×2
    accuracy: float


def planes(results: Results, experiment: str) -> list[Plane]:
    """The feature plane of every loss at width 2, for its first seed; empty if no record kept one."""
    frame = results.trained
    frame = frame[(frame["experiment"] == experiment) & (frame["width"] == 2) & frame["features"].notna()]
    frame = at_one_point(frame)
    found = []
    for label in order(results, frame["label"]):
        row = frame[frame["label"] == label].sort_values("seed").iloc[0]
        kept = row["features"]
        points, weights = (np.asarray(kept[name], float).reshape(-1, 2) for name in ("points", "weights"))
        found.append(
            Plane(label, int(row["seed"]), points, np.asarray(kept["labels"], int), weights, float(row["accuracy"]))
        )
    return found
