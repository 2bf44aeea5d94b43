"""Features at width 2 and the directions of the class weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.analysis.series import EVERYWHERE
from lossbench.report.figures import style
from lossbench.report.figures.places import named
from lossbench.report.figures.style import GRID, INK, PALETTE, WIDTH, Drawing, heading

MOST_PANELS = 12
MOST_LETTERS = 32  # of a loss in the title of its panel
MOST_NAMED = 20  # classes; with more no direction is numbered


def feature_scatter(results: Results, experiment: str, at: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """Test features at width 2, one panel per loss; None where no record kept any."""
    found = series.planes(results, experiment, at)
    if not found:
        return None
    shown = found[:MOST_PANELS]
    columns = min(len(shown), 3) if len(shown) != 4 else 2
    seeds = sorted({plane.seed for plane in shown})
    written = style.shown([plane.loss for plane in shown], MOST_LETTERS)

    def draw(canvas: Canvas) -> None:
        for ax, plane in zip(style.panels(canvas, len(shown), columns), shown, strict=True):
            _panel(ax, plane, written[plane.loss])
        seed = f"seed {seeds[0]}" if len(seeds) == 1 else "the first seed of each"
        left_out = f" ({len(shown)} of {len(found)} losses)" if len(shown) < len(found) else ""
        examples = max(len(plane.features) for plane in shown)
        heading(canvas, f"{named(results, shown[0].point)}: test features, {seed}, {examples} examples{left_out}")

    caption = (
        "Each dot is the feature of one test example, coloured by its class, not by its loss; a ray is the direction "
        "of that class's weight. Each panel has its own scale. One seed: an illustration, not evidence."
    )
    height = 0.6 + math.ceil(len(shown) / columns) * (WIDTH / columns + 0.1)
    return Drawing(f"features-{experiment}", caption, WIDTH, height, draw)


def _panel(ax: Axes, plane: series.Plane, name: str) -> None:
    reach = float(np.quantile(np.linalg.norm(plane.features, axis=1), 0.995)) * 1.05 or 1.0
    for number, weight in enumerate(plane.weights):
        mine = plane.features[plane.labels == number]
        colour = PALETTE[number % len(PALETTE)]
        length = float(np.linalg.norm(weight))
        ax.plot(mine[:, 0], mine[:, 1], "o", color=colour, markersize=2.4, mew=0, alpha=0.7, label=str(number))
        if length:
            x, y = weight / length
            ax.plot([0, 1.04 * reach * x], [0, 1.04 * reach * y], color=colour, lw=1.1, zorder=3)
            if len(plane.weights) <= MOST_NAMED:
                ax.text(1.15 * reach * x, 1.15 * reach * y, str(number), ha="center", va="center", fontsize=8,
                        fontweight="bold", color=INK)  # fmt: skip
    ax.axhline(0, color=GRID, lw=0.7, zorder=0)
    ax.axvline(0, color=GRID, lw=0.7, zorder=0)
    ax.set(xlim=(-1.25 * reach, 1.25 * reach), ylim=(-1.25 * reach, 1.25 * reach), xticks=[], yticks=[], aspect="equal")
    ax.spines[:].set_visible(False)
    ax.set_title(f"{name}\n{plane.accuracy:.1f} %", loc="center", fontsize=8)
