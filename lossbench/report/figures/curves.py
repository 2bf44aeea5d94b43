"""Lines: learning curves, angles by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.analysis.series import EVERYWHERE
from lossbench.core.geometry import simplex_angle
from lossbench.report.figures import style
from lossbench.report.figures.style import WIDTH, Drawing, Look, counted, heading, legend, looks

MOST_CLASSES = 30  # along an axis; more are drawn as a distribution


def learning_curves(results: Results, experiment: str, at: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """Training loss and, where it was evaluated on the way, test accuracy against the step, with bands over seeds."""
    frame = series.curves(results, experiment, at)
    parts = [name for name in ("loss", "accuracy") if frame[frame["series"] == name]["step"].nunique() > 1]
    if not parts:
        return None
    look = looks(results.labels)
    labels, left_out = _chosen(results, experiment, frame)
    first = frame.iloc[0]
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


def angles_by_class(results: Results, experiment: str, at: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """The mean angle of each class's features to its weight, on train and test, as in the W-Softmax paper."""
    frame = series.at_one_point(series.lying(results.class_angles, experiment, at))
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
                places = np.linspace(0, 100, len(mine)) if many else mine["class"]
                own = look[label]
                ax.plot(places, mine["angle"], color=own.colour, ls=own.dash, lw=1.4, label=label,
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


def _band(ax: Axes, mine: pd.DataFrame, look: Look, label: str, *, positive: bool) -> None:
    ax.plot(mine["step"], mine["mean"], color=look.colour, ls=look.dash, lw=1.5, label=label)
    low = mine["low"].clip(lower=mine["mean"].min() / 10) if positive else mine["low"]  # a log axis has no zero
    ax.fill_between(mine["step"], low.astype(float), mine["high"].astype(float), color=look.colour, alpha=0.14, lw=0)
