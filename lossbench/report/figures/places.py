"""Which points figures are drawn for, and how their titles name them."""

from __future__ import annotations

from lossbench.analysis import series
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
    """A point in a title: short names, and the numbers that vary in its experiment; the experiment if it says more."""
    column = next((column for column in results.answer.columns if column.point == point), None)
    names = [column.name] if column else _labels(results, point)
    beside = [other for other in results.points if other["experiment"] == point["experiment"]]
    numbers = series.told(point, [axis for axis in varied(beside) if axis not in series.LABELS])
    experiment = str(point["experiment"])
    return ", ".join([*([] if column or experiment in names else [experiment]), *names, *numbers])


def _labels(results: Results, point: Point) -> list[str]:
    """The dataset, and the backbone where there are several."""
    found = []
    for axis in series.LABELS:
        values = list(dict.fromkeys(other[axis] for other in results.points))
        if axis == "dataset" or len(values) > 1:
            found.append(distinct(values)[point[axis]] if point[axis] in values else str(point[axis]))
    return found
