"""Rank-1 and TPIR at FPIR are what plain loops find; identities with one image are only searched for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lossbench.metrics import Evaluation, rank, tpir
from lossbench.metrics._search import identify

FPIRS = (0.5, 0.1, 0.03)


def scores(features, labels, fpirs=FPIRS):
    """Every metric in percent, as a record has it."""
    test = Evaluation(labels, torch.from_numpy(features), None, known=False)
    return {"rank@1": rank.measure(test, k=1), "rank@3": rank.measure(test, k=3)} | {
        f"tpir@{fpir:g}": tpir.measure(test, fpir=fpir) for fpir in fpirs
    }


def by_loops(features, labels, fpirs=FPIRS):
    """The same from the definitions, in plain Python."""

    def unit(row):
        length = np.linalg.norm(row.astype(float))
        return row.astype(float) / length if length else row.astype(float)

    images = {label: np.flatnonzero(labels == label) for label in sorted(set(labels.tolist()))}
    enrolled, probes = {}, []
    for label, mine in images.items():
        half = (len(mine) + 1) // 2 if len(mine) > 1 else 0
        if half:
            enrolled[label] = unit(sum(unit(features[image]) for image in mine[:half]))
        probes += [(unit(features[image]), label) for image in mine[half:]]

    def ranked(probe, gallery):
        found = {label: np.float32(probe @ enrolled[label]) for label in gallery}
        return sorted(found, key=lambda label: (-found[label], label)), found

    names = list(enrolled)
    places = [ranked(probe, names)[0].index(label) for probe, label in probes if label in enrolled]
    mated, foreign = [], []
    for gallery in (names[::2], names[1::2]):
        for probe, label in probes:
            order, found = ranked(probe, gallery)
            top = float(found[order[0]])
            if label in gallery:
                mated.append(top if order[0] == label else -np.inf)
            else:
                foreign.append(top)
    result = {f"rank@{k}": 100 * np.mean([place < k for place in places]) for k in (1, 3)}
    for fpir in fpirs:
        thresholds = [t for t in [*mated, *foreign, np.inf] if np.mean([top >= t for top in foreign]) <= fpir]
        result[f"tpir@{fpir:g}"] = 100 * max(np.mean([top >= t for top in mated if t > -np.inf]) for t in thresholds)
    return result


@pytest.mark.parametrize("noise", [0.2, 0.7, 20.0])
def test_the_metrics_are_those_of_the_definitions(noise):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(14), [1, 2, 3, 8, 5, 1, 9, 2, 2, 6, 1, 4, 7, 2]))
    features = (rng.normal(size=(14, 6))[labels] + noise * rng.normal(size=(len(labels), 6))).astype(np.float32)
    found = scores(features, labels)
    assert found == pytest.approx(by_loops(features, labels))
    assert found["tpir@0.03"] <= found["tpir@0.1"] <= found["tpir@0.5"]


# Few directions, so that equal scores are the rule; at least two identities have two images.
IMAGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=4, max_size=24).filter(
    lambda images: sum(np.bincount([label for _, label in images]) > 1) > 1
)


@given(IMAGES)
def test_of_equal_scores_the_first_identity_has_the_highest(images):
    features = np.eye(4, dtype=np.float32)[[axis for axis, _ in images]]
    labels = np.array([label for _, label in images])
    assert scores(features, labels) == pytest.approx(by_loops(features, labels))


def test_every_probe_is_searched_once_with_and_once_without_a_mate_and_single_images_twice_without():
    labels = np.array([0, 0, 0, 1, 1, 2, 3, 3])
    found = identify(np.random.default_rng(0).normal(size=(8, 5)), labels)
    assert (found.identities, found.singles, len(found.rank)) == (3, 1, 3)  # one probe each of 0, 1 and 3
    assert int(found.mated.sum()) == 3 and int((~found.mated).sum()) == 3 + 2
    assert not (found.right & ~found.mated).any()


def test_a_perfect_network_identifies_everyone_and_one_without_directions_hardly_anyone():
    labels = np.repeat(np.arange(10), 4)
    perfect = scores(np.eye(10, dtype=np.float32)[labels], labels)
    assert set(perfect.values()) == {100.0}
    blind = scores(np.zeros((40, 10), dtype=np.float32), labels)
    assert blind["rank@1"] == pytest.approx(10) and blind["tpir@0.1"] == 0  # all find the first identity


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [0, 0, 1, 2], [0, 0, 0, 0]])
def test_fewer_than_two_identities_with_two_images_cannot_be_identified(labels):
    labels = np.array(labels)
    assert identify(np.eye(4), labels) is None
    assert set(scores(np.eye(4, dtype=np.float32), labels).values()) == {None}
