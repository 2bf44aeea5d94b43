"""Sections → summary.md, and appendix.md with the tables and figures that only some readers need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lossbench.analysis.results import Results
from lossbench.core import plain
from lossbench.report.blocks import Figure, Prose, Section, Table


def documents(results: Results, sections: Sequence[Section]) -> dict[str, str]:
    """The report as GitHub-flavoured Markdown, by file name."""
    title = _escape(results.info.title)
    main, more = ([part for part in sections if part.appendix is appendix] for appendix in (False, True))
    links = ", ".join(_escape(part.title.lower()) for part in more)
    lines = [f"# {title}", ""]
    lines += [f"**{_escape(results.info.note)}**", ""] if results.info.note else []
    lines += _written(main)
    lines += ["## Appendix", "", f"[appendix.md](appendix.md): {links}.", ""] if more else []
    found = {"summary.md": lines}
    if more:
        found["appendix.md"] = [f"# {title}: appendix", "", "To [the summary](summary.md).", "", *_written(more)]
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in found.items()}


def _written(sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        yield from (f"## {_escape(section.title)}", "")
        for block in section.blocks:
            match block:
                case Prose(text, code=True):
                    yield from ("```", text, "```", "")
                case Prose(text, lead=lead):
                    yield from (f"**{_escape(lead)}** {_escape(text)}" if lead else _escape(text), "")
                case Figure(name, _, caption, _):
                    yield from (f"![{_escape(name)}](figures/{name}.svg)", "")
                    yield from (f"*{_escape(caption)}*", "") if caption else ()
                case Table():
                    yield from (_pipe_table(block), "")
                    yield from (f"*{_escape(block.caption)}*", "") if block.caption else ()


def _pipe_table(table: Table) -> str:
    """A table whose columns line up in a text editor, too."""
    head, *rows = [[_escape(cell) for cell in row] for row in (table.columns, *table.rows)]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    sides = ["<" if column in table.left else ">" for column in table.columns]
    form = "| " + " | ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True)) + " |"
    dashes = ["-" * (width + 1) for width in widths]
    rule = [f":{dash}" if side == "<" else f"{dash}:" for side, dash in zip(sides, dashes, strict=True)]
    return "\n".join([form.format(*head), f"|{'|'.join(rule)}|", *(form.format(*row) for row in rows)])


def _escape(text: str) -> str:
    """Text that Markdown shows unchanged; what needs no escape has none (`w_softmax[alpha=1.5]`)."""
    return re.sub(r"([\\`*<>|]|(?<!\w)_|_(?!\w)|(?<=\])\()", r"\\\1", plain.line(text))
