"""What geometry says about the width of the FC layer.

C unit vectors whose pairwise angles are all equal and as wide as possible form a simplex: their inner products are
−1/(C−1), and they need C−1 dimensions. Hence the minimum width M_min = C − 1 of Li & Wang.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def minimum_width(classes: int) -> int:
    """M_min: the least FC width at which `classes` class weights can stand at equal angles."""
    if classes < 2:
        raise ValueError(f"classes must be at least 2, got {classes}")
    return classes - 1


def simplex_angle(classes: int) -> float:
    """The angle between any two weights of the simplex, in degrees: arccos(−1/(C−1))."""
    return math.degrees(math.acos(-1 / minimum_width(classes)))


def simplex(classes: int) -> NDArray[np.float64]:
    """W_C ((C−1)×C): a column a class, all of length 1 and at equal angles, by the paper's recursion.

    W_2 = [1 −1],   W_C = [ √(1 − 1/(C−1)²) W_{C−1}   0 ]
                          [        −1/(C−1) …         1 ]
    """
    import numpy as np

    weights = np.zeros((minimum_width(classes), classes))
    weights[0, :2] = 1, -1
    for c in range(3, classes + 1):
        weights[: c - 2, : c - 1] *= math.sqrt(1 - 1 / (c - 1) ** 2)
        weights[c - 2, : c - 1] = -1 / (c - 1)
        weights[c - 2, c - 1] = 1
    return weights
