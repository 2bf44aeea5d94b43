"""Brier score: the squared distance between predicted probabilities and the label, from 0 to 2.

1/N Σ_i Σ_c (p_i(c) − [c = y_i])², with p_i the softmax of the logits, as for `nll`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "", "lower", ("classification",)
TITLE = "Brier score"


def measure(test: Evaluation) -> NDArray[np.float64] | None:
    return None if test.outputs is None else test.outputs.examples.brier
