"""Sections and results → report.html: one file that loads nothing, made of the files in `page/`.

Text and tables are in the page itself; its charts are drawn by its script from one JSON payload. All text is escaped.
As a second safeguard the page's content security policy allows no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from lossbench.analysis.results import Results
from lossbench.core import plain
from lossbench.report.blocks import Figure, Section, Table
from lossbench.report.output.drill import Drill
from lossbench.report.output.payload import embedded, payload
from lossbench.report.palette import looks

PAGE = Path(__file__).parent / "page"
SCRIPTS = ("kit.js", "state.js", "charts.js", "tables.js", "cells.js", "page.js")  # one script, in this order
WIDE = 30  # characters; longer texts may wrap

# Text has a contrast of 4.5 or more with every background that it may be on; a test computes it.
LIGHT = {
    **{"ink": "#1b1f24", "soft": "#57606a", "line": "#e1e4e8", "edge": "#8c959f", "link": "#0a5ea8"},
    **{"back": "#fafbfc", "panel": "#ffffff", "head": "#f4f6f8", "hover": "#f2f6fb"},
    **{"good": "#0a6245", "good-back": "#dff3e9", "bad": "#a3330b", "bad-back": "#fce8e0"},
    **{"even": "#0b5588", "even-back": "#e0effa", "open": "#705000", "open-back": "#fbf0d0"},
    **{"mark": "#5b3a9e", "mark-back": "#ece6f9", "plain": "#57606a", "plain-back": "#eef0f3"},
}
DARK = {
    **{"ink": "#e4e7eb", "soft": "#a3acb7", "line": "#2d333b", "edge": "#6b7684", "link": "#6cb6ff"},
    **{"back": "#101418", "panel": "#161b21", "head": "#1c222a", "hover": "#1d2530"},
    **{"good": "#6ddcad", "good-back": "#12362a", "bad": "#ff9d76", "bad-back": "#40201a"},
    **{"even": "#82c4f8", "even-back": "#12304a", "open": "#efc757", "open-back": "#3a2f10"},
    **{"mark": "#c6b0fb", "mark-back": "#31274d", "plain": "#a3acb7", "plain-back": "#262d36"},
}

# Parts of a stacked bar, from dark to light, and the shadow at the edge of a table that can be scrolled.
LIGHT_ONLY = {"p0": "#24405c", "p1": "#4d7ea8", "p2": "#86b3d1", "p3": "#c98b4b", "p4": "#d9d4c7", "shade": "#e2e7ed"}
DARK_ONLY = {"p0": "#3f6a96", "p1": "#6da0cc", "p2": "#a9cfe8", "p3": "#d8a066", "p4": "#7d7a72", "shade": "#05070a"}

# Colours of verdicts and statuses, which are always written out too.
TONES = {
    **dict.fromkeys(("supported", "reproduced", "better", "done"), "good"),
    **dict.fromkeys(("contradicted", "worse", "failed", "diverged", "oom", "timeout"), "bad"),
    **dict.fromkeys(("equivalent",), "even"),
    **dict.fromkeys(("undecided", "underpowered", "missing"), "open"),
    **dict.fromkeys(("not testable", "not run", "baseline"), "plain"),
    **dict.fromkeys(("above", "below"), "mark"),
}


def html(results: Results, sections: Sequence[Section]) -> str:
    """The report as one page that needs no network; all text is escaped."""
    drill = Drill(results)
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(
        title=plain.line(results.info.title),
        suite=results.info.name,
        profile=plain.line(results.info.profile or ""),
        overrides=plain.line(", ".join(results.info.overrides)),
        note=plain.line(results.info.note),
        statuses=sorted(results.statuses.items()),
        baseline=plain.line(results.info.baseline),
        sections=[section for section in map(_without_figures, sections) if section.blocks],
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        colours=Markup(_colours(results.labels)),
        css=Markup(_part("page.css")),
        script=Markup(script),
        data=Markup(embedded(payload(results, drill))),
        body=partial(_body, drill),
    )


def _without_figures(section: Section) -> Section:
    """The page draws its own charts of what the figures show."""
    return replace(section, blocks=tuple(block for block in section.blocks if not isinstance(block, Figure)))


@cache
def _part(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8").rstrip()


@cache
def _script() -> str:
    """The script of the page: its files in one function, so that their names stay their own."""
    parts = "\n\n".join(_part(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();'


def _colours(labels: Sequence[str]) -> str:
    """The variables of both themes: the system's preference applies until the reader chooses one."""
    own = looks(labels).values()
    losses = [{f"l{index}": colour for index, colour in enumerate(side)} for side in zip(*own, strict=True)][:2]
    themes = (LIGHT | LIGHT_ONLY | losses[0], DARK | DARK_ONLY | losses[1])
    light, dark = ("; ".join(f"--{name}: {value}" for name, value in theme.items()) for theme in themes)
    system = f":root:not([data-theme=light]) {{ color-scheme: dark; {dark} }}"
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media screen {{ :root[data-theme=dark] {{ color-scheme: dark; {dark} }} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ {system} }}"
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "kind": lambda block: type(block).__name__,
        "headed": _headed,
        "tone": lambda word: TONES.get(word, "plain"),
    }
    return environment.from_string(_part("report.html.j2"))


def _body(drill: Drill, table: Table) -> Markup:
    """The rows of a table, with as little markup as possible: they are most of a large page."""
    lines = []
    for index, (row, linked) in enumerate(zip(table.rows, drill.links(table), strict=True)):
        groups = " ".join(map(str, linked))
        cells = "".join(_cell(table, index, column, text) for column, text in enumerate(row))
        lines.append(f'<tr data-g="{groups}">{cells}</tr>' if groups else f"<tr>{cells}</tr>")
    return Markup("\n".join(lines))


def _cell(table: Table, row: int, column: int, text: str) -> str:
    heading = table.columns[column]
    shown = str(escape(text))
    if heading == "verdict" and text:
        shown = f'<span class="badge {TONES.get(text, "plain")}">{shown}</span>'
    if heading in table.left:
        if "[" in text:  # a label may wrap before and between its options
            shown = shown.replace("[", "<wbr>[").replace(",", ",<wbr>")
        return f'<td class="l wide">{shown}</td>' if len(text) > WIDE else f'<td class="l">{shown}</td>'
    if " " in shown:  # a number may wrap before its interval and the word after it, and after the slash of a pair
        shown = shown.replace(" [", " <wbr>[").replace("] ", "] <wbr>").replace(" / ", " / <wbr>")
    rank = table.rank(row, column)
    said = "" if rank is None or _is(text, rank) else f' data-n="{rank:.9g}"'
    return f"<td{said}>{shown}</td>"


def _is(text: str, rank: float) -> bool:
    """Whether the text is the number itself, which then need not be repeated."""
    try:
        return float(text) == rank
    except ValueError:
        return False


def _headed(caption: str) -> Markup:
    """A caption with what it is about, the part before a colon, in bold."""
    name, colon, rest = caption.partition(": ")
    return Markup("<b>{}</b>: {}").format(name, rest) if colon and len(name) <= 40 else escape(caption)
