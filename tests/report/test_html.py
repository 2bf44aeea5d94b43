"""report.html in a real browser: text, tables, the dialog with cells, themes, phone, print, no script, policy."""

from __future__ import annotations

import itertools

import pytest
from conftest import SMALL
from kit.browser import BINARY, Browser, NoBrowserError
from kit.page_of import written
from kit.synthetic import Truth, common, noise, write_run

from lossbench import load_records
from lossbench.analysis.results import analyse
from lossbench.plan.cells import plan
from lossbench.store.records import Store

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BINARY is None, reason="no Chromium here (Debian: apt-get install chromium)"),
]

TITLE = "<script>alert(1)</script><b>bold</b> & 'quoted'"
SUITE = (
    SMALL.replace('"A small suite"', f'"{TITLE}"')
    .replace('"w_softmax"]', '"w_softmax", "center", "hinge"]')
    .replace("seeds = 2", "seeds = 3")
    .replace("widths = [8]", "widths = [4, 9, 12]")
)
CURVE = tuple({"step": step, "loss": 1 / step} for step in range(1, 5))
ROWS = "[...document.querySelectorAll('#answer tbody tr')]"
OPEN = "document.getElementById('panel').open"
PANEL = "document.getElementById('panel').innerText"


def column(index: int) -> str:
    return f"{ROWS}.map(row => row.cells[{index}].textContent)"


@pytest.fixture(scope="module")
def run(tmp_path_factory, read_suite):
    """A run in which one loss failed, with text in its log that tries to become markup."""

    def truth(cell):
        if cell.loss.name == "hinge":
            return Truth(status="failed", error="<i>broken</i>")
        return Truth(90 + common(cell.seed) + noise(cell, 1), curve=CURVE)

    suite = read_suite(SUITE)
    folder = write_run(suite, tmp_path_factory.mktemp("run") / "small", truth)
    for cell in plan(suite):
        Store(folder).log(cell.key).write_text("</script><script>alert(2)</script>\n<i>broken</i>\n")
    return folder


@pytest.fixture(scope="module")
def page(run):
    return written(analyse([run]), run.parent / "report.html")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    try:
        browser = Browser(tmp_path_factory.mktemp("profile"))
    except NoBrowserError as error:
        pytest.skip(str(error))
    yield browser
    browser.close()


@pytest.fixture
def browser(started, page):
    """The page, freshly opened on a desk in the light."""
    started.size(1280, 900)
    started.scheme("light")
    started.open(page)
    yield started
    started.run("0")  # lets what the page has still to say come in
    assert started.errors == []
    assert started.alerts == []
    asked = {address.partition("#")[0] for address in started.requests if not address.startswith("data:")}
    assert asked == {page.as_uri()}
    started.run("localStorage.clear()")


def test_it_opens_quietly_and_a_title_stays_text(browser):
    assert browser.run("document.title") == TITLE
    assert browser.run("document.querySelector('h1').textContent") == TITLE
    assert browser.run("document.querySelectorAll('h1 *, main script, main b b').length") == 0


def test_a_column_is_sorted_by_mouse_and_by_keyboard_with_gaps_last(browser):
    heading = "#answer th:nth-child(3)"
    before = browser.run(column(2))
    assert "–" in before  # the loss that breaks has no accuracy
    state = f"document.querySelector('{heading}').getAttribute('aria-sort')"
    browser.click(f"{heading} button")
    assert browser.run(state) == "ascending"
    known = [float(text) for text in before if text != "–"]
    gaps = ["–"] * before.count("–")
    assert [text if text == "–" else float(text) for text in browser.run(column(2))] == [*sorted(known), *gaps]
    browser.run(f"document.querySelector('{heading} button').focus()")
    browser.press("Enter")
    assert browser.run(state) == "descending"
    falling = [*sorted(known, reverse=True), *gaps]
    assert [text if text == "–" else float(text) for text in browser.run(column(2))] == falling
    browser.press(" ")
    assert browser.run(state) == "none"
    assert browser.run(column(2)) == before


def test_widths_are_sorted_as_numbers(browser):
    browser.click("#answer th:nth-child(2) button")
    assert browser.run(column(1)) == ["4"] * 4 + ["9 (min)"] * 4 + ["12"] * 4


def test_the_filter_applies_to_every_table(browser):
    visible = "document.querySelectorAll('tbody tr:not(.out)').length"
    count = "document.querySelector('#answer output').textContent"
    assert browser.run(count) == "12 rows"
    browser.click("#filter")
    browser.type("SOFTMAX -w_soft")
    browser.until(f"{count} === '3 of 12 rows'")
    assert browser.run(visible) == 2 * 3  # the page has two copies of the table
    browser.type(" nothing")
    browser.until(f"{count} === '0 of 12 rows'")
    browser.press("Escape")
    browser.until(f"{count} === '12 rows'")


def test_a_loss_that_is_switched_off_leaves_every_table(browser):
    browser.click("#legend li:nth-child(3) button")
    assert (
        browser.run("document.querySelector('#legend li:nth-child(3) button').getAttribute('aria-pressed')") == "false"
    )
    assert "center" in browser.run("location.hash")
    shown = f"{ROWS}.filter(row => row.offsetHeight).map(row => row.cells[0].textContent)"
    assert set(browser.run(shown)) == {"softmax", "w_softmax", "hinge"}
    browser.click("#losses-all")
    assert len(browser.run(shown)) == 12


def test_a_click_on_a_row_shows_its_cells_and_escape_closes(browser):
    browser.click("#answer tbody tr:nth-child(2) td:nth-child(4)")
    assert browser.run(OPEN)
    text = browser.run(PANEL)
    assert text.startswith("w_softmax against softmax")
    assert browser.run("document.querySelectorAll('#panel tbody tr').length") == 6
    assert browser.run("document.querySelectorAll('#panel .spark polyline[points]').length") == 6
    assert "/record.json" in text
    assert "Δ points" in text
    browser.press("Escape")
    assert not browser.run(OPEN)
    assert browser.run("document.activeElement.textContent") == "w_softmax"


def test_the_dialog_plots_the_seeds_in_pairs(browser, run):
    frame = load_records(run)
    frame = frame[frame["width"] == 4].set_index(["label", "seed"])["accuracy"]
    deltas = [frame["w_softmax", seed] - frame["softmax", seed] for seed in range(3)]
    browser.click("#answer tbody tr:nth-child(2) td:nth-child(4)")
    said = browser.run("document.querySelector('.paired .finding').textContent")
    assert said.startswith(f"w_softmax is better on {sum(delta > 0 for delta in deltas)} of 3 seeds")
    assert said.endswith(f"mean difference {sum(deltas) / 3:+.2f} points".replace("-", "−"))
    assert browser.run("document.querySelectorAll('.paired .slope').length") == 2 * 3  # a line and a stem each
    names = browser.run("[...document.querySelectorAll('.paired .mark')].map(m => m.getAttribute('aria-label'))")
    assert any("seed 2" in name and f"{deltas[2]:+.2f}".replace("-", "−") in name for name in names)
    browser.press("Escape")


def test_the_panel_says_what_the_records_say(browser, run):
    frame = load_records(run)
    mine = frame[(frame["label"] == "center") & (frame["width"] == 9)].sort_values("seed")
    browser.click("#answer tbody tr:nth-child(7) td:nth-child(2)")
    shown = browser.run(
        "[...document.querySelector('#panel table').tBodies[0].rows].map(row => [...row.cells].map(c => c.innerText))"
    )
    assert [row[2] for row in shown] == [f"{value:.2f}" for value in mine["accuracy"]]
    for row, key in zip(shown, mine["key"], strict=True):
        assert row[-1].split() == [f"cells/{key}/record.json", f"logs/{key}.log"]
        assert (run / "cells" / key / "record.json").exists()
        assert (run / "logs" / f"{key}.log").exists()
    browser.press("Escape")


def test_rows_are_reached_and_opened_by_keyboard(browser):
    browser.run("document.querySelector('#answer tbody button.cells').focus()")
    browser.press("ArrowDown")
    assert browser.run("document.activeElement.textContent") == "w_softmax"
    browser.press("Enter")
    assert browser.run(OPEN)
    assert browser.run("document.getElementById('panel').contains(document.activeElement)")
    browser.press("Escape")
    assert not browser.run(OPEN)
    assert browser.run("document.activeElement.textContent") == "w_softmax"


def test_the_first_tab_stop_skips_to_the_report(browser):
    browser.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0
    browser.press("Enter")
    assert browser.run("document.activeElement.id") == "report"


def test_cells_that_failed_are_one_click_away_with_the_end_of_their_logs(browser, page):
    browser.click(".chips button.bad")
    text = browser.run(PANEL)
    assert text.startswith("Cells: failed")
    assert "<i>broken</i>" in text
    assert "</script><script>alert(2)</script>" in text
    assert browser.run("document.querySelectorAll('#panel i, #panel script').length") == 0
    link = browser.run("location.hash.slice(1)")
    browser.click("#panel-close")
    assert not browser.run(OPEN)
    browser.open(page, link)
    assert browser.run(PANEL).startswith("Cells: failed")
    browser.press("Escape")


def test_an_open_dialog_has_an_address_and_back_closes_it(browser, page):
    browser.click("#answer tbody tr:nth-child(2) td:nth-child(4)")
    link, text = browser.run("location.hash.slice(1)"), browser.run(PANEL)
    browser.run("history.back()")
    browser.until(f"!{OPEN}")
    browser.open(page, link)
    assert browser.run(PANEL) == text
    browser.press("Escape")
    browser.until("!location.hash.includes('cells')")


def test_a_section_has_an_address_and_a_folded_one_opens(browser, page):
    assert browser.run("document.querySelector('#details details').open") is False
    browser.click("nav a[href='#details']")
    assert browser.run("document.querySelector('#details details').open") is True
    assert browser.run("location.hash") == "#details"
    browser.until("document.querySelector('nav a[aria-current]')?.hash === '#details'")
    browser.open(page, "details")
    assert browser.run("document.querySelector('#details details').open") is True
    assert browser.run("document.getElementById('details').getBoundingClientRect().top") < 900


def test_an_address_with_unknown_names_shows_the_defaults(browser, page):
    browser.open(page, "nowhere?metric=none&at=none&view=none&off=none&cells=none&line=7&q=")
    assert not browser.run(OPEN)
    assert browser.run("document.querySelectorAll('#differences svg.chart').length") > 0


def test_the_theme_follows_the_system_until_the_reader_chooses_and_is_remembered(browser, page):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(ground)
    browser.scheme("dark")
    dark = browser.run(ground)
    assert dark != light
    browser.click("#theme-toggle")
    assert browser.run(ground) == light
    browser.open(page)
    assert browser.run(ground) == light
    browser.click("#theme-toggle")
    assert browser.run(ground) == dark


@pytest.mark.parametrize("width", [360, 390, 768, 1400])
def test_no_width_scrolls_the_page_sideways_and_the_first_column_stays(browser, width):
    browser.size(width, 740, phone=width < 1000)
    assert browser.run("document.documentElement.scrollWidth") <= width
    first = "document.querySelector('#answer tbody td').getBoundingClientRect().left"
    browser.run("document.querySelector('#answer .scroll').scrollIntoView()")
    before = browser.run(first)
    browser.run("document.querySelector('#answer .scroll').scrollLeft = 200")
    assert browser.run(first) == pytest.approx(before, abs=1)
    browser.click("#answer tbody tr:nth-child(2) button.cells")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.getElementById('panel').getBoundingClientRect().right") <= width
    assert browser.run(
        "document.getElementById('panel-body').scrollWidth <= document.getElementById('panel-body').clientWidth"
    )
    browser.press("Escape")


def test_paper_has_every_row_no_folds_and_no_buttons(browser):
    browser.click("#filter")
    browser.type("center")
    browser.until("document.querySelectorAll('.out').length > 0")
    browser.size(1032, 720)  # what A4 has within its margins
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        browser.until("document.documentElement.classList.contains('print')")
        assert browser.run("[...document.querySelectorAll('tbody tr')].every(row => row.offsetHeight)")
        assert browser.run("[...document.querySelectorAll('.tools, .side, #theme-toggle')].every(e => !e.offsetHeight)")
        assert browser.run("[...document.querySelectorAll('main *')].filter(e => e.offsetParent).every("
                           "e => e.getBoundingClientRect().right <= innerWidth + 1)")  # fmt: skip
        assert browser.pdf().startswith(b"%PDF")
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
    browser.until("!document.documentElement.classList.contains('print')")
    assert browser.run("document.querySelector('#details details').open") is False


def test_tables_stay_readable_without_javascript(browser, page):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        assert browser.run("[...document.querySelectorAll('button, figure, nav a[href=\"#explore\"]')]"
                           ".every(e => !e.offsetHeight)")  # fmt: skip
        assert browser.run(f"{ROWS}.every(row => row.offsetHeight)")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_no_script_but_the_page_s_own_can_run_and_nothing_can_be_loaded(started, page):
    started.open(page)
    started.run(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
    )
    started.run(
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"file:///none.png\" onerror=\"window.ran = 2\">')"
    )
    assert started.run("new Promise(done => setTimeout(() => done(typeof window.ran), 200))") == "undefined"
    assert started.run("fetch('https://example.org').then(() => 'loaded', () => 'refused')") == "refused"
    assert [address for address in started.requests if not address.startswith(("file:", "data:", "about:"))] == []


def test_headings_landmarks_and_names_are_in_order(browser):
    levels = browser.run(
        "[...document.querySelectorAll('body > :not(dialog) :is(h1,h2,h3,h4)')].map(h => +h.tagName[1])"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    for landmark in ("header", "nav[aria-label]", "main"):
        assert browser.run(f"document.querySelectorAll('{landmark}').length") == 1
    unnamed = "[...document.querySelectorAll('button, input, select, [role=region], [role=img], svg.chart, .mark')]"
    named = "e.textContent.trim() || e.getAttribute('aria-label') || e.closest('label')"
    assert browser.run(f"{unnamed}.filter(e => !({named})).length") == 0
    ids = browser.run("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
