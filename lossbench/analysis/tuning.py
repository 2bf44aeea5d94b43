"""Every tuned loss with its default and its chosen setting, and the trials: tuning.csv."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lossbench import stats
from lossbench.analysis.measured import POINT, contrast
from lossbench.analysis.records import RunData
from lossbench.core.model import Budget
from lossbench.core.point import Point
from lossbench.suite.settings import Trial, complete, tried, winner

TUNING_COLUMNS = [
    *(*POINT, "loss", "default", "default_low", "default_high", "tuned", "tuned_low", "tuned_high"),
    *("n", "delta", "low", "high", "unit", "chosen", "lr", "trial", "trials", "failed", "left", "validation"),
]


def tuned(data: RunData) -> pd.DataFrame:
    """One row per loss and point of every tuned experiment; no rows if the suite tunes nothing."""
    budget = data.info.tuning
    if budget is None:
        return pd.DataFrame(columns=TUNING_COLUMNS)
    trials = tried(data.cells, data.trials)
    planned = dict.fromkeys((cell.point, cell.loss.label) for cell in data.cells if cell.kind == "train")
    rows = []
    for point, loss in planned:
        mine = trials.get((point, loss))
        if mine is not None:
            values, trial = _values(data, budget, point, loss), _trials(budget, mine, data.headline.sign)
            rows.append({**point.row, "loss": loss, **values, **trial})
            if rows[-1]["trial"] == 1:  # the default won, so both sides are the same cells: no estimate of a difference
                rows[-1] |= {"low": None, "high": None}
    return pd.DataFrame(rows, columns=TUNING_COLUMNS)


def _values(data: RunData, budget: Budget, point: Point, loss: str) -> dict[str, Any]:
    """The headline metric of both settings with its intervals, and the paired difference."""
    twin, headline = point.of(budget.experiments[point["experiment"]]), data.headline
    default, chosen = (data.measured.at(headline.name, where, loss) for where in (point, twin))
    row: dict[str, Any] = {}
    for side, values in (("default", default), ("tuned", chosen)):
        mean, low, high = stats.mean_interval(list(values.values()))
        row |= {side: mean, f"{side}_low": low, f"{side}_high": high}
    resolution = data.measured.resolution(headline.name, [point], loss)
    found = contrast(chosen, default, headline.unit)
    numbers = stats.paired(found.a, found.b, resolution=resolution)
    return row | {name: getattr(numbers, name) for name in ("n", "delta", "low", "high")} | {"unit": found.unit}


def _trials(budget: Budget, trials: list[Trial], sign: int) -> dict[str, Any]:
    best = winner(trials) if complete(trials) else None
    return {
        "chosen": chosen(best, budget) if best else "",
        "lr": best.schedule.lr if best else None,
        "trial": best.number if best else None,
        "trials": len(trials),
        "failed": sum(trial.lost > 0 for trial in trials),
        "left": sum(trial.left > 0 for trial in trials),
        "validation": sign * best.mean if best and best.mean is not None else None,
    }


def chosen(trial: Trial, budget: Budget) -> str:
    """What was tuned, with the chosen values: `m=0.21, s=14.3, batch=32`; `lr` has its own column."""
    loss = trial.setting.loss
    options = [f"{name}={loss.options[name]}" for name in budget.ranges.get(loss.label, {})]
    return ", ".join(options + [f"{key}={trial.schedule.in_words(key)}" for key in budget.schedule if key != "lr"])
