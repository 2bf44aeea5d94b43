"""Claims: every form is judged by what the records say, and one that no cell can answer is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from conftest import SMALL
from synthetic import Truth, common, noise, write_run

from lossbench.analysis.results import analyse
from lossbench.core.errors import SuiteError

GRID = (
    SMALL.replace('"w_softmax"]', '{ name = "w_softmax", alpha = [0.5, 1.0, 1.5, 2.0] }, "center"]')
    .replace("seeds = 2", "seeds = 6\nclasses = [4, 6, 8, 10]\ntiming = { rounds = 9 }")
    .replace("widths = [8]", 'widths = [4, 8, 16, "min"]')
)


def claim(body: str) -> str:
    return f'\n[[claim]]\ntext = "t"\nexperiment = "digits"\n{body}\n'


def truth(cell):
    """Accuracy falls with alpha by 1 a unit and rises with width by 0.5 a doubling; the gain of w_softmax[alpha=1.0]
    over softmax is k/10 points; center equals softmax; the angle is larger on test by 2 degrees."""
    gain = 0.0
    if cell.loss.name == "w_softmax":
        gain = cell.classes / 10 + 1 - cell.loss.options["alpha"]
    accuracy = 85 + common(cell.seed) + 0.5 * math.log2(cell.width) + gain + noise(cell, 0.02)
    slow = 20 if cell.loss.name == "w_softmax" else 10
    curve = tuple({"step": step, "loss": math.exp(-step / slow)} for step in range(1, 101))
    return Truth(accuracy, angle=40 + noise(cell, 0.3), angle_train=38 + noise(cell, 0.3), curve=curve)


CASES = {
    "an option, the right way": ('decreases_with = "alpha"\nloss = "w_softmax"', "supported"),
    "an option, the wrong way": ('increases_with = "alpha"\nloss = "w_softmax"', "contradicted"),
    "an option, some values": (
        'decreases_with = "alpha"\nloss = "w_softmax"\nvalues = [0.5, 1, 2]',
        "supported",
    ),
    "the width": ('increases_with = "width"\nloss = "softmax"', "supported"),
    "the width, some of them": ('decreases_with = "width"\nloss = "softmax"\nvalues = [4, 8, 16]', "contradicted"),
    "a gain that grows with the classes": (
        'increases_with = "classes"\nloss = "w_softmax[alpha=1.0]"\nthan = "softmax"',
        "supported",
    ),
    "a gain that does not": ('increases_with = "classes"\nloss = "center"\nthan = "softmax"', "undecided"),
    "equal losses": ('equivalent = ["center", "softmax"]', "supported"),
    "unequal losses": ('equivalent = ["w_softmax[alpha=2.0]", "w_softmax[alpha=0.5]"]', "contradicted"),
    "unequal, but within a wide margin": (
        'equivalent = ["w_softmax[alpha=2.0]", "w_softmax[alpha=0.5]"]\nmargin = 3.0',
        "supported",
    ),
    "angles on train and test": (
        'metric = "angle_train"\nbetter = "softmax"\nthan_metric = "angle"',
        "supported",
    ),
    "angles the other way round": (
        'metric = "angle"\nbetter = "softmax"\nthan_metric = "angle_train"',
        "contradicted",
    ),
    "slower learning": (
        'metric = "steps_to_converge"\nbetter = "softmax"\nthan = "w_softmax[alpha=1.0]"',
        "supported",
    ),
    "memory": ('metric = "fc_bytes"\nincreases_with = "width"\nloss = "softmax"', "supported"),
    "time": ('metric = "step_seconds"\nbetter = "w_softmax[alpha=1.0]"\nthan = "softmax"', "contradicted"),
    "time along an option": (
        'metric = "step_seconds"\nincreases_with = "alpha"\nloss = "w_softmax"',
        "supported",
    ),
    "equal times": ('metric = "step_seconds"\nequivalent = ["center", "softmax"]\nmargin = 5.0', "supported"),
    "as good": ('not_worse = "center"\nthan = "softmax"', "supported"),
    "better is not worse": ('not_worse = "w_softmax[alpha=0.5]"\nthan = "softmax"', "supported"),
    "worse, but within the margin": ('not_worse = "w_softmax[alpha=2.0]"\nthan = "softmax"', "supported"),
    "worse by more than the margin": (
        'not_worse = "w_softmax[alpha=2.0]"\nthan = "softmax"\nmargin = 0.1',
        "contradicted",
    ),
    "no longer": ('metric = "step_seconds"\nnot_worse = "center"\nthan = "softmax"\nmargin = 3.0', "supported"),
    "longer": (
        'metric = "step_seconds"\nnot_worse = "w_softmax[alpha=1.5]"\nthan = "softmax"\nmargin = 3.0',
        "contradicted",
    ),
    "a shorter time is not worse": (
        'metric = "step_seconds"\nnot_worse = "softmax"\nthan = "w_softmax[alpha=1.5]"\nmargin = 3.0',
        "supported",
    ),
    "unchanged within a wide margin": (
        'unchanged_with = "width"\nloss = "softmax"\nvalues = [8, 16]\nmargin = 0.6',
        "supported",
    ),
    "changed by one step in three": (
        'unchanged_with = "width"\nloss = "softmax"\nvalues = [4, 8, 16]\nmargin = 0.6',
        "contradicted",
    ),
    "a gain that is the same at every width": (
        'unchanged_with = "width"\nloss = "w_softmax[alpha=1.0]"\nthan = "softmax"\nvalues = [4, 8, 16]',
        "supported",
    ),
    "the angle along an option": (
        'metric = "angle"\nunchanged_with = "alpha"\nloss = "w_softmax"\nmargin = 1.0',
        "supported",
    ),
    "a time that changes": (
        'metric = "step_seconds"\nunchanged_with = "alpha"\nloss = "w_softmax"\nmargin = 5.0',
        "contradicted",
    ),
    "at one width and number of classes": ('better = "center"\nthan = "softmax"\nwidth = 8\nclasses = 6', "undecided"),
}
TIMES = {
    "w_softmax[alpha=0.5]": 1.1,
    "w_softmax[alpha=1.0]": 1.2,
    "w_softmax[alpha=1.5]": 1.3,
    "w_softmax[alpha=2.0]": 1.4,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory, read_suite):
    suite = read_suite(GRID + "".join(claim(body).replace('"t"', f'"{name}"') for name, (body, _) in CASES.items()))
    return analyse([write_run(suite, tmp_path_factory.mktemp("claims"), truth, times=TIMES)])


@pytest.mark.parametrize("case", CASES)
def test_a_claim_is_judged_by_the_truth_of_the_records(case, results):
    row = results.claims.set_index("text").loc[case]
    assert row["verdict"] == CASES[case][1], row.to_dict()
    assert row["evidence"]


def test_an_open_claim_says_how_many_seeds_it_needs_and_a_settled_one_does_not(results):
    for row in results.claims.to_dict("records"):
        if row["verdict"] != "undecided":
            assert row["seeds_needed"] is None or np.isnan(row["seeds_needed"]), row["text"]


def test_an_open_claim_asks_for_the_seeds_that_would_settle_it(tmp_path, read_suite):
    """Power of the t test by its definition: at the seeds named it reaches 80 %, at one fewer it does not."""
    text = SMALL.replace('"w_softmax"]', '"w_softmax", "center"]').replace("seeds = 2", "seeds = 5")
    suite = read_suite(text + claim('better = "center"\nthan = "softmax"'))
    gains = (2.0, -0.5, 1.5, -0.2, 1.0)
    run = write_run(suite, tmp_path, lambda cell: Truth(90 + gains[cell.seed] * (cell.loss.name == "center")))
    found = analyse([run])
    row = found.claims.iloc[0]
    assert row["verdict"] == "undecided" and row["seeds_needed"] > 5
    accuracy = found.trained.pivot_table(index="seed", columns="label", values="accuracy", aggfunc="first")
    difference = (accuracy["center"] - accuracy["softmax"]).astype(float)
    dz = abs(difference.mean()) / difference.std(ddof=1)

    def power(n):
        critical = scipy.stats.t.ppf(0.975, n - 1)
        return scipy.stats.nct.sf(critical, n - 1, dz * n**0.5) + scipy.stats.nct.cdf(-critical, n - 1, dz * n**0.5)

    assert power(row["seeds_needed"]) >= 0.8 > power(row["seeds_needed"] - 1)


def test_a_slope_is_that_of_the_seeds_own_slopes(results):
    """Recomputed from the records: the gain of w_softmax[alpha=1.0] over softmax, a doubling of the classes."""
    frame = results.records[(results.records["kind"] == "train") & results.records["width"].isin([4, 8, 16])]
    mean = frame.groupby(["label", "seed", "classes"])["accuracy"].mean().unstack("classes")
    gain = mean.loc["w_softmax[alpha=1.0]"] - mean.loc["softmax"]
    slopes = [np.polyfit(np.log2([4, 6, 8, 10]), row, 1)[0] for row in gain.to_numpy()]
    low, high = scipy.stats.t.interval(0.95, 5, np.mean(slopes), scipy.stats.sem(slopes))
    row = results.claims.set_index("text").loc["a gain that grows with the classes"]
    assert (row["delta"], row["low"], row["high"]) == pytest.approx((np.mean(slopes), low, high), abs=1e-6)
    assert row["n"] == 6
    assert row["unit"] == "points per doubling of classes"


def test_a_claim_is_about_its_own_values_width_and_classes(results):
    claims = results.claims.set_index("text")
    assert "alpha = 0.5, 1, 2," in claims.loc["an option, some values"]["evidence"]
    frame = results.trained
    frame = frame[(frame["width"] == 8) & (frame["classes"] == 6)]
    mean = frame.groupby("label")["accuracy"].mean()
    delta = claims.loc["at one width and number of classes"]["delta"]
    assert delta == pytest.approx(mean["center"] - mean["softmax"])


def test_p_values_of_claims_are_adjusted_over_all_claims(results):
    from statsmodels.stats.multitest import multipletests

    adjusted = multipletests(results.claims["p"], method="holm")[1]
    assert list(results.claims["p_holm"]) == pytest.approx(list(adjusted))


def test_rounds_of_several_timing_cells_are_averaged_not_strung_together(results):
    """Four widths × four numbers of classes have a timing cell each; a claim over them still has nine rounds."""
    row = results.claims.set_index("text").loc["time"]
    assert row["n"] == 9
    ratios = [np.log(rounds["w_softmax[alpha=1.0]"]) - np.log(rounds["softmax"]) for _, rounds in results.timings()]
    assert len(ratios) == 16
    assert row["delta"] == pytest.approx(100 * (np.exp(np.mean(ratios)) - 1))


def test_seeds_are_complete_along_a_trend(tmp_path, read_suite):
    suite = read_suite(GRID + claim('decreases_with = "alpha"\nloss = "w_softmax"\nwidth = 8\nclasses = 10'))

    def gaps(cell):
        return None if cell.seed == 2 and cell.loss.options.get("alpha") == 1.5 else truth(cell)

    row = analyse([write_run(suite, tmp_path, gaps)]).claims.iloc[0]
    assert row["n"] == 5


def test_a_trend_of_which_too_little_was_run_is_undecided(tmp_path, read_suite):
    suite = read_suite(
        GRID
        + claim('decreases_with = "alpha"\nloss = "w_softmax"')
        + claim('increases_with = "width"\nloss = "softmax"')
    )
    frame = analyse([write_run(suite, tmp_path, lambda cell: truth(cell) if cell.width == 8 else None)]).claims
    assert list(frame["verdict"]) == ["supported", "undecided"]  # alpha varies at every width
    assert frame["evidence"][1] == "only 1 values of width were run"


def one_sided(sample, bound) -> float:
    """P(T ≥ t) against `bound`, by hand; a spread below one test image in 10,000 counts as that."""
    t = (sample.mean() - bound) / (max(sample.std(ddof=1), 0.01) / math.sqrt(len(sample)))
    return float(scipy.stats.t.sf(t, len(sample) - 1))


def test_unchanged_is_judged_by_the_worst_of_the_widths(results):
    """Recomputed from the records: at each further width against the least, the largest difference is shown."""
    frame = results.records[(results.records["kind"] == "train") & (results.records["label"] == "softmax")]
    mean = frame.groupby(["seed", "width"])["accuracy"].mean().unstack("width")
    wider = mean[16] - mean[4]
    half = scipy.stats.t.ppf(0.975, 5) * max(wider.std(ddof=1), 0.01) / math.sqrt(6)
    row = results.claims.set_index("text").loc["changed by one step in three"]
    assert row["delta"] == pytest.approx(wider.mean())
    assert (row["low"], row["high"]) == pytest.approx((wider.mean() - half, wider.mean() + half))
    assert row["evidence"] == (
        "width = 8, 16 against 4: a 95 % interval outside ±0.6 points; the largest difference is at 16"
    )
    past = [one_sided(mean[width] - mean[4], 0.6) for width in (8, 16)]
    assert row["p"] == pytest.approx(2 * 2 * min(past), rel=1e-6)
    within = results.claims.set_index("text").loc["unchanged within a wide margin"]
    inside = one_sided(mean[8] - mean[16], -0.6)
    assert within["p"] == pytest.approx(inside, rel=1e-6)


def test_as_good_but_for_the_margin_is_a_one_sided_test(results):
    frame = results.records[results.records["kind"] == "train"]
    frame = frame[frame["width"].isin([4, 8, 16]) | (frame["width"] == frame["classes"] - 1)]
    mean = frame.groupby(["label", "seed"])["accuracy"].mean()
    difference = mean["w_softmax[alpha=2.0]"] - mean["softmax"]
    claims = results.claims.set_index("text")
    holds, fails = one_sided(difference, -0.5), one_sided(-difference, 0.1)
    assert claims.loc["worse, but within the margin"]["p"] == pytest.approx(holds, rel=1e-6)
    assert claims.loc["worse by more than the margin"]["p"] == pytest.approx(2 * fails, rel=1e-6)
    assert claims.loc["worse by more than the margin"]["evidence"] == "95 % interval: worse by more than 0.1 points"


def test_a_claim_with_lists_is_one_for_each_of_their_names(read_suite):
    two = GRID + GRID[GRID.index("[[experiment]]") :].replace('name = "digits"', 'name = "again"', 1)
    body = 'better = ["center", "w_softmax[alpha=1.0]"]\nthan = "softmax"'
    suite = read_suite(two + claim(body).replace('experiment = "digits"', 'experiment = ["digits", "again"]'))
    assert [(found.text, found.experiment, found.better) for found in suite.info.claims] == [
        ("t (digits, center)", "digits", "center"),
        ("t (digits, w_softmax[alpha=1.0])", "digits", "w_softmax[alpha=1.0]"),
        ("t (again, center)", "again", "center"),
        ("t (again, w_softmax[alpha=1.0])", "again", "w_softmax[alpha=1.0]"),
    ]
    with pytest.raises(SuiteError, match=r"claim\[0\].better: no cell produces|did you mean 'center'"):
        read_suite(GRID + claim('better = ["centre"]\nthan = "softmax"'))
    with pytest.raises(SuiteError, match=r"claim\[0\].loss: must be text or a list of at least one item"):
        read_suite(GRID + claim('increases_with = "alpha"\nloss = []'))


def test_a_claim_speaks_of_losses_as_the_profile_writes_them(tmp_path, read_suite):
    """The labels of a profile that leaves options out are shorter; the claims mean the same losses."""
    text = SMALL.replace('"w_softmax"]', '{ name = "w_softmax", alpha = [0.5, 1.0], gradient = ["exact"] }]')
    text = text.replace("seeds = 2", "seeds = 4")
    text += claim('better = "w_softmax[alpha=0.5]"\nthan = "softmax"') + claim(
        'equivalent = ["w_softmax[alpha=0.5]", "softmax"]\nmargin = 9.0'
    )
    text += "[profile.short.all]\nlosses = ['softmax', 'w_softmax[alpha=0.5]']\n"
    whole, short = read_suite(text), read_suite(text, "short")
    assert whole.info.claims[0].better == "w_softmax[alpha=0.5,gradient=exact]"
    assert short.info.claims[0].better == "w_softmax[alpha=0.5]"
    assert short.info.claims[1].equivalent == ["w_softmax[alpha=0.5]", "softmax"]
    assert list(analyse([write_run(short, tmp_path, truth)]).claims["n"]) == [4, 4]


def test_claims_without_records_count_in_no_family(tmp_path, read_suite):
    bodies = (
        'not_worse = "center"\nthan = "softmax"',
        'unchanged_with = "width"\nloss = "center"',
        'equivalent = ["center", "softmax"]',
    )
    suite = read_suite(GRID + "".join(map(claim, bodies)) + claim('better = "softmax"\nthan = "w_softmax[alpha=2.0]"'))
    run = write_run(suite, tmp_path, lambda cell: None if cell.loss.name == "center" else truth(cell))
    frame = analyse([run]).claims
    assert list(frame["evidence"][:3]) == ["not run"] * 3 and frame["p_holm"][:3].isna().all()
    assert frame["p_holm"][3] == frame["p"][3]


def test_families_are_adjusted_by_themselves(tmp_path, read_suite):
    body = 'better = "w_softmax[alpha={}]"\nthan = "softmax"\nfamily = "{}"'
    suite = read_suite(GRID + "".join(claim(body.format(*case)) for case in ((0.5, "a"), (1.0, "a"), (1.5, "b"))))
    frame = analyse([write_run(suite, tmp_path, truth)]).claims
    first, second, alone = frame["p"]
    assert frame["p_holm"][2] == alone
    assert min(frame["p_holm"][:2]) == pytest.approx(2 * min(first, second))


def test_cases_of_one_statement_are_counted(results, tmp_path, read_suite):
    from lossbench.report.sections import claims, findings

    assert len(claims(results).blocks) == 1  # every claim is a statement of its own
    body = 'better = ["center", "w_softmax[alpha=0.5]", "w_softmax[alpha=2.0]"]\nthan = "softmax"'
    other = claim('equivalent = ["center", "softmax"]').replace('"t"', '"u"')
    suite = read_suite(GRID + claim(body) + other)
    table, listed = claims(analyse([write_run(suite, tmp_path / "all", truth)])).blocks
    assert table.columns == ("statement", "supported", "contradicted", "undecided", "not run")
    assert table.rows == (("t", "1", "1", "1", "0"), ("u", "1", "0", "0", "0"))
    assert [row[0] for row in listed.rows] == [found.text for found in suite.info.claims]
    run = write_run(suite, tmp_path / "some", lambda cell: None if cell.loss.name == "center" else truth(cell))
    table, listed = claims(analyse([run])).blocks
    assert table.rows == (("t", "1", "1", "0", "1"), ("u", "0", "0", "0", "1"))
    assert [row[0] for row in listed.rows] == ["t (w_softmax[alpha=0.5])", "t (w_softmax[alpha=2.0])"]
    assert [places[0].loss for places in listed.places] == ["w_softmax[alpha=0.5]", "w_softmax[alpha=2.0]"]
    assert "; of 4 claims: 2 not run, 1 supported, 1 contradicted." in findings(analyse([run])).blocks[0].text


def test_a_note_stands_once_below_the_verdicts(tmp_path, read_suite):
    from lossbench.report.sections import claims

    body = 'better = ["center", "w_softmax[alpha=0.5]"]\nthan = "softmax"\nnote = "It is known why."'
    suite = read_suite(GRID + claim(body) + claim('equivalent = ["center", "softmax"]'))
    *_, last, note = claims(analyse([write_run(suite, tmp_path, truth)])).blocks
    assert note.text == "“t”: It is known why." and len(last.rows) == 3


def test_every_claim_leads_to_the_cells_that_it_is_about(results):
    from lossbench.analysis.claims import places

    by_text = {claim.text: places(results, claim) for claim in results.outline.claims}
    assert all(by_text.values())
    trend = by_text["an option, some values"]
    assert list(dict.fromkeys(place.loss for place in trend)) == [f"w_softmax[alpha={a}]" for a in (0.5, 1.0, 2.0)]
    gain = by_text["a gain that grows with the classes"]
    assert list(dict.fromkeys(place.loss for place in gain)) == ["w_softmax[alpha=1.0]", "softmax"]
    assert {place.width for place in by_text["unchanged within a wide margin"]} == {8, 16}
    assert {place.kind for place in by_text["time"]} == {"timing"}
    one = by_text["at one width and number of classes"]
    assert [(place.loss, place.width, place.classes) for place in one] == [("center", 8, 6), ("softmax", 8, 6)]


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
    "nothing stated": ("", ["claim[0]", "states nothing", "'equivalent'"]),
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
        ["claim[0].margin", "does not go with"],
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
        ["claim[0].loss", "differ in 'alpha' too"],
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
    "a trend over the width at a width": (
        'increases_with = "width"\nloss = "softmax"\nwidth = 8',
        ["claim[0].width", "does not go with a trend"],
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
    assert sentence.startswith("suite.toml: claim[0]")
    for part in expected:
        assert part in sentence, sentence


def test_the_schema_for_editors_knows_all_forms(registry):
    import jsonschema

    from lossbench.suite.reading import json_schema

    known = json_schema(registry)["$defs"]["ClaimText"]["properties"]
    assert {"better", "than", "than_metric", "equivalent", "margin", "increases_with", "loss", "values"} | {
        "not_worse",
        "unchanged_with",
    } <= set(known)
    jsonschema.Draft202012Validator.check_schema(json_schema(registry))
