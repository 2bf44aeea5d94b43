"""Two runs side by side, before and after an edit: cells are paired by experiment, point, loss and seed."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lossbench.analysis.points import POINT, Place, contrast, paired_values
from lossbench.analysis.results import Results, analyse, decide, frame_of
from lossbench.core.errors import StoreError
from lossbench.plugins.metrics import METRICS, SCORES

COLUMNS = [
    *("experiment", "metric", "loss", "n", "before", "after", "delta", "low", "high", "p", "p_holm", "tost_p"),
    *("verdict", "change", "failed_before", "failed_after", "seeds_needed", "unit", *POINT[1:]),
]


@dataclass(frozen=True)
class Comparison:
    """What changed from one run to another: a row a score, loss and point, and what only one of them has."""

    frame: pd.DataFrame
    only_before: list[str]
    only_after: list[str]
    notes: list[str]

    def failing(self, fail_on: str) -> pd.DataFrame:
        """The rows that count as a failure: `worse`, or any `different` whichever way and however small."""
        if fail_on == "worse":
            return self.frame[self.frame["change"] == "worse"]
        changed = self.frame["verdict"].str.startswith("different") | (self.frame["change"] == "worse")
        return self.frame[changed]


def compare(before: str | os.PathLike[str], after: str | os.PathLike[str]) -> Comparison:
    """Every loss against itself, after minus before; p is Holm-adjusted over an experiment and metric."""
    old, new = analyse([before]), analyse([after])
    failed = [_failures(results) for results in (old, new)]
    known = [
        list(dict.fromkeys([*results.measured.totals, *lost])) for results, lost in zip((old, new), failed, strict=True)
    ]
    shared = [place for place in known[0] if place in known[1]]
    if not shared:
        raise StoreError(f"{before} and {after} have no loss of an experiment in common: nothing to compare")
    rows = [row for metric in SCORES for place in shared if (row := _row(old, new, metric, place, failed))]
    families: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        families.setdefault((row["experiment"], row["metric"]), []).append(row)
    for (_, metric), family in families.items():
        decide(family, new.outline.margin if metric == "accuracy" else None)
        for row in family:
            row["change"] = _change(row)
    only = [[_title(place) for place in known[side] if place not in known[1 - side]] for side in (0, 1)]
    return Comparison(frame_of(rows, COLUMNS), only[0], only[1], _notes(old, new))


def _row(old: Results, new: Results, metric: str, place: Place, failed: list[Counter[Place]]) -> dict[str, Any] | None:
    before, after = (results.measured.values[metric].get(place, {}) for results in (old, new))
    lost = failed[0][place], failed[1][place]
    if not (before or after) and not (metric == "accuracy" and any(lost)):
        return None
    point, label = dict(zip(POINT, place, strict=False)), place[-1]
    margin = new.outline.margin if metric == "accuracy" else None
    resolution = new.measured.resolution(metric, [point], label)
    found = contrast(after, before, METRICS[metric].unit, margin, resolution)
    second, first = paired_values(after, before)
    mean = {"before": sum(first) / len(first), "after": sum(second) / len(second)} if first else {}
    counts = {"failed_before": lost[0], "failed_after": lost[1]}
    return {**point, "metric": metric, "loss": label, **found._asdict(), **mean, **counts}


def _change(row: dict[str, Any]) -> str:
    """better, worse or none: a difference beyond doubt that matters; more cells that fail are worse whatever else."""
    if row["metric"] == "accuracy" and row["failed_after"] > row["failed_before"]:
        return "worse"
    if row["verdict"] != "different":
        return "none"
    return "better" if (row["delta"] > 0) == METRICS[row["metric"]].higher_is_better else "worse"


def _failures(results: Results) -> Counter[Place]:
    """How many cells of each loss and point ended otherwise than done."""
    frame = results.records[(results.records["kind"] == "train") & (results.records["status"] != "done")]
    return Counter(zip(*(frame[name] for name in (*POINT, "label")), strict=True))


def _notes(old: Results, new: Results) -> list[str]:
    notes = []
    prints = [{found.get("fingerprint") for found in results.environments} for results in (old, new)]
    if prints[0] != prints[1]:
        notes.append("the environments differ: part of a difference may be theirs")
    keys = [set(results.trained["key"]) for results in (old, new)]
    same = len(keys[0] & keys[1])
    if same:
        notes.append(f"{same} of {len(keys[1])} cells are the very same in both runs")
    return notes


def _title(place: Place) -> str:
    experiment, dataset, _, classes, width, label = place
    return f"{experiment}: {label} ({dataset}, C = {classes}, M = {width})"
