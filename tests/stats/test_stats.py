"""The statistics: golden values, independent oracles, and simulations of what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from lossbench import stats

A = [0.912, 0.918, 0.909, 0.921, 0.915]
B = [0.905, 0.913, 0.907, 0.911, 0.909]


def test_the_paired_difference_has_its_golden_values():
    found = stats.paired(A, B)
    assert found.delta == pytest.approx(0.006)
    assert found.p == pytest.approx(0.0100174, abs=1e-7)
    assert (found.low, found.high) == (pytest.approx(0.0023800, abs=1e-7), pytest.approx(0.0096200, abs=1e-7))
    assert found.dz * math.sqrt(5) == pytest.approx(4.60179, abs=1e-5)


def test_the_paired_interval_agrees_with_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 12))
    oracle = scipy.stats.ttest_rel(a, b)
    found = stats.paired(a, b)
    interval = oracle.confidence_interval()
    assert (found.p, found.low, found.high) == pytest.approx((oracle.pvalue, interval.low, interval.high))


def test_equivalence_has_its_golden_value_and_agrees_with_statsmodels():
    from statsmodels.stats.weightstats import ttost_paired

    assert stats.tost(A, B, 0.01) == pytest.approx(0.0186854, abs=1e-7)
    assert stats.tost(A, B, 0.01) == pytest.approx(ttost_paired(np.array(A), np.array(B), -0.01, 0.01)[0])


def test_holm_has_its_golden_values_and_agrees_with_statsmodels():
    from statsmodels.stats.multitest import multipletests

    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    p_values = np.random.default_rng(1).uniform(size=20) ** 3
    assert stats.holm(list(p_values)) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_holm_leaves_out_what_was_not_tested():
    adjusted = stats.holm([0.01, math.nan, 0.04])
    assert adjusted[0] == pytest.approx(0.02)
    assert math.isnan(adjusted[1])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values):
    adjusted = stats.holm(p_values)
    assert all(new >= old for old, new in zip(p_values, adjusted, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()


def test_time_ratios_have_their_golden_value():
    found = stats.time_ratio([1.02, 1, 1.05, 0.99, 1.01], [0.9, 0.92, 0.91, 0.89, 0.93])
    assert (found.delta, found.low, found.high) == pytest.approx((1.1142, 1.0783, 1.1513), abs=5e-5)


def test_a_time_ratio_turned_around_is_its_inverse():
    rng = np.random.default_rng(2)
    a, b = np.exp(rng.normal(size=(2, 9)))
    one, other = stats.time_ratio(a, b), stats.time_ratio(b, a)
    assert (one.delta, one.low, one.high) == pytest.approx((1 / other.delta, 1 / other.high, 1 / other.low))


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


def test_two_seeds_give_a_difference_and_nothing_more():
    found = stats.paired([1.0, 2.0], [0.0, 0.0])
    assert found.delta == 1.5
    assert math.isnan(found.low) and math.isnan(found.p)
    assert math.isnan(stats.tost([1.0, 2.0], [0.0, 0.0], 1))
    assert stats.verdict(found.p, math.nan) == "undecided"


def test_differences_without_spread_are_what_they_are():
    same, more = stats.paired([5, 5, 5], [5, 5, 5]), stats.paired([7, 7, 7], [5, 5, 5])
    assert (same.delta, same.p, same.low, same.high) == (0, 1, 0, 0)
    assert (more.delta, more.p, more.low, more.high) == (2, 0, 2, 2)
    assert stats.tost([5, 5, 5], [5, 5, 5], 0.5) == 0


def test_unequal_samples_are_refused():
    with pytest.raises(ValueError, match="one length"):
        stats.paired([1, 2, 3], [1, 2])


@pytest.mark.parametrize(
    ("p", "tost_p", "word"),
    [
        (0.01, 0.5, "different"),
        (0.01, 0.01, "different but negligible"),
        (0.5, 0.01, "equivalent"),
        (0.5, 0.5, "undecided"),
        (math.nan, math.nan, "undecided"),
    ],
)
def test_a_verdict_has_one_meaning(p, tost_p, word):
    assert stats.verdict(p, tost_p) == word


def test_the_wilson_interval_agrees_with_statsmodels():
    from statsmodels.stats.proportion import proportion_confint

    assert stats.wilson(593, 596) == pytest.approx(proportion_confint(593, 596, method="wilson"))


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_interval_covers_as_often_as_it_says(seeds):
    rng = np.random.default_rng(seeds)
    truth, tries = 0.4, 2000
    covered = 0
    for _ in range(tries):
        shared = rng.normal(size=seeds)  # the seed's own part, which pairing removes
        found = stats.paired(shared + truth + rng.normal(size=seeds), shared + rng.normal(size=seeds))
        covered += found.low <= truth <= found.high
    assert covered / tries == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / tries))


def test_one_loss_under_seven_names_is_rarely_called_different():
    """A/A: a family of six comparisons with nothing in it is wrong at most as often as its level."""
    rng = np.random.default_rng(3)
    tries, alarms = 1500, 0
    for _ in range(tries):
        baseline = rng.normal(size=8)
        p_values = [stats.paired(rng.normal(size=8), baseline).p for _ in range(6)]
        alarms += min(stats.holm(p_values)) < stats.LEVEL
    assert alarms / tries <= stats.LEVEL + 3 * math.sqrt(0.05 * 0.95 / tries)
    assert alarms > 0


def test_equivalence_is_rarely_granted_at_the_margin():
    rng = np.random.default_rng(4)
    tries = 2000
    granted = sum(stats.tost(rng.normal(1.0, 1.0, 10), np.zeros(10), 1.0) < stats.LEVEL for _ in range(tries))
    assert granted / tries <= stats.LEVEL + 3 * math.sqrt(0.05 * 0.95 / tries)


def test_correlation_tells_what_pairing_gains():
    assert stats.correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert math.isnan(stats.correlation([1, 1, 1], [1, 2, 3]))


def test_few_seeds_that_differ_by_one_image_each_prove_nothing():
    step = 100 / 596
    one_image_each = stats.paired([98 + step] * 3, [98.0] * 3, resolution=step)
    assert one_image_each.p > 0.2
    assert one_image_each.low < 0 < one_image_each.high
    assert stats.tost([98.0] * 3, [98.0] * 3, 0.1, resolution=step) > stats.LEVEL
    assert stats.tost([98.0] * 30, [98.0] * 30, 0.1, resolution=step) < stats.LEVEL


def test_the_resolution_changes_nothing_where_there_is_spread():
    assert stats.paired(A, B, resolution=1e-4) == stats.paired(A, B)
    assert stats.tost(A, B, 0.01, resolution=1e-4) == stats.tost(A, B, 0.01)
