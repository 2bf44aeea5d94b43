"""The share of test examples that are classified correctly, or of pairs that are verified correctly."""

from __future__ import annotations

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "higher", ("classification", "verification")
STEP = 100.0


def measure(test: Evaluation) -> float:
    assert test.correct is not None
    return 100 * int(test.correct.sum()) / len(test.correct)
