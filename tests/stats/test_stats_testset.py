"""Test-set noise: a two-way layout done by hand, and simulated studies in which the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from lossbench import stats


def gaps(rng, seeds, examples, *, of_examples=0.8, of_seeds=0.3, rest=1.0, mean=0.0):
    """Differences per seed and example: d = mean + α_s + β_e + γ_se."""
    return (
        mean
        + of_seeds * rng.normal(size=(seeds, 1))
        + of_examples * rng.normal(size=(1, examples))
        + rest * rng.normal(size=(seeds, examples))
    )


@pytest.mark.parametrize(("seeds", "examples"), [(2, 7), (3, 5), (6, 40)])
def test_the_error_is_that_of_a_two_way_layout(seeds, examples):
    """Every sum of squares cell by cell, and by the analysis of variance of statsmodels."""
    import pandas as pd
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    table = gaps(np.random.default_rng(seeds), seeds, examples, of_examples=2.0)
    grand, rows, columns = table.mean(), table.mean(axis=1), table.mean(axis=0)
    between = rest = 0.0
    for seed in range(seeds):
        for example in range(examples):
            between += (columns[example] - grand) ** 2
            rest += (table[seed, example] - rows[seed] - columns[example] + grand) ** 2
    squares = between / (examples - 1), rest / ((examples - 1) * (seeds - 1))
    assert stats.example_error(table) == pytest.approx(math.sqrt((squares[0] - squares[1]) / (seeds * examples)))
    long = pd.DataFrame(table).melt(ignore_index=False).reset_index()
    by_hand = anova_lm(ols("value ~ C(index) + C(variable)", long).fit())
    assert by_hand["mean_sq"]["C(variable)"] == pytest.approx(squares[0])
    assert by_hand["mean_sq"]["Residual"] == pytest.approx(squares[1])


@pytest.mark.parametrize("world", [{"of_examples": 1.5}, {"of_examples": 0.5, "of_seeds": 2.0}, {"rest": 0.1}])
def test_the_error_is_the_one_that_another_test_set_makes(world):
    """σ_β/√E: over many test sets the mean of β moves by that much."""
    rng = np.random.default_rng(1)
    truth = world.get("of_examples", 0.8) / math.sqrt(300)
    found = [stats.example_error(gaps(rng, 6, 300, **world)) ** 2 for _ in range(150)]
    assert math.sqrt(np.mean(found)) == pytest.approx(truth, rel=0.05)


def test_what_seeds_do_to_single_examples_is_in_the_spread_over_seeds_already():
    rng = np.random.default_rng(2)
    found = [stats.example_error(gaps(rng, 8, 400, of_examples=0.0, rest=1.0)) for _ in range(50)]
    assert np.median(found) < 0.5 / math.sqrt(8 * 400)  # of what a spread over examples alone would say
    assert min(found) == 0


def test_more_seeds_do_not_reduce_the_error_and_more_examples_do():
    rng = np.random.default_rng(3)
    few, many = (stats.example_error(gaps(rng, seeds, 2000)) for seeds in (3, 60))
    assert many == pytest.approx(few, rel=0.1)
    assert stats.example_error(gaps(rng, 3, 8000)) == pytest.approx(few / 2, rel=0.15)


@pytest.mark.parametrize(("only_a", "only_b"), [(15, 5), (40, 22), (30, 30), (9, 0)])
def test_two_models_differ_as_by_mcnemars_test(only_a, only_b):
    """One seed: z = (b − c)/√(b + c), up to the square of the mean, which is small."""
    table = np.repeat([1.0, -1.0, 0.0], [only_a, only_b, 5000])
    z = table.mean() / stats.example_error(table)
    assert z == pytest.approx((only_a - only_b) / math.sqrt(only_a + only_b), rel=0.01)


def test_the_exact_test_of_fifteen_against_five_is_not_far():
    exact = scipy.stats.binomtest(15, 20).pvalue
    assert exact == pytest.approx(0.0413895, abs=1e-7)
    table = np.repeat([1.0, -1.0, 0.0], [15, 5, 5000])
    normal = 2 * scipy.stats.norm.sf(table.mean() / stats.example_error(table))
    assert 0.5 * exact < normal < exact


def test_the_same_bits_have_no_error_and_one_example_has_none_to_state():
    assert stats.example_error(np.zeros((5, 100))) == 0
    assert math.isnan(stats.example_error([[1.0], [0.0]]))


@pytest.mark.parametrize("seeds", [3, 5, 12])
@pytest.mark.parametrize("world", [{"of_examples": 1.5, "of_seeds": 0.0}, {"of_examples": 0.0}, {}])
def test_the_interval_covers_new_seeds_and_new_examples(seeds, world):
    rng = np.random.default_rng(seeds)
    tries = 400
    covered = 0
    for _ in range(tries):
        table = gaps(rng, seeds, 100, mean=0.2, **world)
        found = stats.paired(table.mean(axis=1), np.zeros(seeds), noise=stats.example_error(table))
        covered += found.low <= 0.2 <= found.high
    assert covered / tries >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / tries)


def test_over_seeds_alone_the_interval_covers_too_rarely():
    """What the noise is for: without it, a difference between the test images counts as one between the losses."""
    rng = np.random.default_rng(5)
    tries = 200
    tables = [gaps(rng, 12, 100, of_examples=1.5, of_seeds=0.0) for _ in range(tries)]
    without = [stats.paired(table.mean(axis=1), np.zeros(12)) for table in tables]
    assert sum(found.low <= 0 <= found.high for found in without) / tries < 0.7
