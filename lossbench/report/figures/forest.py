"""Forests: one row per difference or ratio with its interval, beside the value that means no difference."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.core.point import varied
from lossbench.report import words
from lossbench.report.figures import style
from lossbench.report.figures.style import (
    BAND,
    GRID,
    INK,
    LINE,
    SOFT,
    WIDTH,
    Drawing,
    Look,
    counted,
    looks,
    short,
    signed,
)

MOST_ROWS = 40  # per panel
MOST_TOTAL = 80  # per figure: a page and a half
LEAST_ROWS = 3  # per panel, however many panels there are
ROW = 0.235  # inches
MOST_IN_ROW = 48  # letters of a row's name: the loss, and the point where several points share a panel
SHORTEST_LOSS = 16  # of them at least for the loss
MOST_IN_HEADING = 200  # letters of a point above its rows
MOST_OF_POINT = 24  # of them for a dataset, C or M each


@dataclass(frozen=True)
class Panel:
    """The rows of one experiment that fit, and how many there are in all."""

    title: str
    rows: pd.DataFrame
    of: int

    @cached_property
    def ladder(self) -> Ladder:
        return ladder(self.rows)


@dataclass(frozen=True)
class Scale:
    """The value that means no difference, the band around it, how a row is written, and whether the axis is log."""

    none: float
    band: float | None
    write: Callable[[Mapping[str, Any]], str]
    log: bool = False

    def distance(self, values: Any) -> Any:
        return np.log(values) - np.log(self.none) if self.log else values - self.none

    def at(self, distance: float) -> float:
        return float(self.none * np.exp(distance)) if self.log else self.none + distance


def difference_forest(results: Results) -> Drawing | None:
    """The paired difference of every loss from the baseline with its interval, one panel per experiment."""
    headline = results.headline
    frame = _compared(results, headline.name)
    if frame.empty:
        return None
    baseline, band = results.info.baseline, results.info.margin
    caption = (
        f"Paired differences from {baseline} with 95 % t intervals over seeds. "
        + (
            f"The band is {words.within(band, headline.unit)}, the differences that count as equivalent. "
            if band
            else ""
        )
        + "A filled dot is significantly different after Holm's adjustment over its experiment, an open one is not. "
        "An arrow marks an interval that extends past the axis."
    )
    axis = ", ".join(part for part in (f"{headline.title} minus {short(baseline)}", headline.unit) if part)
    write = partial(_difference, digits=words.digits_of(headline.unit))
    return _forest(results, _panels(frame, "seeds"), "differences", caption, axis, Scale(0.0, band, write))


def step_time_forest(results: Results) -> Drawing | None:
    """The step time of every loss as a ratio to the baseline's, paired by round, one panel per timed experiment."""
    frame = _compared(results, "step_seconds")
    if frame.empty:
        return None
    for name in ("delta", "low", "high"):
        frame[name] = 1 + frame[name] / 100
    caption = (
        f"Time of a training step as a ratio to that of {results.info.baseline}, paired by round, with 95 % intervals "
        "over processes that run alone; log scale. A filled dot is significantly different after "
        "Holm's adjustment over its experiment."
    )
    axis = f"step time / step time of {short(results.info.baseline)} (log scale)"
    return _forest(results, _panels(frame, "processes"), "step-time", caption, axis, Scale(1.0, None, _ratio, log=True))


def _compared(results: Results, metric: str) -> pd.DataFrame:
    frame = results.comparisons
    return frame[(frame["metric"] == metric) & frame["low"].notna()].copy()


def _difference(row: Mapping[str, Any], digits: int) -> str:
    return f"{signed(row['delta'], digits)} [{signed(row['low'], digits)}, {signed(row['high'], digits)}]"


def _ratio(row: Mapping[str, Any]) -> str:
    return f"{row['delta']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def _forest(results: Results, panels: list[Panel], name: str, caption: str, axis: str, scale: Scale) -> Drawing:
    look = looks(results.labels)

    def draw(canvas: Canvas) -> None:
        heights = [panel.ladder.length + 0.4 for panel in panels]
        axes = style.panels(canvas, len(panels), 1, height_ratios=heights)
        widest = 0.075 * max(len(name) for panel in panels for name in panel.ladder.names)  # inches, roughly
        limits = _limits(pd.concat([panel.rows for panel in panels]), scale)  # one scale: panels can be compared
        for ax, panel in zip(axes, panels, strict=True):
            _rows(ax, panel, look, scale, limits)
            ax.set_title(textwrap.fill(panel.title, int(13 * (WIDTH - 0.1 - widest))))
            ax.tick_params(axis="x", labelbottom=ax is axes[-1])
        axes[-1].set_xlabel(axis)
        dot: dict[str, Any] = {"color": SOFT, "marker": "o", "markersize": 5.5, "lw": 1.6}
        key: list[Artist] = [
            Line2D([], [], **dot, label="different"),
            Line2D([], [], **dot, mfc="white", mew=1.4, label="not significantly different"),
        ]
        if scale.band:
            key.append(Patch(facecolor=BAND, alpha=0.2, label=f"±{scale.band:g}: counts as equivalent"))
        canvas.legend(handles=key, loc="outside lower center", ncols=len(key))

    left_out = sum(panel.of for panel in panels) > sum(len(panel.rows) for panel in panels)
    whole = caption + (" Long lists show only the rows that differ most; the tables list all." if left_out else "")
    height = 1.1 + sum(ROW * panel.ladder.length + 0.4 for panel in panels)
    return Drawing(name, whole, WIDTH, height, draw)


def _rows(ax: Axes, panel: Panel, look: Mapping[str, Look], scale: Scale, limits: tuple[float, float]) -> None:
    if scale.log:
        ax.set_xscale("log")
    if scale.band:
        ax.axvspan(scale.none - scale.band, scale.none + scale.band, color=BAND, alpha=0.2, lw=0, zorder=0)
    ax.axvline(scale.none, color=LINE, lw=1.2, zorder=1)
    for place, row in zip(panel.ladder.places, panel.rows.to_dict("records"), strict=True):
        colour = look[row["loss"]].colour
        different = str(row["verdict"]).startswith("different")
        low, high = max(row["low"], limits[0]), min(row["high"], limits[1])
        ax.plot([low, high], [place, place], color=colour, lw=1.8, solid_capstyle="butt", label=row["loss"])
        for end, cut, arrow in ((low, row["low"] < low, "<"), (high, row["high"] > high, ">")):
            ax.plot(end, place, arrow if cut else "|", color=colour, markersize=5, mew=1.4, clip_on=False)
        ax.plot(row["delta"], place, "o", color=colour, mfc=colour if different else "white", markersize=5.8, mew=1.5,
                label=row["loss"])  # fmt: skip
        ax.text(1.015, place, scale.write(row), transform=ax.get_yaxis_transform(), va="center", fontsize=7.5,
                color=INK if different else SOFT)  # fmt: skip
    panel.ladder.draw(ax, panel.rows, room=0.6)
    ax.set_xlim(*limits)
    if scale.log:
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.minorticks_off()


def _limits(rows: pd.DataFrame, scale: Scale) -> tuple[float, float]:
    """All dots and the band are on the axis; an interval far longer than the others is cut and gets an arrow."""
    low, middle, high = (scale.distance(rows[name].to_numpy(float)) for name in ("low", "delta", "high"))
    band = scale.band or 0
    reach = np.maximum(-low, high)
    most = max(3 * float(np.quantile(reach, 0.6)), 1.25 * float(np.abs(middle).max()), 1.3 * band, 1e-3)
    left, right = min(0.0, -band, max(float(low.min()), -most)), max(0.0, band, min(float(high.max()), most))
    room = 0.05 * (right - left)
    return scale.at(left - room), scale.at(right + room)


def _panels(frame: pd.DataFrame, what: str) -> list[Panel]:
    """One panel per experiment; of too many rows those that differ most are kept, in their order."""
    groups = [(str(name), group) for name, group in frame.groupby("experiment", sort=False)]
    each = MOST_ROWS if len(frame) <= MOST_TOTAL else max(LEAST_ROWS, MOST_TOTAL // len(groups))
    each = max(each, MOST_ROWS) if len(groups) == 1 else each
    if len(groups) * min(each, LEAST_ROWS) > MOST_TOTAL:
        widest = sorted(groups, key=lambda pair: -float(pair[1]["delta"].abs().max()))[: MOST_TOTAL // LEAST_ROWS]
        groups = [pair for pair in groups if any(pair is kept for kept in widest)]
    panels = []
    for name, group in groups:
        rows = group
        if len(group) > each:
            rows = group.loc[group["delta"].abs().nlargest(each).index.sort_values()]
        point = group["point"].iloc[0]
        differing = ("experiment", *varied(group["point"]))
        shared = [short(part) for part in series.told(point, [axis for axis in point if axis not in differing])]
        shared = [part for part in shared if part != name]  # not `mnist: mnist`
        note = f"the {len(rows)} of {len(group)} that differ most" if len(rows) < len(group) else ""
        said = ", ".join(part for part in (*shared, counted(list(group["n"]), what), note) if part)
        panels.append(Panel(f"{name}: {said}", rows, len(group)))
    return panels


@dataclass(frozen=True)
class Ladder:
    """Where the rows of a panel stand from the top, with their names; points too long for a name head their rows."""

    names: list[str]
    places: list[int]
    headings: list[tuple[int, str]]

    @property
    def length(self) -> int:
        return len(self.names) + len(self.headings)

    def draw(self, ax: Axes, group: pd.DataFrame, room: float) -> None:
        """The names of the rows, and a hairline between rows of different points."""
        points = list(group["point"])
        for index in range(1, len(points)):
            if points[index] != points[index - 1]:
                edge = self.places[index] - (1.5 if self.headings else 0.5)
                ax.axhline(edge, color=GRID, lw=0.8, zorder=0)
        for place, text in self.headings:
            ax.text(0.01, place, text, transform=ax.get_yaxis_transform(), va="center", fontsize=7.5, color=INK,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85})  # fmt: skip
        style.listed(ax, self.names, room, self.places)


def ladder(group: pd.DataFrame) -> Ladder:
    """The rows of a panel: the loss, and the point as far as points differ within the panel."""
    points, labels = list(group["point"]), list(group["loss"])
    parts = [[short(part, MOST_OF_POINT) for part in each] for each in series.parts(points)]
    texts = ["".join(f", {part}" for part in each) for each in parts]
    longest = max(map(len, texts))
    losses = style.shown(labels, max(SHORTEST_LOSS, MOST_IN_ROW - longest))
    if longest <= MOST_IN_ROW - SHORTEST_LOSS:
        named = [losses[label] + text for label, text in zip(labels, texts, strict=True)]
        return Ladder(named, list(range(len(points))), [])
    losses = style.shown(labels)
    places: list[int] = []
    headings: list[tuple[int, str]] = []
    for index, point in enumerate(points):
        if index == 0 or point != points[index - 1]:
            headings.append((len(places) + len(headings), style.joined(parts[index], MOST_IN_HEADING)))
        places.append(len(places) + len(headings))
    return Ladder([losses[label] for label in labels], places, headings)
