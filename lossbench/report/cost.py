"""What losses cost: how a step divides, and which choices no other beats in accuracy and cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lossbench import stats

if TYPE_CHECKING:
    from lossbench.report.analysis import Results

PHASES = ("forward", "backward", "optimizer")
MOST_CHOICES = 40  # on one front; the chance takes memory by their square
WITHIN = ["experiment", "dataset", "backbone", "classes"]
FRONT_COLUMNS = [*WITHIN, "width", "loss", "accuracy", "bytes", "front_memory", "seconds", "front_time"]


def phases(results: Results) -> pd.DataFrame:
    """A row a timed loss: median milliseconds a step, whole and by phase."""
    rows: list[dict[str, Any]] = []
    for (point, rounds), (_, notes) in zip(results.timings(), results.timing_notes, strict=True):
        for label, seconds in rounds.items():
            parts = notes.get("phases", {}).get(label, {})
            split = {name: 1000 * float(np.median(parts[name])) if name in parts else math.nan for name in PHASES}
            rows.append({**point, "loss": label, "step": 1000 * float(np.median(seconds)), **split})
    return pd.DataFrame(rows)


def fronts(results: Results) -> pd.DataFrame:
    """The chance of each loss and width to be on the front of accuracy and cost, where there are seeds enough.

    Cost is the memory of the FC layer, the class weights and what the loss owns (one number), or the seconds of a step.
    """
    rows: list[dict[str, Any]] = []
    timed = {tuple(point.values()): rounds for point, rounds in results.timings()}
    main = results.main
    for _, group in main[main["n"] > 0].groupby(WITHIN, sort=False) if len(main) else ():
        if not 2 <= len(group) <= MOST_CHOICES:
            continue
        choices = group.to_dict("records")
        accuracies = [results.measured.at("accuracy", row, row["loss"]) for row in choices]
        seeds = [seed for seed in accuracies[0] if all(seed in values for values in accuracies)]
        table = np.array([[values[seed] for values in accuracies] for seed in seeds]).reshape(len(seeds), -1)
        sizes = [row["bytes_fc"] + row["bytes_classifier"] + row["bytes_loss"] for row in choices]
        # Chances are shares of resamples; a fixed start makes them the same on every rendering.
        memory = stats.pareto_chance(table, sizes, np.random.default_rng(0))
        rounds = [_rounds(timed, row) for row in choices]
        shared = min(map(len, rounds))
        seconds = np.array([taken[:shared] for taken in rounds]).T.reshape(shared, len(choices))
        time = stats.pareto_chance(table, seconds, np.random.default_rng(0), rounds=True)
        for row, size, by_memory, by_time, taken in zip(choices, sizes, memory, time, rounds, strict=True):
            found = {"bytes": size, "front_memory": by_memory, "front_time": by_time}
            spent = {"seconds": float(np.median(taken)) if taken else math.nan}
            rows.append({name: row[name] for name in (*WITHIN, "width", "loss", "accuracy")} | found | spent)
    return pd.DataFrame(rows, columns=FRONT_COLUMNS)


def _rounds(timed: dict[tuple[Any, ...], dict[str, list[float]]], row: dict[str, Any]) -> list[float]:
    return timed.get(tuple(row[name] for name in (*WITHIN, "width")), {}).get(row["loss"], [])
