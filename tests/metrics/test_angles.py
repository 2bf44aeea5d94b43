"""Angles and lengths of features and class weights, against cases known by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kit.simplex import simplex

from lossbench.metrics import Evaluation
from lossbench.metrics._angles import by_class
from lossbench.plugins.metrics import METRICS


def evaluation(weights=None, features=None, labels=(0, 1, 2), **more):
    features = torch.zeros(3, 2) if features is None else features
    return Evaluation(np.array(labels), features, weights, **more)


def test_angles_are_zero_on_the_weight_and_right_angles_beside_it():
    weight = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    features = torch.tensor([[5.0, 0.0], [0.0, 7.0], [1.0, 0.0]])
    found = evaluation(weight, features, (0, 0, 1))
    assert found.angles == [pytest.approx(45.0), pytest.approx(90.0), None]
    assert METRICS["angle"].measure(found) == pytest.approx(67.5)  # a class without examples does not count
    assert evaluation(weight, -features).angles == pytest.approx([180.0, 180.0, 135.0])


def test_there_are_no_angles_without_weights_or_to_classes_that_were_not_trained():
    assert evaluation().angles == [] == evaluation(torch.eye(3), torch.eye(3), known=False).angles
    assert METRICS["angle"].measure(evaluation()) is None
    assert METRICS["angle_train"].measure(evaluation(train=evaluation())) is None
    assert METRICS["weight_angle"].measure(evaluation()) is None
    assert METRICS["simplex_distance"].measure(evaluation()) is None


def test_angles_are_measured_where_the_features_are():
    """Tensors that only pretend to be on a GPU stop at the first number that is asked for, not at a mix of devices."""
    from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

    with FakeTensorMode():
        features, weight = torch.empty(6, 3, device="cuda"), torch.empty(4, 3, device="cuda")
        with pytest.raises(DynamicOutputShapeException, match="bincount"):
            by_class(features, np.zeros(6, np.int64), weight)


def test_the_geometry_of_class_weights_is_measured_against_the_simplex():
    def measured(weights):
        found = evaluation(weights)
        return [METRICS[name].measure(found) for name in ("simplex_distance", "weight_angle", "weight_angle_least")]

    turned, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 9)))
    widest = np.degrees(np.arccos(-1 / 9))
    assert measured(torch.from_numpy(3 * turned @ simplex(10)).T) == pytest.approx([0, widest, widest], abs=1e-7)
    assert measured(torch.eye(3)) == pytest.approx([0.5, 90, 90])
    assert measured(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]))[2] == pytest.approx(45)


def test_the_norm_is_the_mean_length():
    train = evaluation(features=torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]]))
    test = evaluation(features=torch.tensor([[6.0, 8.0], [0.0, 2.0], [0.0, 0.0]]), train=train)
    assert (METRICS["feature_norm_train"].measure(test), METRICS["feature_norm"].measure(test)) == (2, 4)
