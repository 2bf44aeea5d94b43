"""What suites, plugins, records and logs say cannot steer a terminal, break a table or become a formula."""

from __future__ import annotations

import ast
import contextlib
import csv
import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import SMALL, command, write_loss
from hypothesis import given
from hypothesis import strategies as st
from kit.commands import invoke
from kit.terminal import on_terminal

from lossbench.core import plain
from lossbench.report.blocks import Prose, Section, Table
from lossbench.report.output import latex as tex
from lossbench.report.output import markdown as render

PACKAGE = Path(__file__).parents[2] / "lossbench"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

# A loss whose error would clear the screen, and an option with everything that is not a letter.
HOSTILE = r"""
name = "hostile"
title = "Clear \u202e and\noverwrite\nthen | go on"

[[experiment]]
name = "digits"
dataset = "digits"
backbone = { name = "cnn", channels = 4, depths = [1] }
widths = [8]
losses = ["softmax", "center", { name = "broken" }, { name = "named", note = "=1+1\u202ered|" }]
seeds = 3
schedule = { steps = 6, batch = 16 }

[[claim]]
text = "=HYPERLINK(\"http://example.org\")\n\u202e@claim"
experiment = "digits"
better = "softmax"
than = "center"
note = "| a note\nwith lines"

[profile.other]
"""


@given(st.text())
def test_a_line_is_one_line_without_control_characters(written):
    shown = plain.line(written)
    assert len(shown.splitlines()) <= 1
    assert not CONTROLS.search(shown)
    assert "\t" not in shown
    assert plain.line(shown) == shown
    shown.encode()


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_what_can_be_printed_stays_as_it_is(written):
    assert plain.line(written) == plain.text(written) == written


def test_lines_and_tabs_of_a_text_stay_and_the_rest_is_shown_by_number():
    assert plain.text("a\tb\r\nc\rd\x1b[31m\x9b\u202e\x00") == "a\tb\nc\nd\\x1b[31m\\x9b\\u202e\\x00"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", "\n@", " =", "\uff1d"])
def test_a_text_cell_is_never_a_formula(start):
    assert plain.cell(f"{start}cmd").startswith("'")
    assert plain.cell(f"a{start.strip()}cmd") == f"a{start.strip()}cmd"


def test_only_one_function_prints_for_people():
    """Everything else goes through it."""
    printing = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "sys.stdout.write"):
                printing.append(path.name)
    assert printing == ["screen.py"]


def test_tables_captions_and_titles_keep_their_lines():
    table = Table.of(
        [{"loss": "a\r\n|b\x1b[31m", "note\n": "\\input{x}\n% &"}],
        left=["loss"],
        caption="one\rtwo\n\\end{tabular}\x0b",
    )
    text = tex.tabular(table)
    assert text.splitlines()[0] == "% one two \\end{tabular}\\x0b"
    assert text.count("\\\\\n") == 2
    assert not CONTROLS.search(text)
    markdown = render._pipe_table(table)
    assert len(markdown.splitlines()) == 3
    assert Prose("a\nb\x1b").text == "a b\\x1b"
    assert Section("slug", "a\r\nb", ()).title == "a b"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A folder in which the hostile suite was run, and what the command line printed."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "suite.toml").write_text(HOSTILE)
    message = r"boom \x1b[2J\x1b]0;owned\x07\rlast line \x9b31m"
    write_loss(
        folder, "broken", f'if self.calls > 1: print("\\x1b[31mlog\\x07\\rover\\ttab"); raise RuntimeError("{message}")'
    )
    path = write_loss(folder, "named", "pass")
    path.write_text(path.read_text().replace("level: float = 1.0", 'level: float = 1.0, note: str = ""'))
    return folder, lossbench_in(folder, "run", "suite.toml")


def lossbench_in(folder, *arguments):
    with contextlib.chdir(folder):
        return invoke(*arguments)


def assert_plain(content: bytes | str) -> str:
    text = content if isinstance(content, str) else content.decode()
    assert not CONTROLS.search(text), repr(CONTROLS.search(text))
    return text


def test_a_run_prints_no_control_characters(hostile):
    _, ran = hostile
    assert ran.returncode == 1
    said = assert_plain(ran.stdout) + assert_plain(ran.stderr)
    assert "Clear \\u202e and overwrite then | go on: 12 cells" in said
    assert "RuntimeError: boom \\x1b[2J" in said
    assert "named[note==1+1\\u202ered|]" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "hostile"],
        ["report", "hostile", "--reports", "again"],
        ["plan", "suite.toml", "--no-forecast"],
        ["logs", "broken seed=0"],
        ["logs", "no\x1b[31m such"],
        ["list", "losses", "--plugins", "."],
        ["info", "suite", "suite.toml"],
        ["run", "suite.toml", "--profile", "x\x1b[2J"],
        ["run", "suite.toml", "--timeout", "\x1b[2J"],
        ["run", "no\x1b[31m.toml"],
        ["run", "suite.toml", "--no-such\x1b[31m"],
    ],
    ids=lambda arguments: " ".join(arguments).encode("unicode_escape").decode(),
)
def test_no_command_prints_control_characters(hostile, arguments):
    folder, _ = hostile
    found = lossbench_in(folder, *arguments)
    assert_plain(found.stdout)
    assert "Traceback" not in found.stderr
    assert_plain(found.stderr)


def test_a_log_is_shown_with_its_lines_and_tabs(hostile):
    folder, _ = hostile
    said = lossbench_in(folder, "logs", "broken seed=0").stdout
    assert "\\x1b[31mlog\\x07\nover\ttab" in said


def test_the_files_of_a_report_keep_their_shape(hostile):
    folder, _ = hostile
    reports = folder / "reports"
    summary = assert_plain((reports / "summary.md").read_bytes())
    assert summary.splitlines()[0] == "# Clear \\\\u202e and overwrite then \\| go on"
    for block in re.findall(r"(?:^\|.*\n)+", summary, flags=re.MULTILINE):
        columns = {len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}
        assert len(columns) == 1, block
    assert_plain((reports / "report.html").read_bytes())
    for path in (reports / "tables").glob("*.tex"):
        text = assert_plain(path.read_bytes())
        lines = text.splitlines() if path.name != "all.tex" else []
        assert all(line.startswith(("%", "\\begin", "\\hline", "\\end")) or line.endswith("\\\\") for line in lines)
    for path in (reports / "figures").glob("*.svg"):
        assert_plain(path.read_bytes())


def test_no_cell_of_a_csv_file_is_a_formula_and_numbers_are_numbers(hostile):
    folder, _ = hostile
    numbers = 0
    for path in (folder / "reports").glob("*.csv"):
        for row in csv.reader(assert_plain(path.read_bytes()).splitlines()):
            for cell in row:
                if cell.lstrip().startswith(("=", "+", "-", "@")):
                    assert float(cell) < 0, (path.name, cell)
                    numbers += 1
    assert numbers > 0
    (claim,) = csv.DictReader((folder / "reports" / "claims.csv").read_text().splitlines())
    assert claim["text"] == '\'=HYPERLINK("http://example.org") \\u202e@claim'
    assert json.loads((folder / "reports" / "report.json").read_text())["claims"][0]["text"].startswith("=HYPERLINK")


def test_a_suite_without_control_characters_is_shown_as_it_is(lossbench, tmp_path):
    (tmp_path / "suite.toml").write_text(SMALL.replace("A small suite", "Größe: θ̄ ≤ 5 °, “quoted”, 損失 🙂"))
    shown = lossbench("plan", "suite.toml", "--no-forecast")
    assert "Größe: θ̄ ≤ 5 °, “quoted”, 損失 🙂" in shown.stdout


def test_a_terminal_is_not_steered_either(hostile):
    """Pipes are stripped of colours by others; a terminal gets what it is sent."""
    folder, _ = hostile
    status = command("status", "hostile")
    code, sent = on_terminal(lambda terminal: subprocess.Popen(status, cwd=folder, stdout=terminal, stderr=terminal))
    assert code == 1
    assert b"\\x1b[2J\\x1b]0;owned\\x07" in sent
    without_styles = re.sub(rb"\x1b\[[0-9;]*m", b"", sent).replace(b"\r\n", b"\n")
    assert_plain(without_styles)
