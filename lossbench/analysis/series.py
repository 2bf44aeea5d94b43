"""Results → what a figure draws and no table states: small frames, one function each. No drawing here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lossbench import stats
from lossbench.analysis.results import METRICS, POINT, Results
from lossbench.core import plain

PLACE = [name for name in POINT if name != "experiment"]


def experiments(results: Results) -> list[str]:
    """The experiments of the suite, in its order."""
    return list(dict.fromkeys(cell.experiment for cell in results.cells))


def at_one_point(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the point that stands for an experiment in figures of one point: most classes, then widest."""
    if frame.empty:
        return frame
    first = frame.sort_values(["classes", "width"], ascending=False, kind="stable").iloc[0]
    same = [frame[name] == first[name] for name in PLACE]
    return frame[np.logical_and.reduce(same)]


def where(row: Mapping[str, Any] | pd.Series[Any]) -> str:
    """A point in words."""
    return f"{plain.line(row['dataset'])}, C = {row['classes']}, M = {row['width']}"


def varied(group: pd.DataFrame) -> list[str]:
    """The fewest columns that tell the points of a frame apart: `digits[classes=5]` need not be said twice."""
    several = [column for column in ("dataset", "classes", "width") if group[column].nunique() > 1]
    if "dataset" in several and "classes" in several:
        one_set = group["dataset"].str.partition("[")[0].nunique() == 1
        several.remove("dataset" if one_set and group.groupby("classes")["dataset"].nunique().max() == 1 else "classes")
    return several


def told(row: Mapping[str, Any] | pd.Series[Any], columns: Sequence[str]) -> list[str]:
    """Those columns of a point in words."""
    return [f"{ {'classes': 'C = ', 'width': 'M = '}.get(name, '') }{row[name]}" for name in columns]


def order(results: Results, present: Sequence[str] | pd.Series[Any]) -> list[str]:
    """The losses that are present, in the order of the suite."""
    found = set(present)
    return [label for label in results.labels if label in found]


def pairs(results: Results, experiment: str, metric: str = "accuracy") -> pd.DataFrame:
    """Every pair of losses of an experiment, paired by seed (means over the points that all of them have).

    Columns a, b, n, delta (a − b), low, high, p_holm (over all pairs of the experiment), verdict.
    """
    frame = results.trained[results.trained["experiment"] == experiment]
    margin = results.outline.margin if metric == "accuracy" else None
    resolution = 100 / float(frame["total"].max()) if metric == "accuracy" and len(frame) else 0.0
    values = _by_seed(frame, METRICS[metric].column)
    rows = []
    for a, b in itertools.combinations(order(results, frame["label"]), 2):
        both = [values[a], values[b]]
        shared = ~np.isnan(both).all(axis=1).any(axis=0)  # points that have both losses
        whole = ~np.isnan([side[:, shared] for side in both]).any(axis=(0, 2))  # seeds without gaps there
        if not shared.any() or not whole.any():
            continue
        first, second = (side[whole][:, shared].mean(axis=1) for side in both)
        found = stats.paired(first, second, resolution=resolution)
        tost = stats.tost(first, second, margin, resolution=resolution) if margin else math.nan
        rows.append({"a": a, "b": b, **vars(found), "tost_p": tost, "points": int(shared.sum())})
    for row, p in zip(rows, stats.holm([row["p"] for row in rows]), strict=True):
        row["p_holm"], row["verdict"] = p, stats.verdict(p, row["tost_p"])
    return pd.DataFrame(rows, columns=[*("a", "b", "n", "delta", "low", "high", "p", "p_holm", "verdict", "points")])


def _by_seed(frame: pd.DataFrame, column: str) -> dict[str, NDArray[np.float64]]:
    """seeds × points of each loss, NaN where there is no value; plain arrays, as all pairs of 20 losses are 190."""
    seed, point = pd.factorize(frame["seed"])[0], frame.groupby(POINT, sort=False).ngroup().to_numpy()
    found = {}
    for label, rows in frame.reset_index(drop=True).groupby("label", sort=False):
        table = np.full((seed.max() + 1, point.max() + 1), np.nan)
        table[seed[rows.index], point[rows.index]] = rows[column].astype(float)
        found[str(label)] = table
    return found


def curves(results: Results, experiment: str) -> pd.DataFrame:
    """Learning curves at one point: loss, series (loss, accuracy), step, n, mean, low, high over seeds."""
    frame = results.trained[results.trained["experiment"] == experiment]
    points = [
        {"loss": row["label"], "series": series, "step": point["step"], "value": scale * point[name]}
        for row in at_one_point(frame).to_dict("records")
        for point in row["curve"]
        for series, name, scale in (("loss", "loss", 1.0), ("accuracy", "correct", 100 / (row["total"] or 1)))
        if point.get(name) is not None
    ]
    rows = []
    for (label, series, step), group in pd.DataFrame(points, columns=["loss", "series", "step", "value"]).groupby(
        ["loss", "series", "step"], sort=False
    ):
        mean, low, high = stats.mean_interval(group["value"])
        rows.append({"loss": label, "series": series, "step": step, "n": len(group), "mean": mean, "low": low,
                     "high": high})  # fmt: skip
    return pd.DataFrame(rows, columns=["loss", "series", "step", "n", "mean", "low", "high"])


def first_timed(frame: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """The rows of the first timing cell of an experiment."""
    mine = frame[frame["experiment"] == experiment]
    return mine[np.logical_and.reduce([mine[name] == mine[name].iloc[0] for name in POINT])] if len(mine) else mine


def front(results: Results, experiment: str) -> pd.DataFrame:
    """Accuracy against step time at the first point that was timed, as the tables state them: POINT, loss, n, rounds,
    accuracy, low, high, ratio, ratio_low, ratio_high, chance; and best: no other loss is as accurate and as fast.
    """
    baseline = results.outline.baseline
    rounds = first_timed(results.phases, experiment)[[*POINT, "loss", "rounds"]]
    frame = results.front.rename(columns={"front_time": "chance"}).merge(rounds, on=[*POINT, "loss"])
    if baseline not in set(rounds["loss"]) or frame.empty:
        return frame.iloc[:0]
    frame = frame.merge(results.main[[*POINT, "loss", "n", "low", "high"]], on=[*POINT, "loss"])
    times = results.comparisons[results.comparisons["metric"] == "step_seconds"]
    times = times.set_index([*POINT, "loss"])[["delta", "low", "high"]]
    for name, column in (("delta", "ratio"), ("low", "ratio_low"), ("high", "ratio_high")):
        percent = times[name].to_dict()  # the baseline has no row: it takes as long as itself
        places = frame[[*POINT, "loss"]].itertuples(index=False, name=None)
        frame[column] = [1 + percent.get(place, 0.0) / 100 for place in places]
    return frame.assign(best=stats.pareto_front(frame["accuracy"], frame["ratio"]))


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
    """The feature plane of every loss at width 2, of its first seed; empty where no record kept one."""
    frame = results.trained
    if "features" not in frame:
        return []
    frame = frame[(frame["experiment"] == experiment) & (frame["width"] == 2) & frame["features"].notna()]
    found = []
    frame = at_one_point(frame)
    for label in order(results, frame["label"]):
        row = frame[frame["label"] == label].sort_values("seed").iloc[0]
        kept = row["features"]
        found.append(
            Plane(
                label, int(row["seed"]), np.asarray(kept["points"], float).reshape(-1, 2),
                np.asarray(kept["labels"], int), np.asarray(kept["weights"], float).reshape(-1, 2),
                float(row["accuracy"]),
            )
        )  # fmt: skip
    return found
