"""How often a report is wrong: fewer draws of what `tests/benchmarks/truth.py` prints, with slack for their number."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks import truth

DOCS = Path(__file__).parents[2] / "docs" / "report.md"
DRAWS = 120


def at_most(rate: float, draws: int = DRAWS) -> float:
    return rate + 3 * math.sqrt(rate * (1 - rate) / draws)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(16)


@pytest.mark.parametrize("seeds", [3, 8])
@pytest.mark.parametrize("world", truth.EQUAL)
def test_equal_losses_are_rarely_better_or_worse(world, seeds, rng):
    assert truth.rates(truth.EQUAL[world], seeds, DRAWS, rng).wrong <= at_most(0.05)


@pytest.mark.parametrize("seeds", [5, 10])
@pytest.mark.parametrize("world", truth.FLAGGED)
def test_verdicts_that_rare_bad_seeds_make_wrong_are_flagged(world, seeds, rng):
    found = truth.rates(truth.FLAGGED[world], seeds, DRAWS, rng)
    assert found.wrong > at_most(0.05)  # or the world needs no flag
    assert found.flagged >= 0.95
    assert found.unflagged <= at_most(0.05)


def test_flags_leave_clear_differences_alone(rng):
    found = truth.rates(truth.shifted(4.0), 8, 60, rng)
    assert found.power > 0.99 and found.flagged < 0.02 and found.cover > 0.9


def test_one_loss_under_two_names_is_rarely_better_or_worse(rng):
    found = [truth.rates(truth.itself, seeds, DRAWS, rng, losses=1, margin=0.5).wrong for seeds in (3, 8)]
    assert max(found) <= at_most(0.05)


@pytest.mark.parametrize("seeds", [5, 10])
def test_losses_at_the_margin_are_rarely_equivalent(seeds, rng):
    assert truth.rates(truth.shifted(2.0), seeds, DRAWS, rng, margin=2 * math.sqrt(2)).wrong <= at_most(0.05)


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("name", truth.TRENDS)
def test_a_trend_that_turns_is_rarely_supported_and_a_clear_one_often(name, seeds, rng):
    shape, most = truth.TRENDS[name]
    found = truth.supported(shape, seeds, 60, rng)
    assert found <= at_most(most, 60) if most else found > {3: 0.3, 5: 0.9, 10: 0.99}[seeds]


@pytest.mark.parametrize("losses", [1, 7])
@pytest.mark.parametrize("pilot", [5, 8])
def test_the_upper_end_of_the_seeds_needed_suffices(pilot, losses, rng):
    low, high = truth.power_as_planned(pilot, 100, rng, losses=losses)
    assert high >= 0.8
    assert low < high


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_step_time_intervals_stay_honest_where_rounds_depend_on_each_other(rho, rng):
    assert truth.times_cover(rho, 600, rng) >= 0.93 - 2 * math.sqrt(0.95 * 0.05 / 600)


def test_the_documentation_holds_every_bound():
    """The page has all rows of the script, and none of them says that it is not held."""
    page = DOCS.read_text()
    section = page[page.index("## How often it is wrong") :]
    assert "tests/benchmarks/truth.py" in section
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    assert not any("not held" in line for line in lines)
    assert {*truth.EQUAL, *truth.FLAGGED, *truth.TRENDS} <= {line.split("|")[1].strip() for line in lines}
