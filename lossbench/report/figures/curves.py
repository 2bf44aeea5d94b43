"""Lines: learning curves, angles by class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.analysis.series import EVERYWHERE, Curve
from lossbench.core.geometry import simplex_angle
from lossbench.core.point import Point
from lossbench.report.figures import style
from lossbench.report.figures.places import MOST_POINTS, named, shown
from lossbench.report.figures.style import WIDTH, Drawing, Look, counted, heading, looks

NO_CURVE = Curve("", "", *(np.zeros(0, int) for _ in range(2)), *(np.zeros(0) for _ in range(3)))
MOST_CLASSES = 30  # along an axis; more are drawn as a distribution


def learning_curves(results: Results, experiment: str, _: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """Training loss and, where it was evaluated on the way, test accuracy against the step, with bands over seeds.

    One column of panels per dataset of the first table.
    """
    points = shown(results, experiment)
    frames = {point: series.curves(results, point) for point in points[:MOST_POINTS]}
    every = [curve for found in frames.values() for curve in found]
    parts = [name for name in ("loss", "accuracy") if len({*_steps(every, name)}) > 1]
    if not parts:
        return None
    labels, left_out = _chosen(results, list(frames), [curve.loss for curve in every])
    key = style.keys(looks(results.labels), labels, markers=False)
    counts = [int(n) for curve in every for n in curve.n]
    axis = {"loss": "training loss (log)", "accuracy": "test accuracy, %"}

    def draw(canvas: Canvas) -> None:
        look = looks(results.labels)
        axes = canvas.subplots(len(parts), len(frames), sharex="col", squeeze=False)
        for column, (point, mine) in enumerate(frames.items()):
            for ax, part in zip(axes[:, column], parts, strict=True):
                found = {curve.loss: curve for curve in mine if curve.series == part}
                for label in labels:
                    _band(ax, found.get(label, NO_CURVE), look[label], label, part == "loss")
                ax.grid(axis="y")
                if part == "loss" and found and all((curve.mean > 0).all() for curve in found.values()):
                    _log(ax)
            axes[-1, column].set_xlabel("optimizer step")
            if len(frames) > 1:
                axes[0, column].set_title(style.short(named(results, point), 28), fontsize=8.5)
        for ax, part in zip(axes[:, 0], parts, strict=True):
            ax.set_ylabel(axis[part])
        place = named(results, points[0]) if len(frames) == 1 else experiment
        heading(canvas, f"{place}: learning curves, {counted(counts)}")
        canvas.legend(handles=key.handles, loc="outside lower center", ncols=key.columns)

    caption = (
        "Means over seeds with 95 % intervals as bands. The training loss of one loss cannot be compared with that of "
        "another: their scales differ."
        + (" Test accuracy is never used to choose a step." if "accuracy" in parts else "")
        + (f" {len(frames)} of {len(points)} datasets." if len(frames) < len(points) else "")
        + left_out
    )
    return Drawing(f"learning-{experiment}", caption, WIDTH, 0.9 + 0.19 * key.rows + 2.0 * len(parts), draw)


def angles_by_class(results: Results, experiment: str, at: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """The mean angle of each class's features to its weight, on train and test, as in the W-Softmax paper."""
    frame = series.at_one_point(series.lying(results.class_angles, experiment, at))
    if frame.empty:
        return None
    splits = [split for split in ("train", "test") if (frame["split"] == split).any()]
    first = frame.iloc[0]
    labels, left_out = _chosen(results, [first["point"]], list(frame["loss"]))
    many = frame["class"].nunique() > MOST_CLASSES
    key = style.keys(looks(results.labels), labels, markers=not many)

    def draw(canvas: Canvas) -> None:
        look = looks(results.labels)
        axes = style.panels(canvas, len(splits), len(splits), sharey=True)
        for ax, split in zip(axes, splits, strict=True):
            for label in labels:
                mine = frame[(frame["split"] == split) & (frame["loss"] == label)]
                mine = mine.sort_values("angle" if many else "class")
                places = np.linspace(0, 100, len(mine)) if many else mine["class"]
                own = look[label]
                ax.plot(places, mine["angle"], color=own.colour, ls=own.dash, lw=1.4, label=label,
                        marker="" if many else own.marker, markersize=4.5)  # fmt: skip
            ax.set_title(f"{split} features")
            ax.set_xlabel("share of classes with a smaller angle, %" if many else "class")
            ax.grid(axis="y")
            if not many:
                ax.set_xticks(sorted(int(number) for number in frame["class"].unique()))
        axes[0].set_ylabel("angle to the class weight, °")
        axes[0].set_ylim(bottom=0)
        heading(canvas, f"{named(results, first['point'])}: mean angle by class, {counted(list(frame['n']))}")
        canvas.legend(handles=key.handles, loc="outside lower center", ncols=key.columns)

    apart = simplex_angle(int(first["classes"]))
    caption = (
        "Mean angle between the features of a class and its weight"
        + ("; classes are sorted by angle" if many else "")
        + f". Smaller is more compact. The weights of {first['classes']} classes are at most {apart:.1f}° apart if all "
        f"angles between them are equal.{left_out}"
    )
    return Drawing(f"angles-{experiment}", caption, WIDTH, 3.1 + 0.19 * key.rows, draw)


def _chosen(results: Results, points: Sequence[Point], present: Sequence[str]) -> tuple[list[str], str]:
    """The losses that are drawn: where there are too many, those of the best mean over the points."""
    found: dict[str, list[float]] = {}
    for point in points:
        for loss, row in results.main_at.get(point, {}).items():
            found.setdefault(loss, []).append(results.headline.sign * row["value"])
    worth = {loss: float(np.mean(values)) for loss, values in found.items()}
    return style.chosen(series.order(results, present), worth)


def _steps(curves: Sequence[Curve], name: str) -> Iterator[int]:
    return (step for curve in curves if curve.series == name for step in curve.steps.tolist())


def _band(ax: Axes, curve: Curve, look: Look, label: str, positive: bool) -> None:
    ax.plot(curve.steps, curve.mean, color=look.colour, ls=look.dash, lw=1.5, label=label)
    least = curve.mean.min(initial=math.inf) / 10 if positive else -math.inf  # a log axis has no zero
    ax.fill_between(curve.steps, np.maximum(curve.low, least), curve.high, color=look.colour, alpha=0.14, lw=0)


def _log(ax: Axes) -> None:
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
