"""Cost of the losses: phases of a step, times to target, Pareto fronts of the headline metric, memory and time."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lossbench import stats
from lossbench.analysis import target
from lossbench.analysis.measured import POINT
from lossbench.analysis.records import RunData

PHASES = ("forward", "backward", "optimizer")
PHASE_COLUMNS = [*POINT, "loss", "step", *PHASES, "rounds"]
MOST_CHOICES = 40  # on one front; the memory for its resamples grows with their square
FRONT_COLUMNS = [*POINT, "loss", "accuracy", "value", "bytes", "front_memory", "seconds", "front_time"]


def phases(data: RunData) -> pd.DataFrame:
    """One row per timed loss: median milliseconds per step, in total and by phase, and the number of rounds."""
    rows = []
    for point, rounds, notes in data.timed:
        for loss, seconds in rounds.items():
            parts = notes.get("phases", {}).get(loss, {})
            split = {name: 1000 * float(np.median(parts[name])) if name in parts else math.nan for name in PHASES}
            step = {"step": 1000 * float(np.median(seconds)), **split, "rounds": len(seconds)}
            rows.append({**point.row, "loss": loss, **step})
    return pd.DataFrame(rows, columns=PHASE_COLUMNS)


def front(data: RunData, main: pd.DataFrame) -> pd.DataFrame:
    """One row per loss and point: its probability of being on each Pareto front, given enough seeds.

    Memory is that of the FC layer, the class weights and the loss state (one number); its front is among all losses and
    widths of an experiment. Time is that of a step; its front is among the losses of one timing cell, since only their
    rounds are paired.
    """
    if main.empty:
        return pd.DataFrame(columns=FRONT_COLUMNS)
    frame = main[main["n"] > 0].reset_index(drop=True)
    frame["bytes"] = frame["bytes_fc"] + frame["bytes_classifier"] + frame["bytes_loss"]
    frame = frame.assign(front_memory=math.nan, seconds=math.nan, front_time=math.nan)
    within = [point.without("width") for point in frame["point"]]
    for _, group in frame.groupby(within, sort=False):
        if 2 <= len(group) <= MOST_CHOICES:
            # Shares of resamples: a fixed generator makes them the same on every rendering.
            chance = stats.pareto_chance(_values(data, group), group["bytes"], np.random.default_rng(0))
            frame.loc[group.index, "front_memory"] = chance
    for point, rounds, _ in data.timed:
        group = frame[(frame["point"] == point) & frame["loss"].isin(rounds)]
        times = [rounds[loss] for loss in group["loss"]]
        frame.loc[group.index, "seconds"] = [float(np.median(seconds)) for seconds in times]
        if 2 <= len(group) <= MOST_CHOICES:
            shared = min(map(len, times))
            # Logarithms, as in the paired ratios: a slow round slows all losses by the same factor.
            logs = np.log([mine[:shared] for mine in times]).T.reshape(shared, -1)
            chance = stats.pareto_chance(_values(data, group), logs, np.random.default_rng(0), rounds=True)
            frame.loc[group.index, "front_time"] = chance
    several = frame.groupby(within, sort=False)["loss"].transform("size") > 1
    return frame.loc[several, FRONT_COLUMNS].reset_index(drop=True)


def _values(data: RunData, choices: pd.DataFrame) -> NDArray[np.float64]:
    """Seeds × choices of the headline metric, larger is better; for the seeds that all choices have."""
    found = [data.measured.at(data.headline.name, row["point"], row["loss"]) for row in choices.to_dict("records")]
    seeds = [seed for seed in found[0] if all(seed in values for values in found)]
    return data.headline.sign * np.array([[values[seed] for values in found] for seed in seeds]).reshape(
        len(seeds), len(found)
    )


def times_to_target(data: RunData) -> pd.DataFrame:
    """One row per point and loss: the target, restricted means over seeds, and how many of the seeds are censored."""
    times = data.to_target
    rows = []
    for point, loss in ((point, loss) for point in data.points for loss in data.labels):
        found = {metric: list(values.get((point, loss), {}).values()) for metric, values in times.values.items()}
        if found[target.STEPS]:
            counts = {"n": len(found[target.STEPS]), "censored": len(times.censored.get((point, loss), ()))}
            means = {metric: sum(values) / len(values) if values else math.nan for metric, values in found.items()}
            rows.append({**point.row, "loss": loss, "target": data.targets[point], **counts, **means})
    return pd.DataFrame(rows)
