"""Mean accuracy of every loss at every point, with the other means over seeds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from lossbench import stats
from lossbench.analysis.measured import Measured
from lossbench.analysis.records import RunData, points
from lossbench.core.geometry import minimum_width
from lossbench.core.model import GEOMETRY
from lossbench.core.point import Point
from lossbench.plugins.metrics import columns

# Columns of the records whose means over seeds are shown, besides those of memory.
MEANS = tuple(
    name
    for name in dict.fromkeys(["angle_train", "angle_test", *GEOMETRY, *columns("test"), *columns("record")])
    if name != "accuracy" and not name.startswith("bytes_")
)


def main(data: RunData) -> pd.DataFrame:
    """One row per loss and point: accuracy with its interval and both standard errors, failures, ties, other means."""
    rows = []
    planned = data.records[data.records["kind"] == "train"]
    shown = [*MEANS, *(name for name in planned if name.startswith("bytes_"))]
    for point, group in points(planned):
        letters = _tie_letters(data.measured, data.labels, point)
        done = group[group["status"] == "done"]
        means = done[[*shown, "total"]].astype(float).groupby(done["label"]).mean()
        counts = group["label"].value_counts()
        for label in (label for label in data.labels if label in counts):
            accuracy = list(data.measured.at("accuracy", point, label).values())
            n = len(accuracy)
            mean, low, high = stats.mean_interval(accuracy)
            found = means.loc[label] if label in means.index else dict.fromkeys([*shown, "total"], math.nan)
            row = {
                **point.row,
                "loss": label,
                "n": n,
                "failures": int(counts[label]) - n,
                "accuracy": mean,
                "low": low,
                "high": high,
                "seed_se": float(np.std(accuracy, ddof=1)) / math.sqrt(n) if n > 1 else math.nan,
                "test_se": math.sqrt(mean * (100 - mean) / found["total"]) if n else math.nan,
                "ties": letters.get(label, ""),
                "task": group["task"].iloc[0],
                **{name: found[name] for name in shown},
                "minimum": minimum_width(point["classes"]),
            }
            rows.append(row)
    return pd.DataFrame(rows)


def _tie_letters(measured: Measured, labels: list[str], point: Point) -> dict[str, str]:
    """Letters by loss: two losses share one if their accuracies at the point do not differ significantly."""
    found = {label: values for label in labels if (values := measured.at("accuracy", point, label))}
    if len(found) < 2:
        return {}
    seeds = sorted({seed for values in found.values() for seed in values})
    table = [[values.get(seed, math.nan) for values in found.values()] for seed in seeds]
    resolution = measured.resolution("accuracy", [point], next(iter(found)))
    return dict(zip(found, stats.tie_letters(table, resolution=resolution), strict=True))
