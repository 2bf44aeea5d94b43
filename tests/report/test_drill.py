"""The page without a browser: sort keys, the cells behind rows and marks, sections, contrast, size."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import time
from dataclasses import replace

import numpy as np
import pytest
from conftest import SMALL
from kit.known_truth import SUITE, synthetic
from kit.page_of import sections

from lossbench.analysis.results import analyse
from lossbench.core.model import Record
from lossbench.plan.cells import plan
from lossbench.report.blocks import Anchor, Prose, Section, Table, leading_number
from lossbench.report.output import html as page
from lossbench.report.output.drill import LOG_LINES, Drill, tail
from lossbench.report.palette import looks
from lossbench.store.records import Store


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, read_suite):
    """Every cell done, but one that failed with a log and one that was never run."""
    suite = read_suite(SUITE)
    store = Store(tmp_path_factory.mktemp("run"))
    store.prepare(suite, plan(suite))
    rng = np.random.default_rng(0)
    for cell in plan(suite):
        record, bits = synthetic(cell, rng)
        if cell.kind == "train" and cell.loss.name == "center" and cell.seed == 0:
            store.log(cell.key).write_text(
                "".join(f"line {n}\n" for n in range(99)) + "\x1b[31mboom\x1b[0m </script>\n"
            )
            record, bits = Record(cell, "failed", error="boom"), None
        if cell.kind == "train" and cell.loss.name == "center" and cell.seed == 1:
            continue
        store.write(record, bits)
    return store.root


@pytest.fixture(scope="module")
def results(run_folder):
    return analyse([run_folder])


@pytest.fixture(scope="module")
def parts(results):
    return sections(results)


@pytest.fixture(scope="module")
def text(results, parts):
    return page.html(results, parts)


def data_of(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', text)[1])


def cells_of(data: dict, groups: list[int] | None = None) -> list[dict]:
    cells = [dict(zip(data["drill"]["fields"], row, strict=True)) for row in data["drill"]["cells"]]
    return [cell for cell in cells if groups is None or cell["group"] in groups]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("97.5", 97.5),
        ("+0.25 [+0.04, +0.47]", 0.25),
        ("-0.52 points [-0.93, -0.11]", -0.52),
        ("−3.0", -3.0),
        ("< 0.001", 0.0005),
        ("9 (min)", 9),
        ("1.5 MiB", 1.5 * 2**20),
        ("900 B", 900),
        ("10,575", 10575),
        ("1.2e-05", 1.2e-5),
        ("0.19 / 0.58", 0.19),
        ("–", None),
        ("", None),
        ("softmax", None),
        ("nan", None),
    ],
)
def test_a_finished_text_is_sorted_by_the_number_it_begins_with(text, number):
    assert leading_number(text) == (None if number is None else pytest.approx(number))


def test_a_table_may_state_its_own_order():
    rows = [{"loss": "a", "grade": "good"}, {"loss": "b", "grade": "bad"}, {"loss": "c", "grade": "none"}]
    table = Table.of(rows, left=["loss"], order={"grade": [2.0, 1.0, None]})
    assert [table.rank(row, 1) for row in range(3)] == [2.0, 1.0, None]


def test_every_planned_cell_is_in_the_page_once(results, text):
    data = data_of(text)
    assert len(cells_of(data)) == len(results.cells) == 8 * 2 * 4 + 2
    states = [cell["status"] for cell in cells_of(data)]
    assert (states.count("failed"), states.count("missing")) == (2, 2)


def test_a_row_leads_to_its_cells_and_those_of_what_it_is_compared_with(results, parts, text):
    data = data_of(text)
    table = next(block for block in parts[0].blocks if isinstance(block, Table))
    for row, groups in zip(table.rows, Drill(results).links(table), strict=True):
        said = dict(zip(table.columns, row, strict=True))
        assert len(groups) == (1 if said["loss"] == "softmax" else 2)
        assert data["groups"][groups[0]][3] == said["loss"]
        done = [cell for cell in cells_of(data, groups[:1]) if cell["status"] == "done"]
        mean = np.mean([cell["values"][0] for cell in done])
        assert said["accuracy, %"] == f"{mean:.2f}"
        assert f'<tr data-g="{" ".join(map(str, groups))}">' in text


def test_a_row_leads_to_the_cells_that_it_names(results):
    point = results.main["point"].iloc[0]
    anchors = [
        [Anchor(point, "softmax")],
        [Anchor(point, "softmax"), Anchor(point, "center")],
        [Anchor(point, "nobody")],
    ]
    drill = Drill(results)
    table = Table.of([{"x": "1"}, {"x": "2"}, {"x": "3"}], left=[], anchors=anchors)
    assert [len(groups) for groups in drill.links(table)] == [1, 2, 0]
    assert drill.links(Table.of([{"x": "1"}], left=[])) == [[]]


def test_the_page_has_the_end_of_a_log_only_for_cells_that_failed(text):
    data = data_of(text)
    assert len(data["drill"]["notes"]) == 1  # equal texts are stored once
    assert data["drill"]["notes"][0].splitlines() == [
        *(f"line {n}" for n in range(100 - LOG_LINES, 99)),
        "boom </script>",
    ]
    cells = cells_of(data)
    assert {cell["status"] for cell in cells if cell["note"] is not None} == {"failed"}


def test_a_long_log_is_cut_and_a_missing_one_is_nothing(tmp_path):
    (tmp_path / "long.log").write_bytes(b"x" * 100_000 + b"\xff\r\nend\n")
    assert len(tail(tmp_path / "long.log")) == 2_000
    assert tail(tmp_path / "long.log").endswith("\nend")
    assert tail(tmp_path / "none.log") == ""


def test_of_two_runs_each_cell_keeps_its_own_folder(tmp_path, read_suite):
    suite = read_suite(SMALL)
    stores = [Store(tmp_path / name) for name in "ab"]
    rng = np.random.default_rng(0)
    for store in stores:
        store.prepare(suite, plan(suite))
    for cell in plan(suite):
        stores[0].write(Record(cell, "failed", error="x"))
        stores[1].write(*synthetic(cell, rng))
    data = Drill(analyse([store.root for store in stores])).payload({"accuracy": 2})
    assert [dict(zip(data["fields"], row, strict=True))["run"] for row in data["cells"]] == [1] * 4


def contrast(first: str, second: str) -> float:
    """WCAG 2's contrast ratio of two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [page.LIGHT, page.DARK], ids=["light", "dark"])
def test_every_text_has_contrast_on_every_background(theme):
    grounds = ("back", "panel", "head", "hover")
    pairs = [*itertools.product(("ink", "soft", "link"), grounds)]
    pairs += [("bad", ground) for ground in grounds]  # why a cell failed
    pairs += [(tone, f"{tone}-back") for tone in ("good", "bad", "even", "open", "mark", "plain")]
    poor = {pair: contrast(theme[pair[0]], theme[pair[1]]) for pair in pairs}
    assert {pair: value for pair, value in poor.items() if value < 4.5} == {}
    assert contrast(theme["edge"], theme["panel"]) >= 3  # the border of a field


def test_the_style_sheet_uses_only_colours_that_exist():
    used = set(re.findall(r"var\(--([\w-]+)\)", page._part("page.css")))
    assert used - {"tall"} == set(page.LIGHT) | set(page.LIGHT_ONLY)
    assert set(page.LIGHT) | set(page.LIGHT_ONLY) == set(page.DARK) | set(page.DARK_ONLY)


def test_every_loss_has_its_colour_in_both_themes(results, text):
    for index, look in enumerate(looks(results.labels).values()):
        assert f"--l{index}: {look.light};" in text.replace(" }", ";")
        assert f"--l{index}: {look.dark};" in text.replace(" }", ";")


@pytest.mark.parametrize("word", ["better", "worse", "equivalent", "undecided", "not testable", "supported"])
def test_a_verdict_has_its_word_and_its_colour(results, word):
    table = Table.of([{"loss": "center", "verdict": word}], left=["loss", "verdict"])
    made = page.html(results, [Section("answer", "Answer", (table,))])
    tone = {"better": "good", "supported": "good", "worse": "bad", "equivalent": "even", "undecided": "open"}
    assert f'<span class="badge {tone.get(word, "plain")}">{word}</span>' in made


def test_figures_are_left_out_and_so_is_a_section_of_figures_alone(text):
    assert "inlined" not in text
    assert "only-figures" not in text
    assert text.count("<svg") == 1  # the blank one from which drawings are made


def test_an_appendix_is_folded_and_listed_last(text):
    contents = re.findall(r'<li[^>]*><a href="#([\w-]+)">', text)
    assert contents == ["answer", "differences", "explore", "claims", "details"]
    folded = text[text.index('<section id="details"') :]
    assert folded.index("<details>") < folded.index("Details</h2></summary>") < folded.index("<table")
    assert "<details" not in text[text.index('<section id="answer"') : text.index('<section id="details"')]


def test_text_of_sections_is_escaped(results):
    table = Table.of([{"<b>head": "<i>cell", "loss": "<u>"}], left=["loss"], caption="<s>: caption", experiment='"<q>')
    made = page.html(results, [Section("answer", "<h9>", (Prose("<p8>"), Prose("<c7>", code=True), table))])
    for tag in ("<b>head", "<i>cell", "<u>", "<s>", "<q>", "<h9>", "<p8>", "<c7>"):
        assert tag not in made


def test_the_policy_allows_the_script_by_its_hash_and_nothing_else(text):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#39;", "'")
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert len(scripts) == 1
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in policy
    assert "unsafe-eval" not in policy
    assert not re.search(r"\beval\(|new Function|innerHTML|insertAdjacentHTML|document\.write", scripts[0])


def test_a_page_of_a_hundred_cells_is_small_and_quickly_made(tmp_path, read_suite):
    losses = ", ".join(f'{{ name = "w_softmax", alpha = {n / 10} }}' for n in range(1, 10))
    text = SMALL.replace('"w_softmax"]', losses + "]").replace("widths = [8]", "widths = [4, 64]")
    suite = read_suite(text.replace("seeds = 2", "seeds = 5"))
    cells = plan(suite)
    assert len(cells) == 100
    store = Store(tmp_path / "run")
    store.prepare(suite, cells)
    curve = tuple({"step": step, "loss": 1 / step} for step in range(1, 101))
    for index, cell in enumerate(cells):
        record, bits = synthetic(cell, np.random.default_rng(index))
        record = replace(record, curve=curve)
        if index % 3 == 0:  # a third of the cells failed, each with another log
            record, bits = Record(cell, "failed", error=f"cell {index}", curve=curve), None
            store.log(cell.key).write_text("\n".join(f"{index}: {line} and some words" for line in range(100)))
        store.write(record, bits)
    results = analyse([store.root])
    parts = sections(results)
    began = time.process_time()
    made = page.html(results, parts)
    assert time.process_time() - began < 3
    assert len(made.encode()) < 480_000


def test_the_same_records_give_the_same_page(run_folder):
    first, second = (analyse([run_folder]) for _ in range(2))
    assert page.html(first, sections(first)) == page.html(second, sections(second))


def test_a_page_of_a_run_with_nothing_finished_has_its_cells(tmp_path, read_suite):
    suite = read_suite(SMALL)
    store = Store(tmp_path / "run")
    store.prepare(suite, plan(suite))
    results = analyse([store.root])
    data = data_of(page.html(results, [Section("answer", "Answer", (Prose("Nothing yet."),))]))
    assert [cell["status"] for cell in cells_of(data)] == ["missing"] * 4


def test_a_run_in_which_no_seed_finished_for_every_loss_has_no_chance_of_the_front(tmp_path, read_suite):
    suite = read_suite(SMALL.replace("widths = [8]", "widths = [4, 8]"))
    store = Store(tmp_path / "run")
    store.prepare(suite, plan(suite))
    for cell in plan(suite):
        if cell.seed == (cell.loss.name == "softmax"):
            store.write(*synthetic(cell, np.random.default_rng(0)))
    assert analyse([store.root]).front["front_memory"].isna().all()
