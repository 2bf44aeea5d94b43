"""Every loss as it is written and as it was tuned, side by side, with what tuning cost and chose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from lossbench import stats
from lossbench.analysis.points import POINT, contrast
from lossbench.core.point import Point
from lossbench.suite.settings import Trial, complete, tried, winner

if TYPE_CHECKING:
    from lossbench.analysis.results import Results
    from lossbench.core.model import Budget

TUNING_COLUMNS = [
    *(*POINT, "loss", "default", "default_low", "default_high", "tuned", "tuned_low", "tuned_high"),
    *("n", "delta", "low", "high", "unit", "chosen", "lr", "trial", "trials", "failed", "left", "validation"),
]


def tabulated(results: Results) -> pd.DataFrame:
    """A row a loss and point of every experiment that is tuned; no row where the suite tunes nothing."""
    budget = results.outline.tuning
    rows = list(_rows(results, budget)) if budget else []
    return pd.DataFrame(rows, columns=TUNING_COLUMNS)


def _rows(results: Results, budget: Budget) -> list[dict[str, Any]]:
    frame = results.records
    records = {
        key: {"status": status, "cause": cause, "accuracy": accuracy}
        for key, status, cause, accuracy in zip(
            *(frame[name] for name in ("key", "status", "cause", "accuracy")), strict=True
        )
    }
    trials = tried(results.cells, records)
    rows = []
    for point, label in _planned(results):
        mine = trials.get((Point(point), label))
        if mine is None:
            continue
        best = winner(mine) if complete(mine) else None
        there = {**point, "experiment": budget.experiments[point["experiment"]]}
        written, tuned = (results.measured.at("accuracy", where, label) for where in (point, there))
        row: dict[str, Any] = {**point, "loss": label}
        for side, found in (("default", written), ("tuned", tuned)):
            mean, low, high = stats.mean_interval(list(found.values()))
            row |= {side: mean, f"{side}_low": low, f"{side}_high": high}
        resolution = results.measured.resolution("accuracy", [point], label)
        between = contrast(tuned, written, "points", None, resolution)
        row |= {name: getattr(between, name) for name in ("n", "delta", "low", "high", "unit")}
        if best and best.number == 1:  # the very same cells: their difference is no estimate
            row |= {"low": None, "high": None}
        row |= {
            "chosen": chosen(best, budget) if best else "",
            "lr": best.setting.lr if best else None,
            "trial": best.number if best else None,
            "trials": len(mine),
            "failed": sum(trial.lost > 0 for trial in mine),
            "left": sum(trial.left > 0 for trial in mine),
            "validation": best.mean if best else None,
        }
        rows.append(row)
    return rows


def _planned(results: Results) -> list[tuple[dict[str, Any], str]]:
    """(point, label) of every loss as it is written, in the order of the plan."""
    found = {}
    for cell in (cell for cell in results.cells if cell.kind == "train"):
        values = (cell.experiment, cell.dataset.label, cell.backbone.label, cell.classes, cell.width)
        found[(*values, cell.loss.label)] = (dict(zip(POINT, values, strict=True)), cell.loss.label)
    return list(found.values())


def chosen(trial: Trial, budget: Budget) -> str:
    """The options that were tuned with what was chosen for each: `m=0.21, s=14.3`."""
    loss = trial.setting.loss
    return ", ".join(f"{name}={loss.options[name]}" for name in budget.ranges.get(loss.label, {}))
