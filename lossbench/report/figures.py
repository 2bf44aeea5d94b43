"""Results → SVG. One function a figure; the same colour for a loss in all of them; bytes equal on every rendering."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from lossbench.report.analysis import Results

# Okabe & Ito's palette, which colour-blind readers can tell apart; the baseline is always grey.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B", "#7F3C8D", "#11A579", "#B8A900")
BASELINE_COLOUR = "#555555"
MARKERS = "osD^vP*Xhp"
MOST_ROWS = 40  # of a forest
MOST_LINES = 12  # of a curve

STYLE: dict[str, Any] = {
    "svg.hashsalt": "lossbench",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "figure.facecolor": "white",
    "savefig.bbox": "tight",
}


def colours(labels: Sequence[str]) -> dict[str, str]:
    """The colour of every loss, the first being the baseline."""
    rest = {label: PALETTE[index % len(PALETTE)] for index, label in enumerate(labels[1:])}
    return {labels[0]: BASELINE_COLOUR, **rest}


def drawn(draw: Callable[[Canvas], None], width: float, height: float) -> str:
    """The SVG text of a figure of that size in inches."""
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type,unused-ignore]  # its keys are literals in newer stubs
        canvas = Canvas(figsize=(width, height), layout="constrained")
        draw(canvas)
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "lossbench"})
    return buffer.getvalue()


def differences(results: Results, metric: str, axis_label: str, band: float | None) -> str | None:
    """A forest: every loss's difference from the baseline with its interval, one panel an experiment."""
    frame = results.comparisons
    frame = frame[(frame["metric"] == metric) & frame["low"].notna()]
    if frame.empty:
        return None
    panels = [(experiment, _most(group)) for experiment, group in frame.groupby("experiment", sort=False)]
    sizes = frame["experiment"].value_counts()
    colour = colours(results.labels)
    heights = [len(group) for _, group in panels]

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots(len(panels), 1, squeeze=False, height_ratios=[count + 0.6 for count in heights])
        for ax, (experiment, group) in zip(axes[:, 0], panels, strict=True):
            if band:
                ax.axvspan(-band, band, color="#56B4E9", alpha=0.15, lw=0, zorder=0)
            ax.axvline(0, color=BASELINE_COLOUR, lw=1, zorder=1)
            for place, row in enumerate(group.to_dict("records")):
                low, high = row["delta"] - row["low"], row["high"] - row["delta"]
                sure = str(row["verdict"]).startswith("different")
                ax.errorbar(
                    row["delta"], place, xerr=[[low], [high]], fmt="o", color=colour[row["loss"]], capsize=2.5, lw=1.6,
                    markersize=5.5, markerfacecolor=colour[row["loss"]] if sure else "white", markeredgewidth=1.4,
                )  # fmt: skip
            ax.set_yticks(range(len(group)), _names(group))
            ax.set_ylim(len(group) - 0.5, -0.5)
            left_out = (
                f" (the {len(group)} of {sizes[experiment]} that differ most)" if len(group) < sizes[experiment] else ""
            )
            ax.set_title(f"{experiment}: {_shared(group)}{left_out}")
            ax.tick_params(axis="y", length=0)
            ax.grid(axis="x", color="#e5e5e5", lw=0.6)
            ax.set_axisbelow(True)
        axes[-1, 0].set_xlabel(axis_label)

    return drawn(draw, 7.2, 0.7 + sum(0.27 * count + 0.55 for count in heights))


def _most(group: pd.DataFrame) -> pd.DataFrame:
    """The rows that differ most, in their order, if there are more than a page can show."""
    return group if len(group) <= MOST_ROWS else group.loc[group["delta"].abs().nlargest(MOST_ROWS).index.sort_values()]


def _shared(group: pd.DataFrame) -> str:
    """What all rows of a panel have in common, for its title."""
    datasets, widths = group["dataset"].unique(), group["width"].unique()
    return ", ".join(datasets[:1] if len(datasets) == 1 else []) + (f", M = {widths[0]}" if len(widths) == 1 else "")


def _names(group: pd.DataFrame) -> list[str]:
    """The rows of a panel: the loss, and what tells it from its namesakes in the panel."""
    several_widths, several_sets = group["width"].nunique() > 1, group["dataset"].nunique() > 1
    return [
        row["loss"]
        + (f"  {row['dataset']}" if several_sets else "")
        + (f"  M = {row['width']}" if several_widths else "")
        for row in group.to_dict("records")
    ]


def width_curve(results: Results, experiment: str) -> str | None:
    """Accuracy with its interval and FC memory against M, M_min marked; None where the width does not vary."""
    frame = results.main
    frame = frame[(frame["experiment"] == experiment) & (frame["n"] > 0)] if len(frame) else frame
    if frame.empty or frame["width"].nunique() < 2 or frame["classes"].nunique() > 1:
        return None
    colour = colours(results.labels)
    labels = [label for label in results.labels if label in set(frame["loss"])][:MOST_LINES]
    widths = sorted(frame["width"].unique())
    minimum = int(frame["minimum"].iloc[0])

    def draw(canvas: Canvas) -> None:
        accuracy, memory = canvas.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        for index, label in enumerate(labels):
            mine = frame[frame["loss"] == label].sort_values("width")
            nudge = 1.012 ** (index - (len(labels) - 1) / 2)  # side by side on the log axis, so that bars do not hide
            at = mine["width"] * nudge
            bars = (mine["high"] - mine["low"]) / 2
            accuracy.errorbar(
                at, mine["accuracy"], yerr=bars.fillna(0), color=colour[label], marker=MARKERS[index % len(MARKERS)],
                markersize=5, lw=1.4, capsize=2, label=label,
            )  # fmt: skip
        sizes = frame.groupby("width")["bytes_fc"].mean() / 1024
        memory.plot(sizes.index, sizes, color=BASELINE_COLOUR, marker="o", markersize=4, lw=1.4)
        for ax in (accuracy, memory):
            ax.axvline(minimum, color="#D55E00", lw=1, ls=(0, (4, 3)), zorder=0)
            ax.grid(axis="y", color="#e5e5e5", lw=0.6)
            ax.set_axisbelow(True)
        accuracy.annotate(
            f"M_min = {minimum}", (minimum, 0.03), xycoords=("data", "axes fraction"), xytext=(4, 0),
            textcoords="offset points", color="#D55E00",
        )  # fmt: skip
        accuracy.set_title(f"{experiment}: accuracy and FC memory against the FC width")
        accuracy.set_ylabel("test accuracy, %")
        memory.set_ylabel("FC layer, KiB")
        memory.set_xlabel("FC width M (log scale)")
        _log_ticks(memory, widths)
        accuracy.legend(frameon=False, fontsize=8)

    return drawn(draw, 7.2, 4.6)


def _log_ticks(ax: Axes, widths: Sequence[int]) -> None:
    ax.set_xscale("log")
    ax.set_xticks(widths, [str(width) for width in widths])
    ax.minorticks_off()
    ax.set_ylim(bottom=0)
