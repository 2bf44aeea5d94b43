"""Seed dots: every value of the headline metric that was measured, with the mean and its interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Canvas

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.analysis.series import EVERYWHERE, order
from lossbench.report import words
from lossbench.report.figures import style
from lossbench.report.figures.places import MOST_POINTS, named, shown
from lossbench.report.figures.style import INK, WIDTH, Drawing, Look, counted, heading, looks


def seed_dots(results: Results, experiment: str, _: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """One panel per dataset of the first table, one row per loss, one dot per seed."""
    headline, points = results.headline, shown(results, experiment)
    trained = series.lying(results.trained, experiment, EVERYWHERE)
    trained = trained.assign(value=trained[headline.column].astype(float))
    by_point = dict(list(trained[trained["value"].notna()].groupby("point", sort=False)))
    groups = [by_point[point] for point in points if point in by_point][:MOST_POINTS]
    if not groups or max(group["seed"].nunique() for group in groups) < 2:
        return None
    labels = order(results, pd.concat(groups)["label"])
    names = [named(results, group["point"].iloc[0]) for group in groups]

    def draw(canvas: Canvas) -> None:
        look = looks(results.labels)
        axes = style.panels(canvas, len(groups), len(groups), sharey=True)
        for ax, group, name in zip(axes, groups, names, strict=True):
            _panel(ax, group, labels, look, results.main_at[group["point"].iloc[0]], score=headline.is_score)
            ax.locator_params(axis="x", nbins=10 // len(groups))
            if len(groups) > 1:
                ax.set_title(style.short(name, 28), fontsize=8.5)
        canvas.supxlabel(f"test {words.column(headline)}", fontsize=9)
        n = counted([int(count) for group in groups for count in group.groupby("label", sort=False).size()])
        heading(canvas, f"{names[0] if len(names) == 1 else experiment}: {headline.title} of every seed, {n}")

    caption = (
        "Each dot is one seed; the diamond below is their mean, the bar its 95 % interval. Dots at the same height are "
        "the same seed for every loss."
        + (f" {len(groups)} of {len(points)} datasets." if len(groups) < len(points) else "")
    )
    return Drawing(f"seeds-{experiment}", caption, WIDTH, 1.35 + 0.3 * len(labels), draw)


def _panel(
    ax: Axes,
    group: pd.DataFrame,
    labels: list[str],
    look: Mapping[str, Look],
    means: Mapping[str, Mapping[str, Any]],
    *,
    score: bool,
) -> None:
    seeds = sorted(group["seed"].unique())
    lift = dict(zip(seeds, np.linspace(-0.34, 0.08, len(seeds)) if len(seeds) > 1 else [0.0], strict=True))
    rows = [(row, label) for row, label in enumerate(labels) if label in means]
    for row, label in rows:
        mine = group[group["label"] == label]
        heights = [row + lift[seed] for seed in mine["seed"]]
        ax.plot(mine["value"], heights, "o", color=look[label].colour, alpha=0.75, markersize=3.6, mew=0, label=label)
    bars = [[(means[label]["low"], row + 0.27), (means[label]["high"], row + 0.27)] for row, label in rows]
    known = [bar for bar in bars if not np.isnan(bar[0][0])]
    ax.add_collection(LineCollection(known, colors=INK, linewidths=1.3, zorder=3), autolim=False)
    ax.plot([means[label]["value"] for _, label in rows], [row + 0.27 for row, _ in rows], "D", color=INK, mfc="white",
            markersize=4.6, mew=1.2, zorder=4)  # fmt: skip
    style.listed(ax, list(style.shown(labels).values()), room=0.6)
    values = group["value"]
    room = 0.06 * max(float(values.max() - values.min()), 0.1 if score else 1e-3 * abs(float(values.mean())), 1e-9)
    # The interval of a few seeds may exceed what a score can be: between 0 and 100.
    left = min([float(values.min()), *(bar[0][0] for bar in known)]) - room
    right = max([float(values.max()), *(bar[1][0] for bar in known)]) + room
    ax.set_xlim(max(left, 0) if score else left, min(right, 100 + room) if score else right)
