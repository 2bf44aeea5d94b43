"""The verdicts on the statements of a suite: one mark per case."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Any

from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from lossbench.analysis.claim_tests import NOT_RUN
from lossbench.analysis.claims import OUTCOMES, outcomes
from lossbench.analysis.results import Results
from lossbench.analysis.verdicts import NOT_TESTABLE
from lossbench.core import plain
from lossbench.report.figures.style import GRID, LINE, PALETTE, SOFT, WIDTH, Drawing, heading

LETTERS = 52  # per line of a statement
LINE_HEIGHT = 0.17  # inches
FEWEST_PLACES = 12  # in a row, so that a few marks stand together
# Verdicts differ in shape as well as in colour, and in the same way as those of comparisons.
COMMON: dict[str, Any] = {"ls": "", "markersize": 6.5, "mew": 0.6}
MARKS = {
    "supported": {**COMMON, "marker": "^", "color": PALETTE[2]},
    "contradicted": {**COMMON, "marker": "v", "color": PALETTE[1]},
    "undecided": {**COMMON, "marker": "o", "color": SOFT, "mfc": "white", "mew": 1.2},
    NOT_TESTABLE: {**COMMON, "marker": "x", "color": SOFT, "markersize": 5, "mew": 1.4},
    NOT_RUN: {**COMMON, "marker": ".", "color": LINE, "markersize": 4},
}


def statements(results: Results) -> Drawing | None:
    """One row per statement, one mark per case; None where every statement has a single case, as the table shows."""
    counts = outcomes(results.claims)
    if len(counts) == len(results.claims):
        return None
    total = sum(counts.values(), Counter[str]())
    said = [f"{total[word]} {word}" for word in OUTCOMES if total[word]]
    title = f"Of {total.total()} cases, {', '.join(said)}"
    tied = (plain.line(name).replace(" = ", "\u00a0=\u00a0") for name in counts)  # no line ends within `m = 4`
    names = [textwrap.fill(name, LETTERS) for name in tied]
    heights = [0.1 + LINE_HEIGHT * (1 + name.count("\n")) for name in names]
    middles = [sum(heights[:place]) + height / 2 for place, height in enumerate(heights)]

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        for middle, count in zip(middles, counts.values(), strict=True):
            start = 0
            for word in (word for word in OUTCOMES if count[word]):
                places = range(start, start := start + count[word])
                ax.plot(places, [middle] * len(places), **MARKS[word], label=word)
        ax.set_yticks(middles, names)
        ax.set_xlim(-0.8, max(FEWEST_PLACES, *(count.total() for count in counts.values())) - 0.2)
        ax.set_ylim(sum(heights), 0)
        ax.set_xticks([])
        ax.tick_params(axis="y", length=0)
        ax.spines[:].set_visible(False)
        for edge in (middle + height / 2 for middle, height in zip(middles[:-1], heights[:-1], strict=True)):
            ax.axhline(edge, color=GRID, lw=0.7)
        heading(canvas, title)
        met = [word for word in OUTCOMES if any(count[word] for count in counts.values())]
        key = [Line2D([], [], **MARKS[word], label=word) for word in met]
        canvas.legend(handles=key, loc="outside lower center", ncols=len(key))

    caption = "One mark per case of a statement: an experiment, a loss, a value."
    return Drawing("claims", caption, WIDTH, sum(heights) + 0.8, draw)
