"""Expected calibration error over 15 equal-mass bins: how far confidence is from accuracy.

Examples are put into bins of equal size by their confidence q_i = max_c p_i(c), p_i being the softmax of the logits, as
for `nll`:

    ECE = Σ_b n_b/N · |accuracy of b − mean confidence of b| = 1/N Σ_b |Σ_{i∈b} ([ŷ_i = y_i] − q_i)|

Examples of equal confidence share a bin, the one of their mean rank, so that the order of the test set does not matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "lower", ("classification",)
TITLE = "ECE"
BINS = 15


def measure(test: Evaluation, *, bins: int = BINS) -> float | None:
    if test.outputs is None or test.correct is None:
        return None
    return expected(test.outputs.examples.confidence, test.correct, bins)


def expected(confidence: NDArray[np.float64], correct: NDArray[np.bool_], bins: int) -> float:
    """The error in points, from the confidence of each example (N,) and whether it is classified correctly (N,)."""
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    n = len(confidence)
    _, place, count = np.unique(confidence, return_inverse=True, return_counts=True)
    end = np.cumsum(count)
    middle = (2 * end - count)[place]  # twice the mean rank, less one: whole numbers in (0, 2N)
    return 100 * float(np.abs(np.bincount(bins * middle // (2 * n), weights=correct - confidence)).sum()) / n
