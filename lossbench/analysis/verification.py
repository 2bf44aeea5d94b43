"""Uncertainty of verification scores due to the choice of test pairs."""

from __future__ import annotations

import numpy as np

from lossbench.analysis.measured import losses_at
from lossbench.analysis.records import RunData
from lossbench.core.point import Point

PairIntervals = dict[tuple[Point, str, str], tuple[float, float]]  # by point, loss and metric


def pair_intervals(data: RunData) -> PairIntervals:
    """The 95 % intervals over pairs in percent, averaged over seeds; older records have none."""
    found: dict[tuple[Point, str, str], list[tuple[float, float]]] = {}
    for at, record in zip(losses_at(data.trained), data.trained["verification"], strict=True):
        if record:
            named = {"auc": record["auc"], "eer": record["eer"]}
            named |= {f"tar@{rate['far']:g}": rate for rate in record["tar"]}
            for metric, estimate in named.items():
                if (ends := (estimate.get("low"), estimate.get("high"))) and None not in ends:
                    found.setdefault((*at, metric), []).append(ends)
    return {key: (100 * low, 100 * high) for key, ends in found.items() for low, high in [np.mean(ends, axis=0)]}
