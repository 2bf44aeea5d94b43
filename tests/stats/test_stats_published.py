"""Published numbers against our own runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from lossbench import stats


def test_the_prediction_interval_is_the_one_of_a_regression_without_slope():
    import statsmodels.api as sm

    values = np.random.default_rng(8).normal(98, 0.3, 9)
    model = sm.OLS(values, np.ones(9)).fit()
    oracle = model.get_prediction([[1.0]]).summary_frame(alpha=0.05)
    expected = oracle["obs_ci_lower"].item(), oracle["obs_ci_upper"].item()
    assert stats.prediction_interval(values) == pytest.approx(expected)


@pytest.mark.parametrize("seeds", [5, 10, 30])
def test_one_more_run_falls_into_its_prediction_interval_as_often_as_it_says(seeds):
    rng = np.random.default_rng(seeds)
    tries = 1200
    inside = 0
    for runs in rng.normal(98, 0.3, (tries, seeds + 1)):
        low, high = stats.prediction_interval(runs[:-1])
        inside += low <= runs[-1] <= high
    assert inside / tries == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / tries))


RUNS = [98.0, 98.2, 97.9, 98.1, 98.05, 97.95]  # SD 0.107; one more run falls within ±0.30


@pytest.mark.parametrize(
    ("published", "margin", "word"),
    [
        (98.2, 0.5, "reproduced"),
        (97.8, 0.5, "reproduced"),
        (97.5, 0.5, "above"),
        (98.6, 0.5, "below"),
        (98.2, 0.2, "underpowered"),  # the interval is wider than what matters, so being inside says nothing …
        (98.6, 0.2, "below"),  # … but being outside does
    ],
)
def test_a_published_number_gets_one_verdict(published, margin, word):
    found = stats.reproduction(RUNS, published, margin)
    assert found.verdict == word
    assert (found.high - found.low) / 2 == pytest.approx(0.30, abs=0.005)
    assert (found.n, found.published, found.mean) == (6, published, pytest.approx(np.mean(RUNS)))


def test_another_protocol_is_not_comparable():
    assert stats.reproduction(RUNS, 98.0, 0.5, differs=["epochs"]).verdict == "not comparable"


def test_four_runs_reproduce_nothing():
    found = stats.reproduction(RUNS[:4], 98.0, 0.5)
    assert found.verdict == "underpowered"
    assert math.isnan(found.low)
    assert stats.reproduction([], 98.0, 0.5).verdict == "underpowered"


def test_runs_that_agree_by_chance_still_have_the_spread_of_one_image():
    low, high = stats.prediction_interval([98.0] * 5, resolution=0.1)
    assert high - low == pytest.approx(2 * scipy.stats.t.ppf(0.975, 4) * 0.1 * math.sqrt(1.2))
