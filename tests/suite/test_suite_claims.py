"""A claim that no cell can answer is refused before anything is trained."""

from __future__ import annotations

import pytest
from kit.claims import GRID, claim

from lossbench.core.errors import SuiteError

REFUSED = {
    "not worse than itself": ('not_worse = "center"\nthan = "center"', ["compares 'center' with itself"]),
    "not worse without than": ('not_worse = "center"', ["claim[0]", "needs the key 'than'"]),
    "no margin for what is unchanged": (
        'metric = "angle"\nunchanged_with = "width"\nloss = "softmax"',
        ["needs the key 'margin'", "degrees"],
    ),
    "unchanged with one value": (
        'unchanged_with = "alpha"\nloss = "w_softmax[alpha=0.5]"',
        ["claim[0].unchanged_with", "2 values", "0.5"],
    ),
    "nothing stated": ("", ["claim[0]", "needs one of the keys", "'equivalent'"]),
    "two forms": (
        'better = "center"\nthan = "softmax"\nequivalent = ["center", "softmax"]',
        ["both 'better' and 'equ"],
    ),
    "better without than": ('better = "center"', ["claim[0]", "needs the key 'than'"]),
    "three equivalents": ('equivalent = ["center", "softmax", "softmax"]', ["claim[0].equivalent", "at most 2 items"]),
    "better than itself": ('better = "center"\nthan = "center"', ["compares 'center' with itself"]),
    "equivalent to itself": ('equivalent = ["center", "center"]', ["with itself"]),
    "equivalent to nothing known": ('equivalent = ["centre", "softmax"]', ["equivalent[0]", "did you mean 'center'"]),
    "no margin": ('metric = "angle"\nequivalent = ["center", "softmax"]', ["needs the key 'margin'", "degrees"]),
    "margin with better": (
        'better = "center"\nthan = "softmax"\nmargin = 1.0',
        ["claim[0].margin", "cannot be combined with"],
    ),
    "a trend without a loss": ('increases_with = "alpha"', ["needs the key 'loss'"]),
    "a trend over no option": (
        'increases_with = "alhpa"\nloss = "w_softmax"',
        ["claim[0].increases_with", "no option 'alhpa'", "did you mean 'alpha'"],
    ),
    "a trend of too few values": (
        'increases_with = "alpha"\nloss = "w_softmax[alpha=0.5]"',
        ["claim[0].increases_with", "3 values", "0.5"],
    ),
    "a trend over words": (
        'increases_with = "gradient"\nloss = "w_softmax"',
        ["claim[0].loss", "also differ in 'alpha'"],
    ),
    "values that no cell has": (
        'increases_with = "alpha"\nloss = "w_softmax"\nvalues = [0.5, 1.0, 7.0]',
        ["claim[0].values[2]", "7.0", "0.5, 1, 1.5, 2"],
    ),
    "a width that its classes do not share": (
        'increases_with = "width"\nloss = "softmax"\nvalues = [4, 8, "min"]',
        ["claim[0].values[2]", "'min'", "4, 8, 16"],
    ),
    "a trend of times over widths": (
        'metric = "step_seconds"\nincreases_with = "width"\nloss = "softmax"',
        ["claim[0].metric", "within a timing cell"],
    ),
    "calibration without held-out images": (
        'metric = "ece_scaled"\nbetter = "center"\nthan = "softmax"',
        ["claim[0].metric", "'ece_scaled' needs the option 'holdout' of the dataset", "experiment 'digits' does not"],
    ),
    "time to target without scores": (
        'metric = "steps_to_target"\nbetter = "center"\nthan = "softmax"',
        ["claim[0].metric", "'steps_to_target' needs 'evaluations' in the schedule", "experiment 'digits' does not"],
    ),
    "a trend over the width at a width": (
        'increases_with = "width"\nloss = "softmax"\nwidth = 8',
        ["claim[0].width", "cannot be combined with a trend"],
    ),
    "metrics of different units": (
        'better = "center"\nthan_metric = "angle"',
        ["claim[0].than_metric", "another unit or direction"],
    ),
    "a number of classes that is not there": (
        'better = "center"\nthan = "softmax"\nclasses = 7',
        ["claim[0].classes", "known: 4, 6, 8, 10"],
    ),
    "a misspelt key": ('increase_with = "alpha"\nloss = "w_softmax"', ["unknown key", "'increases_with'"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_claim_that_no_cell_can_answer_is_refused(case, read_suite):
    body, expected = REFUSED[case]
    with pytest.raises(SuiteError) as refused:
        read_suite(GRID + claim(body))
    sentence = str(refused.value)
    assert sentence.startswith("suite.toml: claim[0]") and "\n" not in sentence
    for part in expected:
        assert part in sentence, sentence


def test_the_schema_for_editors_knows_all_forms(registry):
    import jsonschema

    from lossbench.suite.schema import json_schema

    known = json_schema(registry)["$defs"]["ClaimText"]["properties"]
    assert {"better", "than", "than_metric", "equivalent", "margin", "increases_with", "loss", "values"} | {
        "not_worse",
        "unchanged_with",
    } <= set(known)
    jsonschema.Draft202012Validator.check_schema(json_schema(registry))


def test_a_claim_about_calibration_is_read_where_images_are_held_out(read_suite):
    text = GRID.replace('dataset = "digits"', 'dataset = { name = "digits", holdout = 0.2 }')
    suite = read_suite(text + claim('metric = "ece_scaled"\nbetter = "center"\nthan = "softmax"'))
    assert suite.info.claims[0].metric == "ece_scaled"
