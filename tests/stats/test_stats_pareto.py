"""The Pareto front of accuracy against cost."""

from __future__ import annotations

import numpy as np
import pytest

from lossbench import stats


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
    with pytest.raises(ValueError, match="matches it"):
        stats.pareto_chance(np.ones((10, 2)), np.ones((10, 3)), rng)
