"""The share of test examples whose class is among the five with the largest logits.

#{i: rank of y_i < 5} / N, the rank being the number of classes with a larger logit, or with an equal one and a smaller
label. It does not exist with five classes or fewer, where it would always be 100.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "higher", ("classification",)
TITLE = "top-5"
STEP = 100.0
BEST = 5


def measure(test: Evaluation) -> NDArray[np.float64] | None:
    if test.outputs is None or test.outputs.examples.classes <= BEST:
        return None
    return np.where(test.outputs.examples.rank < BEST, 100.0, 0.0)
