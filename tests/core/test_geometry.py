"""The minimum width and the angle between class weights at that width."""

from __future__ import annotations

import numpy as np
import pytest
from kit.simplex import simplex

from lossbench.core.geometry import minimum_width, simplex_angle


@pytest.mark.parametrize("classes", [2, 3, 4, 10, 50])
def test_weights_at_equal_angles_need_the_minimum_width(classes):
    weights = np.eye(classes) - 1 / classes  # the corners of a simplex around the origin
    unit = weights / np.linalg.norm(weights, axis=0)
    between = (unit.T @ unit)[~np.eye(classes, dtype=bool)]
    assert np.degrees(np.arccos(np.clip(between, -1, 1))) == pytest.approx(simplex_angle(classes), abs=1e-5)
    assert np.linalg.matrix_rank(weights) == minimum_width(classes)


def test_angles_of_few_classes_are_those_of_the_papers_figure():
    assert [simplex_angle(classes) for classes in (2, 3, 4)] == pytest.approx([180, 120, 109.4712], abs=1e-4)


def test_a_single_class_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        minimum_width(1)
