"""The angle between training features and the weight of their own class, mean over classes."""

from __future__ import annotations

from lossbench.metrics import Evaluation, _angles

UNIT, BETTER, TASKS = "degrees", "lower", ("classification", "verification", "retrieval")
COMPARED = False
NEEDS_CLASS_WEIGHTS = True


def measure(test: Evaluation) -> float | None:
    assert test.train
    return _angles.mean(test.train.angles)
