"""Verification: scores of pairs, thresholds, folds written out by hand, and what is judged of a network."""

from __future__ import annotations

import json
import math
import tracemalloc

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.pairs import TIED, arrays, normal_scores, within
from sklearn.metrics.pairwise import cosine_similarity

from lossbench.data import Dataset, Split
from lossbench.metrics import auc, eer, tar
from lossbench.tasks import TASKS, verification

# ---- scores ----------------------------------------------------------------------------------------------------------


def test_scores_are_the_cosines_of_the_named_rows():
    rng = np.random.default_rng(0)
    features, pairs = rng.normal(size=(30, 7)), rng.integers(0, 30, size=(200, 2))
    whole = cosine_similarity(features)
    assert verification.cosine_scores(features, pairs) == pytest.approx(whole[pairs[:, 0], pairs[:, 1]])


def test_a_third_column_changes_nothing():
    features = np.random.default_rng(1).normal(size=(5, 3))
    pairs = np.array([[0, 1, 1], [2, 4, 0]])
    assert (verification.cosine_scores(features, pairs) == verification.cosine_scores(features, pairs[:, :2])).all()


def test_a_zero_feature_scores_zero_even_against_itself():
    features = np.array([[0.0, 0.0], [3.0, 4.0]])
    assert verification.cosine_scores(features, [[0, 1], [1, 0], [0, 0], [1, 1]]).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("size", [5e-324, 1e-200, 1e-30, 1e30, 1e200, 1.7e308])
def test_tiny_and_huge_features_have_a_direction_too(size):
    features = np.array([[size, 0.0], [size, size], [-size, 0.0]])
    scores = verification.cosine_scores(features, [[0, 1], [0, 2], [1, 1]])
    assert scores == pytest.approx([math.sqrt(0.5), -1, 1])


def test_scores_stay_within_the_range_of_a_cosine_and_do_not_depend_on_the_order_of_a_pair():
    features = np.random.default_rng(2).normal(size=(500, 3)).astype(np.float32)
    index = np.arange(500)
    assert np.abs(verification.cosine_scores(features, np.stack([index, index], 1))).max() <= 1
    pairs = np.stack([index, index[::-1]], 1)
    assert (verification.cosine_scores(features, pairs) == verification.cosine_scores(features, pairs[:, ::-1])).all()


def test_scores_come_out_the_same_in_pieces(monkeypatch):
    rng = np.random.default_rng(3)
    features, pairs = rng.normal(size=(20, 4)), rng.integers(0, 20, size=(57, 2))
    whole = verification.cosine_scores(features, pairs)
    for numbers in (1, 40, 57 * 4):
        monkeypatch.setattr(verification, "_CHUNK", numbers)
        assert verification.cosine_scores(features, pairs) == pytest.approx(whole, abs=1e-15)


def test_scores_need_neither_a_square_of_the_images_nor_all_pairs_at_once():
    features = np.ones((20_000, 64), dtype=np.float32)
    pairs = np.random.default_rng(4).integers(0, 20_000, size=(200_000, 2))
    tracemalloc.start()
    verification.cosine_scores(features, pairs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000 * 64 * 8  # one side of the pairs in float64; N×N is 30 times that


@pytest.mark.parametrize(
    ("features", "pairs", "text"),
    [
        ([1.0, 2.0], [[0, 1]], "features must be a matrix"),
        ([[1.0], [2.0]], [0, 1], "P×2 or P×3"),
        ([[1.0], [2.0]], [[0.0, 1.0]], "pairs must be integers"),
        ([[1.0], [2.0]], [[0, 2]], "rows 0…1, got 0…2"),
        ([[1.0], [2.0]], [[-1, 0]], "rows 0…1, got -1…0"),
        ([[1.0], [math.nan]], [[0, 1]], "finite"),
    ],
)
def test_features_and_pairs_that_do_not_fit_are_refused(features, pairs, text):
    with pytest.raises(ValueError, match=text):
        verification.cosine_scores(features, pairs)


def test_no_pairs_have_no_scores():
    assert verification.cosine_scores(np.ones((2, 3)), np.empty((0, 2), dtype=np.int64)).shape == (0,)


def brute_force(scores, same):
    """(accuracy, t) at every score, and above them all."""
    candidates = [*sorted(set(scores)), math.inf]
    return [(float(np.mean((scores >= t) == same)), t) for t in candidates]


@given(TIED)
@settings(max_examples=40)
def test_no_threshold_is_better_than_the_one_chosen(pairs):
    scores, same = arrays(pairs)
    threshold = verification.best_threshold(scores, same)
    assert np.mean((scores >= threshold) == same) == max(right for right, _ in brute_force(scores, same))


@given(TIED)
@settings(max_examples=40)
def test_the_threshold_is_in_the_middle_of_the_middle_one_of_the_best_intervals(pairs):
    scores, same = arrays(pairs)
    found = brute_force(scores, same)
    best = [t for right, t in found if right == max(right for right, _ in found)]
    accepted = best[len(best) // 2]  # the lowest accepted score; candidates rise here, so this is the higher middle
    distinct = sorted(set(scores))
    threshold = verification.best_threshold(scores, same)
    if accepted == math.inf:
        assert threshold == np.nextafter(distinct[-1], math.inf)
    elif accepted == distinct[0]:
        assert threshold == np.nextafter(distinct[0], -math.inf)
    else:
        assert threshold == (accepted + distinct[distinct.index(accepted) - 1]) / 2


@pytest.mark.parametrize(
    ("scores", "same", "threshold"),
    [
        ([0.1, 0.2, 0.6, 0.9], [0, 0, 1, 1], 0.4),  # separable
        ([0, 0, 1, 1, 1, 2], [0, 0, 0, 1, 1, 1], 0.5),  # 1 is tied: accepting all three of it is right twice
        ([0, 1, 2, 3], [0, 1, 0, 1], 2.5),  # right for 3 of 4 at 0.5 and 2.5: the higher is taken
        ([5, 5], [0, 1], math.nextafter(5, 6)),  # accept both or none: none
        ([1, 2], [1, 0], math.nextafter(2, 3)),  # upside down: accept none, or both; the stricter
        ([1, 2, 3], [1, 1, 0], math.nextafter(1, 0)),  # upside down and mostly positive: accept all
    ],
)
def test_thresholds_worked_out_by_hand(scores, same, threshold):
    assert verification.best_threshold(scores, same) == pytest.approx(threshold, abs=1e-15)


@pytest.mark.parametrize(
    "scores", [(1.0, math.nextafter(1.0, 2)), (0.0, 5e-324), (-1.7e308, 1.7e308), (5e-324, 1e-323)]
)
def test_a_threshold_separates_even_where_no_float_lies_between(scores):
    threshold = verification.best_threshold(scores, [False, True])
    assert scores[0] < threshold <= scores[1]


def test_the_middle_of_two_huge_scores_does_not_overflow():
    assert verification.best_threshold([1.5e308, 1.7e308], [False, True]) == pytest.approx(1.6e308)


# ---- folds -----------------------------------------------------------------------------------------------------------

# Three folds of four pairs. By hand, with o for different and x for same:
#   fold 0   .1o .3o .5x .9x      fold 1   .2o .6o .7x .8x      fold 2   .2o .4x .5o .9x
#   tested 0: the others .2oo .4x .5o .6o .7x .8x .9x: between .6 and .7 one is wrong (.4x)   → t = .65, .5x is wrong
#   tested 1: the others .1o .2o .3o .4x .5ox .9xx: below .4 one wrong (.5o); above .5 two     → t = .35, .6o is wrong
#   tested 2: the others .1o .2o .3o .5x .6o .7x .8x .9x: .4 one wrong (.6o); .65 one (.5x)    → t = .65, .4x is wrong
FOLDS = np.repeat([0, 1, 2], 4)
SCORES = np.array([0.1, 0.3, 0.5, 0.9, 0.2, 0.6, 0.7, 0.8, 0.2, 0.4, 0.5, 0.9])
SAME = np.array([0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1], dtype=bool)


def test_three_folds_come_out_as_by_hand():
    found = verification.cross_validated(SCORES, SAME, FOLDS)
    assert found.tested == (0, 1, 2)
    assert found.sizes == (4, 4, 4)
    assert found.thresholds == pytest.approx((0.65, 0.35, 0.65))
    assert found.correct.astype(int).tolist() == [1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1]
    assert found.accuracies == (0.75, 0.75, 0.75)
    assert (found.mean, found.error) == (0.75, 0)


def test_mean_and_standard_error_are_over_folds_however_large_they_are():
    # Fold 7 holds two pairs, fold 8 four; the threshold of each lies between .2 and .8.
    scores, same = [0.2, 0.8, 0.1, 0.2, 0.3, 0.8], [0, 1, 0, 0, 1, 1]
    found = verification.cross_validated(scores, same, [7, 7, 8, 8, 8, 8])
    assert found.accuracies == (1, 0.75)  # .25 and .5 are the thresholds; .3, the same, is below .5
    assert found.thresholds == pytest.approx((0.25, 0.5))
    assert found.mean == 0.875
    assert found.error == pytest.approx(0.125)  # sd = 0.25 / √2, divided by √2
    assert found.sizes == (2, 4)


def test_the_standard_error_is_the_one_of_the_papers_on_lfw():
    rng = np.random.default_rng(5)
    scores, same = normal_scores(rng, 300, 300, 2)
    found = verification.cross_validated(scores, same, np.arange(600) % 10)
    assert len(found.accuracies) == 10
    assert found.mean == pytest.approx(np.mean(found.accuracies))
    assert found.error == pytest.approx(scipy.stats.sem(found.accuracies))


def test_correct_follows_the_order_of_the_pairs():
    order = np.random.default_rng(6).permutation(12)
    whole = verification.cross_validated(SCORES, SAME, FOLDS)
    mixed = verification.cross_validated(SCORES[order], SAME[order], FOLDS[order])
    assert (mixed.correct == whole.correct[order]).all()
    assert (mixed.thresholds, mixed.accuracies) == (whole.thresholds, whole.accuracies)


def test_only_the_tested_folds_are_judged_and_all_others_still_choose():
    whole = verification.cross_validated(SCORES, SAME, FOLDS)
    found = verification.cross_validated(SCORES, SAME, FOLDS, tested=[2, 0])
    assert found.tested == (2, 0)
    assert found.thresholds == (whole.thresholds[2], whole.thresholds[0])
    assert (found.correct == whole.correct[FOLDS != 1]).all()
    one = verification.cross_validated(SCORES, SAME, FOLDS, tested=[1])
    assert (one.mean, len(one.correct)) == (0.75, 4)
    assert math.isnan(one.error)


@given(
    TIED.filter(lambda pairs: len(pairs) >= 6),
    st.integers(0, 2),
    st.lists(st.floats(-1e6, 1e6), min_size=40, max_size=40),
    st.lists(st.booleans(), min_size=40, max_size=40),
)
@settings(max_examples=50)
def test_whatever_the_tested_fold_holds_its_threshold_stays(pairs, tested, other_scores, other_labels):
    scores, same = arrays(pairs)
    folds = np.arange(len(scores)) % 3
    inside = folds == tested
    outside = same[~inside]
    if outside.all() or not outside.any():
        return
    before = verification.cross_validated(scores, same, folds, [tested])
    moved, flipped = scores.copy(), same.copy()
    moved[inside] = other_scores[: inside.sum()]
    flipped[inside] = other_labels[: inside.sum()]
    for changed in ((moved, same), (scores, flipped), (moved, flipped)):
        if not 0 < changed[1].sum() < len(same):
            continue
        after = verification.cross_validated(*changed, folds, [tested])
        assert after.thresholds == before.thresholds
        assert (after.correct == ((changed[0] >= before.thresholds[0]) == changed[1])[inside]).all()


def test_turning_the_labels_of_a_tested_fold_turns_its_accuracy():
    turned = np.where(FOLDS == 1, ~SAME, SAME)
    found = verification.cross_validated(SCORES, turned, FOLDS, tested=[1])
    assert found.accuracies == (0.25,)


@pytest.mark.parametrize(
    ("same", "folds", "tested", "text"),
    [
        ([0, 1, 0, 1], [1, 1, 1, 1], None, "fold 1 has no other fold"),
        ([0, 1, 1, 1], [1, 1, 2, 2], None, "folds other than 1 have no pair that is different"),
        ([0, 1, 0, 0], [1, 1, 2, 2], None, "folds other than 1 have no pair that is same"),
        ([0, 1, 0, 1], [1, 1, 2, 2], [3], "fold 3 has no pairs"),
        ([0, 1, 0, 1], [1, 1, 2, 2], [1, 1], "each named once"),
        ([0, 1, 0, 1], [1, 1, 2, 2], [], "one or more"),
        ([0, 1, 0, 1], [1, 1, 2], None, "folds must be 4 integers"),
        ([0, 1, 0, 1], [1.0, 1.0, 2.0, 2.0], None, "folds must be 4 integers"),
    ],
)
def test_folds_that_leave_nothing_to_choose_from_are_refused(same, folds, tested, text):
    with pytest.raises(ValueError, match=text):
        verification.cross_validated([0.1, 0.2, 0.3, 0.4], same, folds, tested)


def test_a_tested_fold_may_be_of_one_kind_if_the_others_are_not():
    found = verification.cross_validated([0.9, 0.8, 0.1, 0.7], [1, 1, 0, 1], [1, 1, 2, 2], tested=[1])
    assert found.accuracies == (1,)


def test_the_interval_of_an_accuracy_is_students_over_folds():
    scores, same = normal_scores(np.random.default_rng(8), 500, 500, 2)
    folds = verification.cross_validated(scores, same, np.arange(1000) % 10)
    found = verification.accuracy(folds)
    oracle = scipy.stats.ttest_1samp(folds.accuracies, 0).confidence_interval()
    assert (found.value, found.low, found.high) == pytest.approx((folds.mean, oracle.low, oracle.high))


def test_perfect_folds_are_not_certain():
    same = np.arange(6000) % 2 == 0
    found = verification.accuracy(verification.cross_validated(same, same, np.arange(6000) // 600))
    assert (found.value, found.high) == (1, 1)
    assert found.low == pytest.approx(1 - scipy.stats.t.ppf(0.975, 9) / 600 / math.sqrt(10))


@pytest.mark.parametrize("distance", [0.5, 2, 20])
def test_one_fold_has_the_wilson_interval_of_its_pairs(distance):
    scores, same = normal_scores(np.random.default_rng(9), 100, 100, distance)
    folds = verification.cross_validated(scores, same, np.arange(200) // 100, tested=[1])
    found = verification.accuracy(folds)
    oracle = scipy.stats.binomtest(int(folds.correct.sum()), 100).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_two_folds_of_unequal_size_are_as_uncertain_as_the_smaller_makes_them():
    scores, same = normal_scores(np.random.default_rng(10), 505, 505, 1)
    folds = verification.cross_validated(scores, same, np.repeat([0, 1], [10, 1000]))
    found = verification.accuracy(folds)
    assert folds.sizes == (10, 1000)
    assert found.low < found.value < found.high
    n = 4 / (1 / 10 + 1 / 1000)  # var = (p(1−p)/10 + p(1−p)/1000) / 4
    z = scipy.stats.norm.ppf(0.975)
    for end in (found.low, found.high):  # Wilson's ends are where the score test is at its level
        assert abs(found.value - end) == pytest.approx(z * math.sqrt(end * (1 - end) / n))


# ---- a network is judged ---------------------------------------------------------------------------------------------


class Fixed:
    """A network whose features give the pairs (2i, 2i + 1) the wanted cosines."""

    weights = None

    def __init__(self, cosines):
        angle = np.arccos(np.asarray(cosines, dtype=float))
        sides = np.stack([np.ones_like(angle), np.zeros_like(angle), np.cos(angle), np.sin(angle)], 1)
        self.rows = torch.from_numpy(sides.reshape(-1, 2))

    def features(self, split):
        return self.rows


def judged(scores, same, folds, tested=None):
    """The evaluation of a network that gives these pairs these scores."""
    count = len(scores)
    test = Split.of(np.zeros((2 * count, 1, 1, 1), np.uint8), np.zeros(2 * count, np.int64))
    pairs = np.stack([np.arange(0, 2 * count, 2), np.arange(1, 2 * count, 2), np.asarray(same, dtype=int)], 1)
    return TASKS["verification"].evaluate(Fixed(scores), Dataset(test, test, 2, pairs, np.asarray(folds), tested))


def squashed(scores):
    """Scores as cosines, in the same order."""
    return np.tanh(np.asarray(scores) / 4)


def test_a_network_is_judged_by_its_tested_folds_alone():
    scores, same = normal_scores(np.random.default_rng(16), 60, 60, 1.5)
    scores, folds = squashed(scores), np.arange(120) % 4
    found = judged(scores, same, folds, tested=(3, 1))
    inside = np.isin(folds, [1, 3])
    assert len(found.correct) == len(found.scores) == 60
    assert found.scores == pytest.approx(scores[inside]) and (found.same == same[inside]).all()
    assert found.angles == []  # classes that were never trained on have no weights
    details = found.details()
    assert details["positives"] + details["negatives"] == 60
    for name, metric in (("auc", auc), ("eer", eer)):
        assert details[name] == pytest.approx(vars(metric.with_interval(scores[inside], same[inside])))
        assert metric.measure(found) == 100 * details[name]["value"]
    for rate in details["tar"]:
        assert tar.measure(found, far=rate["far"]) == 100 * rate["value"]
    assert [rate["far"] for rate in details["tar"]] == [0.1, 0.01, 0.001]


def test_random_scores_give_a_half():
    scores, same = np.random.default_rng(14).uniform(-1, 1, size=6000), np.arange(6000) % 2
    found = judged(scores, same, np.arange(6000) // 600).details()
    for estimate, truth in ((found["accuracy"], 0.5), (found["eer"], 0.5), (found["auc"], 0.5), (found["tar"][0], 0.1)):
        assert estimate["value"] == pytest.approx(truth, abs=0.03)  # four standard errors
        assert 0 < estimate["high"] - estimate["low"] < 0.06


def test_perfect_scores_are_perfect_within_what_the_pairs_can_tell():
    same = np.arange(6000) % 2 == 0
    found = judged(same - 0.3, same, np.arange(6000) // 600).details()
    assert [found[name]["value"] for name in ("accuracy", "eer", "auc")] == [1, 0, 1]
    assert [rate["value"] for rate in found["tar"]] == [1, 1, 1]
    assert found["folds"]["thresholds"] == pytest.approx([0.2] * 10)
    for estimate in (found["accuracy"], found["auc"], *found["tar"][:2]):
        assert (0.995 < estimate["low"] < 1) and estimate["high"] == 1
    assert found["eer"]["low"] == 0
    assert 0 < found["eer"]["high"] < 0.002


def test_a_verification_is_plain_json_without_nan():
    plain = judged([0.9, 0.5, 0.1, 0.4], [0, 1, 0, 1], [1, 1, 2, 2], tested=(1,)).details()
    assert json.loads(json.dumps(plain, allow_nan=False)) == json.loads(json.dumps(plain))
    assert plain["folds"] == {
        **{"tested": [1], "sizes": [2], "thresholds": [pytest.approx(0.25)]},
        **{"accuracies": [0.5], "mean": 0.5, "error": None},
    }
    assert plain["accuracy"]["low"] < plain["accuracy"]["value"] == 0.5 < plain["accuracy"]["high"]
    assert plain["tar"][0]["threshold"] is None  # infinite: no score is accepted
    assert plain["tar"][0]["resolved"] is False
    assert set(plain) == {"positives", "negatives", "accuracy", "folds", "tar", "eer", "auc"}


def test_random_scores_are_judged_no_better_than_by_chance():
    """Were a tested fold's own pairs used for its threshold, that would be fitted to them and exceed a half."""
    rng = np.random.default_rng(7)
    means = [
        verification.cross_validated(rng.normal(size=60), np.arange(60) % 2, np.arange(60) // 6).mean
        for _ in range(100)
    ]
    assert np.mean(means) < 0.5 + 3 * scipy.stats.sem(means)


@pytest.mark.slow
def test_the_interval_of_an_accuracy_covers_as_often_as_it_says():
    rng = np.random.default_rng(22)
    tries, covered = 400, 0
    folds = np.arange(1000) % 10
    truth = scipy.stats.norm.cdf(1)  # d = 2, threshold 1; the chosen one costs a little, well below the interval
    for _ in range(tries):
        found = verification.accuracy(verification.cross_validated(*normal_scores(rng, 500, 500, 2), folds))
        covered += found.low <= truth <= found.high
    assert within(covered, tries, 0.95)
