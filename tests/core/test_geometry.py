"""The paper's simplex and the minimum width that follows from it."""

from __future__ import annotations

import numpy as np
import pytest
from kit.simplex import simplex

from lossbench.core.geometry import minimum_width, simplex_angle


@pytest.mark.parametrize("classes", [*range(2, 21), 50, 100, 200])
def test_the_simplex_has_the_properties_that_the_paper_proves(classes):
    weights = simplex(classes)
    assert weights.shape == (classes - 1, classes)
    gram = weights.T @ weights
    expected = np.full((classes, classes), -1 / (classes - 1))
    np.fill_diagonal(expected, 1)
    assert np.abs(gram - expected).max() < 1e-12
    assert np.linalg.matrix_rank(weights) == minimum_width(classes)
    assert np.abs(weights.sum(1)).max() < 1e-11


@pytest.mark.parametrize("classes", [3, 4, 10])
def test_no_further_vector_of_that_width_keeps_the_angles_equal(classes):
    """The paper's proof by contradiction: w with equal products with all of W_C can only be 0."""
    weights = simplex(classes)
    differences = (weights[:, 1:] - weights[:, :1]).T  # w·(w_j − w_1) = 0 for all j
    assert np.linalg.matrix_rank(differences) == classes - 1


def test_small_simplices_are_the_ones_of_the_figure():
    assert simplex(2).tolist() == [[1, -1]]
    assert simplex_angle(2) == pytest.approx(180)
    assert simplex_angle(3) == pytest.approx(120)
    assert simplex_angle(4) == pytest.approx(109.4712, abs=1e-4)


def test_one_class_is_no_task():
    with pytest.raises(ValueError, match="at least 2"):
        minimum_width(1)
