"""Claims where cells are missing or failed, a profile writes its losses otherwise, or a family is large."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import SMALL
from kit.claims import GRID, claim, truth
from kit.synthetic import Truth, analysed, common, noise

from lossbench.analysis.claim_tests import NOT_RUN
from lossbench.analysis.claims import UNFINISHED, outcomes
from lossbench.core.errors import SuiteError
from lossbench.core.format import Claim

TREND = claim('decreases_with = "alpha"\nloss = "w_softmax"')


def test_a_loss_that_never_finished_is_told_from_one_that_was_not_run(read_suite):
    suite = read_suite(
        GRID + claim('better = ["center", "w_softmax[alpha=0.5]", "w_softmax[alpha=1.0]"]\nthan = "softmax"')
    )

    def came_to(cell):
        if cell.loss.name == "center":
            return None
        if cell.loss.label == "w_softmax[alpha=0.5]" and cell.width == 4:  # one of the widths that the claim is about
            return Truth(status="diverged")
        return truth(cell)

    results = analysed(suite, came_to)
    assert list(results.claims["evidence"][:2]) == [NOT_RUN, UNFINISHED]
    assert list(results.claims["verdict"]) == ["not testable", "not testable", "supported"]
    assert outcomes(results.claims) == {"t": {"not testable": 1, "not run": 1, "supported": 1}}


def test_times_along_an_option_without_any_round_are_not_run(read_suite):
    body = 'metric = "step_seconds"\n{} = "alpha"\nloss = "w_softmax"\nmargin = 5.0'
    trend = claim('metric = "step_seconds"\nincreases_with = "alpha"\nloss = "w_softmax"')
    suite = read_suite(GRID + trend + claim(body.format("unchanged_with")))
    results = analysed(suite, truth)
    without = results.records[results.records["kind"] != "timing"]
    results = type(results)(results.info, results.runs, results.cells, without, {})
    assert list(results.claims["evidence"]) == [NOT_RUN] * 2


def test_times_of_a_loss_that_a_profile_leaves_out_are_not_run(read_suite):
    """The timing cell of the others has a record."""
    stated = claim('metric = "step_seconds"\nbetter = "softmax"\nthan = "center"')
    short = "[profile.short.all]\nlosses = ['softmax', 'w_softmax']\n"
    for profile in ("short", None):
        results = analysed(read_suite(GRID + stated + short, profile), truth)
        assert (results.records["kind"] == "timing").any()
        assert (results.claims["evidence"][0] == NOT_RUN) == (profile == "short")
        assert results.claims["evidence"][0] != UNFINISHED


def test_a_trend_follows_all_variants_however_a_profile_writes_them(read_suite):
    text = GRID.replace(
        '{ name = "w_softmax", alpha = [0.5, 1.0, 1.5, 2.0] }',
        '"w_softmax", "w_softmax[alpha=0.5]", "w_softmax[alpha=2.0]"',
    )
    text += TREND + "[profile.short.all]\nlosses = ['softmax', { name = 'w_softmax', alpha = [0.5, 1.0, 2.0] }]\n"
    for profile in (None, "short"):
        results = analysed(read_suite(text, profile), truth)
        assert list(results.claims["verdict"]) == ["supported"], results.claims["evidence"][0]


def test_a_profile_in_which_a_trend_would_follow_two_options_is_refused(read_suite):
    losses = "['softmax', { name = 'w_softmax', alpha = [0.5, 1.0, 1.5], gradient = ['exact', 'fixed_bias'] }]"
    with pytest.raises(SuiteError, match=r"profile\.more: .*: variants of 'w_softmax' also differ in 'gradient'"):
        read_suite(GRID + TREND + f"[profile.more.all]\nlosses = {losses}\n")


def test_a_name_twice_in_a_list_and_an_option_without_a_name_are_refused(read_suite):
    with pytest.raises(SuiteError, match=r"claim\[0\]\.better: 'center' is listed twice"):
        read_suite(GRID + claim('better = ["center", "center"]\nthan = "softmax"'))
    with pytest.raises(SuiteError, match=r"claim\[0\]\.increases_with"):
        read_suite(GRID + claim('increases_with = ""\nloss = "w_softmax"'))


def test_a_larger_family_leaves_more_claims_open(read_suite):
    """The same records with one claim, and with twenty in its family."""

    def came_to(cell):
        return Truth(90 + common(cell.seed) + noise(cell, 0.25))

    widths = [claim(f'not_worse = "w_softmax"\nthan = "softmax"\nwidth = {width}') for width in range(4, 24)]
    text = SMALL.replace("seeds = 2", "seeds = 5").replace("widths = [8]", f"widths = {list(range(4, 24))}")
    together = analysed(read_suite(text + "".join(widths)), came_to).claims
    alone = [analysed(read_suite(text + one), came_to).claims.iloc[0] for one in widths]
    assert {one["level"] for one in alone} == {0.05} and set(together["level"]) == {0.05 / 20}
    assert [one["delta"] for one in alone] == list(together["delta"])
    assert (together["low"] < [one["low"] for one in alone]).all()
    settled = [one["verdict"] == "supported" for one in alone]
    assert sum(settled) > (together["verdict"] == "supported").sum() > 0
    assert all(was for was, word in zip(settled, together["verdict"], strict=True) if word == "supported")


@pytest.mark.parametrize(
    ("form", "gain", "spread", "word"),
    [
        ('equivalent = ["w_softmax", "softmax"]', 0.1, 0.5, "supported"),
        ('equivalent = ["w_softmax", "softmax"]', 1.2, 0.6, "contradicted"),
        ('not_worse = "w_softmax"\nthan = "softmax"', 0.0, 0.7, "supported"),
        ('not_worse = "w_softmax"\nthan = "softmax"', -1.2, 0.6, "contradicted"),
        ('better = "w_softmax"\nthan = "softmax"', 0.7, 0.6, "supported"),
    ],
)
def test_the_seeds_needed_settle_an_open_claim_the_way_it_looks(form, gain, spread, word, read_suite):
    """The margin is 0.5 points. Seeds repeat a pilot of five, whose mean and spread are exactly as given."""
    pilot = gain + spread * np.array([-1.2, -0.6, 0.0, 0.6, 1.2]) / np.std([-1.2, -0.6, 0.0, 0.6, 1.2], ddof=1)

    def judged(seeds):
        def came_to(cell):
            return Truth(90 + (cell.loss.name == "w_softmax") * pilot[cell.seed % 5])

        suite = read_suite(SMALL.replace("seeds = 2", f"seeds = {seeds}") + claim(form))
        return analysed(suite, came_to).claims.iloc[0]

    few = judged(5)
    assert few["verdict"] == "undecided"
    assert few["seeds_needed"] > 5
    assert judged(5 * -(-int(few["seeds_needed"]) // 5))["verdict"] == word


def test_a_claim_with_a_margin_of_its_own_plans_and_flags_by_it(read_suite):
    """The table's margin is 0.5 points, by which the losses are equivalent."""
    gains = 0.1 + 0.15 * np.array([-1.2, -0.6, 0.0, 0.6, 1.2])
    suite = read_suite(
        SMALL.replace("seeds = 2", "seeds = 5") + claim('equivalent = ["w_softmax", "softmax"]\nmargin = 0.25')
    )
    results = analysed(suite, lambda cell: Truth(90 + (cell.loss.name == "w_softmax") * gains[cell.seed]))
    row, table = results.claims.iloc[0], results.comparisons.set_index("metric").loc["accuracy"]
    assert (row["low"], row["high"]) == (table["low"], table["high"])
    assert (row["verdict"], table["verdict"]) == ("undecided", "equivalent")
    assert row["seeds_needed"] > 5 and pd.isna(table["seeds_needed"])


def test_the_note_of_a_claim_is_in_the_table_of_claims(read_suite):
    suite = read_suite(SMALL + claim('better = "w_softmax"\nthan = "softmax"\nnote = "Known."'))
    assert isinstance(suite.info.claims[0], Claim)
    assert list(analysed(suite, lambda cell: Truth()).claims["note"]) == ["Known."]
