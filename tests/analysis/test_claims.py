"""Claims: every form is judged by what the records say, and one that no cell can answer is refused."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from conftest import SMALL
from kit.claims import GRID, claim, truth
from kit.synthetic import Truth, analysed

from lossbench.analysis.claim_tests import losses
from lossbench.analysis.claims import outcomes
from lossbench.core.errors import SuiteError

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
    "a gain that does not": ('increases_with = "classes"\nloss = "center"\nthan = "softmax"', "contradicted"),
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
    "at one width and number of classes": (
        'better = "center"\nthan = "softmax"\nwidth = 8\nclasses = 6',
        "contradicted",
    ),
}
TIMES = {
    "w_softmax[alpha=0.5]": 1.1,
    "w_softmax[alpha=1.0]": 1.2,
    "w_softmax[alpha=1.5]": 1.3,
    "w_softmax[alpha=2.0]": 1.4,
}


@pytest.fixture(scope="module")
def results(read_suite):
    suite = read_suite(GRID + "".join(claim(body).replace('"t"', f'"{name}"') for name, (body, _) in CASES.items()))
    return analysed(suite, truth, times=TIMES)


@pytest.mark.parametrize("case", CASES)
def test_a_claim_is_judged_by_the_truth_of_the_records(case, results):
    row = results.claims.set_index("text").loc[case]
    assert row["verdict"] == CASES[case][1], row.to_dict()
    assert row["evidence"]


def test_an_open_claim_says_how_many_seeds_it_needs_and_a_settled_one_does_not(results):
    for row in results.claims.to_dict("records"):
        if row["verdict"] != "undecided":
            assert pd.isna(row["seeds_needed"]) and pd.isna(row["seeds_needed_high"]), row["text"]


def test_an_open_claim_asks_for_the_seeds_that_would_settle_it(read_suite):
    """Power of the t test by its definition: at the fewest seeds it reaches 80 %, at one fewer it does not."""
    text = SMALL.replace('"w_softmax"]', '"w_softmax", "center"]').replace("seeds = 2", "seeds = 5")
    suite = read_suite(text + claim('better = "center"\nthan = "softmax"'))
    gains = (2.0, -0.5, 1.5, -0.2, 1.0)
    found = analysed(suite, lambda cell: Truth(90 + gains[cell.seed] * (cell.loss.name == "center")))
    row = found.claims.iloc[0]
    assert row["verdict"] == "undecided" and 5 < row["seeds_needed"] < row["seeds_needed_high"]
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
    row = results.claims.set_index("text").loc["a gain that grows with the classes"]
    low, high = scipy.stats.t.interval(1 - row["level"], 5, np.mean(slopes), scipy.stats.sem(slopes))
    assert (row["delta"], row["low"], row["high"]) == pytest.approx((np.mean(slopes), low, high), abs=1e-6)
    assert row["n"] == 6
    assert row["unit"] == "points per doubling of classes"


def test_a_claim_is_about_its_own_values_width_and_classes(results):
    claims = results.claims.set_index("text")
    assert "over alpha = 0.5, 1, 2 " in claims.loc["an option, some values"]["evidence"]
    frame = results.trained
    frame = frame[(frame["width"] == 8) & (frame["classes"] == 6)]
    mean = frame.groupby("label")["accuracy"].mean()
    delta = claims.loc["at one width and number of classes"]["delta"]
    assert delta == pytest.approx(mean["center"] - mean["softmax"])


def test_intervals_of_claims_are_simultaneous_over_their_family(results):
    """One family: as many intervals as comparisons, trends, and further values of claims of no change."""
    claims = results.info.claims
    pairs = {(c.metric, c.than_metric, c.width, *sorted(losses(c))) for c in claims if not c.along}
    further = sum(3 if c.along == "alpha" else len(c.values) - 1 for c in claims if c.unchanged_with)
    trends = sum(bool(c.along and not c.unchanged_with) for c in claims)
    assert set(results.claims["level"]) == {0.05 / (len(pairs) + further + trends)}
    adjusted = (results.claims["p"] * 0.05 / results.claims["level"]).clip(upper=1)
    assert list(results.claims["p_adjusted"]) == pytest.approx(list(adjusted))


def test_rounds_of_several_timing_cells_are_averaged_not_strung_together(results):
    """Four widths × four numbers of classes have a timing cell each; a claim over them still has five processes."""
    row = results.claims.set_index("text").loc["time"]
    assert row["n"] == 5
    assert len(results.timed) == 16
    ratios = []
    for _, rounds, notes in results.timed:
        rounds_of = np.log(rounds["w_softmax[alpha=1.0]"]) - np.log(rounds["softmax"])
        ratios.append([rounds_of[np.array(notes["process"]) == process].mean() for process in range(5)])
    means = np.mean(ratios, axis=0)
    ends = scipy.stats.t.interval(1 - row["level"], 4, means.mean(), scipy.stats.sem(means))
    assert (row["delta"], row["low"], row["high"]) == pytest.approx(tuple(100 * np.expm1([means.mean(), *ends])))


def test_a_trend_of_step_times_is_one_over_processes(results):
    row = results.claims.set_index("text").loc["time along an option"]
    timed = [(np.array(cell.process), cell.rounds) for cell in results.timed]
    alphas = (0.5, 1.0, 1.5, 2.0)

    def slope(process: int) -> float:
        logs = [
            np.mean([np.log(rounds[f"w_softmax[alpha={alpha}]"])[of == process].mean() for of, rounds in timed])
            for alpha in alphas
        ]
        return np.polyfit(alphas, 100 * np.array(logs), 1)[0]

    slopes = [slope(process) for process in range(5)]
    interval = scipy.stats.ttest_1samp(slopes, 0.0).confidence_interval(1 - row["level"])
    assert row["n"] == 5
    assert list(row[["delta", "low", "high"]]) == pytest.approx([np.mean(slopes), *interval])


def test_seeds_are_complete_along_a_trend(read_suite):
    suite = read_suite(GRID + claim('decreases_with = "alpha"\nloss = "w_softmax"\nwidth = 8\nclasses = 10'))

    def gaps(cell):
        return None if cell.seed == 2 and cell.loss.options.get("alpha") == 1.5 else truth(cell)

    row = analysed(suite, gaps).claims.iloc[0]
    assert row["n"] == 5


def test_a_trend_of_which_one_value_was_run_is_not_testable(read_suite):
    suite = read_suite(
        GRID
        + claim('decreases_with = "alpha"\nloss = "w_softmax"')
        + claim('increases_with = "width"\nloss = "softmax"')
    )
    frame = analysed(suite, lambda cell: truth(cell) if cell.width == 8 else None).claims
    assert list(frame["verdict"]) == ["not testable", "not testable"]  # alpha varies at every width
    assert frame["evidence"][0].startswith("no result at C = 4, M = 4; ")
    assert frame["evidence"][1].startswith("only 1 value of width was run; no result at C = 4, M = 4; ")


def interval(sample, level):
    """The t interval of a mean, by hand; a spread below one test image in 10,000 counts as that."""
    half = scipy.stats.t.ppf(1 - level / 2, len(sample) - 1) * max(sample.std(ddof=1), 0.01) / math.sqrt(len(sample))
    return sample.mean() - half, sample.mean() + half


def test_unchanged_is_judged_by_the_worst_of_the_widths(results):
    """Recomputed from the records: at each further width against the least, the one furthest out is shown."""
    frame = results.records[(results.records["kind"] == "train") & (results.records["label"] == "softmax")]
    mean = frame.groupby(["seed", "width"])["accuracy"].mean().unstack("width")
    wider = mean[16] - mean[4]
    row = results.claims.set_index("text").loc["changed by one step in three"]
    assert row["delta"] == pytest.approx(wider.mean())
    assert (row["low"], row["high"]) == pytest.approx(interval(wider, row["level"]))
    assert row["evidence"].startswith("width = 8, 16 against 4: at 16 the interval lies outside ±0.6 points")
    within = results.claims.set_index("text").loc["unchanged within a wide margin"]
    low, high = interval(mean[16] - mean[8], row["level"])
    assert (within["low"], within["high"]) == pytest.approx((low, high)) and -0.6 < low < high < 0.6
    assert within["evidence"].startswith("width = 16 against 8: at 16 the interval lies within ±0.6 points")


def test_as_good_but_for_the_margin_is_read_off_the_interval(results):
    frame = results.records[results.records["kind"] == "train"]
    frame = frame[frame["width"].isin([4, 8, 16]) | (frame["width"] == frame["classes"] - 1)]
    mean = frame.groupby(["label", "seed"])["accuracy"].mean()
    claims = results.claims.set_index("text")
    low, high = interval(mean["w_softmax[alpha=2.0]"] - mean["softmax"], claims["level"].iloc[0])
    assert -0.5 < low < high < -0.1
    for case, said in (
        ("worse, but within the margin", "at most 0.5 points worse"),
        ("worse by more than the margin", "worse by more than 0.1 points"),
    ):
        assert (claims.loc[case]["low"], claims.loc[case]["high"]) == pytest.approx((low, high))
        assert claims.loc[case]["evidence"].startswith(said)


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


def test_a_claim_speaks_of_losses_as_the_profile_writes_them(read_suite):
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
    assert list(analysed(short, truth).claims["n"]) == [4, 4]


def test_claims_without_records_count_in_no_family(read_suite):
    bodies = (
        'not_worse = "center"\nthan = "softmax"',
        'unchanged_with = "width"\nloss = "center"',
        'equivalent = ["center", "softmax"]',
    )
    suite = read_suite(GRID + "".join(map(claim, bodies)) + claim('better = "softmax"\nthan = "w_softmax[alpha=2.0]"'))
    frame = analysed(suite, lambda cell: None if cell.loss.name == "center" else truth(cell)).claims
    assert list(frame["evidence"][:3]) == ["not run"] * 3 and frame["p_adjusted"][:3].isna().all()
    assert list(frame["verdict"][:3]) == ["not testable"] * 3
    assert frame["level"][3] == 0.05 and frame["p_adjusted"][3] == frame["p"][3]


def test_families_are_adjusted_by_themselves(read_suite):
    body = 'better = "w_softmax[alpha={}]"\nthan = "softmax"\nfamily = "{}"'
    suite = read_suite(GRID + "".join(claim(body.format(*case)) for case in ((0.5, "a"), (1.0, "a"), (1.5, "b"))))
    frame = analysed(suite, truth).claims
    assert list(frame["level"]) == [0.025, 0.025, 0.05]
    assert list(frame["p_adjusted"]) == pytest.approx([2 * frame["p"][0], 2 * frame["p"][1], frame["p"][2]])


def test_cases_of_one_statement_are_counted(read_suite):
    body = 'better = ["center", "w_softmax[alpha=0.5]", "w_softmax[alpha=2.0]"]\nthan = "softmax"'
    other = claim('equivalent = ["center", "softmax"]').replace('"t"', '"u"')
    suite = read_suite(GRID + claim(body) + other)
    assert outcomes(analysed(suite, truth).claims) == {"t": {"supported": 1, "contradicted": 2}, "u": {"supported": 1}}
    some = analysed(suite, lambda cell: None if cell.loss.name == "center" else truth(cell))
    assert outcomes(some.claims) == {
        "t": {"not run": 1, "supported": 1, "contradicted": 1},
        "u": {"not run": 1},
    }


def test_a_note_stands_once_below_the_verdicts(read_suite):
    from lossbench.report.sections.claims import claims

    body = 'better = ["center", "w_softmax[alpha=0.5]"]\nthan = "softmax"\nnote = "It is known why."'
    suite = read_suite(GRID + claim(body) + claim('equivalent = ["center", "softmax"]'))
    counted, _, note = claims(analysed(suite, truth)).blocks
    assert note.text == "“t”: It is known why." and len(counted.rows) == 1  # both claims have one text


def test_every_claim_leads_to_the_cells_that_it_is_about(results):
    from lossbench.analysis.claims import cells_behind

    by_text = {claim.text: cells_behind(results, claim) for claim in results.info.claims}
    assert all(by_text.values())
    trend = by_text["an option, some values"]
    assert list(dict.fromkeys(loss for _, loss in trend)) == [f"w_softmax[alpha={a}]" for a in (0.5, 1.0, 2.0)]
    gain = by_text["a gain that grows with the classes"]
    assert list(dict.fromkeys(loss for _, loss in gain)) == ["w_softmax[alpha=1.0]", "softmax"]
    assert {point["width"] for point, _ in by_text["unchanged within a wide margin"]} == {8, 16}
    assert {loss for _, loss in by_text["time"]} == {None}  # timing cells
    one = by_text["at one width and number of classes"]
    assert [(loss, point["width"], point["classes"]) for point, loss in one] == [("center", 8, 6), ("softmax", 8, 6)]
