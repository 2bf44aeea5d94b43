"""Power and the seeds that a decision needs."""

from __future__ import annotations

import math
import time
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats

from lossbench import stats
from lossbench.stats.planning import CAUTION, FEWEST_FOR_PLANNING, MOST_SEEDS


def low(effect, n=5, **options):
    """The lower end of the seeds needed by a pilot that found this effect, in SDs."""
    found = stats.seeds_needed(effect, 1.0, n, **options)
    return found and found.low


def test_seeds_needed_has_its_golden_value_and_agrees_with_statsmodels():
    from statsmodels.stats.power import TTestPower

    assert low(1.0) == 10
    for effect in (0.3, 0.7, 1.1):
        exact = TTestPower().solve_power(effect_size=effect, power=0.8, alpha=0.05)
        assert low(effect) == low(-effect) == math.ceil(exact)
        assert stats.seeds_needed(7 * effect, 7.0, 5).low == math.ceil(exact)  # in any unit


def test_the_upper_end_takes_the_uncertainty_of_the_pilot_into_account():
    """Recomputed: the effect at the lower end of a one-sided interval, the SD at the upper end of its own."""
    n, delta, sd = 8, 1.0, 1.2
    smaller = delta - scipy.stats.t.ppf(CAUTION, n - 1) * sd / math.sqrt(n)
    wider = sd * math.sqrt((n - 1) / scipy.stats.chi2.ppf(1 - CAUTION, n - 1))
    found = stats.seeds_needed(delta, sd, n)
    assert found.low < found.high
    assert stats.power(smaller / wider, found.high) >= 0.8 > stats.power(smaller / wider, found.high - 1)


def test_the_range_narrows_with_the_seeds_of_the_pilot():
    ranges = [stats.seeds_needed(0.4, 1.0, n) for n in (5, 10, 20, 40)]
    widths = [found.high - found.low for found in ranges]
    assert all(after < before for before, after in pairwise(widths))


@pytest.mark.parametrize("n", [0, 1, 3, FEWEST_FOR_PLANNING - 1])
def test_below_five_seeds_there_is_no_plan(n):
    assert stats.seeds_needed(1.0, 1.0, n) is None
    assert stats.seeds_needed(1.0, 1.0, FEWEST_FOR_PLANNING) is not None


def test_there_is_no_plan_without_spread_or_for_an_effect_of_nothing():
    assert stats.seeds_needed(1.0, 0.0, 8) is None
    assert stats.seeds_needed(math.nan, math.nan, 8) is None
    assert low(0.0) is None
    assert low(1e-9) is None


def test_an_upper_end_beyond_all_seeds_is_open():
    found = stats.seeds_needed(0.05, 1.0, 5)  # the pilot cannot exclude an effect of nothing
    assert found.low < MOST_SEEDS and found.high is None


def test_a_comparison_that_is_open_needs_more_seeds_than_it_has():
    assert stats.seeds_needed(2.0, 1.0, 30).low == 31


@pytest.mark.parametrize("delta", [0.0, 0.2, 0.6])
def test_a_wider_margin_never_needs_more_seeds(delta):
    margins = [0.0, 0.1, 0.3, 0.5, 0.8, 1.5, 3.0]
    found = [stats.seeds_needed(delta, 1.0, 6, margin=margin) for margin in margins]
    lows = [each.low if each else math.inf for each in found]
    highs = [each.high if each and each.high else math.inf for each in found]
    for ends in (lows, highs):
        assert all(after <= before for before, after in pairwise(ends))
    assert lows[-1] < lows[0]


def test_seeds_to_get_outside_a_margin_are_those_of_the_distance_from_it():
    assert low(1.5, beyond=0.5) == low(1.0)
    assert low(0.2, beyond=0.5) is None
    inside = stats.seeds_needed(0.2, 1.0, 6, margin=0.5, beyond=0.5)
    assert inside.low > stats.seeds_needed(0.0, 1.0, 6, margin=0.5, beyond=0.5).low


def test_more_noise_of_the_test_examples_needs_more_seeds_until_none_suffice():
    lows = [low(1.0, noise=noise) for noise in (0.0, 0.2, 0.4)]
    assert all(after > before for before, after in pairwise(lows))
    floor = 1.0 / scipy.stats.norm.ppf(0.975)  # the examples alone reach zero
    assert low(1.0, noise=0.99 * floor) is not None
    assert low(1.0, noise=1.01 * floor) is None
    assert low(0.0, margin=0.5, noise=1.01 * floor / 2) is None


def test_power_stays_a_probability_where_scipy_gives_up():
    assert 0.9 < stats.power(4.5, 3) <= 1
    assert stats.power(20, 3) == pytest.approx(1)


@pytest.mark.parametrize("seeds", [3, 5, 10, 20])
def test_the_detectable_effect_is_found_with_the_promised_chance(seeds):
    assert stats.power(stats.detectable_effect(seeds), seeds) == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("pairs", [3, 5, 10, 30])
@pytest.mark.parametrize("level", [0.05, 0.05 / 6])
def test_power_agrees_with_statsmodels_where_scipy_does_not_give_up(pairs, level):
    from statsmodels.stats.power import TTestPower

    for effect in (0.2, 0.8, 1.5):
        oracle = TTestPower().power(effect, pairs, level)
        assert stats.power(effect, pairs, level) == pytest.approx(oracle, abs=1e-6)


def test_power_grows_with_the_effect_across_scipys_gap():
    """At two degrees of freedom the lower tail of the noncentral t is NaN from d_z = 4.5 on."""
    curve = [stats.power(effect, 3) for effect in np.linspace(0, 30, 301)]
    assert np.isfinite(curve).all()
    assert (np.diff(curve) >= -1e-9).all()
    assert max(curve) <= 1
    assert stats.power(math.inf, 3) == 1  # d_z of a difference that no seed changes


@pytest.mark.parametrize(("pairs", "level"), [(2, 0.05), (3, 0.05 / 1000), (4, 0.001), (50, 0.05)])
def test_the_detectable_effect_has_no_ceiling(pairs, level):
    assert stats.power(stats.detectable_effect(pairs, level=level), pairs, level) == pytest.approx(0.8, abs=1e-3)
    assert stats.detectable_effect(1) == math.inf


@pytest.mark.parametrize(("seeds", "chance"), [(3, 0.127), (5, 0.294), (10, 0.795), (20, 0.992)])
def test_the_power_of_equivalence_has_its_values(seeds, chance):
    """The values are those of two one-sided tests at 0.05, which are a 90 % interval."""
    assert stats.equivalence_power(1.0, seeds, 0.1) == pytest.approx(chance, abs=1e-3)
    assert stats.equivalence_power(1.0, 2) == 0


def test_seeds_for_equivalence_are_the_fewest_that_do():
    for margin in (0.3, 0.7, 1.0):
        seeds = low(0.0, margin=margin)
        assert stats.equivalence_power(margin, seeds) >= 0.8 > stats.equivalence_power(margin, seeds - 1)


def test_five_hundred_comparisons_are_planned_within_seconds():
    started = time.process_time()
    for effect in np.linspace(0.02, 3, 500):
        stats.seeds_needed(effect, 1.0, 8, 0.05 / 500, 0.5)
    assert time.process_time() - started < 5
