"""Retrieval and verification on LFW and Omniglot: a few real steps, and metrics recomputed from what a cell keeps."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from lossbench.plan.cells import plan
from lossbench.training import cell as train

SUITE = """
name = "real"
[[experiment]]
name = "real"
task = "TASK"
dataset = { name = "DATASET", size = 32, gray = true }
backbone = { name = "cnn", channels = 8, depths = [1, 1] }
widths = [32]
losses = ["softmax"]
seeds = 1
schedule = { steps = [1, 200], batch = 64, lr = 0.05 }
keep = ["features"]
"""
EACH = [pytest.param(name, marks=pytest.mark.data(name)) for name in ("lfw", "omniglot")]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def trained(read_suite, registry, folder, dataset, task):
    """Records after one step and after some, and what the second network gives for the test set."""
    cells = plan(read_suite(SUITE.replace("TASK", task).replace("DATASET", dataset)))
    first, last = (train.run(cell, registry, folder) for cell in cells)
    with np.load(io.BytesIO(last.kept["features.npz"])) as kept:
        return first.record, last.record, dict(kept)


def sizes(folder, name):
    """The images of each tested class: the people of LFW's first fold, the characters of the evaluation alphabets."""
    if name == "omniglot":
        drawings = (folder / "omniglot" / "images_evaluation").glob("*/*/*.png")
        return list(Counter(path.parent for path in drawings).values())
    pairs = (line.split("\t") for line in (folder / "lfw" / "pairs.txt").read_text().splitlines()[1:601])
    people = {name for pair in pairs for name in (pair[:1] if len(pair) == 3 else pair[::2])}
    return [len(list((folder / "lfw" / person).glob("*.jpg"))) for person in people]


@pytest.mark.parametrize("name", EACH)
def test_retrieval_on_real_images(name, real_data, read_suite, registry):
    first, last, kept = trained(read_suite, registry, real_data, name, "retrieval")
    tested = sizes(real_data, name)
    alone = tested.count(1)
    relevant = sum(size * (size - 1) for size in tested)
    assert last.counts == {
        "queries": sum(tested) - alone,
        "gallery": sum(tested) - 1,
        "alone": alone,
        "relevant": relevant,
    }
    found = last.metrics
    assert found["recall@1"] > first.metrics["recall@1"] + 1
    assert found["recall@1"] == pytest.approx(last.accuracy)
    assert found["map@r"] <= found["r_precision"] and found["recall@1"] <= found["recall@5"] <= found["recall@10"]
    unit = kept["features"] / np.linalg.norm(kept["features"], axis=1, keepdims=True)
    labels, bits = kept["labels"], []
    chosen = np.random.default_rng(0).choice(kept["retrieved.queries"], 300, replace=False)
    for query in chosen:
        cosines = unit @ unit[query]
        cosines[query] = -np.inf
        bits.append(labels[cosines.argmax()] == labels[query])
    place = np.searchsorted(kept["retrieved.queries"], chosen)
    assert np.mean((kept["retrieved.first"][place] == 1) == bits) > 0.99  # cosines that are equal but for rounding


@pytest.mark.parametrize("name", EACH)
def test_verification_on_real_images(name, real_data, read_suite, registry):
    first, last, kept = trained(read_suite, registry, real_data, name, "verification")
    assert last.metrics["auc"] > first.metrics["auc"] + 1
    assert last.metrics["auc"] == pytest.approx(100 * roc_auc_score(kept["same"], kept["scores"]))
    assert last.accuracy > 55 and last.metrics["tar@0.01"] <= last.metrics["tar@0.1"]
    negatives = np.sort(kept["scores"][~kept["same"]])[::-1]
    accepted = kept["scores"][kept["same"]] > negatives[int(0.1 * len(negatives))]
    assert last.metrics["tar@0.1"] == pytest.approx(100 * accepted.mean(), abs=0.1)
    assert 0 < last.metrics["rank@1"] < 100 and 0 <= last.metrics["tpir@0.01"] <= last.metrics["tpir@0.1"] < 100
