"""Cost of the losses: memory by cause, the phases of a step, accuracy against time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.analysis.series import EVERYWHERE
from lossbench.report import words
from lossbench.report.figures import style
from lossbench.report.figures.curves import measured
from lossbench.report.figures.forest import ROW, ladder
from lossbench.report.figures.style import LINE, WIDTH, Drawing, counted, heading, looks, shown

# Causes and phases are not losses, so they have their own shades: one hue from dark to light.
MOST_ROWS = 40
CAUSES = {
    "bytes_body": ("backbone without its FC layer", "#24405c"),
    "bytes_fc": ("FC layer", "#4d7ea8"),
    "bytes_classifier": ("class weights", "#86b3d1"),
    "bytes_loss": ("loss state", "#c3dcec"),
    "bytes_optimizer": ("optimizer state", "#d9d4c7"),
}
PHASES = {
    "forward": ("forward", "#24405c"),
    "backward": ("backward", "#6a9bc3"),
    "optimizer": ("optimizer", "#d9d4c7"),
}


def memory_bars(results: Results, experiment: str, _: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """The memory ledger: what holds the bytes for each loss and width, and the peak that training added."""
    frame = measured(results, experiment)
    if frame.empty or frame["bytes_model"].isna().all():
        return None
    frame = frame.assign(bytes_body=frame["bytes_model"] - frame["bytes_fc"]).fillna(dict.fromkeys(CAUSES, 0))
    held, whole = frame[list(CAUSES)].sum(axis=1), len(frame)
    if whole > MOST_ROWS:
        frame = frame.loc[held.nlargest(MOST_ROWS).index.sort_values()]
    unit, factor = _unit(float(held.loc[frame.index].max()))
    peak_unit, peak_factor = _unit(float(frame["bytes_peak"].max()) if frame["bytes_peak"].notna().any() else 0)
    look = looks(results.labels)
    rungs = ladder(frame)

    def draw(canvas: Canvas) -> None:
        ledger, peak = canvas.subplots(1, 2, sharey=True, width_ratios=[2.4, 1])
        ends = style.stacked(ledger, frame[list(CAUSES)] / factor, CAUSES, rungs.places)
        digits = 1 if ends.max() >= 10 else 2
        style.ended(ledger, ends, [f"{value:.{digits}f}" for value in ends], 1.13, rungs.places)
        for place, found in zip(rungs.places, frame.to_dict("records"), strict=True):
            if not pd.isna(found["bytes_peak"]):
                own = look[found["loss"]]
                peak.plot(found["bytes_peak"] / peak_factor, place, own.marker, markersize=5.5, color=own.colour,
                          label=found["loss"])  # fmt: skip
        style.listed(peak, rungs.names, places=rungs.places)
        rungs.draw(ledger, frame, 0.5)
        for ax in (peak, ledger):
            ax.locator_params(axis="x", nbins=5)
        ledger.set_xlabel(f"parameters and their state, {unit}")
        peak.set_xlabel(f"peak of training, {peak_unit}")
        peak.set_xlim(0, max(peak.get_xlim()[1] * 1.05, 1e-9))
        left_out = f" (the {len(frame)} largest of {whole})" if len(frame) < whole else ""
        heading(canvas, f"{experiment}: memory by cause{left_out}")
        canvas.legend(*ledger.get_legend_handles_labels(), loc="outside lower left", ncols=3)

    caption = (
        "Left: bytes by cause, stacked from zero, with their sum. Right: the most memory that training added at any "
        "time, activations and allocator included. Means over seeds; the bytes of parameters do not depend on the seed."
    )
    return Drawing(f"memory-{experiment}", caption, WIDTH, 1.5 + ROW * rungs.length, draw)


def step_phases(results: Results, experiment: str, at: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """Milliseconds per step by forward, backward and optimizer; None without a timing cell."""
    frame = series.timed(results, experiment, at).dropna(subset=[*PHASES])
    labels = series.order(results, frame["loss"])
    if not labels:
        return None
    frame = frame.set_index("loss").loc[labels]

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        rows = range(len(labels))
        ends = style.stacked(ax, frame, PHASES, rows)
        style.ended(ax, ends, [f"{step:.2f}" for step in frame["step"]], 1.1, rows)
        style.listed(ax, list(shown(labels).values()))
        ax.set_xlabel("milliseconds per step")
        place = series.where(frame["point"].iloc[0])
        heading(canvas, f"{experiment}: time per step by phase, {place}, {counted(list(frame['rounds']), 'rounds')}")
        canvas.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3)

    caption = (
        "Medians over interleaved rounds, in a process that runs alone, stacked from zero. The number is the median of "
        "the whole step; the medians of its phases need not add up to it. To compare losses use the paired ratios: "
        "they cancel machine-speed drift, medians do not."
    )
    return Drawing(f"phases-{experiment}", caption, WIDTH, 1.35 + ROW * len(labels), draw)


def pareto(results: Results, experiment: str, at: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """The headline metric against step time with both intervals and the Pareto front; None below three timed losses."""
    frame, headline = series.front(results, experiment, at), results.headline
    if len(frame) < 3:
        return None
    look = looks(results.labels)
    first = frame.iloc[0]
    known = frame["chance"].notna().all()
    written = shown(list(frame["loss"]))

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        best = frame[frame["best"].astype(bool)].sort_values("ratio")
        # Steps: what some loss reaches within any time budget.
        ax.step(best["ratio"], best["value"], where="post", color=LINE, lw=1.2, ls=(0, (4, 2)), zorder=1)
        handles = []
        for row in frame.to_dict("records"):
            own = look[row["loss"]]
            across = [[row["ratio"] - row["ratio_low"]], [row["ratio_high"] - row["ratio"]]]
            up = [[row["value"] - row["low"]], [row["high"] - row["value"]]]
            face = own.colour if row["best"] else "white"
            ax.errorbar(
                row["ratio"], row["value"], xerr=np.nan_to_num(across), yerr=np.nan_to_num(up), fmt=own.marker,
                color=own.colour, mfc=face, mew=1.4, markersize=7.5, elinewidth=1.1, capsize=2, label=row["loss"],
            )  # fmt: skip
            chance = f"  ({_percent(row['chance'])})" if known else ""
            handles.append(Line2D([], [], color=own.colour, marker=own.marker, ls="", mfc=face, mew=1.5, markersize=6,
                                  label=written[row["loss"]] + chance))  # fmt: skip
        handles.append(Line2D([], [], color=LINE, lw=1.2, ls=(0, (4, 2)), label="front of the means"))
        ax.set_xlabel(f"step time / step time of {style.short(results.info.baseline)}")
        ax.set_ylabel(f"test {words.column(headline)}")
        ax.grid()
        style.percent(ax, headline)
        n, rounds = counted(list(frame["n"])), counted(list(frame["rounds"]), "rounds")
        heading(
            canvas,
            f"{experiment}: {headline.title} against step time, {series.where(first['point'])}, {n}, {rounds[4:]}",
        )
        style.beside(ax, handles, "loss (P of being on the front)" if known else None)

    caption = (
        f"Better is {'up' if headline.higher_is_better else 'down'} and to the left. Bars are 95 % intervals: vertical "
        "over seeds, horizontal over paired rounds. "
        "Filled: on the Pareto front of the means (no other loss is both as good and as fast). "
        + (
            "In brackets: share of resamples of seeds and rounds in which this holds; not a p-value."
            if known
            else "With fewer than ten seeds or rounds, this probability is not estimated."
        )
    )
    return Drawing(f"pareto-{experiment}", caption, WIDTH, max(4.2, 0.75 + 0.19 * (len(frame) + 3)), draw)


def _percent(share: float) -> str:
    return "< 1 %" if share < 0.005 else "> 99 %" if share > 0.995 else f"{100 * share:.0f} %"


def _unit(most: float) -> tuple[str, float]:
    """The unit in which the largest of some sizes has one to four digits."""
    power = min(3, max(0, int(math.log(max(most, 1), 1024))))
    return ("B", "KiB", "MiB", "GiB")[power], float(1024**power)
