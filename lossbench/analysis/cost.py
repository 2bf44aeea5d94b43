"""What losses cost: how a step divides, and which choices no other beats in accuracy and cost.

`Results.phases` and `Results.front` keep what is computed here; tables, figures and report.json read it there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lossbench import stats
from lossbench.analysis.points import POINT

if TYPE_CHECKING:
    from lossbench.analysis.results import Results

PHASES = ("forward", "backward", "optimizer")
PHASE_COLUMNS = [*POINT, "loss", "step", *PHASES, "rounds"]
MOST_CHOICES = 40  # on one front; the chance takes memory by their square
WITHIN = ["experiment", "dataset", "backbone", "classes"]
FRONT_COLUMNS = [*WITHIN, "width", "loss", "accuracy", "bytes", "front_memory", "seconds", "front_time"]


def phases(results: Results) -> pd.DataFrame:
    """One row per timed loss: median milliseconds of a step, whole and by phase, and the number of rounds."""
    rows: list[dict[str, Any]] = []
    for (point, rounds), (_, notes) in zip(results.timings(), results.timing_notes, strict=True):
        for label, seconds in rounds.items():
            parts = notes.get("phases", {}).get(label, {})
            split = {name: 1000 * float(np.median(parts[name])) if name in parts else math.nan for name in PHASES}
            step = {"step": 1000 * float(np.median(seconds)), **split, "rounds": len(seconds)}
            rows.append({**point, "loss": label, **step})
    return pd.DataFrame(rows, columns=PHASE_COLUMNS)


def front(results: Results) -> pd.DataFrame:
    """The chance of each loss and width to be on the Pareto front of accuracy and cost, where there are enough seeds.

    Memory is that of the FC layer, the class weights and what the loss owns (one number); its front is among all losses
    and widths of an experiment. Time is that of a step; its front is among the losses of one timing cell, since only
    their rounds are paired.
    """
    main = results.main
    if main.empty:
        return pd.DataFrame(columns=FRONT_COLUMNS)
    frame = main[main["n"] > 0].reset_index(drop=True)
    frame["bytes"] = frame["bytes_fc"] + frame["bytes_classifier"] + frame["bytes_loss"]
    frame = frame.assign(front_memory=math.nan, seconds=math.nan, front_time=math.nan)
    for _, group in frame.groupby(WITHIN, sort=False):
        # Chances are shares of resamples; a fixed start makes them the same on every rendering.
        if 2 <= len(group) <= MOST_CHOICES:
            chance = stats.pareto_chance(_accuracies(results, group), group["bytes"], np.random.default_rng(0))
            frame.loc[group.index, "front_memory"] = chance
    for point, rounds in results.timings():
        here = np.logical_and.reduce([frame[name] == point[name] for name in POINT])
        group = frame[here & frame["loss"].isin(rounds)]
        taken = [rounds[label] for label in group["loss"]]
        frame.loc[group.index, "seconds"] = [float(np.median(seconds)) for seconds in taken]
        if 2 <= len(group) <= MOST_CHOICES:
            shared = min(map(len, taken))
            # Logarithms, as in the paired ratios: what slows a whole round down moves all losses alike.
            seconds = np.log([mine[:shared] for mine in taken]).T.reshape(shared, -1)
            chance = stats.pareto_chance(_accuracies(results, group), seconds, np.random.default_rng(0), rounds=True)
            frame.loc[group.index, "front_time"] = chance
    several = frame.groupby(WITHIN, sort=False)["loss"].transform("size") > 1
    return frame.loc[several, FRONT_COLUMNS].reset_index(drop=True)


def _accuracies(results: Results, choices: pd.DataFrame) -> NDArray[np.float64]:
    """Seeds × choices, of the seeds that all of them have."""
    found = [results.measured.at("accuracy", row, row["loss"]) for row in choices.to_dict("records")]
    seeds = [seed for seed in found[0] if all(seed in values for values in found)]
    return np.array([[values[seed] for values in found] for seed in seeds]).reshape(len(seeds), len(found))
