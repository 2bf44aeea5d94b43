"""Accuracies by class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lossbench.metrics import Evaluation


def accuracies(test: Evaluation) -> NDArray[np.float64]:
    """The share of correct examples of every class that has any, by increasing label."""
    assert test.correct is not None
    _, of = np.unique(test.labels, return_inverse=True)
    return np.bincount(of, weights=test.correct) / np.bincount(of)
