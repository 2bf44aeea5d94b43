"""Paired comparisons: golden values, independent oracles, and how often they are wrong."""

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
    found = stats.time_ratio([1.02, 1, 1.05, 0.99, 1.01], [0.9, 0.92, 0.91, 0.89, 0.93], range(5))
    assert (found.delta, found.low, found.high) == pytest.approx((1.1142, 1.0783, 1.1513), abs=5e-5)


def test_a_time_ratio_is_the_t_interval_over_the_means_of_the_processes():
    rng = np.random.default_rng(3)
    process = rng.permutation([7, 7, 7, 0, 0, 2, 2, 2, 2, 5])  # of unequal shares, in any order
    a, b = np.exp(rng.normal(size=(2, len(process))))
    found = stats.time_ratio(a, b, process, 0.1)
    means = [
        np.mean([math.log(x / y) for x, y, mine in zip(a, b, process, strict=True) if mine == p]) for p in (0, 2, 5, 7)
    ]
    test = scipy.stats.ttest_1samp(means, 0.0)
    interval = test.confidence_interval(0.9)
    assert (found.n, found.p) == (4, pytest.approx(test.pvalue))
    assert (found.delta, found.low, found.high) == pytest.approx(np.exp([np.mean(means), *interval]))
    assert (found.sd, found.dz) == pytest.approx((np.std(means, ddof=1), np.mean(means) / np.std(means, ddof=1)))


@pytest.mark.parametrize("process", [[0] * 6, [0, 0, 0, 1, 1, 1]])
def test_rounds_of_fewer_than_three_processes_give_a_ratio_and_no_interval(process):
    found = stats.time_ratio([2.0] * 5 + [2.2], [1.0] * 6, process)
    assert found.n == len(set(process)) and 2 < found.delta < 2.2
    assert all(math.isnan(value) for value in (found.low, found.high, found.p))


def test_a_time_ratio_turned_around_is_its_inverse():
    rng = np.random.default_rng(2)
    a, b = np.exp(rng.normal(size=(2, 9)))
    process = np.arange(9) // 3
    one, other = stats.time_ratio(a, b, process), stats.time_ratio(b, a, process)
    assert (one.delta, one.low, one.high) == pytest.approx((1 / other.delta, 1 / other.high, 1 / other.low))


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


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_interval_covers_as_often_as_it_says(seeds):
    rng = np.random.default_rng(seeds)
    truth, tries = 0.4, 1200
    covered = 0
    for _ in range(tries):
        shared = rng.normal(size=seeds)  # the seed's own part, which pairing removes
        found = stats.paired(shared + truth + rng.normal(size=seeds), shared + rng.normal(size=seeds))
        covered += found.low <= truth <= found.high
    assert covered / tries == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / tries))


def test_one_loss_under_seven_names_is_rarely_called_different():
    """A/A: a family of six comparisons with nothing in it is wrong at most as often as its level."""
    rng = np.random.default_rng(3)
    tries, alarms = 700, 0
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


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("rounds", "processes"), [(5, 5), (17, 5), (40, 5)])
def test_the_interval_of_a_time_ratio_covers_as_often_as_it_says(rounds, processes, rho):
    """The rounds of a process are an AR(1) series of their own for each loss, around a level of the process."""
    rng = np.random.default_rng([rounds, round(10 * rho)])
    tries, truth = 1500, 1.3
    process = np.sort(np.arange(rounds) % processes)
    noise = rng.normal(0, 0.05, (rounds, 2, tries))
    for place in range(1, rounds):
        if process[place] == process[place - 1]:
            noise[place] = rho * noise[place - 1] + math.sqrt(1 - rho**2) * noise[place]
    noise += rng.normal(0, 0.02, (processes, 2, tries))[process]  # what the memory layout does
    drift = rng.normal(0, 0.5, (rounds, tries))  # of the machine: it cancels
    covered = 0
    for one in range(tries):
        a, b = truth * np.exp(drift[:, one] + noise[:, 0, one]), np.exp(drift[:, one] + noise[:, 1, one])
        found = stats.time_ratio(a, b, process)
        covered += found.low <= truth <= found.high
    assert covered / tries == pytest.approx(0.95, abs=0.02)  # 3.5 standard errors; at least 0.93


def test_a_time_of_nothing_is_refused():
    with pytest.raises(ValueError, match="above zero"):
        stats.time_ratio([1, 0, 1], [1, 1, 1], [0, 1, 2])


def test_a_round_without_a_process_is_refused():
    with pytest.raises(ValueError, match="every time needs a process"):
        stats.time_ratio([1, 1, 1], [1, 1, 1], [0, 1])


def test_beyond_the_margin_is_the_shifted_one_sided_test_doubled():
    rng = np.random.default_rng(1)
    a, b = rng.normal(2, 1, 8), np.zeros(8)
    one_sided = scipy.stats.ttest_1samp(a, 0.5, alternative="greater").pvalue
    assert stats.beyond(a, b, 0.5) == pytest.approx(2 * one_sided)
    assert stats.beyond(-a, b, 0.5) == pytest.approx(2 * one_sided)
    assert stats.beyond(a, b, 0.0) == pytest.approx(stats.paired(a, b).p)
    assert math.isnan(stats.beyond([1, 2], [0, 0], 0.5))
    assert stats.beyond([3, 3, 3], [1, 1, 1], 1.0) == 0
    assert stats.beyond([3, 3, 3], [1, 1, 1], 2.0) == 1


@pytest.mark.parametrize("delta", [0.0, 0.3, 0.5, 0.8, 3.0])
def test_equivalent_and_beyond_are_never_both(delta):
    a = delta + np.array([-0.1, 0.1, 0.05, -0.05])
    assert not (stats.tost(a, 0 * a, 0.5) < 0.05 and stats.beyond(a, 0 * a, 0.5) < 0.05)


def test_equivalence_does_not_depend_on_which_comes_first():
    assert stats.tost(A, B, 0.007) == pytest.approx(stats.tost(B, A, 0.007))


def test_the_posterior_has_its_golden_values():
    found = stats.rope(A, B, 0.002)
    assert (found.better, found.equivalent, found.worse) == pytest.approx((0.98131, 0.01690, 0.00179), abs=5e-6)


def test_the_posterior_turns_around_and_adds_up():
    one, other = stats.rope(A, B, 0.004), stats.rope(B, A, 0.004)
    assert (one.better, one.equivalent, one.worse) == pytest.approx((other.worse, other.equivalent, other.better))
    assert one.better + one.equivalent + one.worse == pytest.approx(1)


def test_the_posterior_without_a_band_is_the_one_sided_test():
    assert stats.rope(A, B, 0.0).worse == pytest.approx(stats.paired(A, B).p / 2)


def test_the_posterior_of_what_no_seed_changes_is_certain():
    assert stats.rope([5] * 3, [5] * 3, 0.5) == stats.Rope(0, 1, 0)
    assert stats.rope([7] * 3, [5] * 3, 0.5) == stats.Rope(1, 0, 0)
    assert stats.rope([98.0] * 3, [98.0] * 3, 0.1, resolution=100 / 596).equivalent < 0.7
    assert math.isnan(stats.rope([1, 2], [0, 0], 1).better)


@pytest.mark.parametrize(
    ("p", "right_way", "word"),
    [(0.01, True, "supported"), (0.01, False, "contradicted"), (0.2, True, "undecided"), (math.nan, True, "undecided")],
)
def test_a_claim_has_one_of_three_verdicts(p, right_way, word):
    assert stats.claim_verdict(p, right_way) == word


def test_wins_and_ties_are_counted_in_spite_of_rounding():
    assert stats.wins([0.3, 2, 3, 0], [0.1 + 0.2, 1, 2, 1]) == (2, 1)
