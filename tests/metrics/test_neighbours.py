"""Recall@k, MAP@R and R-precision are what plain loops and pytorch-metric-learning find, with ties and lone images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kit.neighbours import by_loops

from lossbench.metrics import Evaluation, map_at_r, r_precision, recall
from lossbench.metrics._search import retrieve


def scores(features, labels, ks=(1, 5, 10)):
    """Every metric in percent, as a record has it."""
    found = retrieve(features, labels)
    test = Evaluation(labels, features, None, known=False, retrieved=found)
    found = {f"recall@{k}": recall.measure(test, k=k) for k in ks}
    found |= {"map@r": map_at_r.measure(test), "r_precision": r_precision.measure(test)}
    return {name: values.mean() for name, values in found.items()}


def drawn(seed, sizes, noise, width=8):
    """Features of classes of these sizes around random centres, in random order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centres = rng.normal(size=(len(sizes), width))
    return torch.from_numpy(
        (centres[labels] + noise * rng.normal(size=(len(labels), width))).astype(np.float32)
    ), labels


@pytest.mark.parametrize("noise", [0.3, 1.0, 30.0])  # near perfect, mixed, by chance
def test_the_metrics_are_those_of_the_definitions(noise):
    features, labels = drawn(0, [2, 3, 30, 8, 1, 12, 1, 40, 2, 2], noise)
    assert scores(features, labels, (1, 2, 5, 60)) == pytest.approx(by_loops(features, labels, (1, 2, 5, 60)))


# Few directions, exact in float32, so that equal cosines are the rule.
AXES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=3, max_size=30).filter(
    lambda images: max(np.bincount([label for _, label in images])) > 1
)


@given(AXES)
def test_equal_cosines_are_ranked_by_index(images):
    features = torch.eye(4)[[axis for axis, _ in images]]
    labels = np.array([label for _, label in images])
    assert scores(features, labels) == pytest.approx(by_loops(features, labels))


def test_the_metrics_are_those_of_pytorch_metric_learning():
    calculators = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    inference = pytest.importorskip("pytorch_metric_learning.utils.inference")
    distances = pytest.importorskip("pytorch_metric_learning.distances")
    features, labels = drawn(1, [1, 2, 5, 60, 20, 1, 33, 7], 0.8, width=16)
    calculator = calculators.AccuracyCalculator(
        include=("precision_at_1", "mean_average_precision_at_r", "r_precision"),
        k="max_bin_count",
        device=torch.device("cpu"),
        knn_func=inference.CustomKNN(distances.CosineSimilarity()),
    )
    theirs = calculator.get_accuracy(features, torch.from_numpy(labels))
    ours = scores(features, labels)
    assert 10 < ours["map@r"] < 90
    assert ours["recall@1"] == pytest.approx(100 * theirs["precision_at_1"])
    assert ours["map@r"] == pytest.approx(100 * theirs["mean_average_precision_at_r"])
    assert ours["r_precision"] == pytest.approx(100 * theirs["r_precision"])


def test_a_lone_image_is_no_query_but_stays_in_the_gallery():
    near, between, far = [1.0, 0.0], [0.9, 0.1], [0.5, 0.5]
    found = retrieve(torch.tensor([near, between, far]), np.array([7, 3, 7]))
    assert found.queries.tolist() == [0, 2] and found.alone.tolist() == [1]
    assert found.first.tolist() == [2, 2]  # the lone image is nearer to both
    assert found.relevant.tolist() == [1, 1] and found.map_at_r.tolist() == [0, 0]


def test_the_size_of_a_block_changes_nothing():
    features, labels = drawn(2, [5, 9, 2, 2, 20], 1.0)
    whole, single = retrieve(features, labels, 64), retrieve(features, labels, 1)
    for name in ("queries", "alone", "relevant", "first", "r_precision", "map_at_r"):
        assert np.array_equal(getattr(whole, name), getattr(single, name)), name


def test_a_network_that_maps_every_image_to_one_point_ranks_by_index_alone():
    labels = np.array([0, 1, 0, 1, 2, 2])
    found = retrieve(torch.ones(6, 3), labels)
    assert found.first.tolist() == [2, 3, 1, 2, 5, 5]
    assert retrieve(torch.zeros(6, 3), labels).first.tolist() == found.first.tolist()  # no direction: cosine 0


def test_features_of_any_scale_give_the_same_ranks():
    features, labels = drawn(3, [4, 4, 4, 9], 1.0)
    scale = torch.logspace(-30, 30, len(labels))[:, None]
    assert scores(features * scale, labels) == scores(features, labels)


def test_without_two_images_of_a_class_there_is_nothing_to_retrieve():
    with pytest.raises(ValueError, match="no class has two images"):
        retrieve(torch.ones(3, 2), np.array([0, 1, 2]))
