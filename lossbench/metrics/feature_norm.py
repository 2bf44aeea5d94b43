"""The mean length of test features."""

from __future__ import annotations

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "", "higher", ("classification", "verification", "retrieval")
COLUMN = "norm_test"
COMPARED = False


def measure(test: Evaluation) -> float:
    return float(test.features.norm(dim=1).double().mean())
