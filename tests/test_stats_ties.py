"""Tie groups, and differences that matter beyond doubt: against the plain functions, pair by pair."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
import scipy.stats

from lossbench import stats


def test_all_pairs_at_once_have_the_p_of_each_pair_alone():
    rng = np.random.default_rng(3)
    table = rng.normal(90, 1, (9, 5))
    table[2, 1] = table[5, 3] = math.nan
    p = stats.pair_p_values(table, resolution=0.01)
    for a, b in itertools.permutations(range(5), 2):
        both = np.isfinite(table[:, a]) & np.isfinite(table[:, b])
        alone = stats.paired(table[both, a], table[both, b], resolution=0.01)
        assert p[a, b] == pytest.approx(alone.p, rel=1e-9)


def test_losses_share_a_letter_unless_they_differ_beyond_doubt():
    rng = np.random.default_rng(0)
    seed = rng.normal(0, 1, (10, 1))
    table = seed + np.array([90.0, 95.0, 95.02, 80.0]) + rng.normal(0, 0.1, (10, 4))
    assert stats.tie_letters(table) == ["b", "a", "a", "c"]


def test_a_loss_between_two_others_may_share_a_letter_with_both():
    step = np.tile([0.1, -0.1], 5)
    table = np.stack([90 + 10 * step, 90.5 + 0 * step, 91 - 10 * step], axis=1)
    p = stats.holm([stats.paired(table[:, a], table[:, b]).p for a, b in ((0, 1), (0, 2), (1, 2))])
    assert [value < 0.05 for value in p] == [False, False, False]
    wide = table + np.array([0, 0.5, 1.6])
    letters = stats.tie_letters(wide)
    for a, b in itertools.combinations(range(3), 2):
        apart = stats.holm([stats.paired(wide[:, i], wide[:, j]).p for i, j in itertools.combinations(range(3), 2)])
        place = list(itertools.combinations(range(3), 2)).index((a, b))
        assert (apart[place] < 0.05) == (not set(letters[a]) & set(letters[b]))


def test_two_seeds_give_no_letters():
    assert stats.tie_letters([[90.0, 91.0], [92.0, 95.0]]) == ["", ""]


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


def test_five_hundred_comparisons_are_planned_within_a_second():
    started = time.process_time()
    for effect in np.linspace(0.02, 3, 500):
        stats.seeds_needed(effect, level=0.05 / 500)
    assert time.process_time() - started < 1
