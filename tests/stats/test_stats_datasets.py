"""Over datasets: Demšar's example, scipy and scikit-posthocs as oracles, and what pooling seeds would do."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from lossbench import stats

# Demšar 2006, table 6: AUC of C4.5 and of C4.5 with m, cf, and both tuned. Each value stands for one seed here.
LOSSES = ["C4.5", "m", "cf", "m+cf"]
AUC = {
    "adult": [0.763, 0.768, 0.771, 0.798],
    "breast cancer": [0.599, 0.591, 0.590, 0.569],
    "wisconsin": [0.954, 0.971, 0.968, 0.967],
    "cmc": [0.628, 0.661, 0.654, 0.657],
    "ionosphere": [0.882, 0.888, 0.886, 0.898],
    "iris": [0.936, 0.931, 0.916, 0.931],
    "liver": [0.661, 0.668, 0.609, 0.685],
    "lung cancer": [0.583, 0.583, 0.563, 0.625],
    "lymphography": [0.775, 0.838, 0.866, 0.875],
    "mushroom": [1.000, 1.000, 1.000, 1.000],
    "primary tumor": [0.940, 0.962, 0.965, 0.962],
    "rheum": [0.619, 0.666, 0.614, 0.669],
    "voting": [0.972, 0.981, 0.975, 0.975],
    "wine": [0.957, 0.978, 0.946, 0.970],
}


def table(means: np.ndarray) -> stats.DatasetMeans:
    return stats.over_datasets({f"d{i}": {f"l{j}": [v] for j, v in enumerate(row)} for i, row in enumerate(means)})


def demsar() -> stats.DatasetMeans:
    by_loss = {name: {loss: [v] for loss, v in zip(LOSSES, row, strict=True)} for name, row in AUC.items()}
    return stats.over_datasets(by_loss)


@pytest.mark.parametrize(("losses", "q"), [(2, 1.960), (4, 2.569), (10, 3.164)])
def test_the_quantiles_of_nemenyi_have_their_golden_values(losses, q):
    assert stats.critical_difference(losses, 1) / math.sqrt(losses * (losses + 1) / 6) == pytest.approx(q, abs=5e-4)


def test_demsars_critical_differences_have_his_values():
    assert stats.critical_difference(4, 14) == pytest.approx(1.2536, abs=5e-5)
    assert stats.critical_difference(4, 14, 0.10) == pytest.approx(1.1181, abs=5e-5)


def test_demsars_printed_values_agree_with_scipy_ties_and_all():
    found = stats.friedman(demsar())
    oracle = scipy.stats.friedmanchisquare(*np.array(list(AUC.values())).T)
    assert found.datasets == 14
    assert found.chi2 == pytest.approx(oracle.statistic)
    assert found.chi2 == pytest.approx(10.952, abs=5e-4)
    assert found.f == pytest.approx(13 * oracle.statistic / (14 * 3 - oracle.statistic))
    assert found.p == pytest.approx(scipy.stats.f.sf(found.f, 3, 39))
    assert found.ranks * 14 == pytest.approx([44, 28, 41, 27])


def test_losses_that_tie_but_for_rounding_share_their_mean_rank():
    means = table(np.array([[3.0, 2.0, 1.0], [5.0, 5.0, 1.0], [0.1 + 0.2, 0.3, 0.1]]))
    assert stats.friedman(means).ranks == pytest.approx([(1 + 1.5 + 1.5) / 3, (2 + 1.5 + 1.5) / 3, 3])


def test_pairs_agree_with_scikit_posthocs():
    posthocs = pytest.importorskip("scikit_posthocs")
    means = np.random.default_rng(1).normal(size=(12, 4)) + np.linspace(0, 1.5, 4)
    oracle = posthocs.posthoc_wilcoxon(list(means.T), method="exact").to_numpy()
    for number, pair in enumerate(stats.pairwise(table(means), baseline="l0"), start=1):
        assert (pair.a, pair.b) == (f"l{number}", "l0")
        assert pair.test.p == pytest.approx(oracle[number, 0])
        assert pair.effect == stats.rank_biserial(means[:, number], means[:, 0])


def test_pairs_with_the_baseline_are_one_family_under_holm():
    means = table(np.random.default_rng(2).normal(size=(12, 4)) + np.linspace(0, 2, 4))
    pairs = stats.pairwise(means, baseline="l0")
    assert [pair.p_holm for pair in pairs] == pytest.approx(stats.holm([pair.test.p for pair in pairs]))


@pytest.mark.parametrize(("datasets", "losses", "silent"), [(5, 2, True), (6, 2, False), (6, 4, True), (7, 4, False)])
def test_pairs_have_no_p_where_none_could_survive_holm(datasets, losses, silent):
    means = table(np.arange(datasets)[:, None] + np.arange(losses) * np.linspace(1, 2, datasets)[:, None])
    for pair in stats.pairwise(means, baseline="l0"):
        assert math.isnan(pair.p_holm) == silent
        assert (pair.test.reason != "") == silent


def test_four_losses_on_the_same_side_everywhere_are_as_different_as_can_be():
    same_order = table(np.tile(np.arange(4.0), (6, 1)) + np.arange(6)[:, None])
    found = stats.friedman(same_order)
    assert (found.chi2, found.f, found.p) == (pytest.approx(18), math.inf, 0)
    everywhere_equal = stats.friedman(table(np.ones((6, 4))))
    assert (everywhere_equal.chi2, everywhere_equal.p) == (0, 1)


@pytest.mark.parametrize(("datasets", "losses"), [(4, 4), (12, 2)])
def test_friedman_has_no_p_where_ranks_take_too_few_values(datasets, losses):
    found = stats.friedman(table(np.random.default_rng(3).normal(size=(datasets, losses))))
    assert math.isnan(found.p)
    assert len(found.ranks) == losses


def test_tie_groups_are_the_bars_of_the_diagram():
    assert stats.tie_groups([1.0, 3.5, 2.0, 2.9], 1.2) == [(0, 2), (2, 3), (3, 1)]
    assert stats.tie_groups([1.0, 1.5, 2.0], 5) == [(0, 1, 2)]
    assert stats.tie_groups([1.0, 2.0, 3.0], 0.5) == []


def test_seeds_are_averaged_inside_a_dataset():
    found = stats.over_datasets({"x": {"a": [1, 2, 3], "b": [4]}, "y": {"b": [6, 6], "a": [5, 7]}})
    assert found.datasets == ("x", "y")
    assert found.losses == ("a", "b")
    assert found.means.tolist() == [[2, 4], [6, 6]]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (np.zeros((50, 4)), "seeds are not pooled"),
        ({"x": [1, 2], "y": [1, 2]}, "seeds are not pooled"),
        ({"x": {"a": 1.0, "b": 2.0}, "y": {"a": 1.0, "b": 2.0}}, "one finite number per seed"),
        ({"x": {"a": [1], "b": []}, "y": {"a": [1], "b": [1]}}, "'x', 'b': expected one finite number"),
        ({"x": {"a": [1], "b": [math.nan]}, "y": {"a": [1], "b": [1]}}, "one finite number"),
        ({"x": {"a": [1], "b": [1]}, "y": {"a": [1]}}, "b is not on all of them"),
        ({"x": {"a": [1], "b": [1]}}, "two datasets"),
        ({"x": {"a": [1]}, "y": {"a": [1]}}, "two losses"),
    ],
)
def test_what_is_not_a_number_for_every_dataset_loss_and_seed_is_refused(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        stats.over_datasets(values)


def studies(rng, tries, datasets, losses, seeds):
    """Losses that are equal on average, each with its own luck on a dataset, which every seed there repeats."""
    luck = rng.normal(size=(tries, datasets, losses, 1))
    return luck + 0.5 * rng.normal(size=(tries, datasets, losses, seeds))


@pytest.mark.slow
def test_averaging_keeps_the_level_and_pooling_seeds_would_break_it():
    tries, datasets, losses, seeds = 150, 8, 4, 5
    honest = pooled = 0
    for study in studies(np.random.default_rng(5), tries, datasets, losses, seeds):
        by_dataset = {f"d{i}": {f"l{j}": study[i, j] for j in range(losses)} for i in range(datasets)}
        honest += stats.friedman(stats.over_datasets(by_dataset)).p < stats.LEVEL
        # Each seed passed off as a dataset of its own: what `over_datasets` is there to prevent.
        pooled += stats.friedman(table(study.transpose(0, 2, 1).reshape(-1, losses))).p < stats.LEVEL
    assert honest / tries <= 0.07 + 3 * math.sqrt(0.05 * 0.95 / tries)
    assert honest > 0
    assert pooled / tries > 0.27


@pytest.mark.slow
@pytest.mark.parametrize(("datasets", "losses"), [(5, 3), (6, 5), (10, 4), (20, 8)])
def test_friedmans_false_alarms_stay_within_two_hundredths_of_the_level(datasets, losses):
    rng = np.random.default_rng(datasets)
    tries = 500
    names = tuple(map(str, range(datasets))), tuple(map(str, range(losses)))
    studies = (stats.DatasetMeans(*names, means) for means in rng.normal(size=(tries, datasets, losses)))
    alarms = sum(stats.friedman(study).p < stats.LEVEL for study in studies)
    assert 0.02 <= alarms / tries <= 0.07 + 2 * math.sqrt(0.05 * 0.95 / tries)


def test_pairs_under_holm_raise_a_false_alarm_at_most_as_often_as_the_level():
    rng = np.random.default_rng(6)
    tries = 300
    alarms = sum(
        min(pair.p_holm for pair in stats.pairwise(table(means), baseline="l0")) < stats.LEVEL
        for means in rng.normal(size=(tries, 10, 3))
    )
    assert 0 < alarms / tries <= stats.LEVEL + 3 * math.sqrt(0.05 * 0.95 / tries)
