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
from lossbench.report.analysis import METRICS, POINT, Results

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
    return f"{row['dataset']}, C = {row['classes']}, M = {row['width']}"


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


@dataclass(frozen=True)
class Ranks:
    """Losses by their mean rank over N datasets: what a critical-difference diagram shows."""

    losses: tuple[str, ...]
    datasets: tuple[str, ...]
    ranks: NDArray[np.float64]
    difference: float  # Nemenyi's
    p: float  # of Friedman's test, by Iman and Davenport's F
    groups: tuple[tuple[int, ...], ...]  # losses that are not told apart


def ranks(results: Results, metric: str = "accuracy") -> Ranks | None:
    """Ranks over datasets, or None where they prove nothing: below five datasets or three losses common to all.

    A dataset counts once, however many widths, class counts and seeds it was tried with: they agree about what is
    particular to it. Its value is the mean over those points that have every loss.
    """
    column, _, higher_is_better = METRICS[metric]
    frame = results.trained.dropna(subset=[column])
    if frame.empty:
        return None
    names = frame["dataset"].str.partition("[")[0]  # digits[classes=5] is digits
    common = set(results.labels)
    for _, group in frame.groupby(names, sort=False):
        common &= set(group["label"])
    losses = [label for label in results.labels if label in common]
    if names.nunique() < stats.FEWEST_DATASETS or len(losses) < 3:
        return None
    values: dict[str, dict[str, list[float]]] = {}
    for name, group in frame[frame["label"].isin(losses)].groupby(names, sort=False):
        means = group.groupby([*POINT, "label"], sort=False)[column].mean().unstack("label").dropna()
        if len(means):
            values[str(name)] = {loss: [float(means[loss].mean())] for loss in losses}
    if len(values) < stats.FEWEST_DATASETS:
        return None
    table = stats.over_datasets(values)
    found = stats.friedman(table, higher_is_better=higher_is_better)
    difference = stats.critical_difference(len(losses), len(values))
    told = not math.isnan(found.p) and found.p < stats.LEVEL
    everyone = tuple(int(index) for index in np.argsort(found.ranks, kind="stable"))
    groups = stats.tie_groups(found.ranks, difference) if told else [everyone]
    return Ranks(table.losses, table.datasets, found.ranks, difference, found.p, tuple(groups))


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


def class_angles(results: Results, experiment: str) -> pd.DataFrame:
    """The mean angle of each class at one point: loss, split, class, n, angle (degrees, mean over seeds)."""
    frame = results.trained[results.trained["experiment"] == experiment]
    values = [
        {"loss": row["label"], "split": split, "class": number, "angle": angle}
        for row in at_one_point(frame).to_dict("records")
        for split in ("train", "test")
        for number, angle in enumerate(row["angles"].get(split, []))
        if angle is not None
    ]
    table = pd.DataFrame(values, columns=["loss", "split", "class", "angle"])
    grouped = table.groupby(["loss", "split", "class"], sort=False)["angle"]
    return grouped.agg(n="size", angle="mean").reset_index()


def phases(results: Results, experiment: str) -> pd.DataFrame:
    """Median milliseconds of a step's phases in the first timing cell: loss, forward, backward, optimizer, n."""
    frame = results.records
    frame = frame[(frame["kind"] == "timing") & (frame["status"] == "done") & (frame["experiment"] == experiment)]
    found = dict(frame["timing"].iloc[0].get("phases", {})) if len(frame) else {}
    rows = [
        {"loss": label, **{name: 1000 * float(np.median(seconds)) for name, seconds in parts.items()},
         "n": len(next(iter(parts.values())))}
        for label, parts in found.items()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["loss", "forward", "backward", "optimizer", "n"])


def front(results: Results, experiment: str) -> pd.DataFrame:
    """Accuracy against step time at the point that was timed: loss, n, accuracy, low, high, ratio, ratio_low,
    ratio_high, best (no other loss is as accurate and as cheap), chance (of that, over resampled seeds and rounds).
    """
    columns = [
        "loss",
        "n",
        "rounds",
        *("accuracy", "low", "high", "ratio", "ratio_low", "ratio_high", "best", "chance"),
    ]
    timed = next(((point, rounds) for point, rounds in results.timings() if point["experiment"] == experiment), None)
    main = results.main
    if timed is None or main.empty or results.outline.baseline not in timed[1]:
        return pd.DataFrame(columns=columns)
    point, rounds = timed
    here = main[np.logical_and.reduce([main[name] == point[name] for name in POINT]) & (main["n"] > 0)]
    labels = [label for label in order(results, here["loss"]) if label in rounds]
    baseline = rounds[results.outline.baseline]
    rows = []
    for label in labels:
        row = here[here["loss"] == label].iloc[0]
        found = stats.time_ratio(rounds[label], baseline)
        rows.append({"loss": label, "n": row["n"], "rounds": found.n, "accuracy": row["accuracy"], "low": row["low"],
                     "high": row["high"], "ratio": found.delta, "ratio_low": found.low,
                     "ratio_high": found.high})  # fmt: skip
    frame = pd.DataFrame(rows, columns=columns)
    if len(frame):
        trained = results.trained
        trained = trained[np.logical_and.reduce([trained[name] == point[name] for name in POINT])]
        seeds = trained.pivot_table(index="seed", columns="label", values="accuracy", sort=False)[labels].dropna()
        ratios = np.column_stack([np.divide(rounds[label], baseline) for label in labels])
        rng = np.random.default_rng(0)  # the same report on every rendering
        frame["best"] = stats.pareto_front(frame["accuracy"], frame["ratio"])
        frame["chance"] = stats.pareto_chance(seeds.to_numpy(float), ratios, rng, rounds=True)
    return frame


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
