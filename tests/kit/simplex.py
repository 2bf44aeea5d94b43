"""The class weights that minimum width is about, built by the paper's recursion."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def simplex(classes: int) -> NDArray[np.float64]:
    """W_C ((C−1)×C): one column per class, all of length 1 and at equal angles.

    W_2 = [1 −1],   W_C = [ √(1 − 1/(C−1)²) W_{C−1}   0 ]
                          [        −1/(C−1) …         1 ]
    """
    weights = np.zeros((classes - 1, classes))
    weights[0, :2] = 1, -1
    for c in range(3, classes + 1):
        weights[: c - 2, : c - 1] *= math.sqrt(1 - 1 / (c - 1) ** 2)
        weights[c - 2, : c - 1] = -1 / (c - 1)
        weights[c - 2, c - 1] = 1
    return weights
