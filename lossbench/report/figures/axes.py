"""Lines along an axis of the grid: the metric, and the gain over the baseline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Canvas

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.analysis.series import Along, Line
from lossbench.core.geometry import minimum_width
from lossbench.core.metric import Metric
from lossbench.core.point import SHORT, Point, is_number, shown, varied
from lossbench.report import words
from lossbench.report.figures import style
from lossbench.report.figures.places import shared
from lossbench.report.figures.style import BAND, LINE, WIDTH, Drawing, Look, counted, heading, looks, percent, short

MARK = "#B3400A"  # of M_min
MOST_PANELS = 4
LOG_FROM = 4.0  # the span of values from which an axis is logarithmic
LETTER = 0.026  # of a tick label, as a share of the width of a panel


class Mark(NamedTuple):
    """A point of a line: the value of the axis, where it is drawn, and its colour."""

    value: float
    x: float
    y: float
    colour: str


def along_axis(results: Results, experiment: str, along: Along) -> Drawing | None:
    """The metric and the difference from the baseline along a numeric axis, one row of panels per line of points."""
    main, baseline, headline = results.main_at, results.info.baseline, results.headline
    lines, left_out = _shown(results, along.lines)
    compared = results.comparisons[results.comparisons["metric"] == headline.name]
    points = list(dict.fromkeys(point for line in lines for point in line.points))
    here = set(points)
    gains: dict[Point, dict[str, Any]] = {point: {} for point in points}
    for row in compared[[point in here for point in compared["point"]]].to_dict("records"):
        gains[row["point"]][row["loss"]] = row
    worth: dict[str, list[float]] = {}
    for point in points:
        for loss, row in main[point].items():
            worth.setdefault(loss, []).append(headline.sign * row["value"])
    averages = {loss: sum(values) / len(values) for loss, values in worth.items()}
    labels, few = style.chosen(series.order(results, list(worth)), averages)
    values = sorted({point[along.axis] for point in points})
    log = values[0] > 0 and values[-1] > LOG_FROM * values[0]
    rests = [line.rest for line in lines]
    titles = series.parts(rests)
    place = shared(results, rests[0], (along.axis, *varied(rests)))
    name = _named(along.axis)
    margin = results.margin(headline.name)
    unit = f", {headline.unit}" if headline.unit else ""
    n = counted([row["n"] for point in points for row in main[point].values()])
    key = style.keys(looks(results.labels), labels)

    def draw(canvas: Canvas) -> None:
        look = looks(results.labels)
        axes = canvas.subplots(len(lines), 2, sharex=True, squeeze=False)
        for (left, right), line, title in zip(axes, lines, titles, strict=True):
            means = _line(left, line, along.axis, labels, look, main, "value", values, log)
            if margin:
                right.axhspan(-margin, margin, color=BAND, alpha=0.2, lw=0, zorder=0)
            right.axhline(0, color=LINE, lw=1.2, zorder=1)
            others = [label for label in labels if label != baseline]
            differences = _line(right, line, along.axis, others, look, gains, "delta", values, log)
            _cut(left, line, labels, main, "value", 0.0, baseline)
            _cut(right, line, others, gains, "delta", margin, baseline)
            for ax in (left, right):
                ax.grid(axis="y")
                _mark_minimum(ax, line, along.axis, values, named=ax is left)
            percent(left, headline)
            _point_beyond(left, means, "value", headline)
            _point_beyond(right, differences, "delta", headline)
            left.set_ylabel(f"test {words.column(headline)}")
            right.set_ylabel(f"minus {short(baseline, 20)}{unit}")
            if title:
                left.set_title(style.joined(title, 88), fontsize=8.5)
        _ticks(axes[0][0], values, log)
        for ax in axes[-1]:
            ax.set_xlabel(f"{name}{' (log scale)' if log else ''}")
        heading(canvas, f"{place}: {headline.title} by {name}, {n}")
        canvas.legend(handles=key.handles, loc="outside lower center", ncols=key.columns)

    caption = (
        "Left: means with 95 % intervals over seeds. Right: differences with 95 % simultaneous intervals"
        + (f"; the band is the margin of equivalence, {words.within(margin, headline.unit)}" if margin else "")
        + ". Marks are offset sideways for legibility; an arrow gives the value of a mark beyond the axis."
        + left_out
        + few
    )
    if along.axis == "width":
        caption += " M_min = C − 1 is the smallest width at which the weights of C classes can have equal angles."
    height = 1.0 + 0.19 * key.rows + len(lines) * (2.5 if len(lines) == 1 else 1.85)
    return Drawing(f"axis-{along.axis}-{experiment}", caption, WIDTH, height, draw)


def _named(axis: str) -> str:
    return f"{axis} {SHORT[axis]}" if axis in SHORT else axis


def _shown(results: Results, lines: Sequence[Line]) -> tuple[list[Line], str]:
    """The lines that are drawn, and what is left out.

    Of more than `MOST_PANELS`, one for each dataset, backbone and other text: that on which the baseline is best.
    """
    if len(lines) <= MOST_PANELS:
        return list(lines), ""
    baseline, sign = results.info.baseline, results.headline.sign

    def best(line: Line) -> float:
        found = (results.main_at[point].get(baseline) for point in line.points)
        return max((sign * row["value"] for row in found if row), default=-math.inf)

    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        texts = tuple((name, value) for name, value in line.rest.items() if not is_number(value))
        groups.setdefault(texts, []).append(line)
    kept = [max(group, key=best) for group in groups.values()][:MOST_PANELS]
    return kept, f" {len(kept)} of {len(lines)} lines are drawn, where {baseline} is best; the table has all points."


def _line(
    ax: Axes,
    line: Line,
    axis: str,
    labels: Sequence[str],
    look: Mapping[str, Look],
    rows: Mapping[Point, Mapping[str, Any]],
    column: str,
    values: Sequence[float],
    log: bool,
) -> list[Mark]:
    """One line per loss, with interval bars where there are seeds enough for one; the marks that were drawn.

    Lines are shifted a little each, at most half a gap in all, so that no bar hides another.
    """
    scaled = np.log(values) if log else np.asarray(values, float)
    gap = float(np.diff(scaled).min())
    step = min(0.010 * float(scaled[-1] - scaled[0]), 0.5 * gap / max(len(labels) - 1, 1))
    bars, inks, marks = [], [], list[Mark]()
    for index, label in enumerate(labels):
        mine = [(point[axis], rows[point][label]) for point in line.points if label in rows[point]]
        mine = [(value, row) for value, row in mine if not math.isnan(row[column])]
        if not mine:
            continue
        shift = step * (index - (len(labels) - 1) / 2)
        at = [value * math.exp(shift) if log else value + shift for value, _ in mine]
        own = look[label]
        ax.plot(at, [row[column] for _, row in mine], color=own.colour, marker=own.marker, ls=own.dash, markersize=4.5,
                lw=1.4, label=label)  # fmt: skip
        marks += [Mark(value, x, row[column], own.colour) for x, (value, row) in zip(at, mine, strict=True)]
        known = [(x, row) for x, (_, row) in zip(at, mine, strict=True) if not math.isnan(row["low"])]
        bars += [[(x, row["low"]), (x, row["high"])] for x, row in known]
        inks += [own.colour] * len(known)
    ax.add_collection(LineCollection(bars, colors=inks, linewidths=1.0, zorder=1.5), autolim=False)
    return marks


def _point_beyond(ax: Axes, marks: Sequence[Mark], column: str, metric: Metric) -> None:
    """An arrow with its value at the edge for every mark beyond the axis, one above the other at one value."""
    if column == "delta":
        write = partial(words.signed, digits=words.digits_of(metric.unit))
    else:
        write = partial(words.number, digits=words.digits_of("%" if metric.is_score else metric.unit))
    low, high = ax.get_ylim()
    last = max((mark.value for mark in marks), default=0.0)
    found: Counter[tuple[float, bool]] = Counter()
    for mark in (mark for mark in marks if not low <= mark.y <= high):
        above = mark.y > high
        room = (0.03 + 0.065 * found[mark.value, above]) * (high - low)
        found[mark.value, above] += 1
        place = mark.x, high - room if above else low + room
        ax.plot(*place, "^" if above else "v", color=mark.colour, markersize=5.5, zorder=5, label="beyond the axis")
        side, way = ("right", -1) if mark.value == last else ("left", 1)
        ax.annotate(
            write(mark.y), place, xytext=(way * 5, 0), textcoords="offset points", ha=side, va="center", fontsize=7,
            color=style.INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.8}, zorder=6,
        )  # fmt: skip


def _mark_minimum(ax: Axes, line: Line, axis: str, values: Sequence[float], *, named: bool) -> None:
    """The minimum width, where the axis is the width; its text goes where there is more room."""
    if axis != "width":
        return
    minimum = minimum_width(line.rest["classes"])
    if not values[0] <= minimum <= values[-1]:
        return
    ax.axvline(minimum, color=MARK, lw=1.1, ls=(0, (4, 3)), zorder=0)
    if named:
        left = minimum > math.sqrt(values[0] * values[-1])
        ax.annotate(
            f"M_min = {minimum}", (minimum, 0.03), xycoords=("data", "axes fraction"),
            xytext=(-5 if left else 5, 0), textcoords="offset points", color=MARK, fontsize=8,
            ha="right" if left else "left",
        )  # fmt: skip


def _cut(
    ax: Axes,
    line: Line,
    labels: Sequence[str],
    rows: Mapping[Point, Mapping[str, Any]],
    column: str,
    band: float,
    baseline: str,
) -> None:
    """An axis on which a few far values do not squeeze the others; it always has the baseline."""
    found = [rows[point][label] for point in line.points for label in labels if label in rows[point]]
    middle, low, high = (np.array([row[name] for row in found], float) for name in (column, "low", "high"))
    known = np.isfinite(middle)
    if not known.any():
        return
    middle, low, high = middle[known], low[known], high[known]
    low, high = np.where(np.isnan(low), middle, low), np.where(np.isnan(high), middle, high)
    if column == "delta":
        ax.set_ylim(*style.span(low, middle, high, band))
        return
    # Values follow the axis, so a loss is far from the others where it is so at the same point.
    points = [row["point"] for row, is_known in zip(found, known, strict=True) if is_known]
    typical = {point: float(np.median(middle[[other == point for other in points]])) for point in set(points)}
    anchor = np.array([typical[point] for point in points])
    most = max(style.reach(middle - anchor), style.reach(np.maximum(high - middle, 0.0)), 1e-9)
    always = np.array([row["loss"] == baseline for row, is_known in zip(found, known, strict=True) if is_known])
    near = (np.abs(middle - anchor) <= most) | always
    bottom = np.where(always, low, np.maximum(low, anchor - most))[near].min()
    top = np.where(always, high, np.minimum(high, anchor + most))[near].max()
    room = 0.05 * (top - bottom) or 1e-3
    ax.set_ylim(float(bottom - room), float(top + room))


def _ticks(ax: Axes, values: Sequence[float], log: bool) -> None:
    """An axis that labels the values that were run, as many as fit."""
    if log:
        ax.set_xscale("log")
    scaled = np.log(values) if log else np.asarray(values, float)
    places = (scaled - scaled[0]) / (scaled[-1] - scaled[0])
    named, end = [], -math.inf
    for value, place in zip(values, places, strict=True):
        text = shown(value)
        half = LETTER * len(text) / 2
        named.append(text if place - half > end + 0.5 * LETTER else "")
        end = place + half if named[-1] else end
    ax.set_xticks(values, named)
    ax.minorticks_off()
