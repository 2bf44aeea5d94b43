"""Verification of pairs: independent oracles, folds written out by hand, and what the intervals promise."""

from __future__ import annotations

import json
import math
import tracemalloc

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.metrics.pairwise import cosine_similarity

from lossbench.tasks import verification

# Few distinct values, so that ties within and between the kinds are the rule; both kinds are there.
TIED = st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=40).filter(
    lambda pairs: 0 < sum(same for _, same in pairs) < len(pairs)
)


def arrays(pairs):
    return np.array([score for score, _ in pairs], dtype=float), np.array([same for _, same in pairs])


def normal_scores(rng, positives, negatives, distance):
    """Positives N(distance, 1), negatives N(0, 1), mixed: the EER is Φ(−d/2) and the AUC Φ(d/√2)."""
    same = rng.permutation(np.arange(positives + negatives) < positives)
    return rng.normal(size=len(same)) + distance * same, same


def within(count, tries, share):
    """The share counted is what was promised, to three standard errors."""
    return abs(count / tries - share) <= 3 * math.sqrt(share * (1 - share) / tries)


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


# ---- the threshold ---------------------------------------------------------------------------------------------------


def brute_force(scores, same):
    """(accuracy, t) at every score, and above them all."""
    candidates = [*sorted(set(scores)), math.inf]
    return [(float(np.mean((scores >= t) == same)), t) for t in candidates]


@given(TIED)
def test_no_threshold_is_better_than_the_one_chosen(pairs):
    scores, same = arrays(pairs)
    threshold = verification.best_threshold(scores, same)
    assert np.mean((scores >= threshold) == same) == max(right for right, _ in brute_force(scores, same))


@given(TIED)
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
@settings(max_examples=200)
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


def test_random_scores_are_judged_no_better_than_by_chance():
    """Were a tested fold's own pairs used for its threshold, that would be fitted to them and exceed a half."""
    rng = np.random.default_rng(7)
    means = [
        verification.cross_validated(rng.normal(size=60), np.arange(60) % 2, np.arange(60) // 6).mean
        for _ in range(300)
    ]
    assert np.mean(means) < 0.5 + 3 * scipy.stats.sem(means)


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


# ---- the accuracy's interval -----------------------------------------------------------------------------------------


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


# ---- the curve and its figures ---------------------------------------------------------------------------------------


@given(TIED)
def test_the_curve_is_scikit_learns(pairs):
    scores, same = arrays(pairs)
    for found, oracle in zip(
        verification.roc(scores, same), roc_curve(same, scores, drop_intermediate=False), strict=True
    ):
        assert found.tolist() == oracle.tolist()


@given(TIED)
def test_the_curve_goes_from_nothing_to_everything_by_distinct_scores(pairs):
    scores, same = arrays(pairs)
    false_rate, true_rate, thresholds = verification.roc(scores, same)
    assert (false_rate[0], true_rate[0], false_rate[-1], true_rate[-1]) == (0, 0, 1, 1)
    assert thresholds[1:].tolist() == sorted(set(scores), reverse=True)
    for at, false_share, true_share in zip(thresholds, false_rate, true_rate, strict=True):
        assert false_share == np.mean(scores[~same] >= at)
        assert true_share == np.mean(scores[same] >= at)


@given(TIED, st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.125, 0.2, 0.25, 0.3, 0.5, 0.75, 0.9]))
def test_the_tar_is_the_largest_that_keeps_the_far(pairs, far):
    scores, same = arrays(pairs)
    positives, negatives = scores[same], scores[~same]
    found = verification.tar_at_far(scores, same, far)
    most = math.floor(far * len(negatives) + 1e-9)
    allowed = [t for t in [*set(scores), math.inf] if (negatives >= t).sum() <= most]
    assert found.value == max((positives >= t).mean() for t in allowed)
    assert found.threshold == min(allowed)
    assert (found.allowed, found.resolved) == (most, most > 0)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_a_far_means_what_is_written():
    negatives = np.arange(100.0)  # the 29 highest are 71…99
    positives = np.arange(0.5, 100)
    scores, same = np.append(negatives, positives), np.arange(200) >= 100
    found = verification.tar_at_far(scores, same, 0.29)  # 0.29 * 100 is 28.999999999999996
    assert (found.allowed, found.threshold, found.value) == (29, 70.5, 0.3)
    assert verification.tar_at_far(scores, same, 0.2899).allowed == 28
    assert verification.tar_at_far(scores, same, np.float64(0.07)).allowed == 7


def test_a_far_below_one_negative_is_marked():
    scores, same = [0.1, 0.2, 0.3, 0.25, 0.4, 0.5], [0, 0, 0, 1, 1, 1]
    found = verification.tar_at_far(scores, same, 0.1)
    assert (found.value, found.threshold, found.allowed, found.resolved) == (pytest.approx(2 / 3), 0.4, 0, False)
    assert found.low == 0  # nothing says that the threshold of this FAR is not above 0.5
    assert verification.tar_at_far(scores, same, 0.34).resolved


def test_a_tie_that_would_break_the_far_is_refused_whole():
    scores, same = np.ones(40), np.arange(40) % 2 == 0
    found = verification.tar_at_far(scores, same, 0.5)
    assert (found.value, found.threshold) == (0, math.inf)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 20), abs=1e-5)  # Clopper and Pearson's of 0 in 20


def test_the_lower_bound_needs_negatives_enough():
    for negatives, bounded in ((3000, False), (3600, False), (3700, True)):
        scores = np.append(np.zeros(negatives), np.ones(100))
        found = verification.tar_at_far(scores, scores > 0, 0.001)
        assert found.value == 1
        assert (found.low > 0.9) == bounded


@pytest.mark.parametrize("far", [0, 1, -0.1, math.nan])
def test_a_far_that_is_no_rate_is_refused(far):
    with pytest.raises(ValueError, match="far must lie between 0 and 1"):
        verification.tar_at_far([0.1, 0.2], [0, 1], far)


@pytest.mark.parametrize(
    ("scores", "same", "rate"),
    [
        ([1, 2, 3, 4], [0, 0, 1, 1], 0),
        ([1, 2, 3, 4], [1, 1, 0, 0], 1),
        ([1, 2, 3, 4], [0, 1, 0, 1], 0.5),
        ([7, 7, 7, 7, 7], [1, 0, 0, 1, 0], 0.5),  # one straight line
        ([1, 2, 3, 4, 5, 6], [0, 0, 1, 0, 1, 1], 1 / 3),
        ([0, 1, 1, 1, 1, 2], [0, 0, 0, 1, 1, 1], 1 / 3),  # on the line from (0, 1/3) to (2/3, 1), half way
    ],
)
def test_equal_error_rates_worked_out_by_hand(scores, same, rate):
    assert verification.eer(scores, same).value == pytest.approx(rate)


@given(TIED)
def test_at_the_equal_error_rate_the_interpolated_curve_has_equal_errors(pairs):
    scores, same = arrays(pairs)
    false_rate, true_rate, _ = roc_curve(same, scores, drop_intermediate=False)
    # Along the curve FPR − FNR = FPR + TPR − 1 rises, and strictly: it is a coordinate of its points.
    expected = np.interp(0, false_rate + true_rate - 1, false_rate)
    found = verification.eer(scores, same)
    assert found.value == pytest.approx(expected)
    assert 0 <= found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high <= 1


@given(TIED)
def test_the_area_is_scikit_learns_and_within_its_interval(pairs):
    scores, same = arrays(pairs)
    found = verification.auc(scores, same)
    assert found.value == pytest.approx(roc_auc_score(same, scores))
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high


def test_the_area_of_a_long_tied_list_counts_ties_half():
    rng = np.random.default_rng(11)
    scores, same = rng.integers(0, 5, size=400) + 0.0, rng.integers(0, 2, size=400) == 1
    wins = scores[same][:, None] - scores[~same]
    assert verification.auc(scores, same).value == pytest.approx(np.mean((wins > 0) + (wins == 0) / 2))


def test_the_interval_of_the_area_is_delongs_on_the_logit_scale():
    rng = np.random.default_rng(12)
    scores, same = normal_scores(rng, 40, 70, 1)
    scores = np.round(scores, 1)
    wins = scores[same][:, None] - scores[~same]
    wins = (wins > 0) + (wins == 0) / 2
    area = wins.mean()
    sd = math.sqrt(wins.mean(1).var(ddof=1) / 40 + wins.mean(0).var(ddof=1) / 70)
    half = scipy.stats.norm.ppf(0.95) * sd / (area * (1 - area))
    ends = [1 / (1 + math.exp(-(math.log(area / (1 - area)) + side))) for side in (-half, half)]
    found = verification.auc(scores, same, level=0.1)
    assert (found.value, found.low, found.high) == pytest.approx((area, *ends))


def test_the_interval_of_the_area_agrees_with_a_bootstrap():
    rng = np.random.default_rng(13)
    scores, same = normal_scores(rng, 150, 200, 1.5)
    positives, negatives = scores[same], scores[~same]
    wins = (positives[:, None] > negatives).astype(float)
    weight_p = rng.multinomial(150, np.full(150, 1 / 150), size=4000) / 150
    weight_n = rng.multinomial(200, np.full(200, 1 / 200), size=4000) / 200
    areas = ((weight_p @ wins) * weight_n).sum(1)
    found = verification.auc(scores, same)
    assert (found.low, found.high) == pytest.approx(np.quantile(areas, [0.025, 0.975]), abs=0.006)
    assert found.high - found.low == pytest.approx(np.ptp(np.quantile(areas, [0.025, 0.975])), rel=0.06)


@pytest.mark.parametrize(("positives", "negatives"), [(1, 1), (1, 9), (8, 3), (50, 50)])
def test_a_perfect_area_is_bounded_by_its_independent_comparisons(positives, negatives):
    same = np.arange(positives + negatives) < positives
    found, turned = verification.auc(same, same), verification.auc(~same, same)
    oracle = scipy.stats.binomtest(min(positives, negatives), min(positives, negatives)).proportion_ci()
    assert (found.value, found.low, found.high) == (1, pytest.approx(oracle.low), 1)
    assert (turned.value, turned.low, turned.high) == (0, 0, pytest.approx(1 - oracle.low))


def test_an_area_without_variance_is_not_certain():
    constant = verification.auc(np.zeros(20), np.arange(20) < 10)
    oracle = scipy.stats.binomtest(5, 10).proportion_ci()
    assert (constant.value, constant.low, constant.high) == pytest.approx((0.5, oracle.low, oracle.high))
    lonely = verification.auc([1, 2, 3], [0, 1, 0])
    assert (lonely.value, lonely.low, lonely.high) == pytest.approx((0.5, 0.0125, 0.9875), abs=0.05)


# ---- what all of them share ------------------------------------------------------------------------------------------


def figures(scores, same):
    """All that depends on the order of the scores alone."""
    rate = verification.tar_at_far(scores, same, 0.2)
    false_rate, true_rate, _ = verification.roc(scores, same)
    found = (rate, verification.eer(scores, same), verification.auc(scores, same))
    return [*false_rate, *true_rate, *(end for each in found for end in (each.value, each.low, each.high))]


@given(TIED, st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_the_order_of_the_pairs_changes_nothing(pairs, random):
    mixed = list(pairs)
    random.shuffle(mixed)
    assert figures(*arrays(pairs)) == pytest.approx(figures(*arrays(mixed)), abs=1e-12)
    assert verification.best_threshold(*arrays(pairs)) == verification.best_threshold(*arrays(mixed))


@given(TIED, st.sampled_from([lambda s: s**3, np.exp, lambda s: 1e-3 * s - 5, np.arctan]))
@settings(max_examples=30)
def test_a_rising_function_of_the_scores_changes_nothing_but_thresholds(pairs, rising):
    scores, same = arrays(pairs)
    assert figures(scores, same) == pytest.approx(figures(rising(scores), same), abs=1e-12)
    before = scores >= verification.best_threshold(scores, same)
    assert (before == (rising(scores) >= verification.best_threshold(rising(scores), same))).all()


@given(TIED)
@settings(max_examples=30)
def test_turning_scores_and_labels_leaves_errors_and_area(pairs):
    scores, same = arrays(pairs)
    for figure in (verification.eer, verification.auc):
        one, other = figure(scores, same), figure(-scores, ~same)
        assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high), abs=1e-8)


def test_random_scores_give_a_half():
    scores, same = np.random.default_rng(14).normal(size=6000), np.arange(6000) % 2
    found = verification.verify(scores, same, np.arange(6000) // 600, fars=[0.1])
    for estimate, truth in ((found.accuracy, 0.5), (found.eer, 0.5), (found.auc, 0.5), (found.tar[0], 0.1)):
        assert estimate.value == pytest.approx(truth, abs=0.03)  # four standard errors
        assert 0 < estimate.high - estimate.low < 0.06


def test_perfect_scores_are_perfect_within_what_the_pairs_can_tell():
    same = np.arange(6000) % 2 == 0
    found = verification.verify(same - 0.3, same, np.arange(6000) // 600)
    assert (found.accuracy.value, found.eer.value, found.auc.value) == (1, 0, 1)
    assert [rate.value for rate in found.tar] == [1, 1, 1]
    assert found.folds.thresholds == pytest.approx([0.2] * 10)
    for estimate in (found.accuracy, found.auc, *found.tar[:2]):
        assert (0.995 < estimate.low < 1) and estimate.high == 1
    assert found.eer.low == 0
    assert 0 < found.eer.high < 0.002


BROKEN = [
    ([0.1, 0.2], [1, 1], "both kinds"),
    ([0.1, 0.2], [0, 0], "both kinds"),
    ([], [], "both kinds"),
    ([0.1, math.nan], [0, 1], "finite, 1 of 2"),
    ([0.1, math.inf], [0, 1], "finite"),
    ([0.1, 0.2], [0, 2], "true .same. or false"),
    ([0.1, 0.2], [0, math.nan], "true .same. or false"),
    ([0.1, 0.2], [0, 1, 1], "one length"),
    ([[0.1, 0.2]], [[0, 1]], "vectors"),
]


@pytest.mark.parametrize(("scores", "same", "text"), BROKEN)
@pytest.mark.parametrize(
    "call",
    [
        verification.best_threshold,
        verification.roc,
        verification.eer,
        verification.auc,
        lambda scores, same: verification.tar_at_far(scores, same, 0.1),
        lambda scores, same: verification.cross_validated(scores, same, np.arange(len(scores))),
        lambda scores, same: verification.verify(scores, same, np.arange(len(scores))),
    ],
)
def test_scores_and_labels_that_mean_nothing_are_refused_in_a_sentence(call, scores, same, text):
    with pytest.raises(ValueError, match=text):
        call(scores, same)


# ---- all at once -----------------------------------------------------------------------------------------------------


def test_verify_gathers_what_the_functions_find():
    scores, same = normal_scores(np.random.default_rng(15), 60, 90, 1.5)
    folds = np.arange(150) % 5
    found = verification.verify(scores, same, folds, fars=(0.3, 0.05), level=0.1)
    assert (found.positives, found.negatives) == (60, 90)
    assert found.accuracy == verification.accuracy(found.folds, 0.1)
    assert found.folds.accuracies == verification.cross_validated(scores, same, folds).accuracies
    assert found.tar == tuple(verification.tar_at_far(scores, same, far, 0.1) for far in (0.3, 0.05))
    assert found.eer == verification.eer(scores, same, 0.1)
    assert found.auc == verification.auc(scores, same, 0.1)
    assert [rate.far for rate in verification.verify(scores, same, folds).tar] == [0.1, 0.01, 0.001]


def test_every_figure_is_of_the_tested_folds_alone():
    scores, same = normal_scores(np.random.default_rng(16), 60, 60, 1.5)
    folds = np.arange(120) % 4
    found = verification.verify(scores, same, folds, tested=[3, 1])
    inside = np.isin(folds, [1, 3])
    assert (found.positives + found.negatives, len(found.folds.correct)) == (60, 60)
    assert found.auc == verification.auc(scores[inside], same[inside])
    assert found.eer == verification.eer(scores[inside], same[inside])
    assert found.tar[0] == verification.tar_at_far(scores[inside], same[inside], 0.1)


def test_a_verification_is_plain_json_without_nan():
    found = verification.verify([2, 1, 0.1, 0.7], [0, 1, 0, 1], [1, 1, 2, 2], tested=[1])
    assert math.isnan(found.folds.error)
    assert found.tar[0].threshold == math.inf
    plain = found.to_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["folds"] == {
        **{"tested": [1], "sizes": [2], "thresholds": [pytest.approx(0.4)]},
        **{"accuracies": [0.5], "mean": 0.5, "error": None},
    }
    assert plain["accuracy"] == {"value": 0.5, "low": found.accuracy.low, "high": found.accuracy.high}
    assert plain["tar"][0]["threshold"] is None
    assert plain["tar"][0]["resolved"] is False
    assert set(plain) == {"positives", "negatives", "accuracy", "folds", "tar", "eer", "auc"}


# ---- what the intervals promise --------------------------------------------------------------------------------------


def test_the_interval_of_a_tar_agrees_with_drawing_its_two_sources():
    """The threshold's rank is J ~ Bin(N, far), the positives' share above it a beta variate; quantiles by drawing."""
    rng = np.random.default_rng(17)
    scores, same = normal_scores(rng, 80, 200, 2)
    positives, negatives = np.sort(scores[same]), np.sort(scores[~same])[::-1]
    rank = rng.binomial(200, 0.1, size=400_000)
    most = (positives[:, None] > negatives).sum(0)[rank]  # above the next highest negative: K(j)
    least = (positives[:, None] > negatives).sum(0)[rank - 1]
    found = verification.tar_at_far(scores, same, 0.1)
    assert found.low == pytest.approx(np.quantile(rng.beta(least, 81 - least), 0.025), abs=0.003)
    assert found.high == pytest.approx(np.quantile(rng.beta(most + 1, 80 - most), 0.975), abs=0.003)


def test_the_interval_of_an_eer_agrees_with_drawing_its_two_errors():
    """At either end, a fresh (J, I) is beyond the sample's line with the chance of one tail."""
    rng = np.random.default_rng(18)
    scores, same = normal_scores(rng, 60, 90, 1.5)
    scores = np.round(scores * 4)  # some ties
    found = verification.eer(scores, same)
    accepts, hits = [
        np.array([(scores[kind] >= t).sum() for t in [99, *sorted(set(scores), reverse=True)]])
        for kind in (~same, same)
    ]
    for rate, beyond in ((found.low, 1), (found.high, -1)):
        false_accepts, false_rejects = rng.binomial(90, rate, size=200_000), rng.binomial(60, rate, size=200_000)
        # Along the line, accepts + hits rises: the excess of a point is its place relative to the line on its diagonal.
        place = np.interp(false_accepts + 60 - false_rejects, accepts + hits, accepts)
        share = np.mean(beyond * (false_accepts - place) >= -1e-9)
        assert share == pytest.approx(0.025, abs=0.0015)


def test_an_eer_without_errors_is_bounded_in_closed_form():
    """No error at all: on or below the line are J = 0 or I = 0."""
    for positives, negatives in ((30, 30), (10, 200)):
        same = np.arange(positives + negatives) < positives
        high = verification.eer(same, same).high
        none = (1 - high) ** positives, (1 - high) ** negatives
        assert none[0] + none[1] - none[0] * none[1] == pytest.approx(0.025)


def test_a_tar_without_misses_has_the_interval_of_clopper_and_pearson():
    scores = np.append(np.zeros(1000), np.ones(80))
    found = verification.tar_at_far(scores, scores > 0, 0.1)
    oracle = scipy.stats.binomtest(80, 80).proportion_ci()
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))


@pytest.mark.parametrize(
    ("positives", "negatives", "distance", "far"),
    [(100, 100, 2, 0.1), (40, 300, 3, 0.02), (300, 300, 4.5, 0.1), (100, 200, 3, 0.01), (200, 100, 3, 0.001)],
)
def test_the_interval_of_a_tar_covers_at_least_as_often_as_it_says(positives, negatives, distance, far):
    rng = np.random.default_rng(19)
    truth, tries = scipy.stats.norm.sf(scipy.stats.norm.isf(far) - distance), 250
    missed = 0
    for _ in range(tries):
        found = verification.tar_at_far(*normal_scores(rng, positives, negatives, distance), far)
        missed += not found.low <= truth <= found.high
    assert missed / tries <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / tries)


@pytest.mark.parametrize(("positives", "negatives", "distance"), [(100, 100, 0), (40, 150, 2), (100, 100, 4)])
def test_the_interval_of_an_eer_covers_at_least_as_often_as_it_says(positives, negatives, distance):
    rng = np.random.default_rng(20)
    truth, tries = scipy.stats.norm.sf(distance / 2), 150
    missed = 0
    for _ in range(tries):
        found = verification.eer(*normal_scores(rng, positives, negatives, distance))
        missed += not found.low <= truth <= found.high
    assert missed / tries <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / tries)


@pytest.mark.parametrize(("positives", "negatives", "distance"), [(100, 100, 0), (100, 100, 2), (60, 300, 3)])
def test_the_interval_of_an_area_covers_as_often_as_it_says(positives, negatives, distance):
    rng = np.random.default_rng(21)
    truth, tries = scipy.stats.norm.cdf(distance / math.sqrt(2)), 800
    covered = 0
    for _ in range(tries):
        found = verification.auc(*normal_scores(rng, positives, negatives, distance))
        covered += found.low <= truth <= found.high
    assert within(covered, tries, 0.95)


def test_the_interval_of_an_accuracy_covers_as_often_as_it_says():
    rng = np.random.default_rng(22)
    tries, covered = 400, 0
    folds = np.arange(1000) % 10
    truth = scipy.stats.norm.cdf(1)  # d = 2, threshold 1; the chosen one costs a little, well below the interval
    for _ in range(tries):
        found = verification.accuracy(verification.cross_validated(*normal_scores(rng, 500, 500, 2), folds))
        covered += found.low <= truth <= found.high
    assert within(covered, tries, 0.95)


def test_a_bootstrap_would_cover_less_where_few_errors_are_left():
    """Why the intervals are not drawn at random: 300 + 300 pairs, FAR 1 %, and a TAR near its ceiling."""
    rng = np.random.default_rng(23)
    for distance, far in ((3, 0.01), (4.5, 0.1)):
        truth, tries, replicates = scipy.stats.norm.sf(scipy.stats.norm.isf(far) - distance), 150, 300
        missed = 0
        for _ in range(tries):
            scores, same = normal_scores(rng, 300, 300, distance)
            order = np.argsort(-scores)
            drawn = rng.multinomial(300, np.full(300, 1 / 300), size=(2, replicates))
            counts = np.zeros((2, replicates, 600), dtype=np.int64)
            counts[0][:, same[order]], counts[1][:, ~same[order]] = drawn
            hits, accepts = counts.cumsum(-1)
            rates = np.where(accepts <= far * 300, hits, 0).max(1) / 300
            low, high = np.quantile(rates, [0.025, 0.975])
            missed += not low <= truth <= high
        assert missed / tries > 0.05
