"""Shared by all figures: colours, axes, legends, and the `Drawing`, whose bytes are equal on every rendering.

A drawing is a white card with round corners in every format, so one set of colours, tested on white, serves light and
dark pages, slides and print.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch
from numpy.typing import NDArray

from lossbench.core import plain
from lossbench.core.labels import axis_value, distinct, parse_label
from lossbench.core.metric import Metric
from lossbench.report import palette
from lossbench.report.blocks import Figure

BASELINE_COLOUR, *PALETTE = (light for light, _ in palette.COLOURS)  # a drawing is on white

INK, SOFT, LINE, GRID = "#24292f", "#57606a", "#8c959f", "#e4e7eb"
BAND = "#56B4E9"  # of equivalence, at a faint opacity
WIDTH = 7.6  # inches; shared by all figures, so that their text has one size in the page
MOST_LINES = 10  # per panel
STRETCH = 2.0  # times the typical interval: an axis is at most so long
MOST_LETTERS = 36  # of a label; longer ones leave no room for the drawing

STYLE: dict[str, Any] = {
    "svg.hashsalt": "lossbench",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # text stays text
    "font.family": "DejaVu Sans",
    "text.hinting": "none",  # text is as wide in every format as the layout assumes
    "figure.dpi": 200,
    "font.size": 9,
    "text.parse_math": False,  # a dollar in a label is a dollar
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "figure.titlesize": 10.5,
    "figure.titleweight": "bold",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}
Span = tuple[float, float]
# No date and no version, so that the same figure has the same bytes.
METADATA: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": "lossbench"},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": "lossbench"},
    "png": {"Software": None},
}


@dataclass(frozen=True)
class Look:
    """How a loss is drawn in every figure: marker and dash also serve readers who cannot distinguish the colours."""

    colour: str
    marker: str
    dash: Any


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """The look of every loss in the whole report, the baseline first."""
    found = palette.looks(labels)
    return {label: Look(own.light, own.marker, (0, own.dash) if own.dash else "-") for label, own in found.items()}


@dataclass(frozen=True)
class Drawing:
    """A figure that is drawn when asked for: its name, caption, size in inches, and the function that draws it."""

    name: str
    caption: str
    width: float
    height: float
    draw: Callable[[Canvas], None]

    @cached_property
    def canvas(self) -> Canvas:
        """The drawn figure, laid out once, so that all formats have the same layout."""
        with _style():
            engine = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
            canvas = Canvas(figsize=(self.width, self.height), layout=engine)
            canvas.patch.set_visible(False)
            card = FancyBboxPatch(
                (0, 0), self.width, self.height, boxstyle="round,pad=0,rounding_size=0.08", facecolor="white",
                edgecolor="none", transform=canvas.dpi_scale_trans, zorder=-100,
            )  # fmt: skip
            card.set_in_layout(False)
            canvas.add_artist(card)
            self.draw(canvas)
            engine.execute(canvas)
            canvas.set_layout_engine(None)  # with an engine, every format would be drawn twice
        return canvas

    @cached_property
    def svg(self) -> str:
        text = self._rendered("svg").decode()
        # A reader without the font gets a similar one, not the browser's serif default.
        return re.sub(r"(font(?:-family)?: [^;\"]*'DejaVu Sans')", r"\1, Verdana, sans-serif", text)

    def saved(self, kind: str) -> bytes:
        """The drawing as a file of that kind: svg, pdf or png."""
        return self.svg.encode() if kind == "svg" else self._rendered(kind)

    def block(self) -> Figure:
        """The drawing as a block of a section."""
        return Figure(self.name, self.svg, self.caption, self.saved)

    def _rendered(self, kind: str) -> bytes:
        buffer = io.BytesIO()
        with _style():
            self.canvas.savefig(buffer, format=kind, metadata=METADATA[kind], dpi=STYLE["figure.dpi"])
        return buffer.getvalue()


def shown(labels: Sequence[str], most: int = MOST_LETTERS) -> dict[str, str]:
    """How labels are written in a figure: on one line, distinct, and at most so long.

    What is too long loses the options that do not distinguish it, then the names of its options, then the ends of their
    values; what is still too long, or not distinct, is shortened in the middle and numbered.
    """
    every = list(dict.fromkeys(labels))
    found = {label: label for label in every}
    if max(map(len, map(plain.line, every))) > most:
        found = brief = distinct(every)
        for letters in (math.inf, 12, 8, 5, 3):
            long = {_name(name) for name in found.values() if len(plain.line(name)) > most}
            shorter = {label: _values(name, letters) if _name(name) in long else found[label] for label, name in
                       brief.items()}  # fmt: skip
            if not long or len(set(shorter.values())) < len(every):
                break
            found = shorter
    return _numbered(found, most)


def _name(label: str) -> str:
    return label.partition("[")[0]


def _values(label: str, letters: float) -> str:
    """A label with the values of its options alone, each of at most so many letters: `w_softmax[0.5,exact]`."""
    try:
        name, options = parse_label(label)
    except ValueError:  # what `distinct` leaves of a label
        return label
    values = [_cut(axis_value(value), letters) for value in options.values()]
    return f"{name}[{','.join(values)}]" if values else name


def _cut(value: Any, letters: float) -> str:
    text = str(value)
    return text if len(text) <= letters else f"{text[: int(letters) - 1]}…"


def _numbered(names: Mapping[str, str], most: int) -> dict[str, str]:
    """Names of at most so many letters; equal ones are numbered."""
    found: dict[str, str] = {}
    for label, written in names.items():
        name, again = _shortened(written, most), 1
        while name in found.values():
            again += 1
            mark = f" ({again})"
            name = _shortened(written, most - len(mark)) + mark
        found[label] = name
    return found


def short(label: str, most: int = MOST_LETTERS) -> str:
    """One label on one line; a long one is shortened in the middle."""
    return _shortened(label, most)


def _shortened(label: str, most: int) -> str:
    name = plain.line(label)
    half = most // 2
    return name if len(name) <= most else f"{name[:half]}…{name[half + 1 - most :]}"


def _style() -> Any:
    return matplotlib.rc_context(STYLE)  # type: ignore[arg-type,unused-ignore]  # its keys are literals in newer stubs


def heading(canvas: Canvas, text: str) -> None:
    """The title of a whole figure, flush left and wrapped at the width of the canvas."""
    canvas.suptitle("\n".join(wrapped(text)), x=0.1 / WIDTH, ha="left")


def wrapped(title: str) -> list[str]:
    """The lines of a title over the width of a figure."""
    words = " ".join(_shortened(word, MOST_LETTERS) for word in plain.line(title).split())
    return textwrap.wrap(words, int(10 * WIDTH))


def panels(canvas: Canvas, count: int, columns: int, **shared: Any) -> list[Axes]:
    """A grid of axes, row by row; what is left over in the last row stays empty."""
    axes = canvas.subplots(math.ceil(count / columns), columns, squeeze=False, **shared).flatten()
    for ax in axes[count:]:
        ax.set_visible(False)
    return list(axes[:count])


def listed(ax: Axes, names: Sequence[str], room: float = 0.5, places: Sequence[int] | None = None) -> None:
    """One row per name from the top down, with `room` at both ends and grid lines for the values."""
    at = range(len(names)) if places is None else places
    ax.set_yticks(at, names)
    ax.set_ylim(max(at) + room, -room)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")


def stacked(
    ax: Axes, frame: pd.DataFrame, parts: Mapping[str, tuple[str, str]], places: Sequence[int]
) -> NDArray[np.float64]:
    """Columns of a frame as bars stacked from zero, each with its label and colour; returns where the bars end."""
    end = np.zeros(len(frame))
    rows = np.asarray(places, float)
    for column, (label, colour) in parts.items():
        start, end = end, end + frame[column].to_numpy(float)
        corners = [(start, rows - 0.34), (end, rows - 0.34), (end, rows + 0.34), (start, rows + 0.34)]
        bars = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)  # rows × corners × (x, y)
        ax.add_collection(PolyCollection(list(bars), facecolor=colour, edgecolor="white", lw=0.5, label=label))
    return end


def ended(
    ax: Axes, ends: Sequence[float] | NDArray[np.float64], texts: Sequence[str], room: float, places: Sequence[int]
) -> None:
    """A small text after the end of each bar, and an axis from zero with room for it."""
    right = room * float(max(ends))
    for row, end, text in zip(places, ends, texts, strict=True):
        ax.text(end + 0.008 * right, row, text, va="center", fontsize=7.5, color=SOFT, in_layout=False)
    ax.set_xlim(0, right)


def reach(values: NDArray[np.float64], least: float = 0.0) -> float:
    """How far an axis should extend from zero for these values, so that a few far ones do not squeeze the others."""
    most = max(STRETCH * float(np.quantile(np.abs(values), 0.6, method="lower")), least)
    furthest = float(np.abs(values).max())
    return most if furthest > 1.25 * most else max(furthest, least)  # hardly more is not worth a cut


def span(low: NDArray[np.float64], middle: NDArray[np.float64], high: NDArray[np.float64], band: float = 0.0) -> Span:
    """The ends of an axis with zero, the band around it, and all intervals but those far from the others.

    There is more room at the end at which something far is put.
    """
    most = max(reach(np.maximum(-low, high), 1.3 * band), 1e-9)
    near = np.abs(middle) <= most
    left = min(max(float(low[near].min(initial=0.0)), -most), -1.15 * band)
    right = max(min(float(high[near].max(initial=0.0)), most), 1.15 * band)
    room = (right - left) or 1.0
    far = (middle < left).any(), (middle > right).any()
    return left - room * (0.16 if far[0] else 0.05), right + room * (0.16 if far[1] else 0.05)


class Keys(NamedTuple):
    """A legend below the panels: its entries and how many fit side by side."""

    handles: list[Line2D]
    columns: int
    rows: int


def keys(look: Mapping[str, Look], labels: Sequence[str], *, markers: bool = True) -> Keys:
    """The look of every loss, for a legend over the width of a figure."""
    names = shown(labels)
    handles = [
        Line2D([], [], color=look[label].colour, marker=look[label].marker if markers else "", ls=look[label].dash,
               lw=1.6, markersize=5, label=name)
        for label, name in names.items()
    ]  # fmt: skip
    columns = max(1, min(len(handles), int(WIDTH / (0.075 * max(map(len, names.values())) + 0.75))))
    return Keys(handles, columns, math.ceil(len(handles) / columns))


def joined(parts: Sequence[str], letters: int) -> str:
    """Texts in lines of so many letters, each shortened to fit one line."""
    lines = [""]
    for part in (short(part, min(letters, MOST_LETTERS)) for part in parts):
        whole = f"{lines[-1]}, {part}" if lines[-1] else part
        if len(whole) <= letters or not lines[-1]:
            lines[-1] = whole
        else:
            lines[-1] += ","
            lines.append(part)
    return "\n".join(lines)


def beside(ax: Axes, handles: Sequence[Line2D], title: str | None = None) -> None:
    """A legend to the right of an axes, its top at the axes' top."""
    made = ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.02, 1.0), borderaxespad=0, handlelength=2.6,
                     title=title, title_fontsize=8, alignment="left")  # fmt: skip
    made.set_zorder(5)


def percent(ax: Axes, metric: Metric) -> None:
    """Cut the axis of a score at 0 and 100, which the interval of a few seeds may exceed but no score can."""
    low, high = ax.get_ylim()
    if metric.is_score:
        ax.set_ylim(max(low, 0.0), min(high, 100.5))


def chosen(labels: Sequence[str], worth: Mapping[str, float]) -> tuple[list[str], str]:
    """At most `MOST_LINES` losses in their order (the baseline and the best others), and a remark on those left out."""
    if len(labels) <= MOST_LINES:
        return list(labels), ""
    ranked = sorted(labels[1:], key=lambda label: -worth.get(label, float("-inf")))  # sorted() keeps equals in order
    kept = {labels[0], *ranked[: MOST_LINES - 1]}
    remark = f" Drawn: {labels[0]} and the {MOST_LINES - 1} best of {len(labels)} losses."
    return [label for label in labels if label in kept], remark


def counted(counts: Sequence[int], what: str = "seeds") -> str:
    """`n = 10 seeds`, or `n = 7–10 seeds` where they differ."""
    least, most = min(counts), max(counts)
    return f"n = {most} {what}" if least == most else f"n = {least}–{most} {what}"
