"""MAP@R: mean average precision at R, where R is the number of other images of the query's class.

Of a query, 1/R · Σ P(r) over the ranks r ≤ R of images of its class, P(r) being the share of its class among the r
nearest: Musgrave, Belongie & Lim, "A Metric Learning Reality Check", ECCV 2020. It is 100 only if all R come first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "higher", ("retrieval",)
NAMES: dict[str, tuple[str, dict[str, int]]] = {"map@r": ("MAP@R", {})}


def measure(test: Evaluation) -> NDArray[np.float64]:
    return 100 * test.queries.map_at_r
