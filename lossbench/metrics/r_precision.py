"""R-precision: the share of the query's class among the R nearest images, R being the number of others of its class."""

from __future__ import annotations

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "higher", ("retrieval",)
TITLE = "R-precision"


def measure(test: Evaluation) -> float:
    return 100 * float(test.queries.r_precision.mean())
