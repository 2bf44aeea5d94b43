"""Paired comparisons: golden values, independent oracles, and what one seed changes."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from lossbench import stats
from lossbench.stats.pairs import half_width, p_value

A = [0.912, 0.918, 0.909, 0.921, 0.915]
B = [0.905, 0.913, 0.907, 0.911, 0.909]
SAMPLES = st.lists(st.floats(-3, 3).map(lambda value: round(value, 3)), min_size=3, max_size=12)
LEVELS = st.sampled_from([0.05, 0.05 / 7, 0.05 / 40])


def test_the_paired_difference_has_its_golden_values():
    found = stats.paired(A, B)
    assert found.delta == pytest.approx(0.006)
    assert found.p == pytest.approx(0.0100174, abs=1e-7)
    assert (found.low, found.high) == (pytest.approx(0.0023800, abs=1e-7), pytest.approx(0.0096200, abs=1e-7))
    assert found.dz * math.sqrt(5) == pytest.approx(4.60179, abs=1e-5)


@pytest.mark.parametrize("level", [0.05, 0.05 / 7])
def test_the_paired_interval_agrees_with_scipy(level):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 12))
    oracle = scipy.stats.ttest_rel(a, b)
    found = stats.paired(a, b, level)
    interval = oracle.confidence_interval(1 - level)
    assert (found.p, found.low, found.high) == pytest.approx((oracle.pvalue, interval.low, interval.high))


def test_the_noise_of_the_test_examples_widens_the_interval():
    """Recomputed: the half widths over seeds and over examples add like the sides of a right angle."""
    found = stats.paired(A, B, 0.01, noise=0.002)
    seeds = scipy.stats.t.ppf(0.995, 4) * np.std(np.subtract(A, B), ddof=1) / math.sqrt(5)
    examples = scipy.stats.norm.ppf(0.995) * 0.002
    assert found.high - found.delta == pytest.approx(math.sqrt(seeds**2 + examples**2))
    assert found.delta - found.low == pytest.approx(math.sqrt(seeds**2 + examples**2))


@given(SAMPLES, st.floats(0, 2), LEVELS)
def test_p_is_below_the_level_where_the_interval_excludes_zero(sample, noise, level):
    found = stats.paired(sample, np.zeros(len(sample)), level, noise=noise)
    assume(abs(found.p / level - 1) > 1e-6)
    assert (found.p < level) == (found.low > 0 or found.high < 0)


@pytest.mark.parametrize(("delta", "sd", "noise"), [(3.0, 0.1, 0.1), (5.0, 0.1, 0.0), (1, 0, 0.2)])
def test_the_interval_ends_at_zero_at_the_level_p_however_small_it_is(delta, sd, noise):
    p = p_value(delta, sd, 30, noise)
    assert 0 < p < 1e-5
    assert float(half_width(sd, 30, p, noise)) == pytest.approx(delta, rel=1e-6)


def test_p_is_one_where_nothing_differs_and_falls_with_the_difference():
    assert stats.paired([5, 5, 5], [5, 5, 5], noise=0.1).p == pytest.approx(1)
    ps = [p_value(delta, 1.0, 6, 0.5) for delta in (0.0, 0.1, 0.5, 2.0, 8.0)]
    assert ps[0] == pytest.approx(1)
    assert all(after < before for before, after in pairwise(ps))


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


def ratio(a, b, process, level=0.05):
    """How much longer a takes than b: the paired difference of log times over processes, as a ratio."""
    found = stats.paired(stats.log_times(a, process), stats.log_times(b, process), level)
    return replace(found, **{name: math.exp(getattr(found, name)) for name in ("delta", "low", "high")})


def test_time_ratios_have_their_golden_value():
    found = ratio([1.02, 1, 1.05, 0.99, 1.01], [0.9, 0.92, 0.91, 0.89, 0.93], range(5))
    assert (found.delta, found.low, found.high) == pytest.approx((1.1142, 1.0783, 1.1513), abs=5e-5)


def test_a_time_ratio_is_the_t_interval_over_the_means_of_the_processes():
    rng = np.random.default_rng(3)
    process = rng.permutation([7, 7, 7, 0, 0, 2, 2, 2, 2, 5])  # of unequal shares, in any order
    a, b = np.exp(rng.normal(size=(2, len(process))))
    found = ratio(a, b, process, 0.1)
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
    found = ratio([2.0] * 5 + [2.2], [1.0] * 6, process)
    assert found.n == len(set(process)) and 2 < found.delta < 2.2
    assert all(math.isnan(value) for value in (found.low, found.high, found.p))


def test_a_time_ratio_turned_around_is_its_inverse():
    rng = np.random.default_rng(2)
    a, b = np.exp(rng.normal(size=(2, 9)))
    process = np.arange(9) // 3
    one, other = ratio(a, b, process), ratio(b, a, process)
    assert (one.delta, one.low, one.high) == pytest.approx((1 / other.delta, 1 / other.high, 1 / other.low))


def test_two_seeds_give_a_difference_and_nothing_more():
    found = stats.paired([1.0, 2.0], [0.0, 0.0])
    assert found.delta == 1.5
    assert math.isnan(found.low) and math.isnan(found.p)
    assert stats.verdict(found.low, found.high, 10.0) == "undecided"
    assert math.isnan(stats.paired([], []).delta)


def test_differences_without_spread_are_what_they_are():
    same, more = stats.paired([5, 5, 5], [5, 5, 5]), stats.paired([7, 7, 7], [5, 5, 5])
    assert (same.delta, same.p, same.low, same.high, same.dz) == (0, 1, 0, 0, 0)
    assert (more.delta, more.p, more.low, more.high, more.dz) == (2, 0, 2, 2, math.inf)
    assert stats.paired([5, 5, 5], [5, 5, 5], noise=0.1).dz == 0
    assert stats.paired([5, 5, 5], [7, 7, 7], noise=0.1).dz == -math.inf


def test_unequal_samples_are_refused():
    with pytest.raises(ValueError, match="one length"):
        stats.paired([1, 2, 3], [1, 2])


# ---- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "higher", "lower"),
    [
        (0.1, 2.0, "better", "worse"),
        (-2.0, -0.1, "worse", "better"),
        (-1.0, 1.0, "undecided", "undecided"),
        (-0.4, 0.4, "equivalent", "equivalent"),
        (0.1, 0.4, "equivalent", "equivalent"),  # real, but inside the margin
        (-0.4, -0.1, "equivalent", "equivalent"),
        (0.1, 0.5, "better", "worse"),  # the margin itself is not inside
        (0.6, 0.9, "better", "worse"),
        (0.0, 2.0, "undecided", "undecided"),
        (math.nan, math.nan, "undecided", "undecided"),
    ],
)
def test_a_verdict_is_read_off_the_interval(low, high, higher, lower):
    assert stats.verdict(low, high, 0.5) == higher
    assert stats.verdict(low, high, 0.5, sign=-1) == lower


def test_without_a_margin_only_what_does_not_differ_at_all_is_equivalent():
    assert stats.verdict(0.0, 0.0) == "equivalent"
    assert stats.verdict(-1e-9, 1e-9) == "undecided"
    assert stats.verdict(1e-9, 2e-9) == "better"


@given(SAMPLES, st.floats(0, 1), st.floats(0, 2), LEVELS)
def test_turning_a_comparison_around_turns_its_verdict(sample, noise, margin, level):
    zeros = np.zeros(len(sample))
    one, other = stats.paired(sample, zeros, level, noise=noise), stats.paired(zeros, sample, level, noise=noise)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    turned = {"better": "worse", "worse": "better"}
    word = stats.verdict(one.low, one.high, margin)
    assert stats.verdict(-one.high, -one.low, margin) == turned.get(word, word)
    assert stats.verdict(one.low, one.high, margin, sign=-1) == turned.get(word, word)


def test_few_seeds_that_differ_by_one_image_each_prove_nothing():
    step = 100 / 596
    one_image_each = stats.paired([98 + step] * 3, [98.0] * 3, resolution=step)
    assert one_image_each.p > 0.2
    assert one_image_each.low < 0 < one_image_each.high
    few, many = (stats.paired([98.0] * n, [98.0] * n, resolution=step) for n in (3, 30))
    assert stats.verdict(few.low, few.high, 0.1) == "undecided"
    assert stats.verdict(many.low, many.high, 0.1) == "equivalent"


def test_the_resolution_changes_nothing_where_there_is_spread():
    assert stats.paired(A, B, resolution=1e-4) == stats.paired(A, B)


@pytest.mark.slow
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
        found = ratio(a, b, process)
        covered += found.low <= truth <= found.high
    assert covered / tries == pytest.approx(0.95, abs=0.02)  # 3.5 standard errors; at least 0.93


def test_a_time_of_nothing_is_refused():
    with pytest.raises(ValueError, match="above zero"):
        ratio([1, 0, 1], [1, 1, 1], [0, 1, 2])


def test_a_round_without_a_process_is_refused():
    with pytest.raises(ValueError, match="every time needs a process"):
        ratio([1, 1, 1], [1, 1, 1], [0, 1])


# ---- one seed --------------------------------------------------------------------------------------------------------


def naively(sample, deviation, level, margin, resolution=0.0, noise=0.0) -> bool:
    """Every changed sample is made and judged as a study of its own."""

    def word(gaps):
        found = stats.paired(gaps, np.zeros(len(gaps)), level, resolution=resolution, noise=noise)
        return stats.verdict(found.low, found.high, margin)

    whole = np.array(sample, dtype=float)
    fewer = [np.delete(whole, seed) for seed in range(len(whole))]
    more = [np.append(whole, np.median(whole) + sign * deviation) for sign in (-1, 1)]
    return any(word(changed) != word(whole) for changed in (*fewer, *more))


@given(
    st.lists(st.floats(-1, 1).map(lambda value: round(value, 2)), min_size=4, max_size=10),
    st.floats(0, 2),
    st.floats(0, 3),
    LEVELS,
    st.sampled_from([0.0, 0.3, 1.5]),
    st.sampled_from([0.0, 0.2]),
)
def test_one_seed_decides_as_studies_with_one_seed_less_or_more_say(sample, shift, deviation, level, margin, noise):
    gaps = np.array(sample) + shift
    assume(gaps.std() > 0.01)
    found = stats.one_seed_decides(
        gaps, deviation, lambda low, high: stats.verdict(low, high, margin), level, resolution=0.01, noise=noise
    )
    assert found == naively(gaps, deviation, level, margin, 0.01, noise)


def decided(gaps, deviation=0.0, margin=0.0, **options):
    return stats.one_seed_decides(gaps, deviation, lambda low, high: stats.verdict(low, high, margin), **options)


def test_a_seed_that_alone_hides_or_makes_the_difference_decides():
    clear = np.array([2.0, 2.1, 1.9, 2.05, 1.95])
    assert not decided(clear)
    assert decided([0.9, 1.0, 1.1, 1.0, -0.1])  # undecided without its last seed, or the other way round
    assert decided([0.1, 0.3, 0.05, 0.2, 0.02])


def test_a_bad_seed_that_only_other_losses_had_so_far_may_decide():
    clear = np.array([2.0, 2.1, 1.9, 2.05, 1.95])
    assert not decided(clear, deviation=0.3)
    assert decided(clear, deviation=5.0)


def test_of_three_seeds_each_decides_unless_no_seed_changes_anything():
    assert decided([2.0, 2.1, 1.9])
    assert not decided([7.0, 7.0, 7.0])  # bytes
    assert decided([7.0, 7.0, 7.0], resolution=0.1)
    assert not decided([1.0, 2.0])


def test_the_largest_deviation_is_that_from_the_median_of_the_own_sample():
    samples = [{0: 1, 1: 2, 2: 9}, {0: 50, 1: 52, 2: 51}, {}]
    assert stats.largest_deviation(samples) == 7
    assert stats.largest_deviation([]) == 0


def test_what_losses_share_at_a_seed_does_not_count_as_a_deviation():
    seed = {0: 0.0, 1: 5.0, 2: -3.0, 3: 1.0}  # of the baseline, too
    loss = {number: value + 0.1 * number for number, value in seed.items()}
    assert stats.largest_deviation([seed, loss]) == pytest.approx(4.5)
    assert stats.largest_deviation([seed, loss], seed) == pytest.approx(0.15)
    assert stats.largest_deviation([seed, loss | {3: -9.0}], seed) == pytest.approx(7.6)  # a bad seed of one loss
    assert stats.largest_deviation([seed, loss], {0: 0.0}) == pytest.approx(4.5)  # too few of the reference


def test_the_noise_of_the_baseline_alone_does_not_count_twice():
    baseline, loss = {0: 1.0, 1: -1.0, 2: 0.0}, {0: -1.0, 1: 1.0, 2: 0.0}
    assert stats.largest_deviation([baseline, loss], baseline) == 1


# ---- what surrounds a comparison -------------------------------------------------------------------------------------


def test_correlation_tells_what_pairing_gains():
    assert stats.correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert math.isnan(stats.correlation([1, 1, 1], [1, 2, 3]))


def test_without_pairing_what_seeds_share_hides_the_difference():
    """The same seeds for both: the interval is as narrow as the noise that is not shared."""
    rng = np.random.default_rng(10)
    seed = rng.normal(0, 5, 8)
    a, b = seed + 0.5 + 0.1 * rng.normal(size=8), seed + 0.1 * rng.normal(size=8)
    assert stats.paired(a, b).p < 1e-3
    assert stats.paired(a, rng.permutation(b)).p > 0.3
    assert stats.correlation(a, b) > 0.99


def test_wins_and_ties_are_counted_in_spite_of_rounding():
    assert stats.wins([0.3, 2, 3, 0], [0.1 + 0.2, 1, 2, 1]) == (2, 1)


def test_the_mean_of_one_sample_has_its_t_interval():
    mean, low, high = stats.mean_interval(A)
    assert (mean, low, high) == pytest.approx(
        (np.mean(A), *scipy.stats.t.interval(0.95, 4, np.mean(A), scipy.stats.sem(A)))
    )
    assert math.isnan(stats.mean_interval([1.0, 2.0])[1])


@pytest.mark.parametrize("n", [1, 2, 3, 10, 50])
def test_the_intervals_of_many_means_are_those_of_each_to_the_last_bit(n):
    rng = np.random.default_rng(n)
    samples = [*rng.normal(80, 3, (7, n)).tolist(), [1.0, 2.5, 4.0], [5.0] * n]
    for sample, mean, low, high in zip(samples, *stats.mean_intervals(samples), strict=True):
        np.testing.assert_array_equal([mean, low, high], stats.mean_interval(sample))
