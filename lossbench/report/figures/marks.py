"""How verdicts are drawn: by shape and fill, so that they can be read without colour."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from matplotlib.lines import Line2D

from lossbench.analysis.verdicts import NOT_TESTABLE
from lossbench.report.figures.style import LINE, SOFT


class Mark(NamedTuple):
    """A marker, whether it is filled, and the sign in a table of pairs."""

    marker: str
    filled: bool
    sign: str


MARKS = {
    "better": Mark("^", True, "▲"),
    "equivalent": Mark("o", True, "≈"),
    "undecided": Mark("o", False, ""),
    "worse": Mark("v", True, "▼"),
    NOT_TESTABLE: Mark("x", False, "×"),
}
DECIDED = ("better", "worse")


def drawn(verdict: str, colour: str) -> dict[str, Any]:
    """The mark of a comparison in the colour of its loss, as keywords of `plot`."""
    mark = MARKS[verdict]
    ink = LINE if verdict == NOT_TESTABLE else colour
    return {"marker": mark.marker, "color": ink, "mfc": ink if mark.filled else "white", "markersize": 6, "mew": 1.4}


def key(verdicts: Collection[str]) -> list[Line2D]:
    """The legend of the verdicts that occur."""
    return [Line2D([], [], **drawn(word, SOFT), ls="", label=word) for word in MARKS if word in verdicts]
