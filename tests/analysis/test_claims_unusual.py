"""Claims where cells are missing or failed, a profile writes its losses otherwise, or a family outvotes an interval."""

from __future__ import annotations

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
    assert list(results.claims["verdict"][:2]) == ["undecided"] * 2
    assert outcomes(results.claims) == {"t": {NOT_RUN: 1, "undecided": 1, "supported": 1}}


def test_times_along_an_option_without_any_round_are_not_run(read_suite):
    body = 'metric = "step_seconds"\n{} = "alpha"\nloss = "w_softmax"\nmargin = 5.0'
    trend = claim('metric = "step_seconds"\nincreases_with = "alpha"\nloss = "w_softmax"')
    suite = read_suite(GRID + trend + claim(body.format("unchanged_with")))
    results = analysed(suite, truth)
    without = results.records[results.records["kind"] != "timing"]
    results = type(results)(results.info, results.runs, results.cells, without, {})
    assert list(results.claims["evidence"]) == [NOT_RUN] * 2


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


def test_where_only_the_family_leaves_a_claim_open_the_evidence_says_so(read_suite):
    def came_to(cell):
        return Truth(90 + common(cell.seed) + noise(cell, 0.25))

    widths = "".join(claim(f'not_worse = "w_softmax"\nthan = "softmax"\nwidth = {width}') for width in range(4, 24))
    text = SMALL.replace("seeds = 2", "seeds = 5").replace("widths = [8]", f"widths = {list(range(4, 24))}")
    found = analysed(read_suite(text + widths), came_to).claims
    outvoted = found[(found["p"] < 0.05) & (found["p_holm"] >= 0.05)]
    assert len(outvoted)
    for row in outvoted.to_dict("records"):
        assert row["verdict"] == "undecided"
        assert row["evidence"].endswith("but not after adjustment over its family")


@pytest.mark.parametrize(("gain", "spread", "word"), [(0.0, 0.3, "supported"), (1.5, 0.4, "contradicted")])
def test_seeds_needed_decide_an_open_equivalence_the_way_it_looks(gain, spread, word, read_suite):
    """The margin is 0.5 points, and three seeds tell neither that it is kept nor that it is not."""

    def judged(seeds):
        def came_to(cell):
            return Truth(90 + (cell.loss.name == "w_softmax") * gain + noise(cell, spread))

        body = claim('equivalent = ["w_softmax", "softmax"]')
        suite = read_suite(SMALL.replace("seeds = 2", f"seeds = {seeds}") + body)
        return analysed(suite, came_to).claims.iloc[0]

    few = judged(3)
    assert few["verdict"] == "undecided"
    assert judged(2 * int(few["seeds_needed"]))["verdict"] == word


def test_the_note_of_a_claim_is_in_the_table_of_claims(read_suite):
    suite = read_suite(SMALL + claim('better = "w_softmax"\nthan = "softmax"\nnote = "Known."'))
    assert isinstance(suite.info.claims[0], Claim)
    assert list(analysed(suite, lambda cell: Truth()).claims["note"]) == ["Known."]
