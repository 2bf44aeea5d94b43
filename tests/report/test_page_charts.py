"""The charts of report.html in a real browser: what they draw and say, hover, keyboard, selectors, filter, links."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import SMALL
from kit.browser import BINARY, Browser, NoBrowserError
from kit.page_of import LOSSES, SUITE, TIMES, truth, written
from kit.pictures import TWENTY
from kit.synthetic import Truth, analysed, common, noise, write_run

from lossbench.analysis.results import analyse
from lossbench.core.model import Spec
from lossbench.report.blocks import Prose, Section
from lossbench.report.output import html
from lossbench.report.palette import looks

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BINARY is None, reason="no Chromium here (Debian: apt-get install chromium)"),
]

VIEWS = ("axis", "cost", "pairs", "curves", "memory", "phases", "angles")
FINDING = "document.querySelector('{} .finding').textContent"
TIP = "document.getElementById('tip')"


@pytest.fixture(scope="module")
def results(tmp_path_factory, read_suite):
    folder = write_run(read_suite(SUITE), tmp_path_factory.mktemp("run") / "charts", truth, times=TIMES)
    return analyse([folder])


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    return written(results, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    try:
        browser = Browser(tmp_path_factory.mktemp("profile"))
    except NoBrowserError as error:
        pytest.skip(str(error))
    yield browser
    browser.close()


@pytest.fixture
def browser(started):
    started.size(1400, 900)
    started.scheme("light")
    yield started
    started.run("0")
    assert started.errors == []


def show(browser: Browser, page, chosen: str = "", selector: str = "#differences-chart svg.chart") -> None:
    """Open the page and wait for a chart, which is drawn when it comes near the window."""
    browser.open(page, chosen)
    place = selector.partition(" ")[0]
    browser.run(f"document.querySelector('{place}').scrollIntoView({{behavior: 'instant'}})")
    browser.until(f"document.querySelectorAll('{selector}').length > 0")


def marks(browser: Browser, place: str) -> list[str]:
    return browser.run(f"[...document.querySelectorAll('{place} .mark')].map(m => m.getAttribute('aria-label'))")


# --- differences


def test_each_loss_has_a_row_sorted_by_effect_with_its_interval_and_verdict_in_words(browser, page, results):
    show(browser, page)
    frame = results.comparisons
    frame = frame[(frame["metric"] == "accuracy") & (frame["experiment"] == "digits")].sort_values(
        "delta", ascending=False
    )
    found = marks(browser, "#differences-chart")
    assert [name.split(",")[0] for name in found] == list(frame["loss"])
    for name, row in zip(found, frame.to_dict("records"), strict=True):
        assert f"difference {row['delta']:+.2f} points".replace("-", "−") in name
        assert f"interval [{row['low']:+.2f}, {row['high']:+.2f}]".replace("-", "−") in name
    texts = browser.run("[...document.querySelectorAll('#differences-chart .value')].map(t => t.textContent)")
    assert [text.split(" ")[-1].lstrip("+−.0123456789").rstrip("*") for text in texts] == [
        "better",
        "equivalent",
        "worse",
        "worse",
    ]


def test_the_title_states_the_finding(browser, page):
    show(browser, page)
    finding = browser.run(FINDING.format("#differences-chart"))
    assert finding.startswith("Only w_softmax beats softmax on digits, by ")
    browser.run("document.querySelector('#legend li:nth-child(5) button').click()")
    assert browser.run(FINDING.format("#differences-chart")).startswith("No loss beats softmax on digits by more than ")


def test_an_outlier_does_not_squeeze_the_others_and_its_value_is_written(browser, page):
    show(browser, page)
    place = "[...document.querySelectorAll('#differences-chart .mark')]"
    extent = f"{place}.map(m => m.querySelector('.interval').getBoundingClientRect().width)"
    assert max(browser.run(extent)[:3]) > 10  # a few tenths of a point on an axis that would be 45 points wide
    ends = f"{place}.map(m => m.querySelectorAll('path.solid, path.hollow').length)"
    assert browser.run(ends) == [1, 1, 1, 1]  # the last an arrow
    tick = "[...document.querySelectorAll('#differences-chart .tick')].map(t => t.textContent)"
    assert not any("40" in text for text in browser.run(tick))
    assert "−40" in browser.run("[...document.querySelectorAll('#differences-chart .value')].at(-1).textContent")


def test_panels_and_metric_are_chosen_and_are_in_the_address(browser, page):
    show(browser, page)
    browser.choose("#differences [data-choice=panels] select", "widths")
    assert browser.run("document.querySelectorAll('#differences-chart .panel').length") == 3
    browser.choose("#differences [data-choice=metric] select", "step_seconds")
    browser.choose("#differences [data-choice=panels] select", "")
    assert "step time" in browser.run("document.querySelector('#differences-chart .sub').textContent").lower()
    link = browser.run("location.hash.slice(1)")
    assert "metric=step_seconds" in link
    finding = browser.run(FINDING.format("#differences-chart"))
    show(browser, page, link)
    assert browser.run(FINDING.format("#differences-chart")) == finding


# --- hover and keyboard


def test_a_mark_says_on_hover_what_it_is_and_opens_its_cells(browser, page):
    show(browser, page)
    assert browser.run(f"{TIP}.hidden")
    browser.hover("#differences-chart .mark:nth-of-type(3)")
    text = browser.run(f"{TIP}.innerText")
    for part in ("worse", "interval", "hinge", "digits", "paired seeds", "against"):
        assert part in text
    browser.click("#differences-chart .mark:nth-of-type(3)")
    assert browser.run("document.getElementById('panel-title').textContent") == "hinge against softmax"
    browser.press("Escape")
    assert browser.run("document.activeElement.classList.contains('mark')")


@pytest.mark.parametrize("view", VIEWS)
def test_every_mark_of_every_chart_has_a_hover_with_its_place_and_cells(browser, page, view):
    show(
        browser,
        page,
        f"explore?view={view}&at=digits" if view != "axis" else "explore?view=axis",
        f"#view-{view} .mark",
    )
    found = marks(browser, f"#view-{view}")
    assert found
    assert all("experiment" in name for name in found)
    inner = browser.run(f"document.querySelector('#view-{view} .mark > .hit') ? ' > .hit' : ''")
    browser.hover(f"#view-{view} .mark{inner}")
    assert "Click or press Enter for its cells" in browser.run(f"{TIP}.innerText")
    assert browser.run("document.documentElement.scrollWidth") <= 1400


def test_marks_are_one_tab_stop_and_arrows_move_between_them(browser, page):
    show(browser, page)
    assert browser.run("document.querySelectorAll('#differences-chart .mark[tabindex=\"0\"]').length") == 1
    browser.run("document.querySelector('#differences-chart .mark[tabindex=\"0\"]').focus()")
    browser.press("ArrowDown")
    browser.press("ArrowDown")
    assert browser.run("document.activeElement.getAttribute('aria-label')").startswith("hinge")
    assert "hinge" in browser.run(f"{TIP}.innerText")
    browser.press("End")
    assert browser.run("document.activeElement.getAttribute('aria-label')").startswith("l_softmax")
    browser.press("Enter")
    assert browser.run("document.getElementById('panel').open")
    browser.press("Escape")
    browser.press("Home")
    browser.press("Escape")
    assert browser.run(f"{TIP}.hidden")


def test_tabs_are_moved_with_arrows_and_show_their_chart(browser, page):
    show(browser, page, "explore", "#explore-tabs button")
    browser.run("document.querySelector('#explore-tabs [aria-selected=true]').focus()")
    browser.press("ArrowRight")
    assert browser.run("document.querySelector('#explore-tabs [aria-selected=true]').textContent") == "Against cost"
    assert browser.run(
        "[...document.querySelectorAll('#explore-views figure')].filter(f => f.offsetHeight).map(f => f.id)"
    ) == ["view-cost"]
    assert "view=cost" in browser.run("location.hash")


# --- the views


def test_lines_lead_along_an_axis_with_the_metric_and_the_difference(browser, page):
    show(browser, page, "explore?view=axis", "#view-axis svg.chart")
    assert browser.run("document.querySelector('[data-choice=at] select').value") == "widths, M = 20"
    assert browser.run("[...document.querySelectorAll('#view-axis h4')].map(h => h.textContent)") == [
        "Accuracy, %",
        "Difference from softmax, points",
    ]
    assert len(marks(browser, "#view-axis")) == 3 * 2 + 3
    assert "w_softmax differs most from softmax" in browser.run(FINDING.format("#view-axis"))
    ticks = "[...document.querySelectorAll('#view-axis svg.chart')][0].querySelectorAll('.tick')"
    assert {"4", "9", "20"} <= set(browser.run(f"[...{ticks}].map(t => t.textContent)"))


def test_an_experiment_without_an_axis_says_where_there_is_one(browser, page):
    show(browser, page, "explore?view=axis&at=digits", "#view-axis .elsewhere button")
    assert browser.run(FINDING.format("#view-axis")) == "digits varies no numeric axis"
    browser.click("#view-axis .elsewhere button")
    assert len(marks(browser, "#view-axis")) == 9


def test_the_labels_of_marks_against_cost_do_not_overlap_and_an_outlier_is_named_at_the_edge(browser, page):
    show(browser, page, "explore?view=cost&at=digits", "#view-cost svg.chart")
    boxes = browser.run(
        "[...document.querySelectorAll('#view-cost .halo')].map(t => { const r = t.getBoundingClientRect();"
        "return [r.left, r.top + 2, r.right, r.bottom - 2]; })"
    )
    assert len(boxes) == len(LOSSES)
    assert not any(meets(a, b) for index, a in enumerate(boxes) for b in boxes[:index])
    edge = browser.run("[...document.querySelectorAll('#view-cost .halo')].map(t => t.textContent)")
    assert any("→" in text and "↓" in text for text in edge if text.startswith("l_softmax"))
    finding = browser.run(FINDING.format("#view-cost"))
    assert finding.startswith("w_softmax has the best accuracy on digits (9")
    assert "; hinge has the shortest step (8" in finding
    browser.choose("#explore [data-choice=cost] select", "memory")
    assert "head memory" in browser.run("document.querySelector('#view-cost .sub').textContent")


def meets(a: list[float], b: list[float]) -> bool:
    return a[0] < b[2] and a[2] > b[0] and a[1] < b[3] and a[3] > b[1]


def test_the_matrix_has_every_pair_both_ways_with_opposite_verdicts(browser, page):
    show(browser, page, "explore?view=pairs&at=digits", "#view-pairs svg.chart")
    found = marks(browser, "#view-pairs")
    assert len(found) == 5 * 4
    pair = {name.split(",")[0]: name.rsplit(", ", 1)[1] for name in found}
    assert (pair["w_softmax − softmax"], pair["softmax − w_softmax"]) == ("better", "worse")
    assert pair["center − softmax"] == pair["softmax − center"] == "equivalent"
    assert browser.run(FINDING.format("#view-pairs")).startswith("w_softmax is better than 4 of 4 other losses")


def test_claims_have_a_row_per_statement_and_a_mark_per_case(browser, page):
    show(browser, page, "claims", "#claims-chart .mark")
    assert browser.run("document.querySelectorAll('#claims-chart li').length") == 4
    found = marks(browser, "#claims-chart")
    assert any("W-Softmax is more accurate" in name and name.endswith("supported") for name in found)
    browser.click("#claims-chart .mark")
    assert browser.run("document.getElementById('panel').open")
    browser.press("Escape")


# --- one filter and one colour for all


def test_the_filter_applies_to_every_chart(browser, page):
    show(browser, page, "?q=hinge")
    assert [name.split(",")[0] for name in marks(browser, "#differences-chart")] == ["hinge"]
    show(browser, page, "explore?view=cost&at=digits&q=hinge", "#view-cost svg.chart")
    assert len(marks(browser, "#view-cost")) == 1
    show(browser, page, "claims?q=faster", "#claims-chart .mark")
    assert browser.run("document.querySelectorAll('#claims-chart li').length") == 1
    browser.open(page, "?q=nothing-has-this-name")
    browser.run("document.querySelector('#differences-chart').scrollIntoView()")
    browser.until(f"{FINDING.format('#differences-chart')} === 'No comparison matches the filter'")


def test_a_loss_that_is_switched_off_leaves_every_chart_and_a_link_restores_it(browser, page):
    show(browser, page)
    browser.click("#legend li:nth-child(4) button")
    assert not any("hinge" in name.split(",")[0] for name in marks(browser, "#differences-chart"))
    link = browser.run("location.hash.slice(1)")
    show(browser, page, link)
    assert not any("hinge" in name.split(",")[0] for name in marks(browser, "#differences-chart"))
    assert browser.run("document.querySelector('#filter-said').textContent") == ": 4 losses of 5"
    browser.click("#filter-clear")
    assert any("hinge" in name.split(",")[0] for name in marks(browser, "#differences-chart"))


def test_a_loss_has_its_colour_in_every_chart_and_in_both_themes(browser, page, results):
    for scheme, side in (("light", "light"), ("dark", "dark")):
        browser.scheme(scheme)
        for view, place in (("", "#differences-chart"), ("explore?view=cost&at=digits", "#view-cost")):
            show(browser, page, view, f"{place} svg.chart")
            for index, (label, look) in enumerate(looks(results.labels).items()):
                found = browser.run(
                    f'[...document.querySelectorAll(\'{place} svg [data-l="{index}"], #legend [data-l="{index}"]\')]'
                    ".map(e => getComputedStyle(e).color)"
                )
                red, green, blue = (int(getattr(look, side)[at : at + 2], 16) for at in (1, 3, 5))
                assert set(found) == {f"rgb({red}, {green}, {blue})"}, label


# --- phone, paper, many losses


@pytest.mark.parametrize("view", VIEWS)
def test_a_chart_fits_a_phone(browser, page, view):
    browser.size(390, 844, phone=True)
    show(browser, page, f"explore?view={view}" + ("" if view == "axis" else "&at=digits"), f"#view-{view} svg.chart")
    assert browser.run("document.documentElement.scrollWidth") <= 390
    parts = f"[...document.querySelectorAll('#view-{view} svg.chart *')]"
    assert browser.run(f"Math.max(...{parts}.map(e => e.getBoundingClientRect().right))") <= 391


def test_what_was_not_yet_drawn_is_drawn_for_paper(browser, page):
    show(browser, page)
    views = "[...document.querySelectorAll('#explore-views figure:has(svg.chart)')].map(f => f.id)"
    assert len(browser.run(views)) <= 1  # only the chosen one, if it is near the window
    assert browser.pdf().startswith(b"%PDF")
    assert browser.run(views) == [f"view-{view}" for view in VIEWS]
    assert browser.run("document.documentElement.classList.contains('print')") is False


def test_paper_has_every_view_of_the_chosen_point(browser, page):
    show(browser, page)
    browser.size(1032, 720)
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        browser.until("document.documentElement.classList.contains('print')")
        drawn = "[...document.querySelectorAll('#explore-views figure:has(svg.chart)')].filter(f => f.offsetHeight)"
        assert browser.run(f"{drawn}.map(f => f.id)") == [f"view-{view}" for view in VIEWS]
        assert browser.run("document.documentElement.scrollWidth") <= 1032
        parts = "[...document.querySelectorAll('svg.chart *')]"
        assert browser.run(f"Math.max(...{parts}.map(e => e.getBoundingClientRect().right))") <= 1033
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")


def test_twenty_losses_with_long_labels_stay_readable(browser, read_suite, tmp_path):
    """Labels are cut to their room, never over each other, at both widths."""
    specs = tuple(Spec(label.partition("[")[0], {}, label, "0") for label in TWENTY)
    suite = read_suite(SMALL)
    (experiment,) = suite.experiments
    suite = replace(suite, experiments=(replace(experiment, losses=specs, seeds=(0, 1, 2)),))
    many = analysed(suite, lambda cell: Truth(90 + common(cell.seed) + noise(cell, 0.3)))
    path = tmp_path / "many.html"
    path.write_text(html.html(many, [Section("answer", "Answer", (Prose("Many losses."),))]), encoding="utf-8")
    for width in (1400, 390):
        browser.size(width, 900, phone=width < 500)
        show(browser, path, "explore?view=pairs", "#view-pairs svg.chart")
        assert browser.run("document.documentElement.scrollWidth") <= width
        boxes = browser.run(
            "[...document.querySelectorAll('#view-pairs .name')].map(t => { const r = t.getBoundingClientRect();"
            "return [r.left, r.top + 3, r.right, r.bottom - 3]; })"
        )
        assert len(boxes) == len(TWENTY)
        assert not any(meets(a, b) for index, a in enumerate(boxes) for b in boxes[:index])
        tiles = browser.run(
            "Math.min(...[...document.querySelectorAll('#view-pairs .tile')].map(t => t.getBoundingClientRect().left))"
        )
        assert max(box[2] for box in boxes) <= tiles
    colours = browser.run("[...document.querySelectorAll('#legend svg')].map(e => getComputedStyle(e).color)")
    assert len(set(colours)) == len(TWENTY)
