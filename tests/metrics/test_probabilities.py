"""Metrics of the softmax of the logits, and of classes, against scikit-learn and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn import metrics as sklearn

from lossbench.metrics import Evaluation, ece_scaled
from lossbench.metrics._outputs import BLOCK, Outputs
from lossbench.plugins.metrics import METRICS

EXAMPLES = 2 * BLOCK + 45  # three blocks, the last one of another length


def evaluation(logits, labels, held_out=None, *, asked=None):
    table = torch.as_tensor(np.asarray(logits, dtype=np.float32))

    def logits_of(rows):
        if asked is not None:
            asked.append(rows)
        return table[rows]

    labels = np.asarray(labels)
    outputs = Outputs(logits_of, labels)
    predicted = outputs.examples.predicted
    return Evaluation(
        labels, table, None, correct=predicted == labels, predicted=predicted, outputs=outputs, held_out=held_out
    )


def drawn(seed, classes, n=EXAMPLES, scale=1.0):
    """Logits whose softmax, at temperature `scale`, is the distribution of the labels; some classes are rare."""
    rng = np.random.default_rng(seed)
    logits = (rng.normal(0, 1.5, (n, classes)) - np.linspace(0, 1.5, classes)).astype(np.float32)
    return logits * np.float32(scale), (logits + rng.gumbel(size=logits.shape)).argmax(1)


def measure(name, test, **options):
    """The metric; of one value per example, their mean."""
    found = METRICS[name].measure(test, **options)
    return found if found is None else np.mean(found)


@pytest.mark.parametrize("classes", [2, 7, 40])
def test_metrics_of_a_classification_are_those_of_scikit_learn(classes):
    logits, labels = drawn(classes, classes)
    test, p = evaluation(logits, labels), softmax(logits.astype(float), axis=1)
    every = np.arange(classes)
    assert measure("nll", test) == pytest.approx(sklearn.log_loss(labels, p, labels=every))
    assert measure("accuracy", test) == pytest.approx(100 * sklearn.accuracy_score(labels, p.argmax(1)))
    recalls = sklearn.recall_score(labels, p.argmax(1), labels=np.unique(labels), average=None)
    assert measure("balanced_accuracy", test) == pytest.approx(100 * recalls.mean())
    assert measure("worst_class_accuracy", test) == pytest.approx(100 * recalls.min())
    if classes > 5:
        expected = sklearn.top_k_accuracy_score(labels, logits, k=5, labels=every)
        assert measure("top5", test) == pytest.approx(100 * expected)
    brier = [sum((q - (c == label)) ** 2 for c, q in enumerate(row)) for row, label in zip(p, labels, strict=True)]
    assert measure("brier", test) == pytest.approx(sum(brier) / len(brier))
    assert test.predicted.tolist() == p.argmax(1).tolist()


def by_a_loop(confidence, correct, bins):
    """The definition: groups of equal confidence go into the bin of their mean rank, then Σ n_b/N · |acc − conf|."""
    n = len(confidence)
    found = {}
    for value in set(confidence):
        places = [place for place, other in enumerate(sorted(confidence)) if other == value]
        place = math.floor(bins * (sum(places) / len(places) + 0.5) / n + 1e-12)
        found.setdefault(place, []).extend(right for q, right in zip(confidence, correct, strict=True) if q == value)
        found.setdefault(("q", place), []).extend(q for q in confidence if q == value)
    total = 0.0
    for place in [key for key in found if not isinstance(key, tuple)]:
        right, q = found[place], found["q", place]
        total += len(right) / n * abs(sum(right) / len(right) - sum(q) / len(q))
    return 100 * total


@pytest.mark.parametrize("bins", [1, 4, 15, 1000])
def test_the_calibration_error_is_its_definition_over_bins_of_equal_mass(bins):
    logits, labels = drawn(3, 6, scale=2.5)
    test, p = evaluation(logits, labels), softmax(logits.astype(float), axis=1)
    expected = by_a_loop(p.max(1).tolist(), (p.argmax(1) == labels).tolist(), bins)
    assert measure("ece", test, bins=bins) == pytest.approx(expected)
    if bins == 15:
        assert measure("ece", test) == pytest.approx(expected) and expected > 3  # 2.5 times too confident


def test_examples_of_equal_confidence_share_a_bin_in_any_order():
    rng = np.random.default_rng(0)
    logits = np.round(rng.normal(0, 1, (90, 2)))  # few different values
    labels = rng.integers(0, 2, 90)
    found = measure("ece", evaluation(logits, labels))
    p = softmax(logits.astype(np.float32).astype(float), axis=1).max(1)
    assert len(set(p)) < 15
    assert found == pytest.approx(by_a_loop(p.tolist(), (logits.argmax(1) == labels).tolist(), 15))
    order = rng.permutation(90)
    assert measure("ece", evaluation(logits[order], labels[order])) == pytest.approx(found)


def test_calibrated_and_constant_predictions_have_known_errors():
    certain = evaluation(1000 * np.eye(3)[[0, 1, 2, 0]], [0, 1, 2, 1])  # p is 1, and 3 of 4 are right
    assert measure("ece", certain) == pytest.approx(25)
    assert measure("nll", certain) == pytest.approx(250) and measure("brier", certain) == pytest.approx(0.5)
    unsure = evaluation(np.zeros((8, 4)), [0, 0, 1, 1, 2, 2, 3, 3])  # p is 1/4, and a quarter is right
    assert measure("ece", unsure) == pytest.approx(0) and measure("nll", unsure) == pytest.approx(math.log(4))
    assert measure("brier", unsure) == pytest.approx(0.75)


def test_equal_logits_rank_by_label_and_few_classes_have_no_top_five():
    logits = np.zeros((7, 7))
    assert measure("top5", evaluation(logits, range(7))) == pytest.approx(100 * 5 / 7)
    assert measure("top5", evaluation(logits[:5, :5], range(5))) is None
    assert measure("top5", evaluation(logits[:6, :6], range(6))) == pytest.approx(100 * 5 / 6)


@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0])
def test_temperature_scaling_takes_out_the_scale_of_the_logits(scale):
    logits, labels = drawn(5, 8, 2000, scale)
    held_out = evaluation(*drawn(6, 8, 2000, scale))
    test = evaluation(logits, labels, held_out)
    found = ece_scaled.temperature(held_out.outputs)
    assert found == pytest.approx(scale, rel=0.1)  # that of the labels
    grid = found * np.linspace(0.9, 1.1, 21)
    z, own = held_out.features.double().numpy(), held_out.labels
    nll = [-log_softmax(z / t, axis=1)[np.arange(len(own)), own].mean() for t in grid]
    assert np.argmin(nll) == 10
    p = softmax(logits.astype(float) / found, axis=1)
    expected = by_a_loop(p.max(1)[:300].tolist(), (p.argmax(1) == labels)[:300].tolist(), 15)
    assert measure("ece_scaled", evaluation(logits[:300], labels[:300], held_out)) == pytest.approx(expected)
    assert measure("ece_scaled", test) < 5
    assert scale == 1.0 or measure("ece", test) > 15


def test_without_held_out_images_there_is_no_scaled_error():
    test = evaluation(*drawn(1, 3))
    assert measure("ece_scaled", test) is None and measure("ece", test) is not None


def test_a_held_out_set_without_an_error_has_the_lowest_temperature():
    sure = evaluation(np.eye(4), range(4))
    assert ece_scaled.temperature(sure.outputs) < 0.05
    assert measure("ece_scaled", evaluation(np.eye(4), [0, 1, 2, 2], sure)) == pytest.approx(25)


def test_every_row_of_logits_is_computed_once_in_blocks():
    asked = []
    test = evaluation(*drawn(1, 3), asked=asked)
    for name in ("nll", "brier", "ece", "accuracy"):
        measure(name, test)
    assert [(rows.start, rows.stop) for rows in asked] == [(start, start + BLOCK) for start in (0, BLOCK, 2 * BLOCK)]
    assert test.logits.shape == (EXAMPLES, 3) and torch.equal(test.logits, test.features)


def test_a_network_without_logits_has_none_of_these():
    bare = Evaluation(np.array([0, 1]), torch.zeros(2, 2), None, correct=np.array([True, False]))
    assert bare.logits is None
    assert all(measure(name, bare) is None for name in ("nll", "brier", "ece", "ece_scaled", "top5"))
