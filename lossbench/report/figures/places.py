"""Which points figures are drawn for, and how their titles name them."""

from __future__ import annotations

from collections.abc import Collection

from lossbench.analysis import series
from lossbench.analysis.ranks import identity
from lossbench.analysis.results import Results
from lossbench.core.labels import distinct
from lossbench.core.point import Point, varied

MOST_POINTS = 3  # side by side in a figure


def shown(results: Results, experiment: str) -> list[Point]:
    """The points of an experiment that stand for it: those of the first table, so that figures agree with it."""
    columns = results.answer.columns
    if columns:
        return [column.point for column in columns if column.point["experiment"] == experiment]
    main = series.lying(results.main, experiment, series.EVERYWHERE) if len(results.main) else results.main
    return list(dict.fromkeys(series.at_one_point(main[main["n"] > 0] if len(main) else main).get("point", [])))


def named(results: Results, point: Point) -> str:
    """A point in a title: short names, and the numbers that vary in its experiment."""
    column = next((column for column in results.answer.columns if column.point == point), None)
    if column is None:
        return shared(results, point, ())
    return ", ".join([column.name, *_numbers(results, point, ())])


def shared(results: Results, point: Point, without: Collection[str]) -> str:
    """An experiment in a title: its name if it says more than the dataset, and its axes but for some."""
    names = [name for axis, name in _labels(results, point).items() if axis not in without]
    experiment = str(point["experiment"])
    return ", ".join([*([] if experiment in names else [experiment]), *names, *_numbers(results, point, without)])


def _numbers(results: Results, point: Point, without: Collection[str]) -> list[str]:
    beside = (other for other in results.points if other["experiment"] == point["experiment"])
    return series.told(point, [axis for axis in varied(beside) if axis not in (*series.LABELS, *without)])


def _labels(results: Results, point: Point) -> dict[str, str]:
    """The dataset by its name, and the backbone where the experiment has several."""
    found = {"dataset": identity(point["dataset"]).rpartition("/")[2]} if "dataset" in point else {}
    mine = (other["backbone"] for other in results.points if other["experiment"] == point["experiment"])
    backbones = distinct(list(dict.fromkeys(mine)))
    if len(backbones) > 1 and point.get("backbone") in backbones:
        found["backbone"] = backbones[point["backbone"]]
    return found
