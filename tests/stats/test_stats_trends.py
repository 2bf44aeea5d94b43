"""Trends along an option: scipy as oracle, the step that goes back, and how often slopes are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from lossbench import stats

X = [0.0, 0.5, 1.0, 2.0]


def curves(rng, seeds, shape, noise=1.0):
    """Seeds × values: a common curve, each seed's own height, and noise."""
    return np.asarray(shape) + rng.normal(size=(seeds, 1)) * 3 + noise * rng.normal(size=(seeds, len(shape)))


def test_a_trend_turned_around_is_the_same_trend():
    y = curves(np.random.default_rng(0), 6, [0, 0.7, 1.0, 1.8])
    up, down = stats.trend(X, y), stats.trend(X, -y)
    assert (up.slope, up.low, up.high) == pytest.approx((-down.slope, -down.high, -down.low))
    assert (up.p, up.back, up.back_bound) == pytest.approx((down.p, down.back, down.back_bound))
    assert up.steps == pytest.approx([-step for step in down.steps])


def test_the_order_of_the_columns_does_not_matter():
    y = curves(np.random.default_rng(1), 6, [0, 0.7, 1.0, 1.8])
    shuffled = [2, 0, 3, 1]
    assert stats.trend(np.array(X)[shuffled], y[:, shuffled]) == stats.trend(X, y)


@pytest.mark.parametrize("level", [0.05, 0.05 / 7])
def test_the_slope_is_the_mean_of_the_seeds_own_slopes(level):
    y = curves(np.random.default_rng(2), 7, [0, 0.7, 1.0, 1.8])
    slopes = [scipy.stats.linregress(X, row).slope for row in y]
    oracle = scipy.stats.ttest_1samp(slopes, 0).confidence_interval(1 - level)
    found = stats.trend(X, y, level)
    assert found.slope == pytest.approx(np.mean(slopes))
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))
    assert found.steps == pytest.approx(np.diff(y.mean(axis=0)))


def test_the_weights_of_a_slope_are_those_of_least_squares():
    y = np.random.default_rng(3).normal(size=4)
    assert stats.coefficients(X) @ y == pytest.approx(np.polyfit(X, y, 1)[0])


def test_two_values_are_a_paired_difference():
    rng = np.random.default_rng(4)
    y = curves(rng, 6, [0, 1.5])
    found, pair = stats.trend([1, 3], y), stats.paired(y[:, 1], y[:, 0])
    assert (found.slope, found.low, found.high) == pytest.approx((pair.delta / 2, pair.low / 2, pair.high / 2))
    assert found.p == pytest.approx(pair.p)
    assert found.steps == pytest.approx([pair.delta])


@pytest.mark.parametrize("level", [0.05, 0.01])
def test_the_bound_of_the_step_back_is_a_one_sided_t_bound(level):
    y = curves(np.random.default_rng(5), 8, [0, 2, 1.5, 4], noise=0.5)
    found = stats.trend(X, y, level)
    bounds = [
        scipy.stats.ttest_1samp(-step, 0, alternative="less").confidence_interval(1 - level).high
        for step in np.diff(y, axis=1).T
    ]
    assert found.back_bound == pytest.approx(max(bounds))
    assert found.back == int(np.argmax(bounds)) == 1


def test_a_curve_that_follows_at_every_step_has_no_step_back():
    up = curves(np.random.default_rng(6), 10, [0, 2, 4, 6], noise=0.2)
    assert stats.trend(X, up).back_bound < 0
    assert stats.trend(X, -up).back_bound < 0


def test_the_noise_of_the_test_examples_is_in_the_slope_and_in_each_step():
    y = curves(np.random.default_rng(7), 8, [0, 2, 1.5, 4], noise=0.5)
    plain = stats.trend(X, y)
    noisy = stats.trend(X, y, noise=0.4, step_noise=[0.0, 0.3, 0.0])
    assert noisy.high - noisy.slope == pytest.approx(
        math.hypot(plain.high - plain.slope, scipy.stats.norm.ppf(0.975) * 0.4)
    )
    fell = -np.diff(y, axis=1)[:, 1]
    half = scipy.stats.t.ppf(0.95, 7) * fell.std(ddof=1) / math.sqrt(8)
    assert noisy.back_bound == pytest.approx(fell.mean() + math.hypot(half, scipy.stats.norm.ppf(0.95) * 0.3))


def test_a_flat_curve_has_no_trend():
    found = stats.trend(X, np.full((5, 4), 0.9), resolution=0.01)
    assert found.slope == pytest.approx(0)
    assert found.low < 0 < found.high  # one image at the end would tilt it
    assert found.back_bound > 0


def test_two_seeds_give_a_slope_and_nothing_more():
    found = stats.trend(X, [[0, 1, 2, 3], [0, 1, 2, 3]])
    assert found.slope > 0
    assert math.isnan(found.p) and math.isnan(found.low) and math.isnan(found.back_bound)


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        ([1], np.zeros((5, 1)), "two or more different"),
        ([1, 2, 2], np.zeros((5, 3)), "two or more different"),
        ([1, 2, 3], np.zeros((5, 4)), "seeds × k"),
        ([1, 2, 3], [[1, 2, math.nan]] * 3, "finite"),
    ],
)
def test_what_is_no_trend_is_refused(x, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        stats.trend(x, y)


@pytest.mark.parametrize(("seeds", "values", "step"), [(3, 5, 0), (14, 4, 0), (10, 4, 1.0)])
def test_false_slopes_are_as_rare_as_the_level(seeds, values, step):
    """Without a trend; with `step` the values are as coarse as one SD, so that there are ties."""
    rng = np.random.default_rng(seeds)
    tries = 400
    alarms = 0
    for _ in range(tries):
        y = curves(rng, seeds, np.zeros(values))
        found = stats.trend(range(values), np.round(y / step) * step if step else y)
        alarms += not found.low <= 0 <= found.high
    assert alarms / tries == pytest.approx(0.05, abs=3.5 * math.sqrt(0.05 * 0.95 / tries))
