"""Seed dots: every value of the headline metric that was measured, with the mean and its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.analysis.series import EVERYWHERE, order
from lossbench.report import words
from lossbench.report.figures import style
from lossbench.report.figures.style import INK, WIDTH, Drawing, Look, counted, heading, looks

MOST_PANELS = 6
MOST_DOTS = 300  # per panel; with more there are fewer panels


def seed_dots(results: Results, experiment: str, _: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """One panel per point of the experiment, one row per loss, one dot per seed."""
    trained, headline = results.trained, results.headline
    trained = trained.assign(value=trained[headline.column].astype(float))
    trained = trained[(trained["experiment"] == experiment) & trained["value"].notna()]
    if trained.empty or trained["seed"].nunique() < 2:
        return None
    points = [group for _, group in trained.groupby("point", sort=False)]
    labels = order(results, trained["label"])
    many = len(labels) > 12 or len(labels) * trained["seed"].nunique() > MOST_DOTS
    most = min(len(points), MOST_PANELS // 2 if many else MOST_PANELS)
    shown = [points[round(index)] for index in np.linspace(0, len(points) - 1, most)]  # from the first to the last
    look = looks(results.labels)
    main = results.main[results.main["experiment"] == experiment]
    columns = min(len(shown), 3)
    places = series.parts([group["point"].iloc[0] for group in points])
    texts = {group["point"].iloc[0]: parts for group, parts in zip(points, places, strict=True)}
    if len(points) == 1:
        texts = {point: [series.where(point)] for point in texts}
    titles = [style.joined(texts[group["point"].iloc[0]], 88 // columns) for group in shown]

    def draw(canvas: Canvas) -> None:
        axes = style.panels(canvas, len(shown), columns, sharey=True)
        for ax, group, title in zip(axes, shown, titles, strict=True):
            _panel(ax, group, labels, look, main, score=headline.is_score)
            ax.locator_params(axis="x", nbins=10 // columns)
            ax.set_title(title, fontsize=8.5)
        canvas.supxlabel(f"test {words.column(headline)}", fontsize=9)
        left_out = f" ({len(shown)} of {len(points)} points)" if len(shown) < len(points) else ""
        n = counted([int(count) for count in trained.groupby(["point", "label"], sort=False).size()])
        heading(canvas, f"{experiment}: {headline.title} of every seed, {n}{left_out}")

    caption = (
        "Each dot is one seed; the diamond below is their mean and the bar its 95 % t interval. Dots at the same "
        "height are the same seed for every loss. The axes need not start at zero and differ between panels."
    )
    written = max(title.count("\n") for title in titles)
    height = 0.8 + math.ceil(len(shown) / columns) * (0.34 * len(labels) + 0.55 + 0.15 * written)
    return Drawing(f"seeds-{experiment}", caption, WIDTH, height, draw)


def _panel(
    ax: Axes, group: pd.DataFrame, labels: list[str], look: Mapping[str, Look], main: pd.DataFrame, *, score: bool
) -> None:
    seeds = sorted(group["seed"].unique())
    lift = dict(zip(seeds, np.linspace(-0.34, 0.08, len(seeds)) if len(seeds) > 1 else [0.0], strict=True))
    means = main[main["point"] == group["point"].iloc[0]].set_index("loss")
    for row, label in enumerate(labels):
        mine = group[group["label"] == label]
        if mine.empty:
            continue
        heights = [row + lift[seed] for seed in mine["seed"]]
        ax.plot(mine["value"], heights, "o", color=look[label].colour, alpha=0.75, markersize=3.6, mew=0, label=label)
        found = means.loc[label]
        if not pd.isna(found["low"]):
            ax.plot([found["low"], found["high"]], [row + 0.27, row + 0.27], color=INK, lw=1.3, zorder=3)
        ax.plot(found["value"], row + 0.27, "D", color=INK, mfc="white", markersize=4.6, mew=1.2, zorder=4)
    style.listed(ax, list(style.shown(labels).values()), room=0.6)
    values = group["value"]
    room = 0.06 * max(float(values.max() - values.min()), 0.1 if score else 1e-3 * abs(float(values.mean())), 1e-9)
    # The interval of a few seeds may exceed what a score can be: between 0 and 100.
    ends = means[["low", "high"]]
    low, high = np.nanmin([values.min(), ends["low"].min()]), np.nanmax([values.max(), ends["high"].max()])
    left, right = float(low) - room, float(high) + room
    ax.set_xlim(max(left, 0) if score else left, min(right, 100 + room) if score else right)
