"""Recall@k: the share of queries with an image of their class among the k nearest other images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "higher", ("retrieval",)
AT, TITLE = "k", "Recall@{k}"
NAMES = {
    "recall@1": ("Recall@1", {"k": 1}),
    "recall@5": ("Recall@5", {"k": 5}),
    "recall@10": ("Recall@10", {"k": 10}),
}
STEP = 100.0


def measure(test: Evaluation, *, k: int) -> NDArray[np.float64]:
    return np.where(test.queries.first <= k, 100.0, 0.0)
