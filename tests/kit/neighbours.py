"""Retrieval by its definitions, in plain Python."""

from __future__ import annotations

import math

import numpy as np


def by_loops(features, labels, ks=(1, 5, 10)):
    """Every metric in percent; equal cosines are ranked by index."""
    unit = [row / max(math.sqrt(sum(value * value for value in row)), 1e-30) for row in features.double().numpy()]
    sums, queries = dict.fromkeys([*(f"recall@{k}" for k in ks), "map@r", "r_precision"], 0.0), 0
    for query, label in enumerate(labels):
        others = [other for other in range(len(labels)) if other != query]
        relevant = sum(labels[other] == label for other in others)
        if not relevant:
            continue
        queries += 1
        cosine = {other: np.float32(unit[query] @ unit[other]) for other in others}
        ranked = sorted(others, key=lambda other: (-cosine[other], other))
        hits = [labels[other] == label for other in ranked]
        for k in ks:
            sums[f"recall@{k}"] += any(hits[:k])
        sums["r_precision"] += sum(hits[:relevant]) / relevant
        sums["map@r"] += sum(sum(hits[: r + 1]) / (r + 1) for r in range(relevant) if hits[r]) / relevant
    return {name: 100 * value / queries for name, value in sums.items()}
