"""Two runs of a suite, before and after a change: each loss against itself, paired by point and seed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lossbench.analysis import target
from lossbench.analysis.comparisons import decide, frame_of
from lossbench.analysis.measured import LossAt, contrast, losses_at
from lossbench.analysis.records import RunData
from lossbench.core.errors import StoreError
from lossbench.core.point import AXES

COLUMNS = [
    *("point", "experiment", "metric", "loss", "n", "before", "after", "delta", "low", "high", "p", "p_holm", "tost_p"),
    *("verdict", "change", "failed_before", "failed_after", "seeds_needed", "unit", *AXES),
]


@dataclass(frozen=True)
class Comparison:
    """The differences between two runs: one row per metric, loss and point, and the points that only one run has."""

    frame: pd.DataFrame
    only_before: list[str]
    only_after: list[str]
    notes: list[str]

    def failing(self, fail_on: str) -> pd.DataFrame:
        """The rows that count as a failure: `worse`, or `different` in either direction and of any size."""
        failed = self.frame["change"] == "worse"
        if fail_on == "different":
            failed |= self.frame["verdict"].str.startswith("different")
        return self.frame[failed]


def compare(before: str | os.PathLike[str], after: str | os.PathLike[str]) -> Comparison:
    """Every loss against itself, after minus before; p is Holm-adjusted over an experiment and metric."""
    sides = [RunData.read([run]) for run in (before, after)]
    failed = [_failures(side) for side in sides]
    known = [dict.fromkeys([*side.measured.totals, *lost]) for side, lost in zip(sides, failed, strict=True)]
    shared = [at for at in known[0] if at in known[1]]
    if not shared:
        raise StoreError(f"{before} and {after} have no experiment and loss in common: nothing to compare")
    times = sides[1].reached(sides[0].targets)  # both to the targets of the earlier run
    sides[1].measured.add(times.values, times.grain)
    headline = sides[1].headline.name
    known_metrics = [metric for name, metric in sides[1].metrics.items() if name in sides[0].metrics]
    scores = [metric.name for metric in known_metrics if metric.is_score or metric.name in (headline, target.STEPS)]
    changed = _changed(*sides)
    found = (_row(sides, metric, at, failed) for metric in scores if metric not in changed for at in shared)
    rows = [row for row in found if row is not None]
    decide(rows, headline, sides[1].info.margin)
    for row in rows:
        row["change"] = _change(row, sides[1])
    only = [[_title(at) for at in known[side] if at not in known[1 - side]] for side in (0, 1)]
    notes = [f"'{name}' was changed between the two runs, so it is not compared" for name in changed]
    return Comparison(frame_of(rows, COLUMNS), only[0], only[1], [*_notes(*sides), *notes])


def _row(sides: list[RunData], metric: str, at: LossAt, failed: list[Counter[LossAt]]) -> dict[str, Any] | None:
    point, loss = at
    before, after = (side.measured.at(metric, point, loss) for side in sides)
    lost = failed[0][at], failed[1][at]
    new = sides[1]
    headline = metric == new.headline.name
    if not (before or after) and not (headline and any(lost)):
        return None
    margin = new.info.margin if headline else None
    found = contrast(after, before, new.metrics[metric].unit, margin, new.measured.resolution(metric, [point], loss))
    second, first = found.sides
    means = {"before": sum(first) / len(first), "after": sum(second) / len(second)} if first else {}
    counts = {"failed_before": lost[0], "failed_after": lost[1]}
    return {**point.row, "metric": metric, "loss": loss, **found._asdict(), **means, **counts}


def _changed(old: RunData, new: RunData) -> list[str]:
    """The metrics whose code differs between two runs."""
    codes = [{spec.label: spec.source for cell in data.cells for spec in cell.metrics} for data in (old, new)]
    return [name for name, code in codes[0].items() if codes[1].get(name, code) != code]


def _change(row: Mapping[str, Any], data: RunData) -> str:
    """better, worse or none; more failing cells count as worse, regardless of the differences."""
    if row["metric"] == data.headline.name and row["failed_after"] > row["failed_before"]:
        return "worse"
    if row["verdict"] != "different":
        return "none"
    return "better" if (row["delta"] > 0) == data.metrics[row["metric"]].higher_is_better else "worse"


def _failures(data: RunData) -> Counter[LossAt]:
    """The number of accuracy cells that did not finish, by point and loss."""
    frame = data.records
    return Counter(losses_at(frame[(frame["kind"] == "train") & (frame["status"] != "done")]))


def _notes(old: RunData, new: RunData) -> list[str]:
    notes = []
    prints = [{found.get("fingerprint") for found in data.environments} for data in (old, new)]
    if prints[0] != prints[1]:
        notes.append("the environments differ, which may explain part of a difference")
    keys = [set(data.trained["key"]) for data in (old, new)]
    if same := len(keys[0] & keys[1]):
        notes.append(f"{same} of {len(keys[1])} cells are identical in both runs")
    return notes


def _title(at: LossAt) -> str:
    point, loss = at
    return f"{point['experiment']}: {loss} ({point.told()})"
