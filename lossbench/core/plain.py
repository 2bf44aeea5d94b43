"""Text of suites, plugins, records and logs, made safe to show: no control characters, no broken lines.

Used where text goes to a terminal, page, table or figure; elsewhere text is unchanged.
"""

from __future__ import annotations

import re

# C0 but tab and line feed, DEL, C1, marks and overrides of writing direction, line separators, lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAK = re.compile(r" *[\n\t][\n\t ]*")
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # how formulas begin, in both widths


def text(written: str) -> str:
    """The text with its line breaks and tabs; other control characters are shown by number, as in `\\x1b`."""
    if written.isprintable():
        return written
    return _UNSAFE.sub(_number, written.replace("\r\n", "\n").replace("\r", "\n"))


def line(written: str) -> str:
    """The text in one line: line breaks and tabs become spaces."""
    return written if written.isprintable() else _BREAK.sub(" ", text(written)).strip()


def counted(count: int, what: str) -> str:
    """`1 cell`, `3 cells`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def cell(written: str) -> str:
    """A text cell of a CSV file, in one line; text that a spreadsheet would run as a formula gets a quote before it."""
    shown = line(written)
    return f"'{shown}" if shown.lstrip().startswith(FORMULA) else shown


def _number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
