"""The angle between test features and the weight of their own class, mean over classes."""

from __future__ import annotations

from lossbench.metrics import Evaluation, _angles

UNIT, BETTER, TASKS = "degrees", "lower", ("classification",)  # the classes of a verification's pairs have no weights
COLUMN = "angle_test"
NEEDS_CLASS_WEIGHTS = True


def measure(test: Evaluation) -> float | None:
    return _angles.mean(test.angles)
