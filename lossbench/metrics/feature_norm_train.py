"""The mean length of training features."""

from __future__ import annotations

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "", "higher", ("classification", "verification", "retrieval")
COLUMN = "norm_train"
COMPARED = False


def measure(test: Evaluation) -> float:
    assert test.train
    return float(test.train.features.norm(dim=1).double().mean())
