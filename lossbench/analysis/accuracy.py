"""The mean of the headline metric of every loss at every point, with the other means over seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pandas as pd

from lossbench import stats
from lossbench.analysis import verdicts
from lossbench.analysis.measured import losses_at
from lossbench.analysis.records import BITS, RunData
from lossbench.core.geometry import minimum_width
from lossbench.core.metric import Metric
from lossbench.core.model import GEOMETRY, LEDGER
from lossbench.plugins.metrics import columns


def means(metrics: Iterable[Metric]) -> list[str]:
    """Columns of the records whose means over seeds are shown, besides the accuracy."""
    measured = list(metrics)
    memory = [f"bytes_{name}" for name in LEDGER]
    names = ["angle_train", "angle_test", *GEOMETRY, *columns(measured, "test"), *columns(measured, "record"), *memory]
    return [name for name in dict.fromkeys(names) if name != "accuracy"]


def main(data: RunData) -> pd.DataFrame:
    """One row per loss and point: the headline metric with its interval, median and worst seed, and other means.

    `value`, `low`, `high`, `median`, `worst`, `seed_se` and `test_se` are those of the headline metric.
    """
    rows = []
    planned = data.records[data.records["kind"] == "train"]
    headline, shown = data.headline, means(data.metrics.values())
    nothing = dict.fromkeys([*shown, "accuracy", "total"], math.nan)
    done = data.trained
    at = [done["point"], done["label"]]
    over_seeds = done[[*nothing]].astype(float).groupby(at, sort=False).mean().to_dict("index")
    counts, finished = Counter(losses_at(planned)), Counter(losses_at(done))
    tasks = dict(zip(planned["point"], planned["task"], strict=True))
    for point, task in tasks.items():
        for label in (label for label in data.labels if (point, label) in counts):
            values = list(data.measured.at(headline.name, point, label).values())
            n = len(values)
            mean, low, high = stats.mean_interval(values)
            found = over_seeds.get((point, label), nothing)
            row = {
                **point.row,
                "loss": label,
                "n": n,
                "failures": counts[point, label] - finished[point, label],
                "accuracy": found["accuracy"],
                "value": mean,
                "low": low,
                "high": high,
                "seed_se": float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan,
                "test_se": math.sqrt(mean * (100 - mean) / found["total"]) if n and headline.name in BITS else math.nan,
                "median": float(np.median(values)) if n else math.nan,
                "worst": headline.sign * min(headline.sign * value for value in values) if n else math.nan,
                "flags": verdicts.AT_CHANCE if (point, label) in data.at_chance else "",
                "task": task,
                **{name: found[name] for name in shown},
                "minimum": minimum_width(point["classes"]),
            }
            rows.append(row)
    return pd.DataFrame(rows)
