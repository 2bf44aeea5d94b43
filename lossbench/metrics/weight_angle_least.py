"""The smallest angle between two class weights."""

from __future__ import annotations

from lossbench.metrics import Evaluation, _angles

UNIT, BETTER, TASKS = "degrees", "higher", ("classification", "verification", "retrieval")
COMPARED = False
NEEDS_CLASS_WEIGHTS = True


def measure(test: Evaluation) -> float | None:
    return None if test.weights is None else _angles.between(test.weights).min().item()
