"""R-precision: the share of the query's class among the R nearest images, R being the number of others of its class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "higher", ("retrieval",)
TITLE = "R-precision"


def measure(test: Evaluation) -> NDArray[np.float64]:
    return 100 * test.queries.r_precision
