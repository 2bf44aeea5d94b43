"""A report states what the records say: synthetic records with a known truth, then the sentences, tables and files."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from conftest import SMALL
from kit.known_truth import SUITE, synthetic

from lossbench.analysis.results import analyse
from lossbench.core.errors import StoreError
from lossbench.core.model import Record
from lossbench.plan.cells import plan
from lossbench.report import write
from lossbench.report.sections.answer import answer
from lossbench.store.records import Store


def write_cells(suite, folder, change=lambda cell, record, bits: (record, bits)):
    """The run folder of a suite; `change` gives the record and bits of a cell in place of the synthetic ones."""
    store = Store(folder)
    cells = plan(suite)
    rng = np.random.default_rng(0)
    store.prepare(suite, cells)
    for cell in cells:
        store.write(*change(cell, *synthetic(cell, rng)))
    return store.root


def finished_run(suite, folder):
    """The run folder of a suite whose every cell is done."""
    return write_cells(suite, folder)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, read_suite):
    def diverged(cell, record, bits):
        lost = cell.seed == 7 and cell.kind == "train" and cell.loss.name == "l_softmax"
        return (
            (Record(cell, "diverged", error="the training loss is not finite at step 3"), None)
            if lost
            else (record, bits)
        )

    return write_cells(read_suite(SUITE), tmp_path_factory.mktemp("run"), diverged)


@pytest.fixture(scope="module")
def results(run_folder):
    return analyse([run_folder])


@pytest.fixture(scope="module")
def report(run_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("reports")
    write([run_folder], out)
    return out


def comparison(results, loss, metric="accuracy", width=20):
    frame = results.comparisons
    return frame[(frame["loss"] == loss) & (frame["metric"] == metric) & (frame["width"] == width)].iloc[0]


def test_a_real_difference_is_called_better_and_no_difference_equivalent(results):
    assert comparison(results, "w_softmax")["verdict"] == "better"
    assert comparison(results, "w_softmax")["delta"] == pytest.approx(3, abs=0.2)
    assert comparison(results, "center")["verdict"] == "equivalent"
    assert comparison(results, "l_softmax")["verdict"] == "undecided"
    assert comparison(results, "l_softmax")["seeds_needed"] > 7


def test_pairs_are_formed_by_seed_and_diverged_seeds_are_counted(results):
    assert comparison(results, "l_softmax")["n"] == 7
    assert comparison(results, "w_softmax")["n"] == 8
    row = results.main[(results.main["loss"] == "l_softmax") & (results.main["width"] == 20)].iloc[0]
    assert (row["n"], row["failures"]) == (7, 1)
    assert results.statuses["diverged"] == 2


def test_deltas_are_those_of_the_records(results):
    frame = results.records
    frame = frame[(frame["kind"] == "train") & (frame["width"] == 20)]
    mean = frame.groupby("label")["accuracy"].mean()
    assert comparison(results, "w_softmax")["delta"] == pytest.approx(mean["w_softmax"] - mean["softmax"])


def test_step_times_are_paired_ratios_in_percent(results):
    row = comparison(results, "w_softmax", "step_seconds")
    assert row["delta"] == pytest.approx(50, abs=1)
    assert row["low"] < row["delta"] < row["high"]
    assert row["unit"] == "%"


def test_claims_are_judged_in_their_direction(results):
    verdicts = dict(zip(results.claims["text"], results.claims["verdict"], strict=True))
    assert verdicts == {
        "W-Softmax is more accurate": "supported",
        "Center is more accurate": "contradicted",  # it is equivalent
        "W-Softmax has wider angles": "supported",
        "W-Softmax is faster": "contradicted",
    }


def test_the_files_have_their_public_columns(report):
    comparisons = pd.read_csv(report / "comparisons.csv")
    public = [
        "experiment",
        "metric",
        "loss",
        "baseline",
        "n",
        "delta",
        "low",
        "high",
        "level",
        "p",
        "p_adjusted",
        "dz",
        "median",
        "worst",
        "verdict",
        "flags",
        "seeds_needed",
        "seeds_needed_high",
    ]
    assert list(comparisons.columns[: len(public)]) == public
    claims = pd.read_csv(report / "claims.csv")
    assert list(claims.columns[:8]) == ["text", "experiment", "metric", "verdict", "delta", "low", "high", "n"]
    records = pd.read_csv(report / "records.csv")
    assert len(records) == 8 * 2 * 4 + 2
    assert {"key", "status", "label", "seed", "accuracy"} <= set(records.columns)


def test_sentences_tables_and_csv_say_the_same(report, results):
    row = comparison(results, "w_softmax")
    assert f"{row['delta']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]" in (report / "appendix.md").read_text()
    csv = pd.read_csv(report / "comparisons.csv")
    stated = csv[(csv["loss"] == "w_softmax") & (csv["metric"] == "accuracy") & (csv["width"] == 20)].iloc[0]
    assert stated["delta"] == pytest.approx(row["delta"])


def test_the_summary_has_its_sections_and_figures(report):
    summary, appendix = ((report / name).read_text() for name in ("summary.md", "appendix.md"))
    wanted = ["Which loss to use", "Claims", "Cost", "Along each axis", "Warnings", "Published against measured"]
    places = [summary.index(f"\n## {title}") for title in [*wanted, "Not run and not finished", "Environment"]]
    assert places == sorted(places)
    for figure in re.findall(r"\(figures/(.*?)\)", summary + appendix):
        assert (report / "figures" / figure).read_text().startswith("<?xml")
    assert "M_min = C − 1" in summary
    assert "9 (min)" in appendix
    assert "2 diverged" in summary
    assert "lossbench run suite.toml" in summary


class Outline(HTMLParser):
    """Collects what a page loads and how its tags nest."""

    def __init__(self):
        super().__init__()
        self.addresses, self.scripts, self.open = [], 0, []

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        self.addresses += [value for name, value in attributes if name in ("src", "href", "xlink:href")]


def test_the_page_is_offline_and_escapes_everything(tmp_path, read_suite):
    text = SMALL.replace('"A small suite"', "'<script>alert(1)</script> & *bold* | pipe'")
    suite = read_suite(text)
    write([finished_run(suite, tmp_path / "run")], tmp_path / "reports")
    page = (tmp_path / "reports" / "report.html").read_text()
    outline = Outline()
    outline.feed(page)
    assert outline.scripts == 2  # the page's own, and its data
    assert all(address.startswith("#") for address in outline.addresses)
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"|http-equiv', "", page)
    summary = (tmp_path / "reports" / "summary.md").read_text()
    assert summary.startswith("# \\<script\\>alert(1)\\</script\\> & \\*bold\\* \\| pipe\n")


def test_a_run_with_nothing_finished_still_has_a_report(tmp_path, read_suite):
    suite = read_suite(SUITE)
    store = Store(tmp_path / "run")
    store.prepare(suite, plan(suite))
    write([store.root], tmp_path / "reports")
    summary = (tmp_path / "reports" / "summary.md").read_text()
    assert "not yet enough finished cells" in summary
    assert "66 missing" in summary
    assert "not run" in summary  # the claims


def test_two_seeds_are_said_to_be_too_few(tmp_path, read_suite):
    found = analyse([finished_run(read_suite(SMALL), tmp_path / "run")])
    assert "not yet enough finished cells" in answer(found).blocks[0].text
    assert "2 paired seeds: no interval and no verdict" in found.warnings[0].text


def test_runs_of_different_suites_are_not_mixed(run_folder, tmp_path, read_suite):
    other = read_suite(SMALL.replace('"small"', '"other"'))
    store = Store(tmp_path / "other")
    store.prepare(other, plan(other))
    with pytest.raises(StoreError, match="different suites"):
        analyse([run_folder, store.root])


def test_two_halves_of_a_run_make_one_report(run_folder, tmp_path, read_suite):
    """Two folders of one suite, each with half of the seeds, are read as one."""
    suite = read_suite(SUITE)
    cells = plan(suite)
    whole = Store(run_folder)
    for half in (0, 1):
        store = Store(tmp_path / str(half))
        store.prepare(suite, cells)
        for cell in cells:
            if cell.seed % 2 == half:
                record = Record.from_json(whole.read(cell.key))
                store.write(record, whole.correct(cell.key) if record.correct is not None else None)
    together = analyse([tmp_path / "0", tmp_path / "1"]).comparisons.drop(columns="correlation")
    alone = analyse([run_folder]).comparisons.drop(columns="correlation")
    pd.testing.assert_frame_equal(
        together.sort_values(["metric", "width", "loss"], ignore_index=True),
        alone.sort_values(["metric", "width", "loss"], ignore_index=True),
    )


def test_the_same_loss_has_the_same_colour_everywhere():
    from lossbench.report.figures.style import BASELINE_COLOUR, looks

    few, many = looks(["softmax", "a", "b"]), looks(["softmax", "a", "b", "c"])
    assert few["softmax"].colour == BASELINE_COLOUR
    assert few["a"] == many["a"] != many["b"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("w_softmax[alpha=1.5]", "w_softmax[alpha=1.5]"),
        ("a | b", "a \\| b"),
        ("_leaning_ *bold* `code`", "\\_leaning\\_ \\*bold\\* \\`code\\`"),
        ("[here](there)", "[here]\\(there)"),
        ("two\nlines", "two lines"),
    ],
)
def test_markdown_shows_text_as_it_is(text, shown):
    from lossbench.report.output.markdown import _escape

    assert _escape(text) == shown


def test_a_claim_over_several_widths_pairs_width_with_width(tmp_path, read_suite):
    """A loss that is missing at one width must not be compared there with anything."""

    def gap(cell, record, bits):
        lost = cell.kind == "train" and cell.loss.name == "w_softmax" and cell.width == 20 and cell.seed < 4
        return (Record(cell, "failed", error="x"), None) if lost else (record, bits)

    claim = analyse([write_cells(read_suite(SUITE), tmp_path / "run", gap)]).claims.iloc[0]
    assert claim["n"] == 4
    assert claim["delta"] == pytest.approx(3, abs=0.2)


def test_runs_of_two_profiles_with_different_experiments_are_one_report(tmp_path, read_suite):
    """One has what the other skips; a report of both has the claims and published numbers of both."""
    start = SUITE.index("[[experiment]]")
    second = SUITE[start : SUITE.index("[[claim]]")].replace('"digits"', '"more"', 1)
    claims = SUITE[SUITE.index("[[claim]]") :]
    others = claims.replace('"digits"', '"more"').replace('text = "', 'text = "more: ')
    both = SUITE[: SUITE.index("[[claim]]")] + second + others + claims
    profiles = '[profile.one]\nskip = ["more"]\n[profile.other]\nskip = ["digits"]\n'
    runs = []
    for name in ("one", "other"):
        runs.append(tmp_path / name)
        write_cells(read_suite(both + profiles, profile=name), runs[-1])
    found = analyse(runs)
    assert {point["experiment"] for point in found.points} == {"digits", "more"}
    verdicts = found.claims.groupby("experiment")["verdict"]
    assert set(verdicts.groups) == {"digits", "more"}
    assert not found.claims["verdict"].eq("not testable").any()
    written = re.findall(r'^text = "(.*)"$', both, flags=re.MULTILINE)
    assert list(found.claims["statement"].unique()) == written
    assert set(found.published["experiment"]) == {"digits", "more"}
    assert found.info.profile == "one + other"
    commands = found.info.command.splitlines()
    assert [command.partition("--profile ")[2] for command in commands] == [f"{run.name} --out {run}" for run in runs]
    assert analyse(runs[:1]).info.command == commands[0].partition(" --out")[0]


@pytest.mark.parametrize("order", [1, -1])
def test_a_profile_and_its_base_are_one_report(tmp_path, read_suite, order):
    """What both have counts once; the timing cell of the profile with more losses is used."""
    text = SMALL.replace("seeds = 2", "seeds = 2\ntiming = { rounds = 9 }")
    text += """
[profile.base]
[profile.more]
base = "base"
all = { seeds = 5, losses = ["softmax", "w_softmax", "center"] }
"""
    runs = []
    for name in ("base", "more")[::order]:
        runs.append(tmp_path / name)
        write_cells(read_suite(text, profile=name), runs[-1])
    found = analyse(runs)
    assert {cell.seed for cell in found.cells if cell.kind == "train"} == {*range(5)}
    (timing,) = [cell for cell in found.cells if cell.kind == "timing"]
    assert [loss.label for loss in timing.losses] == ["softmax", "w_softmax", "center"]
    assert len(found.timed) == 1
    alone = analyse([tmp_path / "more"])
    assert found.statuses == alone.statuses
    assert set(found.comparisons["n"]) == set(alone.comparisons["n"])


def test_runs_of_different_profiles_are_not_averaged(run_folder, tmp_path, read_suite):
    other = read_suite(SUITE.replace("steps = 6", "steps = 7"))
    store = Store(tmp_path / "other")
    store.prepare(other, plan(other))
    with pytest.raises(StoreError, match="different cells for softmax"):
        analyse([run_folder, store.root])


def test_a_cell_that_failed_in_one_run_and_finished_in_another_is_finished(tmp_path, read_suite):
    suite = read_suite(SMALL)
    cells = plan(suite)
    stores = [Store(tmp_path / name) for name in "ab"]
    rng = np.random.default_rng(0)
    for store in stores:
        store.prepare(suite, cells)
    for cell in cells:
        stores[0].write(Record(cell, "failed", error="x"))
        stores[1].write(*synthetic(cell, rng))
    for order in (stores, stores[::-1]):
        assert analyse([store.root for store in order]).statuses == {"done": 4}


def test_figures_keep_their_references_when_they_stand_in_the_page(report):
    page = (report / "report.html").read_text()
    ids = set(re.findall(r'id="([^"]+)"', page))
    assert "\\" not in "".join(ids)
    for reference in re.findall(r"url\(#([^)]+)\)", page) + re.findall(r'href="#([^"]+)"', page):
        assert reference in ids
