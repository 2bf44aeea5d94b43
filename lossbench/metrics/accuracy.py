"""The share of correct test examples; of pairs in a verification; of queries in a retrieval, as recall@1."""

from __future__ import annotations

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "higher", ("classification", "verification", "retrieval")
STEP = 100.0


def measure(test: Evaluation) -> float:
    assert test.correct is not None
    return 100 * int(test.correct.sum()) / len(test.correct)
