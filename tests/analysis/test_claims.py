"""Claims: every form is judged by what the records say, and one that no cell can answer is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from conftest import SMALL
from kit.claims import GRID, claim, truth
from kit.synthetic import Truth, analysed

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
            assert row["seeds_needed"] is None or np.isnan(row["seeds_needed"]), row["text"]


def test_an_open_claim_asks_for_the_seeds_that_would_settle_it(read_suite):
    """Power of the t test by its definition: at the seeds named it reaches 80 %, at one fewer it does not."""
    text = SMALL.replace('"w_softmax"]', '"w_softmax", "center"]').replace("seeds = 2", "seeds = 5")
    suite = read_suite(text + claim('better = "center"\nthan = "softmax"'))
    gains = (2.0, -0.5, 1.5, -0.2, 1.0)
    found = analysed(suite, lambda cell: Truth(90 + gains[cell.seed] * (cell.loss.name == "center")))
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


def ratios_by_process(results, loss: str) -> list[float]:
    """Mean log ratios to softmax of the five processes of sixteen timing cells with nine rounds each."""
    ratios = [np.log(rounds[loss]) - np.log(rounds["softmax"]) for _, rounds, _ in results.timed]
    assert np.shape(ratios) == (16, 9)
    shares = np.split(np.mean(ratios, axis=0), [2, 4, 6, 8])
    return [share.mean() for share in shares]


def test_rounds_of_several_timing_cells_are_averaged_not_strung_together(results):
    """Four widths × four numbers of classes have a timing cell each; a claim over them still has five processes."""
    row = results.claims.set_index("text").loc["time"]
    means = ratios_by_process(results, "w_softmax[alpha=1.0]")
    test = scipy.stats.ttest_1samp(means, 0.0)
    assert (row["n"], row["p"]) == (5, pytest.approx(test.pvalue))
    expected = 100 * np.expm1([np.mean(means), *test.confidence_interval()])
    assert list(row[["delta", "low", "high"]]) == pytest.approx(list(expected))


def test_equal_and_longer_step_times_are_tested_over_processes(results):
    means, rows = ratios_by_process(results, "center"), results.claims.set_index("text")

    def one_sided(bound: float, way: str) -> float:
        return scipy.stats.ttest_1samp(means, bound, alternative=way).pvalue

    within = max(one_sided(math.log(1.05), "less"), one_sided(-math.log(1.05), "greater"))
    assert rows.loc["equal times", "p"] == pytest.approx(within, rel=1e-6)
    assert rows.loc["no longer", "p"] == pytest.approx(one_sided(math.log(1.03), "less"), rel=1e-6)


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
    interval = scipy.stats.ttest_1samp(slopes, 0.0).confidence_interval()
    assert row["n"] == 5
    assert list(row[["delta", "low", "high"]]) == pytest.approx([np.mean(slopes), *interval])


def test_seeds_are_complete_along_a_trend(read_suite):
    suite = read_suite(GRID + claim('decreases_with = "alpha"\nloss = "w_softmax"\nwidth = 8\nclasses = 10'))

    def gaps(cell):
        return None if cell.seed == 2 and cell.loss.options.get("alpha") == 1.5 else truth(cell)

    row = analysed(suite, gaps).claims.iloc[0]
    assert row["n"] == 5


def test_a_trend_of_which_too_little_was_run_is_undecided(read_suite):
    suite = read_suite(
        GRID
        + claim('decreases_with = "alpha"\nloss = "w_softmax"')
        + claim('increases_with = "width"\nloss = "softmax"')
    )
    frame = analysed(suite, lambda cell: truth(cell) if cell.width == 8 else None).claims
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
    assert list(frame["evidence"][:3]) == ["not run"] * 3 and frame["p_holm"][:3].isna().all()
    assert frame["p_holm"][3] == frame["p"][3]


def test_families_are_adjusted_by_themselves(read_suite):
    body = 'better = "w_softmax[alpha={}]"\nthan = "softmax"\nfamily = "{}"'
    suite = read_suite(GRID + "".join(claim(body.format(*case)) for case in ((0.5, "a"), (1.0, "a"), (1.5, "b"))))
    frame = analysed(suite, truth).claims
    first, second, alone = frame["p"]
    assert frame["p_holm"][2] == alone
    assert min(frame["p_holm"][:2]) == pytest.approx(2 * min(first, second))


def test_cases_of_one_statement_are_counted(results, read_suite):
    from lossbench.report.sections.claims import claims
    from lossbench.report.sections.overview import findings

    assert len(claims(results).blocks) == 1  # every claim is a statement of its own
    body = 'better = ["center", "w_softmax[alpha=0.5]", "w_softmax[alpha=2.0]"]\nthan = "softmax"'
    other = claim('equivalent = ["center", "softmax"]').replace('"t"', '"u"')
    suite = read_suite(GRID + claim(body) + other)
    table, listed = claims(analysed(suite, truth)).blocks
    assert table.columns == ("statement", "supported", "contradicted", "undecided", "not run")
    assert table.rows == (("t", "1", "1", "1", "0"), ("u", "1", "0", "0", "0"))
    assert [row[0] for row in listed.rows] == [found.text for found in suite.info.claims]
    some = analysed(suite, lambda cell: None if cell.loss.name == "center" else truth(cell))
    table, listed = claims(some).blocks
    assert table.rows == (("t", "1", "1", "0", "1"), ("u", "0", "0", "0", "1"))
    assert [row[0] for row in listed.rows] == ["t (w_softmax[alpha=0.5])", "t (w_softmax[alpha=2.0])"]
    assert [anchors[0].loss for anchors in listed.anchors] == ["w_softmax[alpha=0.5]", "w_softmax[alpha=2.0]"]
    assert "; of 4 claims: 2 not run, 1 supported, 1 contradicted." in findings(some).blocks[0].text


def test_a_note_stands_once_below_the_verdicts(read_suite):
    from lossbench.report.sections.claims import claims

    body = 'better = ["center", "w_softmax[alpha=0.5]"]\nthan = "softmax"\nnote = "It is known why."'
    suite = read_suite(GRID + claim(body) + claim('equivalent = ["center", "softmax"]'))
    *_, last, note = claims(analysed(suite, truth)).blocks
    assert note.text == "“t”: It is known why." and len(last.rows) == 3


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
