"""Trends along an option: scipy as oracle, verdicts, and how often they are wrong."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from lossbench import stats

X = [0.0, 0.5, 1.0, 2.0]


def curves(rng, seeds, shape, noise=1.0):
    """Seeds × values: a common curve, each seed's own height, and noise."""
    return np.asarray(shape) + rng.normal(size=(seeds, 1)) * 3 + noise * rng.normal(size=(seeds, len(shape)))


def judged(found, claimed):
    return stats.claim_verdict(*stats.trend_evidence(found, claimed))


def test_pages_test_agrees_with_counting_every_order():
    y = np.array([[1.0, 2.5, 2.0], [0.3, 0.1, 0.9], [5.0, 6.0, 7.0]])
    ranks = scipy.stats.rankdata(y, axis=1)
    weights = np.arange(1, 4)
    observed = (ranks @ weights).sum()
    orders = [np.dot(order, weights) for order in itertools.permutations([1, 2, 3])]
    totals = np.array([sum(rows) for rows in itertools.product(orders, repeat=3)])
    found = stats.trend([1, 2, 3], y)
    assert found.p == pytest.approx(2 * (totals >= observed).mean())
    assert found.direction == "increases"
    assert stats.trend([1, 2, 3], np.tile([1.0, 2.0, 3.0], (3, 1))).p == pytest.approx(2 / 6**3)


def test_a_trend_turned_around_is_the_same_trend():
    y = curves(np.random.default_rng(0), 6, [0, 0.7, 1.0, 1.8])
    up, down = stats.trend(X, y), stats.trend(X, -y)
    assert up.p == pytest.approx(down.p)
    assert (up.direction, down.direction) == ("increases", "decreases")
    assert (up.slope, up.low, up.high, up.spearman) == pytest.approx(
        (-down.slope, -down.high, -down.low, -down.spearman)
    )
    assert (up.rises, up.falls) == (down.falls, down.rises)


def test_the_order_of_the_columns_does_not_matter():
    y = curves(np.random.default_rng(1), 6, [0, 0.7, 1.0, 1.8])
    shuffled = [2, 0, 3, 1]
    assert stats.trend(np.array(X)[shuffled], y[:, shuffled]) == stats.trend(X, y)


def test_the_slope_is_the_mean_of_the_seeds_own_slopes():
    y = curves(np.random.default_rng(2), 7, [0, 0.7, 1.0, 1.8])
    slopes = [scipy.stats.linregress(X, row).slope for row in y]
    oracle = scipy.stats.ttest_1samp(slopes, 0).confidence_interval()
    found = stats.trend(X, y)
    assert found.slope == pytest.approx(np.mean(slopes))
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))
    assert found.spearman == pytest.approx(np.mean([scipy.stats.spearmanr(X, row).statistic for row in y]))


def test_a_flat_curve_has_no_trend():
    found = stats.trend(X, np.full((5, 4), 0.9), resolution=0.01)
    assert (found.p, found.direction, found.spearman) == (1, None, 0)
    assert found.slope == pytest.approx(0)
    assert found.low < 0 < found.high  # one image at the end would tilt it
    assert judged(found, "increases") == "undecided"


def test_two_seeds_give_a_slope_and_nothing_more():
    found = stats.trend(X, [[0, 1, 2, 3], [0, 1, 2, 3]])
    assert found.slope > 0
    assert math.isnan(found.p) and math.isnan(found.low)
    assert judged(found, "increases") == "undecided"


@pytest.mark.parametrize(
    ("shape", "increases", "decreases"),
    [
        ([0, 1, 2, 3], "supported", "contradicted"),
        ([3, 2, 1, 0], "contradicted", "supported"),
        ([0, 3, 4, 1], "contradicted", "contradicted"),  # rises, then falls
        ([0, 0, 0, 0], "undecided", "undecided"),
    ],
)
def test_a_claimed_trend_has_its_verdict(shape, increases, decreases):
    found = stats.trend(X, curves(np.random.default_rng(4), 10, shape, noise=0.3))
    assert judged(found, "increases") == increases
    assert judged(found, "decreases") == decreases


def test_a_trend_that_turns_is_not_monotone_however_small_its_p():
    found = stats.trend(range(5), curves(np.random.default_rng(5), 10, [0, 2, 4, 6, 5], noise=0.2))
    assert found.p < 1e-6 and found.direction == "increases"
    assert (found.rises, found.falls) == (3, 1)
    assert judged(found, "increases") == "contradicted"


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        ([1, 2], np.zeros((5, 2)), "three or more different"),
        ([1, 2, 2], np.zeros((5, 3)), "three or more different"),
        ([1, 2, 3], np.zeros((5, 4)), "seeds × k"),
        ([1, 2, 3], [[1, 2, math.nan]] * 3, "finite"),
    ],
)
def test_what_is_no_trend_is_refused(x, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        stats.trend(x, y)


@pytest.mark.parametrize(("seeds", "values", "step"), [(3, 5, 0), (14, 4, 0), (10, 4, 1.0)])
def test_false_trends_are_as_rare_as_the_level(seeds, values, step):
    """Without a trend; with `step` the values are as coarse as one SD, so that there are ties."""
    rng = np.random.default_rng(seeds)
    tries = 200
    alarms = missed = 0
    for _ in range(tries):
        y = curves(rng, seeds, np.zeros(values))
        found = stats.trend(range(values), np.round(y / step) * step if step else y)
        alarms += found.p < stats.LEVEL
        missed += not found.low <= 0 <= found.high
    assert 0 < alarms / tries <= stats.LEVEL + 3 * math.sqrt(0.05 * 0.95 / tries)
    assert missed / tries == pytest.approx(0.05, abs=3.5 * math.sqrt(0.05 * 0.95 / tries))


def test_of_eight_claims_about_nothing_none_is_decided_but_rarely():
    rng = np.random.default_rng(8)
    tries, alarms = 50, 0
    for _ in range(tries):
        family = [
            stats.trend_evidence(stats.trend(range(4), curves(rng, 8, np.zeros(4))), "increases") for _ in range(8)
        ]
        adjusted = stats.holm([p for p, _ in family])
        alarms += any(p < stats.LEVEL for p in adjusted)
    assert alarms / tries <= stats.LEVEL + 3 * math.sqrt(0.05 * 0.95 / tries)


def test_a_true_claim_is_rarely_contradicted():
    rng = np.random.default_rng(6)
    tries = 150
    words = []
    for _ in range(tries):
        found = stats.trend(range(5), curves(rng, 8, [0, 0, 1, 1, 1]))
        words.append(judged(found, "increases"))
    assert words.count("contradicted") / tries <= stats.LEVEL
    assert words.count("supported") / tries > 0.5
