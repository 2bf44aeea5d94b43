"""What losses cost: memory by cause, the phases of a step, accuracy against time."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.report.figures.forest import MOST_ROWS, ROW, names, separate
from lossbench.report.figures.style import (
    LINE,
    SOFT,
    WIDTH,
    Drawing,
    beside,
    counted,
    heading,
    looks,
    percent,
    short,
    shown,
    tall,
)

# Causes and phases are no losses, so they have shades of their own: one hue from dark to light.
CAUSES = {
    "bytes_body": ("backbone without its FC layer", "#24405c"),
    "bytes_fc": ("FC layer", "#4d7ea8"),
    "bytes_classifier": ("class weights", "#86b3d1"),
    "bytes_loss": ("loss's own state", "#c3dcec"),
    "bytes_optimizer": ("optimizer state", "#d9d4c7"),
}
PHASES = {"forward": "#24405c", "backward": "#6a9bc3", "optimizer": "#d9d4c7"}


def memory_bars(results: Results, experiment: str) -> Drawing | None:
    """The memory ledger: what holds the bytes for each loss and width, and the peak that training added."""
    frame = results.main
    frame = frame[(frame["experiment"] == experiment) & (frame["n"] > 0)] if len(frame) else frame
    if frame.empty or frame["bytes_model"].isna().all():
        return None
    frame = frame.assign(bytes_body=frame["bytes_model"] - frame["bytes_fc"]).fillna(dict.fromkeys(CAUSES, 0))
    whole = len(frame)
    held = frame[list(CAUSES)].sum(axis=1)
    frame = frame if whole <= MOST_ROWS else frame.loc[held.nlargest(MOST_ROWS).index.sort_values()]
    held = held.loc[frame.index]
    unit, factor = _unit(float(held.max()))
    peak_unit, peak_factor = _unit(float(frame["bytes_peak"].max()) if frame["bytes_peak"].notna().any() else 0)
    look = looks(results.labels)

    def draw(canvas: Canvas) -> None:
        ledger, peak = canvas.subplots(1, 2, sharey=True, width_ratios=[2.4, 1])
        rows, left = np.arange(len(frame)), np.zeros(len(frame))
        for column, (cause, colour) in CAUSES.items():
            sizes = frame[column].to_numpy(float) / factor
            ledger.barh(rows, sizes, left=left, height=0.68, color=colour, label=cause, edgecolor="white", lw=0.5)
            left = left + sizes
        digits = 1 if left.max() >= 10 else 2
        for row, value in enumerate(left):
            ledger.annotate(f"{value:.{digits}f}", (value, row), xytext=(3, 0), textcoords="offset points",
                            va="center", fontsize=7.5, color=SOFT)  # fmt: skip
        ledger.set_xlim(0, 1.13 * float(left.max()))
        for place, found in enumerate(frame.to_dict("records")):
            if not pd.isna(found["bytes_peak"]):
                peak.plot(found["bytes_peak"] / peak_factor, place, look[found["loss"]].marker, markersize=5.5,
                          color=look[found["loss"]].colour, label=found["loss"])  # fmt: skip
        separate(ledger, frame)
        ledger.set_yticks(rows, names(frame))
        ledger.set_ylim(len(frame) - 0.5, -0.5)
        ledger.set_xlabel(f"parameters and their state, {unit}")
        peak.set_xlabel(f"peak of training, {peak_unit}")
        peak.set_xlim(0, max(peak.get_xlim()[1] * 1.05, 1e-9))
        for ax in (ledger, peak):
            ax.tick_params(axis="y", length=0)
            ax.grid(axis="x")
            ax.locator_params(axis="x", nbins=5)
        left_out = f" (the {len(frame)} of {whole} that hold most)" if len(frame) < whole else ""
        heading(canvas, f"{experiment}: memory by cause{left_out}")
        handles, texts = ledger.get_legend_handles_labels()
        canvas.legend(handles, texts, loc="outside lower left", ncols=3)

    caption = (
        "Bytes by cause (left, stacked, from zero; the number is their sum) and the most memory that training added at "
        "any time (right, mean over seeds), activations and allocator included. Means over seeds; parameters do not "
        "differ between them."
    )
    return Drawing(f"memory-{experiment}", caption, WIDTH, 1.5 + ROW * len(frame), draw)


def step_phases(results: Results, experiment: str) -> Drawing | None:
    """Milliseconds of a step, by forward, backward and optimizer; None without a timing cell."""
    frame = series.first_timed(results.phases, experiment).dropna(subset=[*PHASES])
    labels = series.order(results, frame["loss"])
    if not labels:
        return None
    frame = frame.set_index("loss").loc[labels]

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        rows, left = np.arange(len(labels)), np.zeros(len(labels))
        for phase, colour in PHASES.items():
            ax.barh(rows, frame[phase], left=left, height=0.68, color=colour, edgecolor="white", lw=0.5, label=phase)
            left = left + frame[phase].to_numpy(float)
        for row, (end, step) in enumerate(zip(left, frame["step"], strict=True)):
            ax.annotate(f"{step:.2f}", (end, row), xytext=(3, 0), textcoords="offset points", va="center",
                        fontsize=7.5, color=SOFT)  # fmt: skip
        ax.set_xlim(0, 1.1 * float(left.max()))
        ax.set_yticks(rows, list(shown(labels).values()))
        ax.set_ylim(len(labels) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
        ax.set_xlabel("milliseconds a step")
        heading(canvas, f"{experiment}: where a step's time goes, {counted(list(frame['rounds']), 'rounds')}")
        handles, texts = ax.get_legend_handles_labels()
        canvas.legend(handles, texts, loc="outside lower center", ncols=3)

    caption = (
        "Medians over interleaved rounds, of one process alone, stacked from zero. The number is the median of the "
        "whole step, to which those of its phases need not add up. For differences between losses read the paired "
        "ratios: they cancel machine-speed drift, medians do not."
    )
    return Drawing(f"phases-{experiment}", caption, WIDTH, 1.35 + ROW * len(labels), draw)


def pareto(results: Results, experiment: str) -> Drawing | None:
    """Accuracy against step time with both intervals and the front; None without a timing cell or with two losses."""
    frame = series.front(results, experiment)
    if len(frame) < 3:
        return None
    look = looks(results.labels)
    first = frame.iloc[0]
    known = frame["chance"].notna().all()
    written = shown(list(frame["loss"]))

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        best = frame[frame["best"].astype(bool)].sort_values("ratio")
        # Steps: with any budget of time, the accuracy that some loss reaches.
        ax.step(best["ratio"], best["accuracy"], where="post", color=LINE, lw=1.2, ls=(0, (4, 2)), zorder=1)
        handles = []
        for row in frame.to_dict("records"):
            own = look[row["loss"]]
            across = [[row["ratio"] - row["ratio_low"]], [row["ratio_high"] - row["ratio"]]]
            up = [[row["accuracy"] - row["low"]], [row["high"] - row["accuracy"]]]
            face = own.colour if row["best"] else "white"
            ax.errorbar(
                row["ratio"], row["accuracy"], xerr=np.nan_to_num(across), yerr=np.nan_to_num(up), fmt=own.marker,
                color=own.colour, mfc=face, mew=1.4, markersize=7.5, elinewidth=1.1, capsize=2, label=row["loss"],
            )  # fmt: skip
            chance = f"  ({_percent(row['chance'])})" if known else ""
            handles.append(Line2D([], [], color=own.colour, marker=own.marker, ls="", mfc=face, mew=1.5, markersize=6,
                                  label=written[row["loss"]] + chance))  # fmt: skip
        handles.append(Line2D([], [], color=LINE, lw=1.2, ls=(0, (4, 2)), label="front of the means"))
        ax.set_xlabel(f"step time / step time of {short(results.outline.baseline)}")
        ax.set_ylabel("test accuracy, %")
        ax.grid()
        percent(ax)
        n, rounds = counted(list(frame["n"])), counted(list(frame["rounds"]), "rounds")
        heading(canvas, f"{experiment}: accuracy against step time, {series.where(first)}, {n}, {rounds[4:]}")
        title = "loss (chance of the front)" if known else None
        beside(ax, handles, title)

    caption = (
        "Better is up and to the left. Bars are 95 % intervals: over seeds upwards, over paired rounds across. Filled: "
        "no other loss is both as accurate and as fast by the means. "
        + (
            "In brackets the share of resampled seeds and rounds in which that is so; it is no p value."
            if known
            else "Below ten seeds or rounds no chance of that is stated."
        )
    )
    return Drawing(f"pareto-{experiment}", caption, WIDTH, tall(len(frame) + 3, 4.2), draw)


def _percent(share: float) -> str:
    return "< 1 %" if share < 0.005 else "> 99 %" if share > 0.995 else f"{100 * share:.0f} %"


def _unit(most: float) -> tuple[str, float]:
    """The unit in which the largest of some sizes has one to four digits."""
    power = min(3, max(0, int(math.log(max(most, 1), 1024))))
    return ("B", "KiB", "MiB", "GiB")[power], float(1024**power)
