"""Two runs of a suite, before and after a change: each loss against itself, paired by point and seed."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lossbench import stats
from lossbench.analysis import target
from lossbench.analysis.comparisons import frame_of, row_of
from lossbench.analysis.measured import Contrast, LossAt, contrast, losses_at
from lossbench.analysis.records import RunData
from lossbench.analysis.verdicts import judged
from lossbench.core.errors import StoreError
from lossbench.core.point import AXES

COLUMNS = [
    *("point", "experiment", "metric", "loss", "n", "before", "after", "delta", "low", "high", "level", "p"),
    *("p_adjusted", "verdict", "flags", "change", "failed_before", "failed_after", "seeds_needed", "seeds_needed_high"),
    *("unit", *AXES),
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
            failed |= (self.frame["low"] > 0) | (self.frame["high"] < 0)
        return self.frame[failed]


def compare(before: str | os.PathLike[str], after: str | os.PathLike[str]) -> Comparison:
    """Every loss against itself, after minus before; intervals are simultaneous over an experiment and metric."""
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
    rows: list[dict[str, Any]] = []
    for metric, experiment in itertools.product(
        (name for name in scores if name not in changed), dict.fromkeys(point["experiment"] for point, _ in shared)
    ):
        found = {at: _contrast(sides, metric, at) for at in shared if at[0]["experiment"] == experiment}
        level = stats.LEVEL / max(sum(len(one.a) >= stats.FEWEST_SEEDS for one in found.values()), 1)
        rows += filter(None, (_row(sides, metric, at, one, level, failed) for at, one in found.items()))
    only = [[_title(at) for at in known[side] if at not in known[1 - side]] for side in (0, 1)]
    notes = [f"'{name}' was changed between the two runs, so it is not compared" for name in changed]
    return Comparison(frame_of(rows, COLUMNS), only[0], only[1], [*_notes(*sides), *notes])


def _contrast(sides: list[RunData], metric: str, at: LossAt) -> Contrast:
    """A loss after minus before, paired by seed; for accuracies with the noise of the test examples."""
    before, after = (side.measured.at(metric, *at) for side in sides)
    new = sides[1]
    shared = [seed for seed in after if seed in before]
    tables = [side.examples(metric, *at, shared) if shared else None for side in sides]
    known = [table for table in tables if table is not None]
    same = len(known) == 2 and known[0].shape == known[1].shape
    return contrast(
        after,
        before,
        new.metrics[metric].unit,
        resolution=new.measured.resolution(metric, [at[0]], at[1]),
        noise=stats.example_error(known[1] - known[0]) if same else 0.0,
        deviation=stats.largest_deviation([after, before], before),
    )


def _row(
    sides: list[RunData], metric: str, at: LossAt, found: Contrast, level: float, failed: list[Counter[LossAt]]
) -> dict[str, Any] | None:
    lost = failed[0][at], failed[1][at]
    new = sides[1]
    headline = metric == new.headline.name
    if not any(side.measured.at(metric, *at) for side in sides) and not (headline and any(lost)):
        return None
    judgement = row_of(judged(found, level, new.margin(metric), new.metrics[metric].sign))
    means = {"before": found.b.mean(), "after": found.a.mean()} if len(found.a) else {}
    counts = {"failed_before": lost[0], "failed_after": lost[1]}
    row = {**at[0].row, "metric": metric, "loss": at[1], **judgement, **means, **counts}
    more = headline and lost[1] > lost[0]  # failing cells count as worse, regardless of the differences
    return row | {"change": "worse" if more else row["verdict"] if row["verdict"] in ("better", "worse") else "none"}


def _changed(old: RunData, new: RunData) -> list[str]:
    """The metrics whose code differs between two runs."""
    codes = [{spec.label: spec.source for cell in data.cells for spec in cell.metrics} for data in (old, new)]
    return [name for name, code in codes[0].items() if codes[1].get(name, code) != code]


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
