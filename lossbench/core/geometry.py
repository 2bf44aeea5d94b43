"""The minimum width of the FC layer.

C unit vectors with equal pairwise angles, as wide as possible, form a simplex: their inner products are −1/(C−1), and
they need C−1 dimensions. Hence the minimum width M_min = C − 1 of Li & Wang.
"""

from __future__ import annotations

import math


def minimum_width(classes: int) -> int:
    """M_min: the smallest FC width at which `classes` class weights can all be at equal angles."""
    if classes < 2:
        raise ValueError(f"classes must be at least 2, got {classes}")
    return classes - 1


def simplex_angle(classes: int) -> float:
    """The angle between any two weights of the simplex, in degrees: arccos(−1/(C−1))."""
    return math.degrees(math.acos(-1 / minimum_width(classes)))
