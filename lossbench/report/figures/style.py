"""How every figure looks: colours, ink, and the drawing itself, whose bytes are equal on every rendering.

A drawing is a white card with round corners in every format, so that one set of colours, tried on white, serves light
and dark pages, slides and print alike.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from lossbench.core import plain
from lossbench.report.blocks import Figure

# Okabe & Ito's six that read on white, then four chosen so that any two of all eleven (with the baseline's grey) stay
# apart for colour-blind readers too: tests/report/test_figures.py holds the least distance.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B2A86", "#661100", "#003F5C", "#C2B280")
BASELINE_COLOUR = "#555555"
MARKERS = "osD^vPXphd"
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))

INK, SOFT, LINE, GRID = "#24292f", "#57606a", "#8c959f", "#e4e7eb"
BAND = "#56B4E9"  # of equivalence, at a faint opacity
MARK = "#B3400A"  # of M_min and other lines that the theory draws
WIDTH = 7.6  # inches; all figures share it, so that their letters have one size in the page
MOST_LINES = 10  # of a panel
MOST_LETTERS = 36  # of a label; longer ones leave no room for what is drawn

STYLE: dict[str, Any] = {
    "svg.hashsalt": "lossbench",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters stay letters
    "font.family": "DejaVu Sans",
    "text.hinting": "none",  # letters are as wide in every format as the layout believes
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


@dataclass(frozen=True)
class Look:
    """How a loss is drawn, everywhere: colour first, and marker and dash for those who cannot go by it."""

    colour: str
    marker: str
    dash: Any


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """The look of every loss, the first being the baseline. After ten the colours return with other markers."""
    found = {labels[0]: Look(BASELINE_COLOUR, "o", "-")}
    for index, label in enumerate(labels[1:]):
        again, colour = divmod(index, len(PALETTE))
        marker = MARKERS[(index + 1 + 3 * again) % len(MARKERS)]
        found[label] = Look(PALETTE[colour], marker, DASHES[again % len(DASHES)])
    return found


def colours(labels: Sequence[str]) -> dict[str, str]:
    """The colour of every loss, the first being the baseline."""
    return {label: look.colour for label, look in looks(labels).items()}


@dataclass(frozen=True)
class Drawing:
    """A figure that has not been put on paper yet: its name, what it shows, its size in inches, and how to draw it."""

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
            before: list[Any] = []
            for _ in range(4):  # names beside an axes move it, which moves them: settled after a few rounds
                engine.execute(canvas)
                places = [ax.get_position().bounds for ax in canvas.axes]
                if np.allclose(places, before, atol=1e-3) if before else False:
                    break
                before = places
            canvas.set_layout_engine("none")
        return canvas

    @cached_property
    def svg(self) -> str:
        text = self._saved("svg", {"Date": None, "Creator": "lossbench"}).decode()
        # A reader without the font gets one of the same build, never the browser's serif letters.
        return re.sub(r"(font(?:-family)?: [^;\"]*'DejaVu Sans')", r"\1, Verdana, sans-serif", text)

    @cached_property
    def pdf(self) -> bytes:
        return self._saved("pdf", {"CreationDate": None, "Producer": None, "Creator": "lossbench"})

    @cached_property
    def png(self) -> bytes:
        return self._saved("png", {"Software": None})

    @property
    def files(self) -> dict[str, bytes]:
        """The drawing in every format, by file name."""
        return {f"{self.name}.svg": self.svg.encode(), f"{self.name}.pdf": self.pdf, f"{self.name}.png": self.png}

    def saved(self, kind: str) -> bytes:
        """The drawing as a file of that kind: svg, pdf or png."""
        return self.svg.encode() if kind == "svg" else self.pdf if kind == "pdf" else self.png

    def block(self) -> Figure:
        """The drawing as sections place it."""
        return Figure(self.name, self.svg, self.caption, self.saved)

    def _saved(self, kind: str, metadata: Mapping[str, str | None]) -> bytes:
        buffer = io.BytesIO()
        with _style():
            self.canvas.savefig(buffer, format=kind, metadata=dict(metadata), dpi=STYLE["figure.dpi"])
        return buffer.getvalue()


def shown(labels: Sequence[str], most: int = MOST_LETTERS) -> dict[str, str]:
    """How labels are written in a figure: in one line, long ones shortened in the middle, no two alike."""
    found: dict[str, str] = {}
    for label in dict.fromkeys(labels):
        name, again = _shortened(label, most), 1
        while name in found.values():
            again += 1
            mark = f" ({again})"
            name = _shortened(label, most - len(mark)) + mark
        found[label] = name
    return found


def short(label: str, most: int = MOST_LETTERS) -> str:
    """One label as `shown` writes it."""
    return shown([label], most)[label]


def _shortened(label: str, most: int) -> str:
    name = plain.line(label)
    half = most // 2
    return name if len(name) <= most else f"{name[:half]}…{name[half + 1 - most :]}"


def _style() -> Any:
    return matplotlib.rc_context(STYLE)  # type: ignore[arg-type,unused-ignore]  # its keys are literals in newer stubs


def heading(canvas: Canvas, text: str) -> None:
    """The title of a whole figure, flush left and broken where the canvas ends."""
    words = " ".join(_shortened(word, MOST_LETTERS) for word in plain.line(text).split())
    lines = textwrap.fill(words, int(canvas.get_size_inches()[0] * 11.5))
    canvas.suptitle(lines, x=0.1 / canvas.get_size_inches()[0], ha="left")


def legend(ax: Axes, look: Mapping[str, Look], labels: Sequence[str], *, markers: bool = True) -> None:
    """The look of every loss, at the right of the upper right panel."""
    handles = [
        Line2D([], [], color=look[label].colour, marker=look[label].marker if markers else "", ls=look[label].dash,
               lw=1.6, markersize=5, label=name)
        for label, name in shown(labels).items()
    ]  # fmt: skip
    beside(ax, handles)


def beside(ax: Axes, handles: Sequence[Line2D], title: str | None = None) -> None:
    """A legend at the right of an axes, its top at the axes' top."""
    made = ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.02, 1.0), borderaxespad=0, handlelength=2.6,
                     title=title, title_fontsize=8, alignment="left")  # fmt: skip
    made.set_zorder(5)


def percent(ax: Axes) -> None:
    """No accuracy is below 0 or above 100, whatever the interval of three seeds says: it ends at the edge."""
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, 0.0), min(high, 100.5))


def tall(entries: int, least: float) -> float:
    """The height of a figure with room for so many legend entries."""
    return max(least, 0.75 + 0.19 * entries)


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign, a minus that is as wide as the plus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def chosen(labels: Sequence[str], worth: Mapping[str, float], most: int = MOST_LINES) -> tuple[list[str], str]:
    """At most so many losses, in their order: the baseline and those of most worth; and a remark on who is missing."""
    if len(labels) <= most:
        return list(labels), ""
    ranked = sorted(labels[1:], key=lambda label: -worth.get(label, float("-inf")))  # sorted() keeps equals in order
    kept = {labels[0], *ranked[: most - 1]}
    return [
        label for label in labels if label in kept
    ], f" ({labels[0]} and the {most - 1} best of {len(labels)} losses)"


def counted(counts: Sequence[int], what: str = "seeds") -> str:
    """`n = 10 seeds`, or `n = 7–10 seeds` where they differ."""
    least, most = min(counts), max(counts)
    return f"n = {most} {what}" if least == most else f"n = {least}–{most} {what}"
