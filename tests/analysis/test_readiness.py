"""Whether networks have learned enough: at chance, undertrained, and what becomes of comparisons and claims there."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import SMALL
from kit.claims import claim
from kit.suites import RETRIEVED, VERIFIED
from kit.synthetic import Truth, analysed, common, noise

from lossbench.analysis.readiness import chance, last_fall
from lossbench.data.dataset import Dataset, Split
from lossbench.training.evaluation import evaluate
from lossbench.training.state import TrainState

FIVE = SMALL.replace("seeds = 2", "seeds = 5").replace('"w_softmax"]', '"w_softmax", "center"]')
OF_CLASSES = {
    2: FIVE.replace('dataset = "digits"', 'dataset = "digits"\nclasses = [2]'),
    10: FIVE,
    100: FIVE.replace('dataset = "digits"', 'dataset = { name = "glyphs", classes = 100, train = 500 }'),
}
SPREAD = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def at(suite, accuracy, spread=0.0):
    """The losses at chance where w_softmax has this accuracy and the others are good."""

    def truth(cell):
        return Truth(accuracy + spread * SPREAD[cell.seed] if cell.loss.name == "w_softmax" else 95)

    return {loss for _, loss in analysed(suite, truth).at_chance}


@pytest.mark.parametrize(("classes", "bound"), [(2, 60.0), (10, 20.0), (100, 2.0)])
def test_at_chance_is_up_to_twice_chance_or_ten_points_above_it(classes, bound, read_suite):
    suite = read_suite(OF_CLASSES[classes])
    assert at(suite, bound) == {"w_softmax"}
    assert at(suite, bound - 0.1) == {"w_softmax"}
    assert at(suite, bound + 0.1) == set()


def test_the_interval_of_the_accuracy_decides_not_its_mean(read_suite):
    suite = read_suite(FIVE)
    half = 2.776 * SPREAD.std(ddof=1) / math.sqrt(5)  # t(0.975; 4)
    assert at(suite, 20 + half - 0.05, spread=1.0) == {"w_softmax"}
    assert at(suite, 20 + half + 0.05, spread=1.0) == set()


def test_the_mean_decides_where_there_is_no_interval(read_suite):
    suite = read_suite(FIVE.replace("seeds = 5", "seeds = 2"))
    assert at(suite, 20.5, spread=0.1) == set()
    assert at(suite, 20.0, spread=0.01) == {"w_softmax"}


def test_the_chance_of_a_pair_is_one_half(read_suite):
    suite = read_suite(VERIFIED.replace("seeds = 1", "seeds = 3"))

    def found(accuracy):
        return {loss for _, loss in analysed(suite, lambda cell: Truth(accuracy)).at_chance}

    assert found(59.0) == {"softmax", "cosface"}
    assert found(61.0) == set()


def test_the_chance_of_a_pair_is_the_share_of_the_more_frequent_kind():
    assert chance("verification", 100, {"same": 30, "different": 70}) == 70.0
    assert chance("verification", 100, {"same": 60, "different": 40}) == 60.0
    assert chance("verification", 100, {}) == 50.0  # an older record


def test_the_chance_of_a_retrieval_is_that_of_a_random_ranking():
    """The nearest of the other images is any of them with equal probability; the trained classes do not matter."""
    labels = np.repeat([0, 1, 2, 3], [1, 2, 3, 6])  # the first image is alone in its class, and no query
    hits = [[labels[i] == labels[j] for j in range(12) if j != i] for i in range(1, 12)]
    backbone = torch.nn.Flatten()
    dataset = Dataset(*2 * [Split.of(np.arange(48, dtype=np.uint8).reshape(12, 2, 2, 1), labels)], classes=4)
    state = TrainState(backbone, torch.nn.Identity(), torch.optim.SGD([torch.zeros(1)]), step=1)
    counts = evaluate(replace(state, width=4, classes=4), dataset, "retrieval").counts
    for classes in (2, 1000):
        assert chance("retrieval", classes, counts) == pytest.approx(100 * np.mean([np.mean(row) for row in hits]))


def test_a_retrieval_is_at_chance_by_its_gallery(read_suite):
    """120 trained classes, and a gallery with two classes: guessing finds one of two."""
    suite = read_suite(RETRIEVED.partition("[tune]")[0].replace("seeds = 1", "seeds = 3"))
    counts = {"queries": 40, "gallery": 39, "alone": 0, "relevant": 40 * 19}  # chance 48.7 %

    def found(accuracy, counts=counts):
        return analysed(suite, lambda cell: Truth(accuracy, counts=counts)).at_chance

    assert {loss for _, loss in found(57.0)} == {"softmax", "cosface"}
    assert all("recall@1 57.0 %, chance 48.7 %" in why for why in found(57.0).values())
    assert found(60.0) == {}
    assert found(1.0, counts={}) == {}  # an older record: not known


CLAIMS = (
    claim('better = "center"\nthan = "softmax"')
    + claim('better = "center"\nthan = "w_softmax"')
    + claim('equivalent = ["w_softmax", "softmax"]')
    + claim('metric = "angle"\nbetter = "w_softmax"\nthan = "softmax"')
    + claim('metric = "fc_bytes"\nequivalent = ["w_softmax", "softmax"]\nmargin = 5')
    + claim('metric = "step_seconds"\nnot_worse = "w_softmax"\nthan = "softmax"\nmargin = 5.0')
)


@pytest.fixture(scope="module")
def results(read_suite):
    """w_softmax learns nothing, center is better than softmax."""

    def truth(cell):
        gain = {"softmax": 0, "center": 3, "w_softmax": -80}[cell.loss.name]
        return Truth(90 + common(cell.seed) + gain + noise(cell, 0.1), angle=40 + noise(cell, 1))

    return analysed(read_suite(FIVE.replace("seeds = 5", "seeds = 5\ntiming = { rounds = 10 }") + CLAIMS), truth)


def test_a_comparison_with_a_loss_at_chance_is_not_testable(results):
    rows = results.comparisons[results.comparisons["metric"] == "accuracy"].set_index("loss")
    assert rows.loc["w_softmax", "verdict"] == "not testable"
    assert rows.loc["w_softmax", "flags"] == "at chance"
    assert pd.isna(rows.loc["w_softmax", "seeds_needed"])
    assert (rows.loc["center", "verdict"], rows.loc["center", "flags"]) == ("better", "")
    main = results.main.set_index("loss")["flags"]
    assert (main["w_softmax"], main["center"]) == ("at chance", "")


def test_claims_about_a_loss_at_chance_are_not_testable_but_those_about_its_cost_are(results):
    words = list(results.claims["verdict"])
    assert words == ["supported", *["not testable"] * 3, "supported", "supported"]
    assert results.claims["evidence"][1] == "w_softmax is at chance: accuracy 10.1 %, chance 10.0 %"
    assert list(results.claims["flags"][:4]) == ["", *["at chance"] * 3]


def test_what_is_not_testable_does_not_count_in_its_family(results):
    """Three claims can be tested: on the accuracy of center, the bytes and the time of w_softmax."""
    assert set(results.claims["level"]) == {0.05 / 3}


def test_a_loss_at_chance_does_not_say_how_far_seeds_may_be_off(read_suite):
    """The other losses vary by 0.1 points; one that learns nothing varies by 8."""

    def truth(cell):
        if cell.loss.name == "w_softmax":
            return Truth(10 + 8 * SPREAD[cell.seed])
        return Truth(90 + 2 * (cell.loss.name == "center") + noise(cell, 0.1))

    row = analysed(read_suite(FIVE), truth).comparisons.query("metric == 'accuracy'").set_index("loss").loc["center"]
    assert (row["verdict"], row["flags"]) == ("better", "")


def test_trends_over_values_at_chance_are_not_testable(read_suite):
    text = FIVE.replace("widths = [8]", "widths = [4, 8, 16]")
    suite = read_suite(
        text
        + claim('increases_with = "width"\nloss = "softmax"')
        + claim('unchanged_with = "width"\nloss = "center"')
        + claim('increases_with = "width"\nloss = "center"\nthan = "softmax"')
    )

    def truth(cell):
        learned = cell.loss.name != "softmax" or cell.width > 4
        return Truth((80 + common(cell.seed) if learned else 10) + noise(cell, 0.1))

    frame = analysed(suite, truth).claims
    assert list(frame["verdict"]) == ["not testable", "supported", "not testable"]
    assert list(frame["flags"]) == ["at chance", "", "at chance"]
    assert set(frame["level"]) == {0.05 / 2}  # the two further widths of center


# ---- undertrained ----------------------------------------------------------------------------------------------------


def curve(losses):
    return tuple({"step": step, "loss": loss} for step, loss in enumerate(losses, 1))


def test_the_last_fall_is_that_from_the_last_but_one_tenth_to_the_last():
    losses = list(np.random.default_rng(0).uniform(size=40))
    assert last_fall(curve(losses)) == pytest.approx(np.mean(losses[32:36]) - np.mean(losses[36:]))
    assert last_fall(curve(range(7, 0, -1))) == 1.0
    assert last_fall(curve([1.0, math.nan, 0.5, 0.5, math.inf, 0.25])) == 0.25
    assert last_fall(curve([3.0, 2.0, 1.0])) is None
    assert last_fall(()) is None


@pytest.mark.parametrize(
    ("losses", "flagged"),
    [
        (2 - 0.01 * np.arange(40), True),  # falls by 0.04 in a tenth; 1 % of ln 10 is 0.023
        (2 - 0.005 * np.arange(40), False),  # 0.02
        (np.exp(-0.3 * np.arange(40)), False),  # has converged
        (2 + 0.01 * np.arange(40), False),  # rises
        (np.where(np.arange(40) < 32, 2 - 0.05 * np.arange(40), 0.4), False),  # has stopped falling
    ],
)
def test_a_baseline_whose_loss_still_falls_clearly_is_undertrained(losses, flagged, read_suite):
    def truth(cell):
        mine = losses if cell.loss.name == "softmax" else 2 - 0.01 * np.arange(40)
        return Truth(90 + 3 * (cell.loss.name == "center") + common(cell.seed) + noise(cell, 0.1), curve=curve(mine))

    results = analysed(read_suite(FIVE + claim('better = "center"\nthan = "softmax"')), truth)
    assert bool(results.undertrained) == flagged
    flags = "undertrained" if flagged else ""
    assert set(results.comparisons["flags"]) == {flags}
    row = results.claims.iloc[0]
    assert (row["verdict"], row["flags"]) == ("supported", flags)  # a flag does not change this verdict
    assert row["evidence"] == ("better; undertrained" if flagged else "better")
    against = analysed(read_suite(FIVE + claim('better = "softmax"\nthan = "center"')), truth).claims.iloc[0]
    assert against["verdict"] == ("not testable" if flagged else "contradicted")  # more steps may change it
    assert against["evidence"] == ("worse; undertrained" if flagged else "worse")


def test_the_fall_is_a_mean_over_seeds_and_a_share_of_the_loss_of_guessing(read_suite):
    """Of ln C: 0.04 in a tenth is 1.7 % of ln 10 and 0.9 % of ln 100."""

    def found(classes, seeds_that_fall):
        def truth(cell):
            slope = 0.01 if cell.seed in seeds_that_fall else 0.0
            return Truth(90, curve=curve(2 - slope * np.arange(40)))

        return bool(analysed(read_suite(OF_CLASSES[classes]), truth).undertrained)

    assert found(10, range(5)) and not found(100, range(5))
    assert found(10, range(3)) and not found(10, range(2))
