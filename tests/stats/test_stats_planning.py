"""Power and the seeds that an effect needs."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from lossbench import stats


def test_seeds_needed_has_its_golden_value_and_agrees_with_statsmodels():
    from statsmodels.stats.power import TTestPower

    assert stats.seeds_needed(1.0) == 10
    for effect in (0.3, 0.7, 1.5):
        exact = TTestPower().solve_power(effect_size=effect, power=0.8, alpha=0.05)
        assert stats.seeds_needed(effect) == math.ceil(exact)


def test_power_stays_a_probability_where_scipy_gives_up():
    assert 0.9 < stats.power(4.5, 3) <= 1
    assert stats.power(20, 3) == pytest.approx(1)
    assert stats.seeds_needed(20) == stats.FEWEST_SEEDS
    assert stats.seeds_needed(0.0) is None
    assert stats.seeds_needed(1e-9) is None


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
    assert stats.seeds_needed(-math.inf) == stats.FEWEST_SEEDS


@pytest.mark.parametrize(("pairs", "level"), [(2, 0.05), (3, 0.05 / 1000), (4, 0.001), (50, 0.05)])
def test_the_detectable_effect_has_no_ceiling(pairs, level):
    assert stats.power(stats.detectable_effect(pairs, level=level), pairs, level) == pytest.approx(0.8, abs=1e-3)
    assert stats.detectable_effect(1) == math.inf


@pytest.mark.parametrize(("seeds", "chance"), [(3, 0.127), (5, 0.294), (10, 0.795), (20, 0.992)])
def test_the_power_of_equivalence_has_its_values(seeds, chance):
    assert stats.equivalence_power(1.0, seeds) == pytest.approx(chance, abs=1e-3)


def test_seeds_for_equivalence_are_the_fewest_that_do():
    for margin in (0.3, 0.7, 1.0, 5.0):
        seeds = stats.seeds_for_equivalence(margin)
        assert seeds is not None
        assert stats.equivalence_power(margin, seeds) >= 0.8
        assert seeds == stats.FEWEST_SEEDS or stats.equivalence_power(margin, seeds - 1) < 0.8
    assert stats.seeds_for_equivalence(0.0) is None
    assert stats.seeds_for_equivalence(1e-6) is None
    assert stats.equivalence_power(1.0, 2) == 0


def test_five_hundred_comparisons_are_planned_within_a_second():
    started = time.process_time()
    for effect in np.linspace(0.02, 3, 500):
        stats.seeds_needed(effect, level=0.05 / 500)
    assert time.process_time() - started < 1
