"""The cells behind each number of the report, as plain data for the page's panel.

Every planned cell is included once, with or without a record. A row of a table or a mark of a chart points at groups
of cells (a loss at a point); paths are relative to the run folder, and the end of a log is kept only for cells that did
not finish.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from lossbench.analysis.results import Results
from lossbench.core import plain
from lossbench.core.files import opened
from lossbench.core.model import Cell
from lossbench.report.blocks import Anchor, Table
from lossbench.store.records import Store

LOG_LINES, LOG_CHARACTERS = 20, 2_000  # of one log's end
ALL_LOGS = 500_000  # characters of log in a page: a run that failed everywhere must not make it unreadable
CURVE_POINTS = 20  # of a sparkline
MOST_CURVES = 2_000  # cells up to which each has a sparkline; beyond that they would be most of the page
FIELDS = ("group", "seed", "status", "values", "seconds", "flags", "key", "run", "note", "curve")

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")  # of logs: a page has no use for them


class Drill:
    """The cells of the results in groups, and which groups a row of a table is about."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.stores = [Store(run) for run in results.runs]
        self.groups: dict[Anchor, int] = {}
        self.cells: list[tuple[int, Cell]] = []
        for cell in results.cells:
            self.cells.append((self.groups.setdefault(_anchor(cell), len(self.groups)), cell))

    def links(self, table: Table) -> list[list[int]]:
        """The groups of cells behind each row of a table."""
        return [self.of(row) for row in table.anchors or [()] * len(table.rows)]

    def of(self, anchors: Iterable[Anchor]) -> list[int]:
        """The groups of these cells, without those that the plan does not have."""
        return [self.groups[anchor] for anchor in anchors if anchor in self.groups]

    def payload(self, metrics: Mapping[str, int]) -> dict[str, Any]:
        """Everything that the panel needs, without duplicates. `metrics`: those to show, with their digits."""
        notes: dict[str, int] = {}
        left = ALL_LOGS
        few = len(self.cells) <= MOST_CURVES
        rows = []
        for group, cell in self.cells:
            found = self._records.get((cell.experiment, cell.key), {})
            run = self._run_of(cell.key, found.get("status"))
            note = self._note(cell.key, run, found)
            if note and note not in notes:
                left -= len(note)
                note = note if left >= 0 else "(the page holds no more logs; see the file)"
            rows.append(
                [
                    group,
                    cell.seed,
                    found.get("status", "missing"),
                    [rounded(self._value(cell, name, found), digits) for name, digits in metrics.items()],
                    rounded(found.get("seconds_train"), 2),
                    list(found.get("flags", ())),
                    cell.key,
                    run,
                    notes.setdefault(note, len(notes)) if note else None,
                    _thinned(found.get("curve", ())) if few else [],
                ]
            )
        return {"runs": list(self.results.runs), "fields": FIELDS, "cells": rows, "notes": list(notes)}

    def _value(self, cell: Cell, metric: str, found: Mapping[str, Any]) -> float | None:
        """A metric of one cell; trials and cells of unfinished losses have no more than an accuracy."""
        if cell.kind == "train":
            return self.results.measured.at(metric, cell.point, cell.label).get(cell.seed)
        return found.get("accuracy") if metric == "accuracy" else None

    @cached_property
    def _records(self) -> dict[tuple[str, str], dict[str, Any]]:
        names = ["status", "error", "accuracy", "seconds_train", "flags", "curve"]
        frame = self.results.records
        keys = zip(frame["experiment"], frame["key"], strict=True)
        return dict(zip(keys, frame[names].to_dict("records"), strict=True))

    def _run_of(self, key: str, status: str | None) -> int:
        """Which of the runs the record comes from; the first has the cells that have none."""
        if len(self.stores) == 1 or status is None:
            return 0
        read = [store.read(key, checkpoints=False) for store in self.stores]
        return next((index for index, record in enumerate(read) if record and record["status"] == status), 0)

    def _note(self, key: str, run: int, found: Mapping[str, Any]) -> str:
        """Why a cell did not finish, then the end of its log."""
        if found.get("status", "done") == "done":
            return ""
        error = str(found["error"] or "").strip()[-LOG_CHARACTERS:]
        log = tail(self.stores[run].log(key))
        # A traceback is both the error and the end of the log: once is enough.
        return _plain(error) if not log or log in error else log if error in log else f"{_plain(error)}\n\n{log}"


def tail(path: Path) -> str:
    """The last lines of a log as plain text; nothing where there is no log."""
    try:
        with os.fdopen(opened(path), "rb") as handle:
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - 4 * LOG_CHARACTERS))
            text = handle.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(_plain(text).rstrip().splitlines()[-LOG_LINES:])[-LOG_CHARACTERS:]


def rounded(value: Any, digits: int) -> float | int | None:
    """A number with so many digits after the point, as short in JSON as it can be; None for what is no number."""
    if value is None or not math.isfinite(value):
        return None
    found = round(float(value), digits)
    return int(found) if found.is_integer() else found


def significant(value: Any, digits: int = 3) -> float | int | None:
    """A number with so many significant digits."""
    return rounded(float(f"{value:.{digits}g}"), 12) if value is not None and math.isfinite(value) else None


def thinned(count: int, most: int) -> list[int]:
    """At most so many of `count` indices, evenly spread, the first and the last among them."""
    return list(range(count)) if count <= most else [round(index * (count - 1) / (most - 1)) for index in range(most)]


def _anchor(cell: Cell) -> Anchor:
    return Anchor(cell.point, cell.label if cell.kind != "timing" else None, cell.kind)


def _plain(text: str) -> str:
    return plain.text(_COLOURS.sub("", text))


def _thinned(curve: Sequence[Mapping[str, float]]) -> list[float | int | None]:
    """The training loss at few, evenly spread points of a learning curve, the last among them."""
    losses = [point["loss"] for point in curve if math.isfinite(point.get("loss", math.nan))]
    return [significant(losses[index]) for index in thinned(len(losses), CURVE_POINTS)]
