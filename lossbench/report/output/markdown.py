"""Sections → summary.md."""

from __future__ import annotations

import re
from collections.abc import Sequence

import tabulate

from lossbench.analysis.results import Results
from lossbench.core import plain
from lossbench.report.blocks import Figure, Prose, Section, Table


def markdown(results: Results, sections: Sequence[Section]) -> str:
    """The report as GitHub-flavoured Markdown."""
    lines = [f"# {_escape(results.info.title)}", ""]
    if results.info.note:
        lines += [f"**{_escape(results.info.note)}**", ""]
    for section in sections:
        lines += [f"## {_escape(section.title)}", ""]
        for block in section.blocks:
            match block:
                case Prose(text, code=True):
                    lines += ["```", text, "```", ""]
                case Prose(text):
                    lines += [_escape(text), ""]
                case Figure(name, _, caption, _):
                    lines += [f"![{_escape(caption)}](figures/{name}.svg)", "", f"*{_escape(caption)}*", ""]
                case Table():
                    lines += [_pipe_table(block), ""]
                    if block.caption:
                        lines += [f"*{_escape(block.caption)}*", ""]
    return "\n".join(lines).rstrip() + "\n"


def _pipe_table(table: Table) -> str:
    align = ["left" if column in table.left else "right" for column in table.columns]
    rows = [[_escape(cell) for cell in row] for row in table.rows]
    headers = [_escape(column) for column in table.columns]
    text: str = tabulate.tabulate(rows, headers=headers, tablefmt="pipe", disable_numparse=True, colalign=align)
    return text


def _escape(text: str) -> str:
    """Text that Markdown shows unchanged; what needs no escape has none (`w_softmax[alpha=1.5]`)."""
    return re.sub(r"([\\`*<>|]|(?<!\w)_|_(?!\w)|(?<=\])\()", r"\\\1", plain.line(text))
