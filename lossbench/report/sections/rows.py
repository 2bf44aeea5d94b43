"""Shared by the tables of several sections: the axes of their rows, one table per experiment, lookups by point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from lossbench.analysis.measured import LossAt
from lossbench.analysis.results import Results
from lossbench.analysis.series import LABELS
from lossbench.core.point import SHORT, Point, is_number, varied
from lossbench.report import words
from lossbench.report.blocks import Anchor, Block, Table

Row = Mapping[str, Any]
LEADING = ("experiment", "loss")  # the columns before the axes


def anchor(row: Row, loss: str | None = None) -> Anchor:
    """The training cells behind a row, or those of another loss at its point."""
    return Anchor(row["point"], loss or row["loss"])


def at(row: Row) -> LossAt:
    return row["point"], row["loss"]


def compared(results: Results, metric: str) -> dict[LossAt, dict[str, Any]]:
    """The comparisons of a metric with the baseline by point and loss."""
    frame = results.comparisons
    return {at(row): row for row in frame[frame["metric"] == metric].to_dict("records")}


def finished(results: Results) -> pd.DataFrame:
    """The rows of the main table that have finished cells."""
    return results.main[results.main["n"] > 0] if len(results.main) else results.main


def by_experiment(frame: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    """The rows of each experiment, in the order of the plan."""
    return [(str(name), group) for name, group in frame.groupby("experiment", sort=False)] if len(frame) else []


def table(
    found: Sequence[Row],
    written: Sequence[Mapping[str, str]],
    caption: str,
    *,
    left: Sequence[str],
    anchors: Sequence[Sequence[Anchor]],
    experiment: str = "",
) -> Table:
    """A table of rows at points: one column per axis that distinguishes the points; the caption has the other axes.

    Labels of datasets and backbones are long: they have no column where the experiment of a row says which it is.
    """
    points = [row["point"] for row in found]
    taken = set(written[0])
    by_experiment = "experiment" in taken
    axes = varied(points)
    names = [name for name in axes if not (by_experiment and name in LABELS and _follows(points, name))]
    heads = {name: head if (head := SHORT.get(name, name)) not in taken else f"axis.{name}" for name in names}
    rows = []
    for point, shown in zip(points, written, strict=True):
        first = {name: shown[name] for name in LEADING if name in shown}
        rows.append({**first, **{heads[name]: words.axis(point, name) for name in names}, **shown})
    texts = [heads[name] for name in names if not all(is_number(point.get(name, 0)) for point in points)]
    fixed = points[0].told(name for name in points[0] if name != "experiment" and name not in axes)
    said = [f"{experiment}:" if experiment else "", caption, f"Fixed: {fixed}." if fixed else ""]
    joined = " ".join(filter(None, said))
    return Table.of(rows, left=[*left, *texts], caption=joined, anchors=anchors, experiment=experiment)


def _follows(points: Sequence[Point], axis: str) -> bool:
    """Whether the points of each experiment have one value of an axis."""
    values = {(point["experiment"], point.get(axis)) for point in points}
    return len(values) == len({experiment for experiment, _ in values})


def per_experiment(
    frame: pd.DataFrame,
    write: Callable[[Row], dict[str, str]],
    caption: str | Callable[[pd.DataFrame], str],
    *,
    left: Sequence[str],
    anchors: Callable[[Row], Sequence[Anchor]] = lambda row: [anchor(row)],
) -> list[Block]:
    """One table per experiment with one row per row of the frame; a caption stands above the first that it fits."""
    tables: list[Block] = []
    before = set[str]()
    for experiment, group in by_experiment(frame):
        found = group.to_dict("records")
        cells = [anchors(row) for row in found]
        rows = [write(row) for row in found]
        said = caption if isinstance(caption, str) else caption(group)
        new = "as above." if said in before else said
        before.add(said)
        tables.append(table(found, rows, new, left=left, anchors=cells, experiment=experiment))
    return tables
