"""Test-set noise: oracles, and simulated studies in which the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from lossbench import stats


def bits(rng, seeds, examples, *, means=(4.6, 4.2), hard=3.0, odd_examples=0.8, odd_seeds=0.3):
    """Correctness of two losses, and the true difference of their accuracies over all seeds and examples.

    An example is hard for both, or for one of the losses; a seed is lucky for one of them; the rest is chance.
    """
    shared = hard * rng.normal(size=examples)
    sigma = math.sqrt(hard**2 + odd_examples**2 + odd_seeds**2 + 1)
    correct = [
        mean
        + shared
        + odd_examples * rng.normal(size=examples)
        + odd_seeds * rng.normal(size=(seeds, 1))
        + rng.normal(size=(seeds, examples))
        > 0
        for mean in means
    ]
    truth = scipy.stats.norm.cdf(means[0] / sigma) - scipy.stats.norm.cdf(means[1] / sigma)
    return *correct, float(truth)


WORLDS = {
    "examples matter": {"odd_examples": 1.5, "odd_seeds": 0.0},
    "seeds matter": {"odd_examples": 0.0, "odd_seeds": 0.8},
    "both matter": {"odd_examples": 0.8, "odd_seeds": 0.3},
}


def models(only_a: int, only_b: int, both: int = 70, neither: int = 10) -> tuple[np.ndarray, np.ndarray]:
    a = np.repeat([True, False, True, False], [only_a, only_b, both, neither])
    b = np.repeat([False, True, True, False], [only_a, only_b, both, neither])
    return a, b


@pytest.mark.parametrize(("only_a", "only_b"), [(5, 0), (0, 5), (6, 0), (15, 5), (14, 6), (40, 22), (40, 21), (0, 0)])
def test_the_guard_agrees_with_the_exact_test_about_two_models(only_a, only_b):
    a, b = models(only_a, only_b, both=600)
    mcnemar = scipy.stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert stats.test_set_noise_dominates(a, b) == (mcnemar >= stats.LEVEL)


def test_more_seeds_do_not_lift_a_difference_out_of_the_test_sets_noise():
    a, b = models(4, 0, both=600)
    a, b = np.tile(a, (30, 1)), np.tile(b, (30, 1))
    assert stats.paired(a.mean(axis=1), b.mean(axis=1)).p < stats.LEVEL  # the seeds are sure …
    assert stats.test_set_noise_dominates(a, b)  # … about four images


def test_two_way_is_the_analysis_of_variance():
    import statsmodels.api as sm
    from pandas import DataFrame
    from statsmodels.formula.api import ols

    rng = np.random.default_rng(1)
    a, b, _ = bits(rng, 4, 30)
    gaps = a.astype(float) - b
    cells = [(s, e, gaps[s, e]) for s in range(4) for e in range(30)]
    model = ols("gap ~ C(seed) + C(example)", DataFrame(cells, columns=["seed", "example", "gap"])).fit()
    oracle = sm.stats.anova_lm(model)["mean_sq"]
    squares, freedom = oracle[["C(seed)", "C(example)", "Residual"]].to_numpy(), np.array([3, 29, 87])
    parts = np.array([max(squares[0] - squares[2], 0), max(squares[1] - squares[2], 0), squares[2]]) / 120
    df = parts.sum() ** 2 / ((squares / 120) ** 2 / freedom).sum()
    half = scipy.stats.t.ppf(0.975, df) * math.sqrt(parts.sum())
    found = stats.two_way(a, b)
    assert found == pytest.approx((gaps.mean(), gaps.mean() - half, gaps.mean() + half))


@pytest.mark.parametrize("seeds", [3, 5, 12])
@pytest.mark.parametrize("world", WORLDS)
def test_the_two_way_interval_covers_the_truth_as_often_as_it_says(seeds, world):
    rng = np.random.default_rng(seeds)
    tries = 250
    covered = 0
    for _ in range(tries):
        a, b, truth = bits(rng, seeds, 200, **WORLDS[world])
        found = stats.two_way(a, b)
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / tries <= 0.99


def test_one_loss_under_two_names_is_rarely_different_and_not_never():
    """Two-way A/A: drawing rows and columns of the table itself would be silent almost always (0.3 % here)."""
    rng = np.random.default_rng(4)
    tries = 400
    alarms = 0
    for _ in range(tries):
        found = stats.two_way(*bits(rng, 12, 200, means=(4.4, 4.4), odd_examples=0.0, odd_seeds=0.2)[:2])
        alarms += not found.low <= 0 <= found.high
    assert 0.015 <= alarms / tries <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / tries)


def test_below_three_seeds_there_is_no_interval():
    rng = np.random.default_rng(6)
    a, b, _ = bits(rng, 9, 100)
    assert stats.two_way(a[:3], b[:3]).low < stats.two_way(a[:3], b[:3]).high
    assert math.isnan(stats.two_way(a[:2], b[:2]).low)
    assert stats.two_way(a[:2], b[:2]).delta == pytest.approx(a[:2].mean() - b[:2].mean())


def test_the_same_bits_differ_by_nothing():
    rng = np.random.default_rng(7)
    a, _, _ = bits(rng, 10, 100)
    assert stats.two_way(a, a) == (0, 0, 0)
    assert stats.test_set_noise_dominates(a, a)


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        ([[1, 0]], [[1, 0, 1]], "of one shape for both"),
        ([1, 0, 2], [1, 0, 1], "one bit"),
        ([1, 0, math.nan], [1, 0, 1], "finite number"),
        ([], [], "seeds × examples"),
        (np.zeros((2, 2, 2)), np.zeros((2, 2, 2)), "seeds × examples"),
    ],
)
def test_what_is_neither_bits_nor_numbers_is_refused(a, b, sentence):
    with pytest.raises(ValueError, match=sentence):
        stats.two_way(a, b)
