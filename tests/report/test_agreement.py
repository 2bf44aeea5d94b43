"""Prose, tables, CSV, JSON, LaTeX and figures of one report say the same, and what the records say."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess

import jsonschema
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from conftest import SMALL
from kit.synthetic import Truth, common, noise, write_run

from lossbench.report import differing, write
from lossbench.report.blocks import Table
from lossbench.report.output.latex import documents, escaped, tabular
from lossbench.report.output.schema import json_schema

# Truth, in points above softmax: +3, 0, −2, 0 but noisy.
GAIN = {"softmax": 0.0, "w_softmax": 3.0, "center": 0.0, "l_softmax": -2.0, "a_softmax": 0.0}
NOISE = {"softmax": 0.02, "w_softmax": 0.1, "center": 0.02, "l_softmax": 0.1, "a_softmax": 2.5}
SUITE = (
    SMALL.replace('"w_softmax"]', '"w_softmax", "center", "l_softmax", "a_softmax"]')
    .replace("seeds = 2", "seeds = 12\ntiming = { rounds = 12 }")
    .replace("widths = [8]", 'widths = [4, "min", 20]')
    + 'published = { values = { "softmax" = 90.0, "center" = 97.0 }, protocol = "same" }\n'
    + """
[[claim]]
text = "W-Softmax is better, α = 1"
experiment = "digits"
better = "w_softmax"
than = "softmax"

[[claim]]
text = "L-Softmax is better"
experiment = "digits"
better = "l_softmax"
than = "softmax"

[[claim]]
text = "A-Softmax is better & faster_than_all"
experiment = "digits"
better = "a_softmax"
than = "softmax"

[[claim]]
text = "Center changes nothing"
experiment = "digits"
equivalent = ["center", "softmax"]

[[claim]]
text = "Accuracy grows with the width"
experiment = "digits"
loss = "softmax"
increases_with = "width"
"""
)
VERDICTS = {"w_softmax": "better", "center": "equivalent", "l_softmax": "worse", "a_softmax": "undecided"}
CLAIMED = ["supported", "contradicted", "undecided", "supported", "supported"]


def truth(cell):
    name = cell.loss.name
    accuracy = 90 + common(cell.seed) + GAIN[name] + noise(cell, NOISE[name]) + 0.3 * math.log2(cell.width)
    return Truth(accuracy, angle=40 - 5 * (name == "w_softmax") + noise(cell, 0.5))


@pytest.fixture(scope="module")
def run(tmp_path_factory, read_suite):
    return write_run(read_suite(SUITE), tmp_path_factory.mktemp("run"), truth, times={"w_softmax": 1.5})


@pytest.fixture(scope="module")
def out(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write([run], folder)
    return folder


@pytest.fixture(scope="module")
def summary(out):
    return (out / "summary.md").read_text()


@pytest.fixture(scope="module")
def appendix(out):
    return (out / "appendix.md").read_text()


@pytest.fixture(scope="module")
def csv(out):
    frame = pd.read_csv(out / "comparisons.csv")
    return frame[frame["metric"] == "accuracy"]


def section(summary: str, title: str) -> str:
    return summary.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[dict[str, str]]:
    """The rows of all pipe tables of a text, by column."""
    found: list[dict[str, str]] = []
    head: list[str] | None = None
    for line in text.splitlines():
        cells = [cell.strip().replace("\\", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells
        elif not set(line) <= set("|:-"):
            found.append(dict(zip(head, cells, strict=True)))
    return found


OUTLINE = [
    *("Which loss to use", "Claims", "Cost", "Along each axis", "Warnings", "Published against measured"),
    "Environment and commands",
]
APPENDIX = [
    *("Against softmax", "Accuracy", "Values along each axis", "Cost at every point", "Memory and Pareto fronts"),
    "Geometry",
]


def test_summary_and_appendix_have_every_section_of_the_outline_in_order(summary, appendix):
    assert re.findall(r"^## (.*)$", summary, flags=re.MULTILINE) == [*OUTLINE, "Appendix"]
    assert re.findall(r"^## (.*)$", appendix, flags=re.MULTILINE) == APPENDIX
    for title in APPENDIX:
        assert title.lower() in section(summary, "Appendix")


def test_verdicts_are_those_of_the_truth(csv):
    for loss, verdict in VERDICTS.items():
        assert set(csv[csv["loss"] == loss]["verdict"]) == {verdict}, loss


def test_the_csv_is_what_the_records_say(out, csv):
    """Recomputed from the records: the t interval of the seeds at the level of the family, and never narrower."""
    records = pd.read_csv(out / "records.csv")
    table = records[records["kind"] == "train"].pivot_table(index=["width", "seed"], columns="label", values="accuracy")
    for row in csv.to_dict("records"):
        mine = table.loc[row["width"]]
        gaps = mine[row["loss"]] - mine["softmax"]
        half = scipy.stats.t.ppf(1 - row["level"] / 2, 11) * gaps.std() / math.sqrt(12)
        assert row["delta"] == pytest.approx(gaps.mean())
        assert row["high"] - row["delta"] == pytest.approx(row["delta"] - row["low"])
        seeds = scipy.stats.norm.ppf(1 - row["level"] / 2) * np.nan_to_num(row["test_se"])
        if gaps.std() > 0.01:  # else the spread counts as one test example
            assert row["high"] - row["delta"] == pytest.approx(math.hypot(half, seeds))
        assert (row["median"], row["worst"]) == pytest.approx((gaps.median(), gaps.min()))
        assert row["wins"] == (gaps > 0).sum()
    assert set(csv["level"]) == {0.05 / 12}  # the claims are about means over the widths: other comparisons


def test_the_table_against_the_baseline_is_the_csv(appendix, csv):
    shown = {(row["loss"], row["M"]): row for row in rows(section(appendix, "Against softmax"))}
    assert len(shown) == 15
    for row in csv.to_dict("records"):
        width = f"{row['width']} (min)" if row["width"] == 9 else str(row["width"])
        cells = shown[row["loss"], width]
        assert cells["Δ points [interval]"] == f"{row['delta']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]"
        assert cells["verdict"] == row["verdict"]
        assert cells["won"] == f"{row['wins']:.0f}/{row['n']}"
        low, high = row["seeds_needed"], row["seeds_needed_high"]
        needed = f"{low:.0f}–{high:.0f}" if np.isfinite(high) else f"{low:.0f} or more"
        assert cells["seeds needed"] == ("" if np.isnan(low) else needed)


def test_the_first_screen_says_what_the_csv_says(summary, csv):
    """One row per loss; the column shows the width at which softmax is best."""
    first = section(summary, "Which loss to use")
    at = csv[csv["width"] == 20].set_index("loss")
    signs = {"better": "▲", "worse": "▼", "equivalent": "≈", "undecided": "?"}
    shown = {row["loss"]: row["digits"] for row in rows(first)}
    assert next(iter(shown)) == "softmax"
    assert list(shown)[1:] == list(at.sort_values("delta", ascending=False).index)
    for loss, row in at.iterrows():
        delta = f"{row['delta']:+.2f}".replace("-", "−")
        star = "*" if "one seed" in str(row["flags"]) else ""
        assert shown[loss] == f"{delta} {signs[row['verdict']]}{star}"
    assert "digits: M = 20" in first
    sentence = next(line for line in first.splitlines() if line.startswith("**Classification on digits (12 seeds"))
    assert f"w_softmax ({at.loc['w_softmax', 'delta']:+.2f} points) is better than softmax" in sentence
    assert f"l_softmax (−{-at.loc['l_softmax', 'delta']:.2f} points) is worse" in sentence
    assert "center (one seed decides) is equivalent (within ±0.5 points)" in sentence


def test_claims_are_the_same_in_table_csv_and_json(out, summary):
    csv = pd.read_csv(out / "claims.csv")
    stated = json.loads((out / "report.json").read_text())["claims"]
    shown = rows(section(summary, "Claims"))
    assert list(csv["verdict"]) == CLAIMED
    for row, plain, cells in zip(csv.to_dict("records"), stated, shown, strict=True):
        assert row["text"] == plain["text"] == cells["claim"]
        assert row["verdict"] == plain["verdict"] == cells["verdict"]
        assert row["delta"] == pytest.approx(plain["delta"])
        assert cells["difference [interval]"].startswith(f"{row['delta']:+.2f}")
        assert cells["n"] == str(row["n"])
    assert np.isfinite(csv["seeds_needed"][2])


def test_accuracies_and_intervals_are_those_of_the_records(out, appendix):
    records = pd.read_csv(out / "records.csv")
    trained = records[records["kind"] == "train"]
    for cells in rows(section(appendix, "Accuracy")):
        width = int(cells["M"].split()[0])
        values = trained[(trained["label"] == cells["loss"]) & (trained["width"] == width)]["accuracy"]
        low, high = scipy.stats.t.interval(0.95, 11, values.mean(), scipy.stats.sem(values))
        assert cells["accuracy, %"] == f"{values.mean():.2f}"
        assert cells["95 % interval"] == f"[{low:.2f}, {high:.2f}]"
        assert (cells["median seed"], cells["worst seed"]) == (f"{values.median():.2f}", f"{values.min():.2f}")


def test_published_numbers_have_their_verdicts_everywhere(out, summary):
    stated = json.loads((out / "report.json").read_text())["published"]
    csv = pd.read_csv(out / "published.csv").to_dict("records")
    for row, cells, plain in zip(csv, rows(section(summary, "Published against measured")), stated, strict=True):
        assert (row["loss"], row["verdict"]) == (cells["loss"], cells["verdict"]) == (plain["loss"], plain["verdict"])
        assert cells["95 % prediction interval"] == f"[{row['low']:.2f}, {row['high']:.2f}]"
        if row["loss"] == "center":
            assert row["verdict"] == "below"


def test_step_times_and_their_parts_are_those_of_the_timing_cells(out, summary, appendix):
    frame = pd.read_csv(out / "comparisons.csv")
    times = frame[(frame["metric"] == "step_seconds") & (frame["loss"] == "w_softmax")]
    found = rows(section(appendix, "Cost at every point"))
    shown = [row for row in found if "median ms" in row and row["loss"] == "w_softmax"]
    # The summary has the point of the first table alone.
    (chosen,) = (row for row in rows(section(summary, "Cost")) if "median ms" in row and row["loss"] == "w_softmax")
    assert chosen["median ms"] in [row["median ms"] for row in shown]
    for row, cells in zip(times.to_dict("records"), shown, strict=True):
        numbers = (1 + row[name] / 100 for name in ("delta", "low", "high"))
        assert cells["step time / softmax [interval]"] == "{:.3f} [{:.3f}, {:.3f}]".format(*numbers)
        parts = [float(part) for part in cells["forward / backward / optimizer, ms"].split(" / ")]
        assert sum(parts) == pytest.approx(float(cells["median ms"]), rel=0.01)
        assert parts[1] / sum(parts) == pytest.approx(0.6, rel=0.01)


def test_the_front_has_the_likely_winner(appendix):
    shown = [row for row in rows(section(appendix, "Memory and Pareto fronts")) if "P(front), memory" in row]
    by = {(row["loss"], row["M"]): float(row["P(front), memory"]) for row in shown}
    assert by["w_softmax", "4"] == 1.0  # the least memory, and the best at it
    assert by["l_softmax", "20"] == 0.0
    assert all(0 <= chance <= 1 for chance in by.values())


def test_the_json_repeats_every_sentence_and_table_of_summary_and_appendix(out, summary, appendix):
    stated = json.loads((out / "report.json").read_text())
    assert stated["version"] == 2
    assert [part["title"] for part in stated["sections"]] == [*OUTLINE, *APPENDIX]
    plain = (summary + appendix).replace("\\", "").replace("**", "")
    for part in stated["sections"]:
        for block in part["blocks"]:
            if block["kind"] == "prose":
                assert block["text"].replace("\\", "") in plain
            if block["kind"] == "table":
                for row in block["rows"]:
                    assert all(cell.replace("\\", "") in plain for cell in row)
    assert "NaN" not in (out / "report.json").read_text()


def test_the_json_keeps_its_schema(out):
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    stated = json.loads((out / "report.json").read_text())
    jsonschema.validate(stated, schema)
    stated["claims"][0].pop("verdict")
    with pytest.raises(jsonschema.ValidationError, match="'verdict' is a required property"):
        jsonschema.validate(stated, schema)


def test_the_figure_draws_the_rows_of_the_csv(out, csv):
    svg = (out / "figures" / "differences.svg").read_text()
    for loss in VERDICTS:
        assert len(re.findall(rf">{loss} .*?M = ", svg)) == (csv["loss"] == loss).sum() or loss in svg


def test_latex_tables_hold_the_same_cells(out, summary):
    text = (out / "tables" / "claims.tex").read_text()
    for row in rows(section(summary, "Claims")):
        assert escaped(row["claim"]) in text
        assert escaped(row["difference [interval]"]) in text


def test_latex_tables_are_well_formed(out):
    names = sorted(path.name for path in (out / "tables").glob("*.tex"))
    assert {"all.tex", "accuracy-digits.tex", "claims.tex", "geometry-digits-2.tex", "threats.tex"} <= set(names)
    for path in (out / "tables").glob("*.tex"):
        text = re.sub(r"(?m)^%.*$", "", path.read_text())
        assert text.count(r"\begin{") == text.count(r"\end{")
        bare = text.replace(r"\{", "").replace(r"\}", "")
        assert bare.count("{") == bare.count("}")
        assert text.replace(r"\$", "").count("$") % 2 == 0
        assert text.isascii()
        if path.name == "all.tex":
            assert sorted(re.findall(r"\\input\{(.*?)\}", text)) == sorted(
                name[:-4] for name in names if name != "all.tex"
            )
            continue
        columns = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1])
        for line in text.splitlines():
            if line.endswith(r"\\"):
                assert len(re.findall(r"(?<!\\)&", line)) == columns - 1


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_latex_tables_compile(out, tmp_path):
    for path in (out / "tables").glob("*.tex"):
        shutil.copy(path, tmp_path)
    call = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-800:]
    assert (tmp_path / "all.pdf").stat().st_size > 1000


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("w_softmax[alpha=1.5]", r"w\_softmax[alpha=1.5]"),
        ("50 % & $1 #2 {x} ~ ^", r"50 \% \& \$1 \#2 \{x\} \textasciitilde{} \textasciicircum{}"),
        ("a\\b", r"a\textbackslash{}b"),
        ("θ̄ train°", r"$\bar{\theta}$ train$^{\circ}$"),
        ("−1 ± 2 – Δ", r"$-$1 $\pm$ 2 -- $\Delta$"),
        ("中 ü", "[U+4E2D] ü"),
    ],
)
def test_latex_shows_text_as_it_is(text, shown):
    assert escaped(text) == shown


def test_a_row_that_begins_with_a_bracket_is_no_option_of_the_line_before():
    text = tabular(Table(("a", "b"), (("1", "2"), ("[3, 4]", "*"))))
    assert "\\\\\n{}[3, 4] & {}*" in text


def test_a_report_without_tables_has_no_latex():
    assert documents([]) == {}


def test_rendering_again_gives_the_same_bytes_and_a_check_names_what_differs(run, out, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    (copy / "summary.md").write_text("changed")
    (copy / "tables" / "claims.tex").unlink()
    assert differing([run], copy) == {"summary.md": "differs", "tables/claims.tex": "missing"}


def test_parquet_is_written_where_pyarrow_is(out, run, tmp_path):
    pytest.importorskip("pyarrow")
    for name in ("records", "comparisons", "claims", "published"):
        parquet, plain = pd.read_parquet(out / f"{name}.parquet"), pd.read_csv(out / f"{name}.csv")
        assert list(parquet.columns) == list(plain.columns)
        assert len(parquet) == len(plain)
