"""Cost of the losses: memory by cause, the phases of a step, accuracy against time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.analysis.series import EVERYWHERE
from lossbench.report import words
from lossbench.report.figures import style
from lossbench.report.figures.forest import ROW, ladder
from lossbench.report.figures.places import MOST_POINTS, named, shown
from lossbench.report.figures.style import INK, LINE, WIDTH, Drawing, Look, Span, counted, heading, looks

# Causes and phases are not losses, so they have their own shades: one hue from dark to light.
CAUSES = {
    "bytes_body": ("backbone without its FC layer", "#24405c"),
    "bytes_fc": ("FC layer", "#4d7ea8"),
    "bytes_classifier": ("class weights", "#86b3d1"),
    "bytes_loss": ("loss state", "#c3dcec"),
    "bytes_optimizer": ("optimizer state", "#d9d4c7"),
}
Plane = tuple[Span, Span]  # the axes of a Pareto front
MOST_ROWS = 30  # of a ledger
MOST_FRONT = 2  # losses that a title names
AXES_SIZE = (300.0, 225.0)  # of the plane of a Pareto front, in points, roughly
NEAR = 11.0  # points between a dot and its number without a line
TURNS = (0.6, 2.5, -0.6, -2.5, 1.57, -1.57, 0.0, 3.14)
AROUND = [np.array([r * math.cos(turn), r * math.sin(turn)]) for r in (10, 18, 27, 36) for turn in TURNS]
PHASES = {
    "forward": ("forward", "#24405c"),
    "backward": ("backward", "#6a9bc3"),
    "optimizer": ("optimizer", "#d9d4c7"),
}


def memory_bars(results: Results, experiment: str, _: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """The memory ledger: what holds the bytes for each loss, and the peak that training added."""
    points = shown(results, experiment)
    if not points:
        return None
    frame = pd.DataFrame([row for point in points[:MOST_POINTS] for row in results.main_at.get(point, {}).values()])
    if frame.empty or frame["bytes_model"].isna().all():
        return None
    frame = frame.assign(bytes_body=frame["bytes_model"] - frame["bytes_fc"]).fillna(dict.fromkeys(CAUSES, 0))
    held, whole = frame[list(CAUSES)].sum(axis=1), len(frame)
    if whole > MOST_ROWS:
        frame = frame.loc[held.nlargest(MOST_ROWS).index.sort_values()]
    unit, factor = _unit(float(held.loc[frame.index].max()))
    peak_unit, peak_factor = _unit(float(frame["bytes_peak"].max()) if frame["bytes_peak"].notna().any() else 0)
    look = looks(results.labels)
    rungs = ladder(frame, results.labels)

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
        where = named(results, points[0]) if len(points) == 1 else experiment
        left_out = f" (the {len(frame)} largest of {whole})" if len(frame) < whole else ""
        heading(canvas, f"{where}: memory by cause{left_out}")
        canvas.legend(*ledger.get_legend_handles_labels(), loc="outside lower left", ncols=3)

    caption = (
        "Left: bytes by cause, and their sum. Right: the most memory that training added at any time, with activations "
        "and allocator; mean over seeds."
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
        style.listed(ax, list(style.shown(labels).values()))
        ax.set_xlabel("milliseconds per step")
        place = named(results, frame["point"].iloc[0])
        heading(canvas, f"{place}: time per step by phase, {counted(list(frame['rounds']), 'rounds')}")
        canvas.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3)

    caption = (
        "Medians over interleaved rounds. The number is the median of the whole step; the medians of its phases need "
        "not add up to it. Paired ratios compare losses better: they cancel machine-speed drift."
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
    # Best first: the numbers of the key are those beside the dots.
    frame = frame.sort_values("value", ascending=not headline.higher_is_better, kind="stable").reset_index(drop=True)
    written = style.shown(list(frame["loss"]), 26)
    wide = _limits(frame["ratio"], frame["ratio_low"], frame["ratio_high"], 1.0)
    tall = _limits(frame["value"], frame["low"], frame["high"], float(frame["value"].median()))

    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        best = frame[frame["best"].astype(bool)].sort_values("ratio")
        # Steps: what some loss reaches within any time budget.
        ax.step(best["ratio"], best["value"], where="post", color=LINE, lw=1.2, ls=(0, (4, 2)), zorder=1)
        ax.set(xlim=wide, ylim=tall)
        style.percent(ax, headline)
        plane = wide, ax.get_ylim()
        handles = []
        rows = frame.to_dict("records")
        for number, row in enumerate(rows, 1):
            own = look[row["loss"]]
            _dot(ax, row, own, plane)
            chance = f" ({_percent(row['chance'])})" if known else ""
            handles.append(Line2D([], [], color=own.colour, marker=own.marker, ls="", mew=1.5, markersize=6,
                                  mfc=own.colour if row["best"] else "white",
                                  label=f"{number}  {written[row['loss']]}{chance}"))  # fmt: skip
        _number(ax, rows, plane)
        handles.append(Line2D([], [], color=LINE, lw=1.2, ls=(0, (4, 2)), label="front of the means"))
        ax.set_xlabel(f"step time / step time of {style.short(results.info.baseline, 24)}")
        ax.set_ylabel(f"test {words.column(headline)}")
        ax.grid()
        heading(canvas, f"{named(results, first['point'])}: {_fronted(list(best['loss']), written)} on the front of "
                        f"{headline.title} and step time")  # fmt: skip
        style.beside(ax, handles, "loss (P of being on the front)" if known else None)

    n, rounds = counted(list(frame["n"])), counted(list(frame["rounds"]), "rounds")
    caption = (
        f"Better is {'up' if headline.higher_is_better else 'down'} and to the left; {n[4:]}, {rounds[4:]}. Bars: 95 % "
        "intervals. Filled: no other loss is both as good and as fast on average. "
        + (
            "In brackets: the share of resamples in which this holds; not a p-value."
            if known
            else "With fewer than ten seeds or rounds, this probability is not estimated."
        )
    )
    if any(_beyond(row, (wide, tall)) for row in frame.to_dict("records")):
        caption += " An arrow marks a loss beyond the axes, with its values."
    return Drawing(f"pareto-{experiment}", caption, WIDTH, max(4.2, 0.75 + 0.19 * (len(frame) + 3)), draw)


def _limits(values: pd.Series[float], low: pd.Series[float], high: pd.Series[float], anchor: float) -> Span:
    """An axis on which a few far values do not squeeze the others."""
    middle = values.to_numpy(float) - anchor
    ends = style.span(low.fillna(values).to_numpy(float) - anchor, middle, high.fillna(values).to_numpy(float) - anchor)
    return anchor + ends[0], anchor + ends[1]


def _beyond(row: Mapping[str, Any], plane: Plane) -> bool:
    (left, right), (low, high) = plane
    return not (left <= row["ratio"] <= right and low <= row["value"] <= high)


def _held(row: Mapping[str, Any], plane: Plane) -> tuple[float, float]:
    """Where the dot of a loss is drawn: what is beyond an axis stands at its end."""
    (left, right), (low, high) = plane
    x, y = 0.02 * (right - left), 0.03 * (high - low)
    return min(max(row["ratio"], left + x), right - x), min(max(row["value"], low + y), high - y)


def _dot(ax: Axes, row: Mapping[str, Any], own: Look, plane: Plane) -> None:
    """One loss with its bars; an arrow if it is beyond the axes."""
    x, y = _held(row, plane)
    if _beyond(row, plane):
        turn = math.atan2(float(np.sign(row["value"] - y)), float(np.sign(row["ratio"] - x)))
        ax.plot(x, y, color=own.colour, marker=(3, 0, math.degrees(turn) - 90), markersize=8, ls="", label=row["loss"])
        return
    for across, up in (
        ([row["ratio_low"], row["ratio_high"]], [y, y]),
        ([x, x], [row["low"], row["high"]]),
    ):
        ax.plot(across, up, color=own.colour, lw=1.1, alpha=0.6, zorder=2)  # nothing where an interval is unknown
    ax.plot(x, y, own.marker, color=own.colour, mfc=own.colour if row["best"] else "white", mew=1.4, markersize=7,
            label=row["loss"], zorder=3)  # fmt: skip


def _number(ax: Axes, rows: Sequence[Mapping[str, Any]], plane: Plane) -> None:
    """A number beside every dot, where it covers no dot and no other number; further away with a line.

    A loss beyond the axes has its values too.
    """
    (left, right), (low, high) = plane
    span = np.array(AXES_SIZE)
    dots = [_held(row, plane) for row in rows]
    homes = [span * ((x - left) / (right - left), (y - low) / (high - low)) for x, y in dots]
    taken, edge = list(homes), list[NDArray[np.float64]]()
    line = {"arrowstyle": "-", "color": LINE, "lw": 0.6, "shrinkA": 0, "shrinkB": 3}
    common: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 7.5, "color": INK, "zorder": 6}
    common["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.7}
    for number, (row, dot, home) in enumerate(zip(rows, dots, homes, strict=True), 1):
        if _beyond(row, plane):
            inwards = np.array([0.0, 11.0 if home[1] < span[1] / 2 else -11.0])  # above or below the arrow
            tries = [home + times * inwards for times in (1, 2, 3, 4)]
            place = next((one for one in tries if all(_apart(one, other) for other in edge)), tries[0])
            edge.append(place)
            side = min(max(home[0] / span[0], 0.15), 0.85)  # the text stays inside the axes
            ax.annotate(f"{number} ({row['value']:.1f}, {row['ratio']:.2f}×)", dot, xytext=tuple(place - home),
                        ha="left" if side == 0.15 else "right" if side == 0.85 else "center", in_layout=False,
                        **common)  # fmt: skip
            continue
        place = next((home + way for way in AROUND if _free(home + way, taken, span)), home + AROUND[0])
        taken.append(place)
        far = float(np.hypot(*(place - home))) > NEAR
        ax.annotate(str(number), dot, xytext=tuple(place - home), ha="center", arrowprops=line if far else None,
                    in_layout=False, **common)  # fmt: skip


def _apart(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Whether two texts at the edge of the axes do not overlap."""
    return bool(abs(one[0] - other[0]) > 90 or abs(one[1] - other[1]) > 10)


def _free(place: NDArray[np.float64], taken: Sequence[NDArray[np.float64]], span: NDArray[np.float64]) -> bool:
    """Whether a number fits there: inside the axes and away from all that is drawn."""
    inside = bool((place > 5).all() and (place < span - 5).all())
    return inside and all(abs(place[0] - x) > 10 or abs(place[1] - y) > 9 for x, y in taken)


def _fronted(losses: Sequence[str], written: Mapping[str, str]) -> str:
    """The losses of a front in a title."""
    names = [written[loss] for loss in losses]
    if len(names) > MOST_FRONT:
        return f"{len(names)} losses are"
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _percent(share: float) -> str:
    return "< 1 %" if share < 0.005 else "> 99 %" if share > 0.995 else f"{100 * share:.0f} %"


def _unit(most: float) -> tuple[str, float]:
    """The unit in which the largest of some sizes has one to four digits."""
    power = min(3, max(0, int(math.log(max(most, 1), 1024))))
    return ("B", "KiB", "MiB", "GiB")[power], float(1024**power)
