"""Signed ranks: golden values, oracles, and where no p is attainable."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from lossbench import stats
from lossbench.stats.exact import mean_ranks

A = [0.912, 0.918, 0.909, 0.921, 0.915]
B = [0.905, 0.913, 0.907, 0.911, 0.909]


def counted(scores: np.ndarray) -> float:
    """Two-sided p by trying every sign, one by one."""
    signs = np.array(list(itertools.product([1, -1], repeat=len(scores))))
    return float((np.abs(signs @ scores) >= abs(scores.sum()) - 1e-9).mean())


def test_below_six_pairs_there_is_a_reason_and_no_p():
    found = stats.signed_rank(A, B)
    assert math.isnan(found.p)
    assert found.reason == "5 paired differences cannot give a two-sided p below 0.0625; for 0.05 it takes 6"
    six = stats.signed_rank([*A, 0.92], [*B, 0.91])
    assert six.p == pytest.approx(1 / 32)  # all six on one side
    assert six.reason == ""


@pytest.mark.parametrize(("pairs", "least"), [(3, 0.25), (5, 0.0625), (10, 0.001953125), (20, 1.9073e-6)])
def test_the_least_attainable_p_is_attained_when_all_pairs_agree(pairs, least):
    assert stats.signed_rank(np.arange(1, pairs + 1), np.zeros(pairs), 1.0).p == pytest.approx(least, rel=1e-4)


def test_a_wider_level_lets_the_golden_value_of_wilcoxon_through():
    assert stats.signed_rank(A, B, 0.1).p == 0.0625
    assert math.isnan(stats.signed_rank(A, B, 0.0625).p)  # a p at the level is not below it


def test_a_family_needs_more_pairs():
    assert [stats.pairs_needed(level) for level in (0.05, 0.0625, 0.05 / 6)] == [6, 6, 8]
    eight = np.arange(1.0, 9)
    assert math.isnan(stats.signed_rank(eight[1:], 0 * eight[1:], 0.05 / 6).p)
    assert stats.signed_rank(eight, 0 * eight, 0.05 / 6).p < 0.05 / 6


def test_zeros_decide_nothing():
    found = stats.signed_rank([1, 2, 3, 4, 5, 6, 7, 7], [1, 2, 3, 0, 0, 0, 0, 0])
    assert math.isnan(found.p)
    assert found.reason.startswith("5 paired differences other than zero (of 8) ")
    assert stats.signed_rank(A, A).reason.startswith("0 paired differences other than zero (of 5) ")
    assert stats.rank_biserial(A, A) == 0


def test_differences_of_seven_digits_tie_in_spite_of_rounding():
    a, b = np.array([0.3, 0.4, 0.6, 0.8, 0.1, 0.2, 0.5]), np.array([0.2, 0.3, 0.5, 0.7, 0.2, 0.3, 0.6])
    assert len(set(a - b)) > 2  # floating point
    assert stats.signed_rank(a, b).p == 1.0  # four up, three down, all by 0.1
    assert stats.rank_biserial(a, b) == pytest.approx(1 / 7)


@pytest.mark.parametrize("pairs", [6, 11, 20, 31])
def test_signed_ranks_agree_with_scipy(pairs):
    rng = np.random.default_rng(pairs)
    a, b = rng.normal(0.4, 1, pairs), rng.normal(0, 1, pairs)
    oracle = scipy.stats.wilcoxon(a, b, method="exact")
    assert stats.signed_rank(a, b).p == pytest.approx(oracle.pvalue)
    total = pairs * (pairs + 1) / 2
    assert abs(stats.rank_biserial(a, b)) == pytest.approx(1 - 2 * oracle.statistic / total)


def test_signed_ranks_stay_exact_with_ties():
    sample = np.array([1.0, 1, 1, 2, 2, -1, 3, -2, 4])
    ranks = np.sign(sample) * scipy.stats.rankdata(np.abs(sample))
    assert stats.signed_rank(sample, 0 * sample).p == pytest.approx(counted(ranks))


@pytest.mark.parametrize("shift", [0.05, 0.3, 0.5])
def test_many_pairs_are_approximated(shift):
    rng = np.random.default_rng(5)
    a, b = rng.normal(shift, 1, 60), rng.normal(0, 1, 60)
    assert stats.signed_rank(a, b).p == pytest.approx(scipy.stats.wilcoxon(a, b, method="exact").pvalue, rel=0.02)


def test_many_pairs_that_all_agree_have_the_least_p():
    assert stats.signed_rank(np.arange(1.0, 61), np.zeros(60)).p == pytest.approx(2.0**-59)


NOISE = {
    "normal": lambda rng: rng.normal(size=36),
    "heavy tails": lambda rng: rng.standard_t(1, size=36),
    "one diverged": lambda rng: np.append(100.0, rng.normal(size=35)),
    "many ties": lambda rng: np.round(rng.normal(size=36)),
}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_the_approximation_takes_over_without_a_jump(noise, monkeypatch):
    rng = np.random.default_rng(6)
    samples = [shift + noise(rng) for shift in (0.1, 0.3, 0.5)]
    exact = [stats.signed_rank(a, 0 * a).p for a in samples]  # counted: scores of zero are dropped
    monkeypatch.setattr("lossbench.stats.exact.COUNTED_UP_TO", 20)
    approximate = [stats.signed_rank(a, 0 * a).p for a in samples]
    assert approximate == pytest.approx(exact, rel=0.05)
    assert all(new >= old * (1 - 1e-6) for new, old in zip(approximate, exact, strict=True))


@given(st.lists(st.integers(-5, 5), min_size=8, max_size=14))
def test_turning_a_comparison_around_turns_its_effects(sample):
    values, zeros = np.array(sample, dtype=float), np.zeros(len(sample))
    assert stats.rank_biserial(values, zeros) == -stats.rank_biserial(zeros, values)
    assert stats.signed_rank(values, zeros) == stats.signed_rank(zeros, values)
    one, other = stats.wins(values, zeros), stats.wins(zeros, values)
    assert one.wins + other.wins + one.ties == len(sample)


def test_rank_biserial_is_the_balance_of_ranks():
    assert stats.rank_biserial(A, B) == 1
    assert stats.rank_biserial(B, A) == -1
    assert stats.rank_biserial([3, -1, -2, 4], [0] * 4) == pytest.approx((3 + 4 - 1 - 2) / 10)
    assert stats.rank_biserial([3, -1, 0, 0], [0] * 4) == pytest.approx((2 - 1) / 3)  # zeros have no rank


def test_missing_values_are_refused_where_ranks_would_hide_them():
    for test in (stats.signed_rank, stats.rank_biserial, stats.wins):
        with pytest.raises(ValueError, match="finite"):
            test([1, math.nan, 2], [0, 0, 0])


def test_ranks_are_those_of_scipy_with_and_without_ties():
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=20), rng.integers(0, 5, 30).astype(float), np.ones(4), np.zeros(0)):
        np.testing.assert_array_equal(mean_ranks(values), scipy.stats.rankdata(values))
