"""TAR at FAR, EER and AUC of pairs against independent oracles."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.pairs import TIED, arrays, normal_scores
from sklearn.metrics import roc_auc_score, roc_curve

from lossbench.metrics import auc, eer, tar
from lossbench.metrics._pairs import labelled, operating_points
from lossbench.tasks import verification


@given(TIED)
@settings(max_examples=40)
def test_the_curve_is_scikit_learns(pairs):
    scores, same = arrays(pairs)
    thresholds, false_accepts, true_accepts = operating_points(*labelled(scores, same))
    found = false_accepts / false_accepts[-1], true_accepts / true_accepts[-1], thresholds
    for mine, oracle in zip(found, roc_curve(same, scores, drop_intermediate=False), strict=True):
        assert mine.tolist() == oracle.tolist()


@given(TIED, st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.125, 0.2, 0.25, 0.3, 0.5, 0.75, 0.9]))
@settings(max_examples=40)
def test_the_tar_is_the_largest_that_keeps_the_far(pairs, far):
    scores, same = arrays(pairs)
    positives, negatives = scores[same], scores[~same]
    found = tar.with_interval(scores, same, far)
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
    found = tar.with_interval(scores, same, 0.29)  # 0.29 * 100 is 28.999999999999996
    assert (found.allowed, found.threshold, found.value) == (29, 70.5, 0.3)
    assert tar.with_interval(scores, same, 0.2899).allowed == 28
    assert tar.with_interval(scores, same, np.float64(0.07)).allowed == 7


def test_a_far_below_one_negative_is_marked():
    scores, same = [0.1, 0.2, 0.3, 0.25, 0.4, 0.5], [0, 0, 0, 1, 1, 1]
    found = tar.with_interval(scores, same, 0.1)
    assert (found.value, found.threshold, found.allowed, found.resolved) == (pytest.approx(2 / 3), 0.4, 0, False)
    assert found.low == 0  # nothing says that the threshold of this FAR is not above 0.5
    assert tar.with_interval(scores, same, 0.34).resolved


def test_a_tie_that_would_break_the_far_is_refused_whole():
    scores, same = np.ones(40), np.arange(40) % 2 == 0
    found = tar.with_interval(scores, same, 0.5)
    assert (found.value, found.threshold) == (0, math.inf)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 20), abs=1e-5)  # Clopper and Pearson's of 0 in 20


def test_the_lower_bound_needs_negatives_enough():
    for negatives, bounded in ((3000, False), (3600, False), (3700, True)):
        scores = np.append(np.zeros(negatives), np.ones(100))
        found = tar.with_interval(scores, scores > 0, 0.001)
        assert found.value == 1
        assert (found.low > 0.9) == bounded


@pytest.mark.parametrize("far", [0, 1, -0.1, math.nan])
def test_a_far_that_is_no_rate_is_refused(far):
    with pytest.raises(ValueError, match="far must lie between 0 and 1"):
        tar.with_interval([0.1, 0.2], [0, 1], far)


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
    assert eer.with_interval(scores, same).value == pytest.approx(rate)


@given(TIED)
@settings(max_examples=40)
def test_at_the_equal_error_rate_the_interpolated_curve_has_equal_errors(pairs):
    scores, same = arrays(pairs)
    false_rate, true_rate, _ = roc_curve(same, scores, drop_intermediate=False)
    # Along the curve FPR − FNR = FPR + TPR − 1 rises, and strictly: it is a coordinate of its points.
    expected = np.interp(0, false_rate + true_rate - 1, false_rate)
    found = eer.with_interval(scores, same)
    assert found.value == pytest.approx(expected)
    assert 0 <= found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high <= 1


@given(TIED)
@settings(max_examples=40)
def test_the_area_is_scikit_learns_and_within_its_interval(pairs):
    scores, same = arrays(pairs)
    found = auc.with_interval(scores, same)
    assert found.value == pytest.approx(roc_auc_score(same, scores))
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high


def test_the_area_of_a_long_tied_list_counts_ties_half():
    rng = np.random.default_rng(11)
    scores, same = rng.integers(0, 5, size=400) + 0.0, rng.integers(0, 2, size=400) == 1
    wins = scores[same][:, None] - scores[~same]
    assert auc.with_interval(scores, same).value == pytest.approx(np.mean((wins > 0) + (wins == 0) / 2))


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
    found = auc.with_interval(scores, same, level=0.1)
    assert (found.value, found.low, found.high) == pytest.approx((area, *ends))


def test_the_interval_of_the_area_agrees_with_a_bootstrap():
    rng = np.random.default_rng(13)
    scores, same = normal_scores(rng, 150, 200, 1.5)
    positives, negatives = scores[same], scores[~same]
    wins = (positives[:, None] > negatives).astype(float)
    weight_p = rng.multinomial(150, np.full(150, 1 / 150), size=4000) / 150
    weight_n = rng.multinomial(200, np.full(200, 1 / 200), size=4000) / 200
    areas = ((weight_p @ wins) * weight_n).sum(1)
    found = auc.with_interval(scores, same)
    assert (found.low, found.high) == pytest.approx(np.quantile(areas, [0.025, 0.975]), abs=0.006)
    assert found.high - found.low == pytest.approx(np.ptp(np.quantile(areas, [0.025, 0.975])), rel=0.06)


@pytest.mark.parametrize(("positives", "negatives"), [(1, 1), (1, 9), (8, 3), (50, 50)])
def test_a_perfect_area_is_bounded_by_its_independent_comparisons(positives, negatives):
    same = np.arange(positives + negatives) < positives
    found, turned = auc.with_interval(same, same), auc.with_interval(~same, same)
    oracle = scipy.stats.binomtest(min(positives, negatives), min(positives, negatives)).proportion_ci()
    assert (found.value, found.low, found.high) == (1, pytest.approx(oracle.low), 1)
    assert (turned.value, turned.low, turned.high) == (0, 0, pytest.approx(1 - oracle.low))


def test_an_area_without_variance_is_not_certain():
    constant = auc.with_interval(np.zeros(20), np.arange(20) < 10)
    oracle = scipy.stats.binomtest(5, 10).proportion_ci()
    assert (constant.value, constant.low, constant.high) == pytest.approx((0.5, oracle.low, oracle.high))
    lonely = auc.with_interval([1, 2, 3], [0, 1, 0])
    assert (lonely.value, lonely.low, lonely.high) == pytest.approx((0.5, 0.0125, 0.9875), abs=0.05)


def figures(scores, same):
    """All that depends on the order of the scores alone."""
    rate = tar.with_interval(scores, same, 0.2)
    found = (rate, eer.with_interval(scores, same), auc.with_interval(scores, same))
    return [end for each in found for end in (each.value, each.low, each.high)]


@given(TIED, st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_the_order_of_the_pairs_changes_nothing(pairs, random):
    mixed = list(pairs)
    random.shuffle(mixed)
    assert figures(*arrays(pairs)) == pytest.approx(figures(*arrays(mixed)), abs=1e-12)
    assert verification.best_threshold(*arrays(pairs)) == verification.best_threshold(*arrays(mixed))


@given(TIED, st.sampled_from([lambda s: s**3, np.exp, lambda s: 1e-3 * s - 5, np.arctan]))
@settings(max_examples=20)
def test_a_rising_function_of_the_scores_changes_nothing_but_thresholds(pairs, rising):
    scores, same = arrays(pairs)
    assert figures(scores, same) == pytest.approx(figures(rising(scores), same), abs=1e-12)
    before = scores >= verification.best_threshold(scores, same)
    assert (before == (rising(scores) >= verification.best_threshold(rising(scores), same))).all()


@given(TIED)
@settings(max_examples=20)
def test_turning_scores_and_labels_leaves_errors_and_area(pairs):
    scores, same = arrays(pairs)
    for figure in (eer.with_interval, auc.with_interval):
        one, other = figure(scores, same), figure(-scores, ~same)
        assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high), abs=1e-8)


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
        eer.with_interval,
        auc.with_interval,
        lambda scores, same: tar.with_interval(scores, same, 0.1),
        lambda scores, same: verification.cross_validated(scores, same, np.arange(len(scores))),
    ],
)
def test_scores_and_labels_that_mean_nothing_are_refused_in_a_sentence(call, scores, same, text):
    with pytest.raises(ValueError, match=text):
        call(scores, same)
