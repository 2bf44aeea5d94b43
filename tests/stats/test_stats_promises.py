"""What the statistics promise, tried on many made-up studies: levels, coverage, power, and one loss under two names."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lossbench import stats


def near(rate: float, tries: int, errors: float = 4) -> object:
    return pytest.approx(rate, abs=errors * math.sqrt(rate * (1 - rate) / tries))


@pytest.mark.parametrize(("seeds", "chance"), [(3, 0.13), (5, 0.30), (10, 0.79), (20, 0.99)])
def test_equivalence_is_granted_as_often_as_its_power_says(seeds, chance):
    """At a margin of one SD of the differences, where nothing differs."""
    rng = np.random.default_rng(seeds)
    tries = 1500
    granted = sum(stats.tost(d, np.zeros(seeds), 1.0) < stats.LEVEL for d in rng.normal(size=(tries, seeds)))
    assert granted / tries == pytest.approx(chance, abs=0.03)
    assert granted / tries == near(stats.equivalence_power(1.0, seeds), tries)


@pytest.mark.parametrize(("effect", "seeds"), [(1.0, 10), (2.0, 4), (0.5, 20)])
def test_effects_are_found_as_often_as_power_says(effect, seeds):
    rng = np.random.default_rng(seeds)
    tries = 1500
    found = sum(stats.paired(d, np.zeros(seeds)).p < stats.LEVEL for d in rng.normal(effect, 1, (tries, seeds)))
    assert found / tries == near(stats.power(effect, seeds), tries)


@pytest.mark.parametrize("test", [stats.sign_flip, stats.signed_rank])
@pytest.mark.parametrize("seeds", [6, 8, 12])
def test_counted_tests_keep_their_level_for_any_symmetric_noise(test, seeds):
    rng = np.random.default_rng(seeds)
    tries = 1200
    alarms = sum(test(d, np.zeros(seeds)).p <= stats.LEVEL for d in rng.standard_t(1.5, (tries, seeds)))
    attainable = math.floor(stats.LEVEL * 2 ** (seeds - 1)) / 2 ** (seeds - 1)  # of sign flips, which have no ties here
    assert alarms / tries <= attainable + 4 * math.sqrt(0.05 * 0.95 / tries)
    assert alarms / tries >= 0.02


def test_the_posterior_is_calibrated():
    """Over truths spread as widely as the flat prior says, P(better) is the share of times that a is better."""
    rng = np.random.default_rng(1)
    truths = rng.uniform(-15, 15, 5000)
    judged = [(stats.rope(rng.normal(t, 1, 4), np.zeros(4), 0.3), t) for t in truths if abs(t) < 2.5]
    chances = np.array([[r.better, r.equivalent, r.worse] for r, _ in judged])
    true = np.array([[t > 0.3, abs(t) <= 0.3, t < -0.3] for _, t in judged])
    unsure = (chances > 0.2) & (chances < 0.8)
    assert true[unsure].mean() == pytest.approx(chances[unsure].mean(), abs=0.05)


def words(rng, seeds, tries, *, noise, shared, margin=0.5, names=4):
    """The verdicts of studies in which one loss stands under several names, accuracies in whole test images."""
    step = 100 / 1000
    found = []
    for _ in range(tries):
        seed = shared * rng.normal(size=(1, seeds))
        runs = 95 + np.round((seed + noise * rng.normal(size=(names, seeds))) / step) * step
        pairs = [stats.paired(run, runs[0], resolution=step) for run in runs[1:]]
        adjusted = stats.holm([pair.p for pair in pairs])
        tosts = [stats.tost(run, runs[0], margin, resolution=step) for run in runs[1:]]
        found.append([stats.verdict(p, t) for p, t in zip(adjusted, tosts, strict=True)])
    return np.array(found)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_one_loss_under_two_names_comes_out_undecided_or_equivalent(seeds):
    """A/A with ties and a resolution: a study with any "different" is as rare as the level."""
    tries = 500
    found = words(np.random.default_rng(seeds), seeds, tries, noise=0.3, shared=1.0)
    alarms = np.char.startswith(found, "different").any(axis=1).mean()
    assert alarms <= stats.LEVEL + 3 * math.sqrt(0.05 * 0.95 / tries)
    assert set(found.ravel()) <= {"undecided", "equivalent", "different", "different but negligible"}


def test_with_enough_seeds_one_loss_under_two_names_comes_out_equivalent():
    found = words(np.random.default_rng(9), 20, 100, noise=0.3, shared=1.0)
    assert np.isin(found, ["equivalent", "different but negligible"]).mean() > 0.95


def test_bit_identical_runs_are_never_different():
    runs = [95.0, 95.3, 94.8, 95.1, 95.0]
    assert stats.verdict(stats.paired(runs, runs, resolution=0.1).p, stats.tost(runs, runs, 0.5, resolution=0.1)) == (
        "equivalent"
    )
    assert math.isnan(stats.signed_rank(runs, runs).p)
    assert stats.rope(runs, runs, 0.5, resolution=0.1).equivalent > 0.99
    assert stats.wins(runs, runs).ties == 5
    found = stats.reproduction(runs, 95.04, 1.0)
    assert found.verdict == "reproduced"


def test_without_pairing_what_seeds_share_hides_the_difference():
    """The same seeds for both: the interval is as narrow as the noise that is not shared."""
    rng = np.random.default_rng(10)
    seed = rng.normal(0, 5, 8)
    a, b = seed + 0.5 + 0.1 * rng.normal(size=8), seed + 0.1 * rng.normal(size=8)
    assert stats.paired(a, b).p < 1e-3
    assert stats.paired(a, rng.permutation(b)).p > 0.3
    assert stats.correlation(a, b) > 0.99
