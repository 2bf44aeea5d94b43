"""Lines along an axis of the grid: the metric, and the gain over the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.analysis.series import Along, Line
from lossbench.core.geometry import minimum_width
from lossbench.core.point import SHORT, Point, is_number, shown, varied
from lossbench.report import words
from lossbench.report.figures import style
from lossbench.report.figures.style import BAND, LINE, WIDTH, Drawing, Look, counted, heading, looks, percent, short

MARK = "#B3400A"  # of M_min
MOST_PANELS = 6
LOG_FROM = 4.0  # the span of values from which an axis is logarithmic
LETTER = 0.026  # of a tick label, as a share of the width of a panel


def along_axis(results: Results, experiment: str, along: Along) -> Drawing | None:
    """Accuracy and gain over the baseline along a numeric axis, one row of panels per line of points."""
    lines, left_out = _shown(along.lines)
    main, baseline, headline = results.main_at, results.info.baseline, results.headline
    compared = results.comparisons[results.comparisons["metric"] == headline.name]
    gains = {(row["point"], row["loss"]): row for row in compared.to_dict("records")}
    points = list(dict.fromkeys(point for line in lines for point in line.points))
    here = set(points)
    worth: dict[str, list[float]] = {}
    for point in points:
        for loss, row in main[point].items():
            worth.setdefault(loss, []).append(headline.sign * row["value"])
    means = {loss: sum(values) / len(values) for loss, values in worth.items()}
    labels, few = style.chosen(series.order(results, list(worth)), means)
    values = sorted({point[along.axis] for point in points})
    log = values[0] > 0 and values[-1] > LOG_FROM * values[0]
    rests = [line.rest for line in lines]
    titles = series.parts(rests)
    fixed = ", ".join(series.told(rests[0], [name for name in rests[0] if name not in ("experiment", *varied(rests))]))
    name = _named(along.axis)
    unit = f" {headline.unit}" if headline.unit else ""
    said = f"{headline.title} and difference from {short(baseline)} along {name}"
    n = counted([row["n"] for point in points for row in main[point].values()])
    key = style.keys(looks(results.labels), labels)

    def draw(canvas: Canvas) -> None:
        look = looks(results.labels)
        axes = canvas.subplots(len(lines), 2, sharex=True, squeeze=False)
        for (left, right), line, title in zip(axes, lines, titles, strict=True):
            right.sharey(axes[0][1])  # gains are compared between panels
            _line(left, line, along.axis, labels, look, main, "value", values, log)
            right.axhspan(-results.info.margin, results.info.margin, color=BAND, alpha=0.2, lw=0, zorder=0)
            right.axhline(0, color=LINE, lw=1.2, zorder=1)
            others = [label for label in labels if label != baseline]
            _line(right, line, along.axis, others, look, _by_point(gains, line), "delta", values, log)
            for ax in (left, right):
                ax.grid(axis="y")
                _mark_minimum(ax, line, along.axis, values, named=ax is left)
            percent(left, headline)
            left.set_ylabel(f"test {words.column(headline)}")
            right.set_ylabel(f"difference,{unit}" if unit else "difference")
            if title:
                left.set_title(style.joined(title, 88), fontsize=8.5)
        _cut(axes[0][1], [gains[key] for key in gains if key[0] in here and key[1] in labels], results.info.margin)
        _ticks(axes[0][0], values, log)
        for ax in axes[-1]:
            ax.set_xlabel(f"{name}{' (log scale)' if log else ''}")
        heading(canvas, ", ".join(part for part in (f"{experiment}: {said}", fixed, f"{n}{few}") if part))
        canvas.legend(handles=key.handles, loc="outside lower center", ncols=key.columns)

    caption = (
        f"Left: mean test {headline.title} with 95 % t intervals over seeds. Right: paired difference from "
        f"{baseline} with 95 % t intervals; the band is ±{results.info.margin:g}{unit}, the differences that count as "
        "equivalent. Points side by side have the same value. Axes need not start at zero, and a long bar may extend "
        f"past its axis.{left_out}"
    )
    if along.axis == "width":
        caption += " M_min = C − 1 is the smallest width at which the weights of C classes can have equal angles."
    height = 1.0 + 0.19 * key.rows + len(lines) * (2.5 if len(lines) == 1 else 1.85)
    return Drawing(f"axis-{along.axis}-{experiment}", caption, WIDTH, height, draw)


def _named(axis: str) -> str:
    return f"{axis} {SHORT[axis]}" if axis in SHORT else axis


def _shown(lines: Sequence[Line]) -> tuple[list[Line], str]:
    """At most `MOST_PANELS` lines: at the largest value of other numeric axes, the last first; and what is left out."""
    kept, at = list(lines), []
    for name in reversed(varied(line.rest for line in lines)):
        values = [line.rest[name] for line in kept if name in line.rest]
        if len(kept) > MOST_PANELS and all(map(is_number, values)):
            largest = max(values)
            kept = [line for line in kept if line.rest.get(name, largest) == largest]
            at.append(f"{SHORT.get(name, name)} = {shown(largest)}")
    kept = kept[:MOST_PANELS]
    if len(kept) == len(lines):
        return kept, ""
    where = f" (at {', '.join(at)})" if at else ""
    return kept, f" {len(kept)} of {len(lines)} panels are drawn{where}; the table has all points."


def _by_point(gains: dict[tuple[Point, str], Any], line: Line) -> dict[Point, dict[str, Any]]:
    found: dict[Point, dict[str, Any]] = {point: {} for point in line.points}
    for (point, loss), row in gains.items():
        if point in found:
            found[point][loss] = row
    return found


def _line(
    ax: Axes,
    line: Line,
    axis: str,
    labels: Sequence[str],
    look: dict[str, Look],
    rows: dict[Point, dict[str, Any]],
    column: str,
    values: Sequence[float],
    log: bool,
) -> None:
    """One line per loss, with interval bars where there are seeds enough for one.

    Lines are shifted a little each, at most half a gap in all, so that no bar hides another.
    """
    scaled = np.log(values) if log else np.asarray(values, float)
    gap = float(np.diff(scaled).min())
    step = min(0.010 * float(scaled[-1] - scaled[0]), 0.5 * gap / max(len(labels) - 1, 1))
    for index, label in enumerate(labels):
        mine = [(point[axis], rows[point][label]) for point in line.points if label in rows[point]]
        mine = [(value, row) for value, row in mine if not math.isnan(row[column])]
        if not mine:
            continue
        shift = step * (index - (len(labels) - 1) / 2)
        at = [value * math.exp(shift) if log else value + shift for value, _ in mine]
        means = [row[column] for _, row in mine]
        bars = [(row["high"] - row["low"]) / 2 for _, row in mine]
        own = look[label]
        ax.errorbar(at, means, yerr=np.nan_to_num(bars), color=own.colour, marker=own.marker, ls=own.dash,
                    markersize=4.5, lw=1.4, elinewidth=1.0, capsize=2, label=label)  # fmt: skip


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


def _cut(ax: Axes, rows: Sequence[dict[str, Any]], margin: float) -> None:
    """All gains are on the axis; an interval far longer than the others is cut."""
    known = [row for row in rows if not math.isnan(row["low"])]
    if not known:
        return
    reach = [max(-row["low"], row["high"]) for row in known]
    furthest = max(abs(row["delta"]) for row in rows if not math.isnan(row["delta"]))
    most = max(3 * float(np.quantile(reach, 0.6)), 1.25 * furthest, 1.3 * margin)
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, -most), min(high, most))


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
