"""A whole report like that of the paper suite: tuned and default settings, axes, costs, published numbers.

What a reader sees in summary.md, in the terminal, on a screen, on a phone and on paper.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from kit.browser import BINARY, Browser, NoBrowserError
from kit.synthetic import Truth, analysed, common, noise
from matplotlib.figure import Figure as Canvas

from lossbench.analysis.series import followed
from lossbench.cli.screen import WIDTH, show_report
from lossbench.report import Report, figures
from lossbench.report.blocks import Prose, Table
from lossbench.report.figures.axes import along_axis
from lossbench.report.output import html, markdown
from lossbench.report.sections import SECTIONS

SUITE = """
name = "whole"
title = "A whole report"

[tune]
trials = 2
lr = [0.005, 0.2]
experiments = ["digits", "glyphs"]

[defaults]
backbone = { name = "cnn", channels = 8, depths = [1, 1] }
widths = [64]
losses = [
  "softmax", "hinge", "center", "l_softmax[m=4]", "a_softmax", "cosface",
  "w_softmax[alpha=1.5,gradient=fixed_negatives]",
]
seeds = 5
schedule = { steps = 1000, batch = 50, lr = 0.01 }

[[experiment]]
name = "digits"
dataset = "digits[train=400]"
timing = { rounds = 10 }
[[experiment.published]]
source = "a table"
values = { hinge = 97.0, softmax = 95.02 }
protocol = "same"
[[experiment.published]]
source = "another table"
values = { cosface = 99.0 }
protocol = { train = 60000 }

[[experiment]]
name = "glyphs"
dataset = { name = "glyphs", classes = 10, size = 12 }
timing = { rounds = 10 }

[[experiment]]
name = "gradients"
dataset = "digits[train=400]"
losses = ["softmax", { name = "w_softmax", alpha = [0.1, 0.5, 1.0, 1.5], gradient = ["exact", "fixed_bias"] }]

[[experiment]]
name = "steps"
dataset = "digits[train=400]"
losses = ["softmax", "w_softmax[alpha=0.5]", "w_softmax[alpha=1.5]"]
schedule = { steps = [100, 1000, 10000], loss_lr = [1.0, 10.0] }
timing = { rounds = 10 }

[[experiment]]
name = "data"
dataset = { name = "digits", train = [100, 400] }
losses = ["softmax", "w_softmax[alpha=0.5]"]

[[claim]]
text = "W-Softmax is more accurate than softmax"
experiment = ["digits", "glyphs", "digits-tuned", "glyphs-tuned"]
better = "w_softmax[alpha=1.5,gradient=fixed_negatives]"
than = "softmax"

[[claim]]
text = "The gain over softmax grows with the number of steps, whatever the learning rate of the loss"
experiment = "steps"
increases_with = "steps"
at = { loss_lr = 1.0 }
loss = ["w_softmax[alpha=0.5]", "w_softmax[alpha=1.5]"]
than = "softmax"
"""
DATA = """
name = "data"
[[experiment]]
name = "data"
dataset = { name = "digits", train = [100, 400] }
backbone = { name = "cnn", channels = 4, depths = [1] }
widths = [8]
losses = ["softmax", "center", "hinge", "cosface", "arcface"]
seeds = 3
schedule = { steps = 6 }
"""
GAIN = {"hinge": -1.0, "center": 0.0, "l_softmax": -20.0, "a_softmax": -3.0, "w_softmax": 1.0, "cosface": 2.0}
TIMES = {"l_softmax[m=4]": 1.6, "center": 1.05}
NARROW = "document.querySelectorAll('.block').forEach(block => { block.style.contentVisibility = 'visible'; })"
UNFOLD = "document.querySelectorAll('main details').forEach(fold => { fold.open = true; })"


def truth(cell) -> Truth:
    gain = GAIN.get(cell.loss.name, 0.0) * (0.5 if cell.schedule.lr != 0.01 else 1.0)
    level = 95 + common(cell.seed) + gain + noise(cell, 0.2)
    steps = [cell.schedule.steps * share / 20 for share in range(1, 21)]
    falls = 1 if cell.schedule.steps == 100 else 0  # undertrained
    curve = tuple(
        {"step": int(step), "loss": 2.3 - falls * step / 100, "correct": int(100 * level * step / steps[-1])}
        for step in steps
    )
    return Truth(level, curve=curve, step_seconds=0.0123)


@pytest.fixture(scope="module")
def results(read_suite):
    return analysed(read_suite(SUITE), truth, times=TIMES)


@pytest.fixture(scope="module")
def sections(results):
    """Without figures, which take most of the time; the page has none."""
    return [section for section in (build(results) for build in SECTIONS) if section.blocks]


@pytest.fixture(scope="module")
def tables(sections):
    return {(section.slug, place): block for section in sections for place, block in enumerate(section.blocks)
            if isinstance(block, Table)}  # fmt: skip


# ---- summary.md ------------------------------------------------------------------------------------------------------


def test_tuned_settings_come_before_default_ones(results, sections):
    (first, second, *_) = (block.lead for block in sections[0].blocks if isinstance(block, Prose))
    assert first.startswith("Classification on digits and glyphs (5 seeds, tuned)")
    assert second.startswith("Classification on digits and glyphs (5 seeds, default settings)")
    names = [column.name for column in results.answer.columns]
    assert names == ["digits, tuned", "glyphs, tuned", "digits, default", "glyphs, default"]


def test_a_column_stands_for_the_experiment_with_most_kinds_of_losses(results):
    """`gradients` has more labels on digits, but all of them are one loss."""
    assert {column.point["experiment"] for column in results.answer.columns} == {
        *("digits", "glyphs", "digits-tuned", "glyphs-tuned")
    }


def test_gain_and_metric_are_drawn_along_every_axis(results):
    drawn = [drawing.name for drawing in figures.of_section(results, "axes")]
    assert drawn == ["axis-steps-steps", "axis-loss_lr-steps", "axis-train-data"]


def test_the_baseline_is_within_the_axes_where_all_other_losses_are_far_below(read_suite):
    def far(cell):
        return Truth(95 + common(cell.seed) - (0 if cell.loss.name == "softmax" else 5) + noise(cell, 0.1))

    found = analysed(read_suite(DATA), far)
    (along,) = followed(found, "data")
    drawing = along_axis(found, "data", along)
    canvas = Canvas()
    drawing.draw(canvas)
    bottom, top = canvas.axes[0].get_ylim()
    levels = [row["value"] for rows in found.main_at.values() for loss, row in rows.items() if loss == "softmax"]
    assert bottom < min(levels) <= max(levels) < top


def test_the_summary_is_short_and_says_nothing_twice(results, sections):
    written = markdown.documents(results, sections)["summary.md"]
    assert written.count("\n") < 300
    long = Counter(line for line in written.splitlines() if len(line) > 60 and not line.startswith("|"))
    assert [line for line, count in long.items() if count > 1] == []


def test_cost_is_shown_where_the_first_table_is_and_elsewhere_in_the_appendix(results, tables):
    stated = {column.point["experiment"] for column in results.answer.columns}
    summary = [table for (slug, _), table in tables.items() if slug == "cost"]
    assert all({row[table.columns.index("experiment")] for row in table.rows} <= stated for table in summary)
    everywhere = [table.experiment for (slug, _), table in tables.items() if slug == "cost-everywhere"]
    assert {"steps", "digits"} <= set(everywhere)


def test_only_comparable_published_numbers_have_a_row_and_a_line_counts_the_others(sections):
    (section,) = (section for section in sections if section.slug == "published")
    table, line = section.blocks
    assert {row[table.columns.index("loss")] for row in table.rows} == {"hinge", "softmax"}
    assert line.text.startswith("1 further published number")


def test_a_dataset_has_no_column_where_the_experiment_says_which_it_is(tables):
    for (slug, _), table in tables.items():
        if "experiment" in table.columns and slug == "cost":
            assert "dataset" not in table.columns


# ---- the terminal ----------------------------------------------------------------------------------------------------


def test_the_closing_table_fits_the_terminal_and_breaks_no_number(sections, capsys):
    show_report(Report(sections, {"summary.md": Path("summary.md"), "report.html": Path("report.html")}))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    (row,) = (line.split() for line in lines if line.split()[:1] == ["hinge"])
    assert len([part for part in row if re.match(r"[+−]\d", part)]) == 4  # one per dataset, tuned and default
    assert any(part.endswith("×") for part in row)  # the step time


# ---- the page --------------------------------------------------------------------------------------------------------


def opened(test):
    """A test that opens the page in Chromium."""
    missing = pytest.mark.skipif(BINARY is None, reason="no Chromium here (Debian: apt-get install chromium)")
    return pytest.mark.browser(missing(test))


@pytest.fixture(scope="module")
def browser(tmp_path_factory, results, sections):
    page = tmp_path_factory.mktemp("page") / "report.html"
    page.write_text(html.html(results, sections), encoding="utf-8")
    try:
        found = Browser(tmp_path_factory.mktemp("profile"))
    except NoBrowserError as error:
        pytest.skip(str(error))
    found.scheme("light")
    found.size(1400, 900)
    found.open(page)
    yield found
    found.close()


@opened
@pytest.mark.parametrize("width", [1280, 1400])
def test_every_table_fits_a_laptop(browser, width):
    browser.size(width, 900)
    browser.run(f"{UNFOLD}; {NARROW}")
    wide = browser.run(
        "[...document.querySelectorAll('.card .scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)"
        ".map(e => [e.getAttribute('aria-label'), e.scrollWidth, e.clientWidth])"
    )
    assert wide == []


@opened
def test_on_a_phone_the_loss_stays_while_a_table_scrolls_under_it(browser):
    browser.size(390, 844, phone=True)
    browser.run(f"{UNFOLD}; {NARROW}")
    assert browser.run("document.documentElement.scrollWidth") <= 390
    found = browser.run(
        """[...document.querySelectorAll('.card .scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => {
          const heads = [...e.querySelectorAll('th')].map(th => th.textContent.trim());
          const key = Math.max(0, heads.indexOf('loss'));
          e.scrollLeft = 10000;
          const cell = e.querySelector('tbody tr').cells[key].getBoundingClientRect();
          const frame = e.getBoundingClientRect();
          e.scrollLeft = 0;
          return [e.getAttribute('aria-label'), cell.left - frame.left, cell.width / frame.width];
        })"""
    )
    assert len(found) > 5
    for name, left, share in found:
        assert abs(left) <= 2, name
        assert share <= 0.5, name


@pytest.mark.skipif(
    shutil.which("pdftotext") is None, reason="no pdftotext here (Debian: apt-get install poppler-utils)"
)
@opened
def test_the_pdf_has_every_table_to_its_last_column(browser, tables, tmp_path):
    browser.size(1400, 900)
    path = tmp_path / "report.pdf"
    path.write_bytes(browser.pdf())
    text = subprocess.run(["pdftotext", "-layout", path, "-"], capture_output=True, text=True, check=True).stdout
    pages = text.count("\f")
    assert 10 < pages < 60
    words = Counter(text.split())
    needed = Counter()
    for table in tables.values():
        if table.columns[0] == "statement":  # the chart of claims says the same
            continue
        for row in table.rows:
            needed.update(word for word in row[-1].split() if re.fullmatch(r"[\w.,%+−-]+", word))
    missing = {word: count for word, count in needed.items() if words[word] < count and "_" not in word}
    assert missing == {}
    # A table that goes on has its headings again on the next page.
    assert all(head in text for head in ("seeds needed", "Published against measured", "verdict (steps)"))
