"""One comparison, one interval, one verdict: families, directions, and the pure decision about a trend."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from conftest import SMALL
from kit.claims import claim
from kit.synthetic import Truth, analysed, common, noise, write_run

from lossbench import stats
from lossbench.analysis.claim_tests import judged_trend
from lossbench.analysis.measured import Contrast
from lossbench.analysis.results import analyse
from lossbench.analysis.series import pairs
from lossbench.analysis.verdicts import Asked, judged

LOSSES = ("w_softmax", "center", "hinge")
FOUR = SMALL.replace('"w_softmax"]', '"w_softmax", "center", "hinge"]').replace("seeds = 2", "seeds = 6")
GAIN = {"softmax": 0.0, "w_softmax": 2.0, "center": 0.1, "hinge": -0.4}


def truth(cell):
    angle = 40 - 3 * GAIN[cell.loss.name] + noise(cell, 1)
    return Truth(85 + common(cell.seed) + GAIN[cell.loss.name] + noise(cell, 0.3), angle=angle)


def levels(results, metric="accuracy"):
    """How many comparisons share the level, by loss of the table."""
    rows = results.comparisons[results.comparisons["metric"] == metric]
    return {loss: round(stats.LEVEL / level) for loss, level in zip(rows["loss"], rows["level"], strict=True)}


# ---- families --------------------------------------------------------------------------------------------------------


def test_without_claims_a_family_is_an_experiment_and_metric(read_suite):
    results = analysed(read_suite(FOUR.replace("widths = [8]", "widths = [4, 8]")), truth)
    assert set(levels(results).values()) == {6}  # three losses at two widths
    assert set(results.comparisons["family"]) == {"digits, accuracy", "digits, angle"}
    two = analysed(read_suite(FOUR + FOUR[FOUR.index("[[exp") :].replace('name = "digits"', 'name = "more"', 1)), truth)
    assert set(levels(two).values()) == {3}


@pytest.mark.parametrize(
    "body",
    [
        'better = "hinge"\nthan = "softmax"',
        'better = "softmax"\nthan = "hinge"',
        'equivalent = ["softmax", "hinge"]',
        'not_worse = "softmax"\nthan = "hinge"\nmargin = 2.0',
    ],
)
def test_a_comparison_that_a_claim_states_has_the_claims_interval_in_the_table_too(body, read_suite):
    """Of two claims, one about another metric: 0.05/2 in both places; the rest of the table are two comparisons."""
    other = claim('metric = "angle"\nbetter = "center"\nthan = "softmax"')
    results = analysed(read_suite(FOUR + claim(body) + other), truth)
    assert levels(results) == {"hinge": 2, "w_softmax": 2, "center": 2}
    assert levels(results, "angle") == {"hinge": 2, "w_softmax": 2, "center": 2}
    stated = results.claims.iloc[0]
    row = results.comparisons.query("metric == 'accuracy' and loss == 'hinge'").iloc[0]
    turned = not body.startswith('better = "hinge"')
    ends = (-row["high"], -row["low"]) if turned else (row["low"], row["high"])
    assert (stated["low"], stated["high"], stated["level"]) == pytest.approx((*ends, row["level"]))
    assert row["family"] == "claims"


def test_two_claims_about_one_comparison_count_once_and_the_first_names_its_family(read_suite):
    first = claim('better = "hinge"\nthan = "softmax"\nfamily = "a"')
    again = claim('equivalent = ["softmax", "hinge"]\nfamily = "b"') + claim(
        'better = "center"\nthan = "softmax"\nfamily = "b"'
    )
    results = analysed(read_suite(FOUR + first + again), truth)
    assert list(results.claims["level"]) == [0.05, 0.05, 0.05]
    assert levels(results) == {"hinge": 1, "center": 1, "w_softmax": 1}


def test_a_comparison_at_chance_or_without_seeds_counts_in_no_family(read_suite):
    def some(cell):
        if cell.loss.name == "hinge":
            return Truth(10 + noise(cell, 0.5))
        return None if cell.loss.name == "center" and cell.seed > 1 else truth(cell)

    results = analysed(read_suite(FOUR), some)
    assert levels(results)["w_softmax"] == 1
    words = results.comparisons.query("metric == 'accuracy'").set_index("loss")["verdict"]
    assert (words["hinge"], words["center"]) == ("not testable", "undecided")


def test_a_loss_that_shares_no_seed_with_the_baseline_is_not_testable(read_suite):
    def apart(cell):
        return truth(cell) if (cell.seed < 3) == (cell.loss.name == "hinge") else None

    words = analysed(read_suite(FOUR), apart).comparisons.query("metric == 'accuracy'").set_index("loss")["verdict"]
    assert words["hinge"] == "not testable"


def test_pairs_that_nothing_else_states_are_a_family_of_their_own(read_suite):
    results = analysed(read_suite(FOUR + claim('better = "center"\nthan = "hinge"')), truth)
    found = pairs(results, "digits").set_index(["a", "b"])
    assert len(found) == 6
    table = results.comparisons.query("metric == 'accuracy'").set_index("loss")
    for loss in LOSSES:  # the baseline comes first in the pair
        row = found.loc[("softmax", loss)]
        assert (-row["high"], -row["low"], row["level"]) == pytest.approx(
            tuple(table.loc[loss][["low", "high", "level"]])
        )
    assert found.loc[("center", "hinge"), "level"] == 0.05
    assert found.loc[("w_softmax", "center"), "level"] == found.loc[("w_softmax", "hinge"), "level"] == 0.05 / 2


def test_a_comparison_over_points_does_not_depend_on_their_order(read_suite):
    """The first seed of center failed at the first width, so its records begin with the second."""

    def failing(cell):
        failed = cell.loss.name == "center" and cell.width == 4 and cell.seed == 0
        return Truth(status="failed") if failed else truth(cell)

    text = FOUR.replace("widths = [8]", "widths = [4, 8]") + claim('better = "center"\nthan = "softmax"')
    results = analysed(read_suite(text), failing)
    row = pairs(results, "digits").set_index(["a", "b"]).loc[("softmax", "center")]
    stated = results.claims.iloc[0]
    assert (-row["high"], -row["low"], row["level"]) == pytest.approx(tuple(stated[["low", "high", "level"]]))
    (asked,) = [asked for asked in results.verdicts._families if len(asked.where) == 2]
    assert results.verdicts.of(asked) == results.verdicts.of(asked._replace(where=asked.where[::-1]))


# ---- one verdict -----------------------------------------------------------------------------------------------------


def test_the_interval_is_over_seeds_and_test_examples(tmp_path, read_suite):
    """Recomputed from the bits of the run: t over seeds, and the two-way layout of the examples."""
    rng = np.random.default_rng(0)
    odd = {name: rng.normal(size=300) for name in GAIN}

    def bits(cell):
        mine = np.random.default_rng([cell.seed, *cell.loss.name.encode()])
        return Truth(bits=1.5 + odd[cell.loss.name] + mine.normal(size=300) > 0)

    results = analyse([write_run(read_suite(FOUR), tmp_path, bits)])
    tables = {
        name: np.stack([bits(cell).bits for cell in results.cells if cell.loss.name == name]).astype(float)
        for name in GAIN
    }
    for loss in LOSSES:
        gaps = 100 * (tables[loss] - tables["softmax"])
        means = gaps.mean(axis=1)
        noise_of = stats.example_error(gaps)
        assert noise_of > 1
        half = math.hypot(
            scipy.stats.t.ppf(1 - 0.05 / 6, 5) * means.std(ddof=1) / math.sqrt(6),
            scipy.stats.norm.ppf(1 - 0.05 / 6) * noise_of,
        )
        row = results.comparisons.query("metric == 'accuracy'").set_index("loss").loc[loss]
        assert (row["delta"], row["high"] - row["delta"]) == pytest.approx((means.mean(), half), rel=1e-5)
        assert row["test_se"] == pytest.approx(noise_of, rel=1e-5)
        assert row["seed_se"] == pytest.approx(means.std(ddof=1) / math.sqrt(6), rel=1e-5)


def test_the_noise_of_a_mean_over_points_of_one_test_set_adds_up_example_by_example(tmp_path, read_suite):
    """Two widths are tested on the same images: an image that one loss finds hard counts at both."""
    odd = np.random.default_rng(1).normal(size=200)

    def bits(cell):
        mine = np.random.default_rng([cell.seed, cell.width, *cell.loss.name.encode()])
        shared = odd if cell.loss.name == "center" else 0
        return Truth(bits=1.5 + shared + mine.normal(size=200) > 0)

    text = FOUR.replace("widths = [8]", "widths = [4, 8]")
    results = analyse([write_run(read_suite(text + claim('better = "center"\nthan = "softmax"')), tmp_path, bits)])
    of = {(cell.width, cell.loss.name, cell.seed): bits(cell).bits for cell in results.cells}
    gaps = [
        np.mean([100.0 * of[w, "center", seed] - 100.0 * of[w, "softmax", seed] for w in (4, 8)], axis=0)
        for seed in range(6)
    ]
    (asked,) = [asked for asked in results.verdicts._families if len(asked.where) == 2]
    assert results.verdicts.of(asked).test_se == pytest.approx(stats.example_error(np.stack(gaps)), rel=1e-5)


@pytest.mark.parametrize(("sign", "word"), [(1, "better"), (-1, "worse")])
def test_a_larger_value_is_better_or_worse_as_the_metric_says(sign, word):
    a, b = np.array([2.0, 2.1, 1.9, 2.05, 1.95, 2.2]), np.zeros(6)
    found, turned = judged(Contrast(a, b, ""), 0.05, 0.5, sign), judged(Contrast(b, a, ""), 0.05, 0.5, sign)
    assert found.verdict == word
    assert {found.verdict, turned.verdict} == {"better", "worse"}
    assert (found.worst, turned.worst) == ((1.9, -2.2) if sign > 0 else (2.2, -1.9))  # least in its favour
    assert (found.delta, found.low) == pytest.approx((-turned.delta, -turned.high))


def test_verdicts_of_metrics_where_lower_is_better_have_their_direction(read_suite):
    results = analysed(read_suite(FOUR.replace("seeds = 6", "seeds = 8")), truth)
    angle = results.comparisons.query("metric == 'angle'").set_index("loss").loc["w_softmax"]
    assert angle["delta"] < 0 and angle["verdict"] == "better"


def test_times_are_compared_as_ratios_and_stated_in_percent():
    logs = np.log([1.10, 1.12, 1.09, 1.11, 1.10])
    found = judged(Contrast(logs, np.zeros(5), "%", logarithms=True), 0.05, 0.0, -1)
    ratio = stats.paired(logs, np.zeros(5))
    assert (found.delta, found.low, found.high) == pytest.approx(
        tuple(100 * (math.exp(value) - 1) for value in (ratio.delta, ratio.low, ratio.high))
    )
    assert found.verdict == "worse"  # slower
    assert found.seed_se == pytest.approx(100 * math.expm1(ratio.sd / math.sqrt(5)))


def test_a_margin_of_percent_is_read_off_the_interval_in_percent():
    """4.9 % faster is within ±5 %, though log 0.951 is further from 0 than log 1.05."""
    logs = np.log(0.951) + 1e-5 * np.array([-1, 0, 1, 0.5, -0.5])
    found = judged(Contrast(logs, np.zeros(5), "%", logarithms=True), 0.05, 5.0, -1)
    assert -5 < found.low < found.high < -4.8
    assert found.verdict == "equivalent"


def test_nothing_is_not_testable_and_two_seeds_are_undecided():
    none, two = (judged(Contrast(np.ones(n), np.zeros(n), ""), 0.05, 0.0, 1) for n in (0, 2))
    assert (none.verdict, none.flags, none.seeds_needed) == ("not testable", (), None)
    assert (two.verdict, two.delta, two.flags) == ("undecided", 1.0, ())


# ---- trends ----------------------------------------------------------------------------------------------------------

X = np.arange(4.0)


def table(shape, seeds=6, spread=0.05):
    rng = np.random.default_rng(3)
    return np.asarray(shape) + rng.normal(size=(seeds, 1)) + spread * rng.normal(size=(seeds, len(shape)))


@pytest.mark.parametrize(
    ("shape", "up", "down"),
    [
        ((0, 1, 2, 3), "supported", "contradicted"),
        ((3, 2, 1, 0), "contradicted", "supported"),
        ((0, 2, 4, 3), "undecided", "contradicted"),  # its last step falls beyond the margin
        ((0, -1, 2, 3), "undecided", "contradicted"),
        ((0, 1, 0.8, 2), "supported", "contradicted"),  # a step back within the margin
        ((0, 0.1, 0.1, 0.2), "contradicted", "contradicted"),  # changes by less than the margin
        ((0, 3, 3, 0), "contradicted", "contradicted"),  # as much up as down: its slope is flat
    ],
)
def test_a_trend_is_supported_if_every_step_follows_up_to_the_margin(shape, up, down):
    found = [judged_trend(X, table(shape), way, 0.05, 0.5) for way in (1, -1)]
    assert [one.word for one in found] == [up, down]
    assert not any(one.fragile for one in found)


def test_two_values_are_enough_for_a_trend():
    assert judged_trend(X[:2], table((0, 2)), 1, 0.05, 0.5).word == "supported"
    assert judged_trend(X[:2], table((0, 2)), -1, 0.05, 0.5).word == "contradicted"
    assert judged_trend(X[:2], table((0, 0.1)), 1, 0.05, 0.5).word == "contradicted"


def test_without_a_margin_every_step_must_follow():
    assert judged_trend(X, table((0, 1, 2, 3)), 1, 0.05, 0.0).word == "supported"
    assert judged_trend(X, table((0, 1, 1, 3)), 1, 0.05, 0.0).word == "undecided"
    exact = np.tile([16.0, 32.0, 64.0, 128.0], (3, 1))  # bytes, which no seed changes
    found = judged_trend(X, exact, 1, 0.05, 0.0)
    assert (found.word, found.fragile) == ("supported", False)
    assert judged_trend(X, np.tile([16.0, 32.0, 32.0, 128.0], (3, 1)), 1, 0.05, 0.0).word == "supported"


def test_a_step_back_counts_with_the_noise_of_its_test_examples():
    shape = (0, 1, 0.9, 2)
    assert judged_trend(X, table(shape), 1, 0.05, 0.5).word == "supported"
    assert judged_trend(X, table(shape), 1, 0.05, 0.5, step_noise=[0, 0.3, 0]).word == "undecided"


def test_a_trend_that_one_seed_decides_is_flagged():
    rows = table((0, 1, 2, 3))
    rows[2] = rows[2, 0] + np.array([0, 1, -0.5, 2])
    found = judged_trend(X, rows, 1, 0.05, 0.5)
    assert (found.word, found.fragile) == ("supported", True)
    assert judged_trend(X, table((0, 1, 2, 3), seeds=3), 1, 0.05, 0.5).fragile


def test_a_trend_claim_says_where_it_goes_back(read_suite):
    text = FOUR.replace("widths = [8]", "widths = [4, 8, 16, 32]")
    heights = {4: 0.0, 8: 2.0, 16: 4.0, 32: 2.5}

    def rises(cell):
        return Truth(80 + common(cell.seed) + heights[cell.width] + noise(cell, 0.05))

    row = analysed(read_suite(text + claim('increases_with = "width"\nloss = "center"')), rises).claims.iloc[0]
    assert row["verdict"] == "undecided" and row["low"] > 0
    assert row["evidence"].startswith("rises overall over width = 4, 8, 16, 32, but may go back by 1.6")
    assert row["evidence"].endswith("points from width = 16 to 32")
    assert pd.isna(row["seeds_needed"])


def test_asking_the_other_way_round_turns_the_sides():
    asked = Asked("accuracy", (), "a", "b")
    assert asked.flipped == Asked("accuracy", (), "b", "a")
