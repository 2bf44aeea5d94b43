"""Shared by the tables of several sections: one table per experiment, and lookups by point and loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from lossbench.analysis.measured import LossAt
from lossbench.analysis.results import Results
from lossbench.report.blocks import Anchor, Block, Table

Row = Mapping[str, Any]


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


def per_experiment(
    frame: pd.DataFrame,
    write: Callable[[Row], dict[str, str]],
    caption: str | Callable[[pd.DataFrame], str],
    *,
    left: Sequence[str],
    anchors: Callable[[Row], Sequence[Anchor]] = lambda row: [anchor(row)],
) -> list[Block]:
    """One table per experiment with one row per row of the frame; C is shown where it varies."""
    tables: list[Block] = []
    for experiment, group in by_experiment(frame):
        found = group.to_dict("records")
        rows = [write(row) for row in found]
        if group["classes"].nunique() > 1:
            rows = [{"C": str(row["classes"]), **shown} for row, shown in zip(found, rows, strict=True)]
        said = caption if isinstance(caption, str) else caption(group)
        cells = [anchors(row) for row in found]
        tables.append(Table.of(rows, left=left, caption=f"{experiment}: {said}", anchors=cells, experiment=experiment))
    return tables
