"""Text of suites, plugins, records and logs, made safe to show: nothing in it steers a terminal or breaks a line.

Used at the edges, where text leaves for a terminal, a page, a table or a figure; inside, text stays as it was written.
"""

from __future__ import annotations

import re

# C0 but tab and line feed, DEL, C1, marks and overrides of writing direction, line separators, lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAK = re.compile(r" *[\n\t][\n\t ]*")
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # what spreadsheets compute, in both widths


def text(written: str) -> str:
    """The text in its lines, with tabs; every other control character is shown by its number, as in `\\x1b`."""
    if written.isprintable():
        return written
    return _UNSAFE.sub(_number, written.replace("\r\n", "\n").replace("\r", "\n"))


def line(written: str) -> str:
    """The text in one line: line breaks and tabs are spaces."""
    return written if written.isprintable() else _BREAK.sub(" ", text(written)).strip()


def cell(written: str) -> str:
    """A text cell of a CSV file, in one line; what a spreadsheet would take for a formula gets a quote before it."""
    shown = line(written)
    return f"'{shown}" if shown.lstrip().startswith(FORMULA) else shown


def _number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
