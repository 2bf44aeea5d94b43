"""Time, the Pareto front, and published numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from lossbench import stats


@pytest.mark.parametrize("rounds", [5, 15])
def test_the_interval_of_a_time_ratio_covers_as_often_as_it_says(rounds):
    rng = np.random.default_rng(rounds)
    tries, truth = 1500, 1.3
    covered = 0
    for _ in range(tries):
        mood = rng.normal(0, 0.5, rounds)  # of the machine: it cancels
        noise = rng.normal(0, 0.05, (2, rounds))
        found = stats.time_ratio(truth * np.exp(mood + noise[0]), np.exp(mood + noise[1]))
        covered += found.low <= truth <= found.high
    assert covered / tries == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / tries))


def test_a_time_of_nothing_is_refused():
    with pytest.raises(ValueError, match="above zero"):
        stats.time_ratio([1, 0, 1], [1, 1, 1])


def test_the_front_is_whom_no_other_beats():
    accuracy, cost = [90, 92, 91, 92, 89], [1, 2, 2, 3, 1.0]
    assert stats.pareto_front(accuracy, cost).tolist() == [True, True, False, False, False]
    assert stats.pareto_front([90, 90], [1, 1]).tolist() == [True, True]  # equals do not beat each other


def test_the_front_agrees_with_comparing_one_by_one():
    rng = np.random.default_rng(0)
    for _ in range(50):
        accuracy, cost = rng.integers(0, 5, (2, 7))
        slow = [
            not any(
                a >= accuracy[i] and c <= cost[i] and (a > accuracy[i] or c < cost[i])
                for a, c in zip(accuracy, cost, strict=True)
            )
            for i in range(7)
        ]
        assert stats.pareto_front(accuracy, cost).tolist() == slow


def test_chances_of_the_front_agree_with_a_plain_bootstrap():
    rng = np.random.default_rng(1)
    accuracy, cost = rng.normal([90, 90.5, 89.9], 0.6, (12, 3)), rng.normal([1, 1.2, 1.05], 0.1, (12, 3))
    found = stats.pareto_chance(accuracy, cost, np.random.default_rng(2))
    draws = rng.integers(0, 12, (4000, 12))
    plain = np.mean([stats.pareto_front(accuracy[rows].mean(0), cost[rows].mean(0)) for rows in draws], axis=0)
    assert found == pytest.approx(plain, abs=0.03)
    assert (found == stats.pareto_chance(accuracy, cost, np.random.default_rng(2))).all()


def test_seeds_are_drawn_whole_so_that_what_losses_share_cancels():
    """One loss is better by a little on every seed, and the seeds are far apart."""
    rng = np.random.default_rng(3)
    seed = rng.normal(0, 10, 12)
    accuracy = np.stack([seed, seed + 0.1], axis=1)
    assert stats.pareto_chance(accuracy, [1.0, 1.0], rng).tolist() == [0, 1]
    assert stats.pareto_chance(accuracy, [1.0, 2.0], rng).tolist() == [1, 1]
    # Joint: where the seed that is accurate is also dear, by the same draw, no loss is ahead on both.
    traded = np.stack([seed, -seed], axis=1)
    assert stats.pareto_chance(traded, traded, rng).tolist() == [1, 1]
    assert stats.pareto_chance(traded, traded, rng, rounds=True).min() < 0.9


def test_the_chance_is_about_the_mean_and_sharpens_with_seeds():
    rng = np.random.default_rng(4)
    few, many = (
        np.mean(
            [stats.pareto_chance(rng.normal([0, 0.5], 1, (n, 2)), [1, 1], rng, resamples=500)[1] for _ in range(40)]
        )
        for n in (10, 60)
    )
    assert 0.6 < few < many
    assert many > 0.95


def test_equal_losses_share_the_front_evenly():
    rng = np.random.default_rng(5)
    chances = [stats.pareto_chance(rng.normal(size=(10, 2)), [1, 1], rng, resamples=300)[0] for _ in range(300)]
    assert np.mean(chances) == pytest.approx(0.5, abs=0.06)


def test_few_seeds_or_rounds_give_no_chance():
    rng = np.random.default_rng(6)
    assert np.isnan(stats.pareto_chance(np.ones((9, 2)), [1, 2], rng)).all()
    assert np.isnan(stats.pareto_chance(np.ones((10, 2)), np.ones((9, 2)), rng, rounds=True)).all()
    assert stats.pareto_chance(np.ones((10, 2)), [1, 2], rng).tolist() == [1, 0]


def test_costs_that_fit_no_seed_are_refused():
    rng = np.random.default_rng(7)
    with pytest.raises(ValueError, match="rounds=True"):
        stats.pareto_chance(np.ones((10, 2)), np.ones((15, 2)), rng)
    with pytest.raises(ValueError, match="fits it"):
        stats.pareto_chance(np.ones((10, 2)), np.ones((10, 3)), rng)


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
def test_a_published_number_has_one_word(published, margin, word):
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
