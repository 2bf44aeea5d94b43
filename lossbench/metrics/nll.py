"""Negative log-likelihood of the test labels under the softmax of the logits.

−1/N Σ_i log p_i(y_i), with p_i(c) = exp(z_ic) / Σ_k exp(z_ik). The logits z are those of the loss in evaluation mode,
as its `logits` gives them: without margin. Where they are cosines without a scale, the softmax is a flat one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "nats", "lower", ("classification",)
TITLE = "NLL"


def measure(test: Evaluation) -> NDArray[np.float64] | None:
    return None if test.outputs is None else -test.outputs.examples.log_likelihood
