"""What the statistics promise, tried on many made-up studies: coverage, power, and counted tests.

How often verdicts are wrong is in `test_truth`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from lossbench import stats


def near(rate: float, tries: int, errors: float = 4) -> object:
    return pytest.approx(rate, abs=errors * math.sqrt(rate * (1 - rate) / tries))


def intervals(differences, level=stats.LEVEL):
    """The ends of the interval of each row: studies × seeds → two vectors."""
    found = [stats.paired(row, np.zeros(len(row)), level) for row in differences]
    return np.array([one.low for one in found]), np.array([one.high for one in found])


@pytest.mark.parametrize(("seeds", "chance"), [(3, 0.13), (5, 0.30), (10, 0.79), (20, 0.99)])
def test_equivalence_is_granted_as_often_as_its_power_says(seeds, chance):
    """At a margin of one SD of the differences, where nothing differs; the interval is that of two tests at 0.05."""
    tries = 1500
    low, high = intervals(np.random.default_rng(seeds).normal(size=(tries, seeds)), 0.1)
    granted = ((low > -1) & (high < 1)).mean()
    assert granted == pytest.approx(chance, abs=0.03)
    assert granted == near(stats.equivalence_power(1.0, seeds, 0.1), tries)


@pytest.mark.parametrize(("effect", "seeds"), [(1.0, 10), (2.0, 4), (0.5, 20)])
def test_effects_are_found_as_often_as_power_says(effect, seeds):
    tries = 1500
    low, _ = intervals(np.random.default_rng(seeds).normal(effect, 1, (tries, seeds)))
    assert (low > 0).mean() == near(stats.power(effect, seeds), tries)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_interval_covers_as_often_as_it_says(seeds):
    tries, truth = 1200, 0.4
    low, high = intervals(np.random.default_rng(seeds).normal(truth, 1, (tries, seeds)))
    assert ((low <= truth) & (truth <= high)).mean() == near(0.95, tries)


@pytest.mark.parametrize("seeds", [6, 8, 12])
def test_the_counted_test_keeps_its_level_for_any_symmetric_noise(seeds):
    tries = 1200
    studies = np.random.default_rng(seeds).standard_t(1.5, (tries, seeds))
    alarms = sum(stats.signed_rank(study, np.zeros(seeds)).p <= stats.LEVEL for study in studies) / tries
    assert 0.02 <= alarms <= stats.LEVEL + 4 * math.sqrt(0.05 * 0.95 / tries)


def test_bit_identical_runs_are_equivalent():
    runs = [95.0, 95.3, 94.8, 95.1, 95.0]
    found = stats.paired(runs, runs, resolution=0.1)
    assert stats.verdict(found.low, found.high, 0.5) == "equivalent"
    assert math.isnan(stats.signed_rank(runs, runs).p)
    assert stats.wins(runs, runs).ties == 5
    assert stats.reproduction(runs, 95.04, 1.0).verdict == "reproduced"
