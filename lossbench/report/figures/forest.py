"""Forests: one row per difference or ratio with its interval and verdict, best first, one axis per panel."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lossbench.analysis import series
from lossbench.analysis.answer import Column
from lossbench.analysis.results import Results
from lossbench.analysis.verdicts import AT_CHANCE, NOT_TESTABLE, ONE_SEED, UNDERTRAINED
from lossbench.report import words
from lossbench.report.figures import marks, style
from lossbench.report.figures.places import named
from lossbench.report.figures.style import BAND, GRID, INK, LINE, SOFT, WIDTH, Drawing, Look, counted, looks, short

MOST_ROWS = 40  # below each other in a figure: a page
MOST_STACKED = 4.5  # inches of panels below each other; with more, two stand side by side
LEAST_ROWS = 6  # per panel, however many panels there are
ROW = 0.225  # inches
MOST_IN_ROW = 48  # letters of a row's name: the loss, and the point where several points share a panel
MOST_SIDE_BY_SIDE = 24  # of them where panels stand side by side
LETTERS = {"name": 0.077, "note": 0.058, "title": 0.085}  # inches that a letter takes, roughly
SHORTEST_LOSS = 16  # of them at least for the loss
MOST_IN_HEADING = 200  # letters of a point above its rows
MOST_OF_POINT = 24  # of them for a dataset, C or M each


@dataclass(frozen=True)
class Panel:
    """The rows of a panel that fit, best first within a point; its title and a note fit above them."""

    title: str
    note: str
    rows: pd.DataFrame
    ladder: Ladder

    @classmethod
    def of(cls, title: str, parts: Sequence[str], rows: pd.DataFrame, every: Sequence[str], abreast: int = 1) -> Panel:
        rungs = ladder(rows, every, MOST_IN_ROW if abreast == 1 else MOST_SIDE_BY_SIDE)
        room = WIDTH / abreast - 0.1 - LETTERS["name"] * max(map(len, rungs.names))
        note = textwrap.fill(", ".join(parts), int(room / LETTERS["note"]))
        return cls(short(title, int(room / LETTERS["title"])), note, rows, rungs)


@dataclass(frozen=True)
class Scale:
    """The value that means no difference, the band around it, how a row is written, and whether the axis is log."""

    none: float
    band: float
    write: Callable[[Mapping[str, Any]], str]
    log: bool = False

    def distance(self, values: Any) -> Any:
        return np.log(values) - np.log(self.none) if self.log else values - self.none

    def at(self, distance: float) -> float:
        return float(self.none * np.exp(distance)) if self.log else self.none + distance


def difference_forest(results: Results) -> Drawing | None:
    """The difference of every loss from the baseline with its interval and verdict, one panel per dataset."""
    columns = [column for column in results.answer.columns if any(_known(row) for row in column.rows.values())]
    if not columns:
        return None
    headline, baseline, band = results.headline, results.info.baseline, results.margin(results.headline.name)
    tall = _height([len(column.rows) for column in columns]) > MOST_STACKED
    abreast = 2 if tall and len(columns) > 1 else 1
    each = _each(math.ceil(len(columns) / abreast))
    shown = columns[: abreast * (MOST_ROWS // each)]
    panels = [_of_column(column, results, each, abreast) for column in shown]
    write = partial(_difference, digits=words.digits_of(headline.unit), interval=abreast == 1)
    better = "right" if headline.higher_is_better else "left"
    unit = f", {headline.unit}" if headline.unit else ""
    axis = f"{headline.title} minus {short(baseline, 20)}{unit}" + (f" ({better} is better)" if abreast == 1 else "")
    caption = "Differences with 95 % simultaneous intervals, which cover the variation of seeds and of test examples."
    if len(shown) < len(columns):
        caption += f" {len(shown)} of {len(columns)} panels are drawn; the table has all."
    title, scale = finding(columns, baseline), Scale(0.0, band, write)
    return _forest(results, panels, "differences", title, caption, axis, scale, abreast)


def step_time_forest(results: Results) -> Drawing | None:
    """The step time of every loss as a ratio to the baseline's, one panel per timed experiment."""
    frame = results.comparisons
    frame = frame[(frame["metric"] == "step_seconds") & frame["low"].notna()].copy()
    if frame.empty:
        return None
    for name in ("delta", "low", "high"):
        frame[name] = 1 + frame[name] / 100
    baseline = results.info.baseline
    ratios = "–".join(dict.fromkeys(f"{ratio:.2f}" for ratio in (frame["delta"].min(), frame["delta"].max())))
    title = f"A training step takes {ratios} times as long as with {short(baseline, 24)}"
    caption = "Ratios of step times with 95 % simultaneous intervals over processes; better is faster."
    axis = f"step time / step time of {short(baseline, 24)} (log scale, left is better)"
    groups = [(str(name), group) for name, group in frame.groupby("experiment", sort=False)]
    each = _each(len(groups))
    panels = [_of_experiment(results, name, group, each) for name, group in groups[: MOST_ROWS // each]]
    if len(panels) < len(groups):
        caption += f" {len(panels)} of {len(groups)} panels are drawn; the table has all."
    scale = Scale(1.0, 0.0, _ratio, log=True)
    return _forest(results, panels, "step-time", title, caption, axis, scale, unit="process")


def finding(columns: Sequence[Column], baseline: str) -> str:
    """What the panels show, in one sentence."""
    name = short(baseline, 24)
    found: dict[str, dict[str, list[Column]]] = {word: {} for word in marks.MARKS}  # by verdict and loss
    for column in columns:
        for loss, row in column.rows.items():
            if _known(row):
                found[row["verdict"]].setdefault(loss, []).append(column)
    losses = {loss for each in found.values() for loss in each}
    if not any(found[word] for word in marks.MARKS if word != NOT_TESTABLE):
        return f"No comparison with {name} can be tested"
    if found["better"]:
        return _praise(columns, found["better"], len(losses), name)
    anywhere = f"on any of {_counted(columns)}" if len(columns) > 1 else f"on {columns[0].name}"
    if not found["worse"] and not found["equivalent"]:
        return f"No loss differs clearly from {name} {anywhere}"
    rest = [f"{len(each)} {word}" for word, each in found.items() if each] if len(columns) == 1 else []
    if len(columns) > 1 and found["worse"]:
        rest = [f"{len(found['worse'])} of {len(losses)} are worse on some"]
    return f"No loss is better than {name} {anywhere}" + (f": {', '.join(rest)}" if rest else "")


def _praise(columns: Sequence[Column], better: Mapping[str, Sequence[Column]], losses: int, name: str) -> str:
    """Which losses are better than the baseline, by the number of panels in which they are."""
    most = max(map(len, better.values()))
    best = [loss for loss, where in better.items() if len(where) == most]
    if len(best) > 2:
        where = f"on at least one of {_counted(columns)}" if len(columns) > 1 else f"on {columns[0].name}"
        return f"{len(better)} of {losses} losses are better than {name} {where}"
    panels = list({column.name: column for loss in best for column in better[loss]}.values())
    where = f"on {panels[0].name}" if len(panels) == 1 else f"on {most} of {_counted(columns)}"
    fragile = all(ONE_SEED in column.rows[loss]["flags"] for loss in best for column in better[loss])
    more = f"; {len(better) - len(best)} more on fewer" if len(better) > len(best) else ""
    who = f"{' and '.join(map(short, best))} {'is' if len(best) == 1 else 'are'}"
    return f"{who} better than {name} {where}{' (one seed decides)' if fragile else ''}{more}"


def _counted(columns: Sequence[Column]) -> str:
    distinct = len({column.point["dataset"] for column in columns}) == len(columns)
    return f"{len(columns)} {'datasets' if distinct else 'panels'}"


def _each(panels: int) -> int:
    """How many rows each of so many panels below each other may have."""
    return max(LEAST_ROWS, MOST_ROWS // panels)


def _known(row: Mapping[str, Any]) -> bool:
    return math.isfinite(row["low"])


def _difference(row: Mapping[str, Any], digits: int, *, interval: bool) -> str:
    delta, low, high = (words.signed(row[name], digits) for name in ("delta", "low", "high"))
    return f"{delta} [{low}, {high}]" if interval and _known(row) else delta


def _ratio(row: Mapping[str, Any]) -> str:
    return f"{row['delta']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def _word(row: Mapping[str, Any]) -> str:
    """The verdict of a row, and the flag that qualifies it."""
    if row["verdict"] == NOT_TESTABLE and AT_CHANCE in row["flags"]:
        return AT_CHANCE
    return f"{row['verdict']}{'*' if ONE_SEED in row['flags'] else ''}"


def _of_column(column: Column, results: Results, most: int, abreast: int) -> Panel:
    """The panel of a dataset."""
    rows = pd.DataFrame([row for row in column.rows.values() if math.isfinite(row["delta"])])
    value = f"{column.baseline['value']:.{words.digits_of(results.headline.unit)}f}"
    unit = "%" if results.headline.is_score else results.headline.unit
    parts = [f"{short(results.info.baseline, 16)} {value} {unit}".rstrip(), counted(list(rows["n"]))]
    parts += [UNDERTRAINED] if any(UNDERTRAINED in flags for flags in rows["flags"]) else []
    kept = _kept(rows, most, results.headline.sign)
    return Panel.of(column.name, [*parts, *_part(kept, rows)], kept, results.labels, abreast)


def _of_experiment(results: Results, name: str, group: pd.DataFrame, most: int) -> Panel:
    """The panel of a timed experiment."""
    points = list(dict.fromkeys(group["point"]))
    title = named(results, points[0]) if len(points) == 1 else name
    kept = _kept(group, most, -1)
    return Panel.of(title, [counted(list(group["n"]), "processes"), *_part(kept, group)], kept, results.labels)


def _part(kept: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """Which rows are drawn, if not all."""
    if len(kept) == len(rows):
        return []
    return [f"best {(len(kept) + 1) // 2} and worst {len(kept) // 2} of {len(rows)}"]


def _kept(rows: pd.DataFrame, most: int, sign: int) -> pd.DataFrame:
    """The rows sorted by effect within each point, best first; of too many the best and the worst."""
    ranked = rows.assign(effect=-sign * rows["delta"])
    if len(ranked) > most:
        order = ranked.sort_values("effect", kind="stable").index
        ranked = ranked.loc[[*order[: (most + 1) // 2], *order[len(order) - most // 2 :]]]
    places = {point: place for place, point in enumerate(dict.fromkeys(rows["point"]))}
    ranked = ranked.assign(place=[places[point] for point in ranked["point"]])
    return ranked.sort_values(["place", "effect"], kind="stable").drop(columns=["effect", "place"])


def _forest(
    results: Results,
    panels: Sequence[Panel],
    name: str,
    title: str,
    caption: str,
    axis: str,
    scale: Scale,
    columns: int = 1,
    unit: str = "seed",
) -> Drawing:
    look = looks(results.labels)
    lines = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    lengths = [max(panel.ladder.length for panel in line) for line in lines]
    notes = [max(panel.note.count("\n") for panel in line) for line in lines]
    rows = pd.concat([panel.rows for panel in panels])

    def draw(canvas: Canvas) -> None:
        axes = style.panels(canvas, len(panels), columns, height_ratios=[length + 0.4 for length in lengths])
        for place, (ax, panel) in enumerate(zip(axes, panels, strict=True)):
            _rows(ax, panel, look, scale, lengths[place // columns], ticks=7 // columns)
            if place + columns >= len(panels):
                ax.set_xlabel(axis, fontsize=8)
        style.heading(canvas, title)
        handles: list[Artist] = [*marks.key(set(rows["verdict"]))]
        if scale.band:
            handles.append(Patch(facecolor=BAND, alpha=0.2, label=f"margin of equivalence, ±{scale.band:g}"))
        canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles), handletextpad=0.4)

    said = [caption]
    if any(_cut(panel, scale) for panel in panels):
        said.append("An arrow marks what lies beyond the axis.")
    if any(ONE_SEED in flags for flags in rows["flags"]):
        said.append(f"*: one {unit} decides the verdict.")
    height = 0.8 + 0.16 * len(style.wrapped(title)) + _height(lengths) + 0.12 * sum(notes)
    return Drawing(name, " ".join(said), WIDTH, height, draw)


def _height(lengths: Sequence[int]) -> float:
    """Of panels with so many rows below each other, in inches."""
    return sum(ROW * length + 0.62 for length in lengths)


def _rows(ax: Axes, panel: Panel, look: Mapping[str, Look], scale: Scale, length: int, ticks: int) -> None:
    """The bars, marks and numbers of one panel."""
    if scale.log:
        ax.set_xscale("log")
    left, right = limits = _limits(panel.rows, scale)
    ends = [float(scale.distance(end)) for end in limits]
    inside = [scale.at(ends[0] + 0.08 * (ends[1] - ends[0])), scale.at(ends[1] - 0.08 * (ends[1] - ends[0]))]
    texts = _aligned([scale.write(row) for row in panel.rows.to_dict("records")])
    ax.axvline(scale.none, color=LINE, lw=1.2, zorder=1)
    if scale.band:
        ax.axvspan(scale.none - scale.band, scale.none + scale.band, color=BAND, alpha=0.2, lw=0, zorder=0)
    bars, inks, arrows = [], [], []
    for place, row, text in zip(panel.ladder.places, panel.rows.to_dict("records"), texts, strict=True):
        mark = marks.drawn(row["verdict"], look[row["loss"]].colour)
        low, high = (row[end] if _known(row) else row["delta"] for end in ("low", "high"))
        if low <= right and high >= left:
            bars.append([(max(low, left), place), (min(high, right), place)])
            inks.append(mark["color"])
        arrows += [(end, place, sign, mark["color"]) for end, cut, sign in
                   ((left, low < left, "<"), (right, high > right, ">")) if cut]  # fmt: skip
        at = inside[0] if row["delta"] < left else inside[1] if row["delta"] > right else row["delta"]
        ax.plot(at, place, **mark, ls="", label=row["loss"], zorder=4)
        strong = row["verdict"] in marks.DECIDED
        ax.text(1.03, place, f"{text}  {_word(row)}", transform=ax.get_yaxis_transform(), va="center_baseline",
                fontsize=7.5, color=INK if strong else SOFT)  # fmt: skip
    ax.add_collection(LineCollection(bars, colors=inks, linewidths=1.8, zorder=2), autolim=False)
    for end, place, sign, ink in arrows:
        ax.plot(end, place, sign, color=ink, markersize=5, clip_on=False, zorder=5, label="beyond the axis")
    panel.ladder.draw(ax, panel.rows, room=0.6, length=length)
    ax.set_xlim(*limits)
    ax.set_title(panel.title, pad=15 + 9 * panel.note.count("\n"))
    ax.annotate(panel.note, (0, 1), xytext=(0, 4), xycoords="axes fraction", textcoords="offset points", fontsize=7.5,
                color=SOFT, in_layout=False)  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    if scale.log:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.minorticks_off()
    ax.tick_params(axis="x", labelsize=7.5)


def _aligned(texts: Sequence[str]) -> list[str]:
    """Texts of equal width: a figure space is as wide as a digit."""
    widest = max(map(len, texts))
    return ["\u2007" * (widest - len(text)) + text for text in texts]


def _ends(rows: pd.DataFrame, scale: Scale) -> tuple[Any, Any, Any]:
    """The lower end, the middle and the upper end of every row as distances; without an interval all are the middle."""
    middle = scale.distance(rows["delta"].to_numpy(float))
    low, high = (scale.distance(rows[name].to_numpy(float)) for name in ("low", "high"))
    return np.where(np.isnan(low), middle, low), middle, np.where(np.isnan(high), middle, high)


def _limits(rows: pd.DataFrame, scale: Scale) -> tuple[float, float]:
    """The axis of a panel: a row that is far from the others does not squeeze them, but is cut and gets an arrow."""
    low, middle, high = _ends(rows, scale)
    known = rows["verdict"].to_numpy() != NOT_TESTABLE
    kept = known if known.any() else ~known
    left, right = style.span(low[kept], middle[kept], high[kept], scale.band)
    return scale.at(left), scale.at(right)


def _cut(panel: Panel, scale: Scale) -> bool:
    """Whether some row extends beyond the axis."""
    low, _, high = _ends(panel.rows, scale)
    left, right = (scale.distance(end) for end in _limits(panel.rows, scale))
    return bool((low < left).any() or (high > right).any())


@dataclass(frozen=True)
class Ladder:
    """Where the rows of a panel stand from the top, with their names; points too long for a name head their rows."""

    names: list[str]
    places: list[int]
    headings: list[tuple[int, str]]

    @property
    def length(self) -> int:
        return len(self.names) + len(self.headings)

    def draw(self, ax: Axes, group: pd.DataFrame, room: float, length: int | None = None) -> None:
        """The names of the rows, and a hairline between rows of different points; `length` adds room at the end."""
        points = list(group["point"])
        for index in range(1, len(points)):
            if points[index] != points[index - 1]:
                edge = self.places[index] - (1.5 if self.headings else 0.5)
                ax.axhline(edge, color=GRID, lw=0.8, zorder=0)
        for place, text in self.headings:
            ax.text(0.01, place, text, transform=ax.get_yaxis_transform(), va="center", fontsize=7.5, color=INK,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85})  # fmt: skip
        style.listed(ax, self.names, room, self.places)
        ax.set_ylim((length or self.length) - 1 + room, -room)


def ladder(group: pd.DataFrame, every: Sequence[str], letters: int = MOST_IN_ROW) -> Ladder:
    """The rows of a panel: the loss, and the point as far as points differ within the panel.

    `every` are all losses of the report, so that one has the same name in all panels.
    """
    points, labels = list(group["point"]), list(group["loss"])
    parts = [[short(part, MOST_OF_POINT) for part in each] for each in series.parts(points)]
    texts = ["".join(f", {part}" for part in each) for each in parts]
    longest = max(map(len, texts))
    losses = style.shown(every, max(SHORTEST_LOSS, letters - longest))
    if longest <= letters - SHORTEST_LOSS:
        named = [losses[label] + text for label, text in zip(labels, texts, strict=True)]
        return Ladder(named, list(range(len(points))), [])
    losses = style.shown(every)
    places: list[int] = []
    headings: list[tuple[int, str]] = []
    for index, point in enumerate(points):
        if index == 0 or point != points[index - 1]:
            headings.append((len(places) + len(headings), style.joined(parts[index], MOST_IN_HEADING)))
        places.append(len(places) + len(headings))
    return Ladder([losses[label] for label in labels], places, headings)
