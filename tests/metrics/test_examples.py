"""Metrics that are means over test examples have one value per example: from these, the test-set noise is known."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import SMALL
from scipy.special import log_softmax, softmax

from lossbench import data
from lossbench.plan.cells import plan
from lossbench.store.records import Store
from lossbench.training.cell import run
from lossbench.training.measuring import Measurements

RETRIEVAL = SMALL.replace('dataset = "digits"', 'task = "retrieval"\ndataset = "glyphs[per_class=6,classes=40]"')


def stored(suite, registry, folder):
    """The first cell of a suite, trained and stored: its record, its files, its values per example."""
    store, cell = Store(folder), plan(suite)[0]
    outcome = run(cell, registry, data.data_folder())
    store.write(outcome.record, outcome.correct, examples=outcome.examples, kept=outcome.kept)
    return store.read(cell.key), store, cell.key


def test_a_metric_that_a_suite_names_keeps_its_values(tmp_path, read_suite, registry):
    text = SMALL + 'metrics = ["nll", "brier", "top5", "ece"]\nkeep = ["predictions"]\n'
    record, store, key = stored(read_suite(text), registry, tmp_path)
    with np.load(store.cells / key / "predictions.npz") as kept:
        logits, labels = kept["logits"].astype(float), kept["labels"]
    p, every = softmax(logits, axis=1), np.arange(len(labels))
    expected = {
        "nll": -log_softmax(logits, axis=1)[every, labels],
        "brier": ((p - np.eye(10)[labels]) ** 2).sum(1),
        "top5": 100.0 * (logits > logits[every, labels][:, None]).sum(1).__lt__(5),
    }
    for name, values in expected.items():
        assert store.examples(key, name) == pytest.approx(values, rel=1e-6), name  # float32
        assert record["metrics"][name] == pytest.approx(values.mean(), rel=1e-12), name  # float64
    assert store.examples(key, "ece") is None  # it is no mean
    with np.load(store.cells / key / "examples.npz") as found:
        assert {found[name].dtype for name in found.files} == {np.dtype(np.float32)}


def test_other_metrics_keep_their_means_only(tmp_path, read_suite, registry):
    record, *_ = stored(read_suite(SMALL), registry, tmp_path)
    assert {"nll", "brier", "top5"} <= record["metrics"].keys()
    assert sorted(record["files"]) == ["correct.npz"]


def test_a_headline_keeps_its_values(tmp_path, read_suite, registry):
    suite = read_suite('headline = "nll"\nmargin = 0.1\n' + SMALL)
    record, store, key = stored(suite, registry, tmp_path)
    values = store.examples(key, "nll")
    assert len(values) == record["total"] and values.mean() == pytest.approx(record["metrics"]["nll"])


def test_queries_have_values_and_those_of_the_bits_are_not_kept_twice(tmp_path, read_suite, registry):
    text = RETRIEVAL + 'metrics = ["recall@1", "recall@5", "map@r", "r_precision"]\n'
    record, store, key = stored(read_suite(text), registry, tmp_path)
    bits = store.correct(key)
    for name in ("recall@5", "map@r", "r_precision"):
        values = store.examples(key, name)
        assert values.shape == bits.shape and 0 <= values.min() < values.max() <= 100
        assert values.mean() == pytest.approx(record["metrics"][name], rel=1e-6)
    assert (store.examples(key, "recall@5") >= 100 * bits).all()
    assert store.examples(key, "recall@1") is None
    assert record["metrics"]["recall@1"] == record["accuracy"] == 100 * int(bits.sum()) / len(bits)


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([0.1, 0.2], [float(np.float32(0.1)), float(np.float32(0.2))]),
        ([1e300, 2e300], [1e300, 2e300]),  # too large for float32
        ([True, False], [1.0, 0.0]),
        ([0.1, np.inf], None),
        ([0.1, np.nan], None),
    ],
)
def test_values_are_kept_in_float32_where_they_fit_and_are_finite(values, kept):
    found = Measurements()
    found.add("x", "code", np.array(values), 2)
    assert found.metrics["x"] == (None if kept is None else np.mean(values))
    assert found.examples.get("x", np.array(None)).tolist() == kept


def test_a_rewritten_record_has_the_same_files(tmp_path, read_suite, registry):
    """Merging reads and writes values; older runs have them in float64."""
    text = SMALL + 'metrics = ["nll"]\n'
    _, store, key = stored(read_suite(text), registry, tmp_path / "one")
    content = (store.cells / key / "examples.npz").read_bytes()
    outcome = run(plan(read_suite(text))[0], registry, data.data_folder())
    again, wide = Store(tmp_path / "two"), Store(tmp_path / "three")
    again.write(outcome.record, outcome.correct, examples={"nll": store.examples(key, "nll")})
    assert (again.cells / key / "examples.npz").read_bytes() == content
    double = store.examples(key, "nll") + 1e-12
    wide.write(outcome.record, outcome.correct, examples={"nll": double})
    assert wide.examples(key, "nll").tolist() == double.tolist()
