"""Letters for losses that do not differ, against the tests of each pair alone."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_losses_share_a_letter_unless_they_differ_significantly():
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


@st.composite
def relations(draw, most=12):
    """Any symmetric relation "is different from" among some losses."""
    size = draw(st.integers(1, most))
    upper = np.zeros((size, size), dtype=bool)
    pairs = size * (size - 1) // 2
    upper[np.triu_indices(size, 1)] = draw(st.lists(st.booleans(), min_size=pairs, max_size=pairs))
    return upper | upper.T


def largest_groups(different):
    """Every largest set of losses of which no two are different, by looking at all sets."""
    size = len(different)
    fitting = [
        set(group)
        for count in range(1, size + 1)
        for group in itertools.combinations(range(size), count)
        if not any(different[pair] for pair in itertools.combinations(group, 2))
    ]
    return [group for group in fitting if not any(group < other for other in fitting)]


@given(relations())
@settings(deadline=None, max_examples=40)
def test_two_losses_share_a_letter_if_and_only_if_they_are_not_different(different):
    groups = [set(group) for group in stats.letter_groups(different)]
    for a, b in itertools.combinations(range(len(different)), 2):
        assert any({a, b} <= group for group in groups) == (not different[a, b])
    assert set().union(*groups) == set(range(len(different)))
    assert not any(one <= other for one, other in itertools.permutations(groups, 2))


@given(relations(most=7))
@settings(deadline=None, max_examples=40)
def test_every_letter_is_a_largest_group_and_none_can_be_left_out(different):
    groups = [set(group) for group in stats.letter_groups(different)]
    largest = largest_groups(different)
    assert all(group in largest for group in groups)
    alike = [set(pair) for pair in itertools.combinations(range(len(different)), 2) if not different[pair]]
    alone = [group for group in largest if len(group) == 1]
    for left_out in groups:
        rest = [group for group in groups if group is not left_out]
        assert any(not any(pair <= group for group in rest) for pair in (*alike, *alone) if pair <= left_out)


@given(relations())
@settings(deadline=None, max_examples=40)
def test_the_first_letter_belongs_to_the_first_loss(different):
    groups = stats.letter_groups(different)
    assert groups[0][0] == 0
    assert groups == sorted(groups)


def test_a_loss_that_varies_more_than_its_neighbours_keeps_its_letters():
    """The last mean has so much noise that it differs from none; the others differ. Runs of means cannot say that."""
    noise = np.tile([1.0, -1.0], 4)
    table = np.stack([92 + 0.05 * noise, 90 - 0.05 * noise, 89 + 6 * noise], axis=1)
    letters = stats.tie_letters(table)
    p = stats.pair_p_values(table)
    pairs = list(itertools.combinations(range(3), 2))
    for (a, b), adjusted in zip(pairs, stats.holm([p[pair] for pair in pairs]), strict=True):
        assert bool(set(letters[a]) & set(letters[b])) == (adjusted >= 0.05)
    assert letters == ["a", "b", "ab"]


@pytest.mark.parametrize(("losses", "most"), [(15, 8), (20, 10), (40, 15)])
def test_tables_of_many_losses_have_few_letters_and_take_no_time(losses, most):
    rng = np.random.default_rng(losses)
    started = time.process_time()
    for _ in range(5):
        spread = rng.uniform(0.1, 1, losses)
        table = rng.normal(0, 0.5, (5, 1)) + rng.normal(90, 1, losses) + rng.normal(0, 1, (5, losses)) * spread
        assert len(set("".join(stats.tie_letters(table)))) <= most
    assert time.process_time() - started < 2


def test_the_worst_relation_takes_no_time_either():
    """Thirteen triples that differ inside: 3¹³ largest groups, of which few are needed."""
    different = np.kron(np.eye(13, dtype=bool), ~np.eye(3, dtype=bool))
    started = time.process_time()
    groups = stats.letter_groups(different)
    assert time.process_time() - started < 2
    assert len(groups) < 40
    shared = np.zeros((39, 39), dtype=bool)
    for group in groups:
        shared[np.ix_(group, group)] = True
    assert (shared == ~different).all()


def test_letters_do_not_run_out():
    apart = stats.tie_letters(np.arange(60.0) + np.zeros((4, 1)))
    assert len(set(apart)) == 60
    assert apart[-1] == "a"
    assert apart[0] == "h1"
    assert apart[59 - 26] == "A"


def test_two_seeds_give_no_letters():
    assert stats.tie_letters([[90.0, 91.0], [92.0, 95.0]]) == ["", ""]
