"""Sections → Markdown, one offline HTML page, the terminal. Nothing here knows a statistic."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import tabulate

from lossbench.report.analysis import Results
from lossbench.report.blocks import Figure, Prose, Section, Table

if TYPE_CHECKING:
    from rich.console import RenderableType


def markdown(results: Results, sections: Sequence[Section]) -> str:
    """The report as GitHub-flavoured Markdown."""
    lines = [f"# {_escape(results.outline.title)}", ""]
    for section in sections:
        lines += [f"## {_escape(section.title)}", ""]
        for block in section.blocks:
            match block:
                case Prose(text, code=True):
                    lines += ["```", text, "```", ""]
                case Prose(text):
                    lines += [_escape(text), ""]
                case Figure(name, _, caption):
                    lines += [f"![{_escape(caption)}](figures/{name}.svg)", "", f"*{_escape(caption)}*", ""]
                case Table():
                    lines += [_pipe_table(block), ""]
                    if block.caption:
                        lines += [f"*{_escape(block.caption)}*", ""]
    return "\n".join(lines).rstrip() + "\n"


def html(results: Results, sections: Sequence[Section]) -> str:
    """The report as one page that needs no network; all text is escaped."""
    return _template().render(
        title=results.outline.title,
        suite=results.outline.name,
        profile=results.outline.profile,
        statuses=sorted(results.statuses.items()),
        sections=sections,
    )


def figures(sections: Sequence[Section]) -> Iterator[Figure]:
    for section in sections:
        yield from (block for block in section.blocks if isinstance(block, Figure))


def terminal(sections: Sequence[Section], slugs: Sequence[str]) -> Iterator[RenderableType]:
    """The chosen sections as rich tables and lines."""
    import rich.box
    import rich.table
    import rich.text

    for section in (section for slug in slugs for section in sections if section.slug == slug):
        for block in section.blocks:
            if isinstance(block, Prose):
                yield rich.text.Text(block.text)
            elif isinstance(block, Table):
                table = rich.table.Table(
                    title=block.caption or section.title, box=rich.box.SIMPLE_HEAD, title_justify="left"
                )
                for column in block.columns:
                    table.add_column(column, justify="left" if column in block.left else "right")
                for row in block.rows:
                    table.add_row(*(rich.text.Text(cell, style=_VERDICT_STYLES.get(cell, "")) for cell in row))
                yield table


_VERDICT_STYLES = {
    "different": "bold",
    "supported": "bold green",
    "contradicted": "bold red",
    "equivalent": "cyan",
    "different but negligible": "cyan",
    "undecided": "yellow",
}


def _pipe_table(table: Table) -> str:
    align = ["left" if column in table.left else "right" for column in table.columns]
    rows = [[_escape(cell) for cell in row] for row in table.rows]
    headers = [_escape(column) for column in table.columns]
    text: str = tabulate.tabulate(rows, headers=headers, tablefmt="pipe", disable_numparse=True, colalign=align)
    return text


def _escape(text: str) -> str:
    """Text that Markdown shows as it is; what needs no escape keeps its plain look (`w_softmax[alpha=1.5]`)."""
    return re.sub(r"([\\`*<>|]|(?<!\w)_|_(?!\w)|(?<=\])\()", r"\\\1", text.replace("\n", " "))


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["inline_svg"] = _inline
    return environment.from_string((Path(__file__).parent / "report.html.j2").read_text(encoding="utf-8"))


def _inline(figure: Figure) -> str:
    """The drawing alone, without the XML prologue (which names an outside address), its ids made its own."""
    svg = figure.svg[figure.svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id="|url\(#|href="#)', rf"\1{re.escape(figure.name)}-", svg)
    import markupsafe

    return markupsafe.Markup(svg)
