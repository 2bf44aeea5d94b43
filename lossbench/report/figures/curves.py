"""Lines: the headline metric and memory against the FC width, against classes, learning curves, angles by class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.core.geometry import simplex_angle
from lossbench.report import words
from lossbench.report.figures import style
from lossbench.report.figures.style import WIDTH, Drawing, Look, counted, heading, legend, looks, percent

MARK = "#B3400A"  # of M_min
MOST_CLASSES = 30  # along an axis; more are drawn as a distribution
MOST_PANELS = 4


def width_curve(results: Results, experiment: str) -> Drawing | None:
    """The headline metric and FC memory against M, M_min marked; None where the width does not vary."""
    frame = measured(results, experiment)
    if frame.empty:
        return None
    several = frame.groupby(["dataset", "classes"], sort=False)["width"].nunique()
    several = several[several > 1]
    if several.empty:
        return None
    # M_min depends on the number of classes: the largest task with several widths represents the experiment.
    dataset, classes = max(several.index, key=lambda task: task[1])
    frame = frame[(frame["dataset"] == dataset) & (frame["classes"] == classes)]
    labels, left_out = _chosen(results, experiment, frame)
    widths = sorted(int(width) for width in frame["width"].unique())
    minimum = int(frame["minimum"].iloc[0])
    first, headline = frame.iloc[0], results.headline

    def draw(canvas: Canvas) -> None:
        means, memory = canvas.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        _means(means, frame, "width", widths, labels, looks(results.labels))
        sizes = frame.groupby("width")["bytes_fc"].mean() / 1024
        memory.plot(sizes.index, sizes, color=style.BASELINE_COLOUR, marker="o", markersize=4.5, lw=1.5,
                    label="FC layer")  # fmt: skip
        for ax in (means, memory):
            ax.axvline(minimum, color=MARK, lw=1.1, ls=(0, (4, 3)), zorder=0)
            ax.grid(axis="y")
        left = minimum > math.sqrt(widths[0] * widths[-1])  # the text goes where there is more room
        means.annotate(
            f"M_min = C − 1 = {minimum}", (minimum, 0.03), xycoords=("data", "axes fraction"),
            xytext=(-5 if left else 5, 0), textcoords="offset points", color=MARK, fontsize=8.5,
            ha="right" if left else "left",
        )  # fmt: skip
        percent(means, headline)
        means.set_ylabel(f"test {words.column(headline)}")
        memory.set_ylabel("FC layer, KiB")
        memory.set_xlabel("FC width M, units (log scale)")
        _log_ticks(memory, widths)
        memory.set_ylim(bottom=0)
        heading(canvas, f"{experiment}: {headline.title} and FC memory against the FC width, {first['dataset']}, "
                f"C = {first['classes']}, {counted(list(frame['n']))}{left_out}")  # fmt: skip
        legend(means, looks(results.labels), labels)

    caption = (
        f"Mean test {headline.title} with 95 % t intervals over seeds (points side by side have the same width). "
        "M_min = C − 1 is the smallest width at which the weights of C classes can have equal angles. Memory is that "
        f"of the FC layer's parameters. The {headline.title} axis need not start at zero."
    )
    return Drawing(f"width-{experiment}", caption, WIDTH, 4.8, draw)


def classes_curve(results: Results, experiment: str) -> Drawing | None:
    """The headline metric against the number of classes, one panel per width; None where the classes do not vary."""
    frame = measured(results, experiment)
    if frame.empty:
        return None
    frame = frame.assign(
        panel=["M = C − 1" if row.width == row.minimum else f"M = {row.width}" for row in frame.itertuples()]
    )
    counts = frame.groupby("panel", sort=False)["classes"].nunique()
    panels = [str(name) for name in counts.index if counts[name] > 1]
    if not panels:
        return None
    shown = panels[:MOST_PANELS]
    frame = frame[frame["panel"].isin(shown)]
    labels, left_out = _chosen(results, experiment, frame)
    columns, headline = min(2, len(shown)), results.headline

    def draw(canvas: Canvas) -> None:
        axes = style.panels(canvas, len(shown), columns, sharey=True, sharex=True)
        values = sorted(int(count) for count in frame["classes"].unique())
        for ax, name in zip(axes, shown, strict=True):
            _means(ax, frame[frame["panel"] == name], "classes", values, labels, looks(results.labels))
            ax.set_title(name)
            ax.grid(axis="y")
            _log_ticks(ax, values)
        percent(axes[0], headline)  # all panels share the axis, so it is cut after all are drawn
        canvas.supxlabel("classes C (log scale)", fontsize=9)
        canvas.supylabel(f"test {words.column(headline)}", fontsize=9)
        more = f" ({len(shown)} of {len(panels)} widths)" if len(shown) < len(panels) else ""
        heading(canvas, f"{experiment}: {headline.title} against the number of classes, {counted(list(frame['n']))}"
                f"{left_out}{more}")  # fmt: skip
        legend(axes[columns - 1], looks(results.labels), labels)

    caption = (
        f"Mean test {headline.title} with 95 % t intervals over seeds; points side by side have the same number of "
        f"classes. The {headline.title} axis need not start at zero."
    )
    return Drawing(f"classes-{experiment}", caption, WIDTH, 0.9 + 2.9 * math.ceil(len(shown) / columns), draw)


def learning_curves(results: Results, experiment: str) -> Drawing | None:
    """Training loss and, where it was evaluated on the way, test accuracy against the step, with bands over seeds."""
    frame = series.curves(results, experiment)
    parts = [name for name in ("loss", "accuracy") if frame[frame["series"] == name]["step"].nunique() > 1]
    if not parts:
        return None
    look = looks(results.labels)
    labels, left_out = _chosen(results, experiment, frame)
    first = series.at_one_point(results.trained[results.trained["experiment"] == experiment]).iloc[0]
    axis = {"loss": "training loss (log scale)", "accuracy": "test accuracy, %"}

    def draw(canvas: Canvas) -> None:
        axes = style.panels(canvas, len(parts), 1, sharex=True)
        for ax, part in zip(axes, parts, strict=True):
            for label in labels:
                mine = frame[(frame["series"] == part) & (frame["loss"] == label)].sort_values("step")
                _band(ax, mine, look[label], label, positive=part == "loss")
            ax.set_ylabel(axis[part])
            ax.grid(axis="y")
            if part == "loss" and (frame[frame["series"] == "loss"]["mean"] > 0).all():
                ax.set_yscale("log")
                ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
                ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                ax.yaxis.set_minor_locator(NullLocator())
        axes[-1].set_xlabel("optimizer step")
        heading(
            canvas,
            f"{experiment}: learning curves, {series.where(first['point'])}, {counted(list(frame['n']))}{left_out}",
        )
        legend(axes[0], look, labels, markers=False)

    caption = (
        "Means over seeds with 95 % t intervals as bands. A training loss can be compared with itself over time, not "
        "with that of another loss, whose scale and margin differ."
        + (" Test accuracy is never used to choose a step." if "accuracy" in parts else "")
    )
    return Drawing(f"learning-{experiment}", caption, WIDTH, 0.8 + 2.4 * len(parts), draw)


def angles_by_class(results: Results, experiment: str) -> Drawing | None:
    """The mean angle of each class's features to its weight, on train and test, as in the W-Softmax paper."""
    frame = series.at_one_point(results.class_angles[results.class_angles["experiment"] == experiment])
    if frame.empty:
        return None
    splits = [split for split in ("train", "test") if (frame["split"] == split).any()]
    look = looks(results.labels)
    labels, left_out = _chosen(results, experiment, frame)
    first = frame.iloc[0]
    many = frame["class"].nunique() > MOST_CLASSES

    def draw(canvas: Canvas) -> None:
        axes = style.panels(canvas, len(splits), len(splits), sharey=True)
        for ax, split in zip(axes, splits, strict=True):
            for label in labels:
                mine = frame[(frame["split"] == split) & (frame["loss"] == label)]
                mine = mine.sort_values("angle" if many else "class")
                at = np.linspace(0, 100, len(mine)) if many else mine["class"]
                own = look[label]
                ax.plot(at, mine["angle"], color=own.colour, ls=own.dash, lw=1.4, label=label,
                        marker="" if many else own.marker, markersize=4.5)  # fmt: skip
            ax.set_title(f"{split} features")
            ax.set_xlabel("share of classes with a smaller angle, %" if many else "class")
            ax.grid(axis="y")
            if not many:
                ax.set_xticks(sorted(int(number) for number in frame["class"].unique()))
        axes[0].set_ylabel("mean angle to the class weight, degrees")
        axes[0].set_ylim(bottom=0)
        said = f"{series.where(first['point'])}, {counted(list(frame['n']))}{left_out}"
        heading(canvas, f"{experiment}: mean angle by class, {said}")
        legend(axes[-1], look, labels, markers=not many)

    apart = simplex_angle(int(first["classes"]))
    caption = (
        "Mean angle between the features of a class and its weight, mean over seeds"
        + ("; classes are sorted by angle" if many else "")
        + f". Smaller is more compact. The weights of {first['classes']} classes are at most {apart:.1f}° apart if all "
        "angles between them are equal."
    )
    return Drawing(f"angles-{experiment}", caption, WIDTH, 3.4, draw)


def measured(results: Results, experiment: str) -> pd.DataFrame:
    """The rows of the main table of an experiment that have a finished seed."""
    frame = results.main
    return frame[(frame["experiment"] == experiment) & (frame["n"] > 0)] if len(frame) else frame


def _chosen(results: Results, experiment: str, frame: pd.DataFrame) -> tuple[list[str], str]:
    """The losses of a frame that are drawn: where there are too many, those of the best mean."""
    scored = frame if "value" in frame else measured(results, experiment)
    worth = (results.headline.sign * scored.groupby("loss")["value"].mean()).to_dict()
    return style.chosen(series.order(results, frame["loss"]), worth)


def _means(
    ax: Axes, frame: pd.DataFrame, axis: str, values: Sequence[int], labels: Sequence[str], look: Mapping[str, Look]
) -> None:
    """One line per loss along a log axis, with interval bars where there are seeds enough for one.

    Lines are shifted by a small factor each, at most half a gap in all, so that no bar hides another.
    """
    gap = float(np.diff(np.log(values)).min())
    step = min(0.010 * math.log(values[-1] / values[0]), 0.5 * gap / max(len(labels) - 1, 1))
    for index, label in enumerate(labels):
        mine, own = frame[frame["loss"] == label].sort_values(axis), look[label]
        at = mine[axis] * np.exp(step * (index - (len(labels) - 1) / 2))
        bars = ((mine["high"] - mine["low"]) / 2).fillna(0)
        ax.errorbar(at, mine["value"], yerr=bars, color=own.colour, marker=own.marker, ls=own.dash, markersize=5,
                    lw=1.5, elinewidth=1.1, capsize=2, label=label)  # fmt: skip


def _band(ax: Axes, mine: pd.DataFrame, look: Look, label: str, *, positive: bool) -> None:
    ax.plot(mine["step"], mine["mean"], color=look.colour, ls=look.dash, lw=1.5, label=label)
    low = mine["low"].clip(lower=mine["mean"].min() / 10) if positive else mine["low"]  # a log axis has no zero
    ax.fill_between(mine["step"], low.astype(float), mine["high"].astype(float), color=look.colour, alpha=0.14, lw=0)


def _log_ticks(ax: Axes, values: Sequence[int]) -> None:
    """A log axis that labels the values that were run, as many as fit."""
    ax.set_xscale("log")
    named, last = [], -math.inf
    span = math.log(values[-1] / values[0]) or 1.0
    for value in values:
        room = math.log(value / values[0]) / span
        named.append(str(value) if room - last > 0.045 else "")
        last = room if named[-1] else last
    ax.set_xticks(values, named)
    ax.minorticks_off()
