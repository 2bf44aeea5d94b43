"""R-precision: the share of the query's class among the R nearest images, R being the number of others of its class."""

from __future__ import annotations

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "higher", ("retrieval",)
TITLE = "R-precision"


def measure(test: Evaluation) -> float:
    assert test.retrieved is not None
    return 100 * float(test.retrieved.r_precision.mean())
