"""All losses against each other: the critical-difference diagram over datasets, and every pair of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas

from lossbench.analysis import series
from lossbench.analysis.ranks import Ranking
from lossbench.analysis.results import Results
from lossbench.analysis.series import EVERYWHERE
from lossbench.core.point import SHORT, varied
from lossbench.report import words
from lossbench.report.figures import style
from lossbench.report.figures.marks import DECIDED, MARKS
from lossbench.report.figures.places import named
from lossbench.report.figures.style import INK, LINE, SOFT, WIDTH, Drawing, Look, counted, heading, looks

# Orange for less, blue for more: distinguishable with every kind of colour vision.
DIVERGING = LinearSegmentedColormap.from_list("difference", ["#B35806", "#F1A340", "#F7F7F7", "#67A9CF", "#2166AC"])
MOST_PAIRED = 16  # losses of a heatmap
FAINT = 0.35  # opacity of a cell without a difference
MOST_NAMED = 8  # of them with their names above the columns; with more, columns have numbers
MIRRORED = {"better": "worse", "worse": "better"}


def critical_difference_diagram(results: Results) -> Drawing | None:
    """Demšar's diagram: mean ranks over datasets, bars join losses that do not differ significantly.

    None below five datasets or three losses common to all.
    """
    rankings = [found for found in results.rankings if found.enough and len(found.table.losses) >= 3]
    if not rankings:
        return None
    look = looks(results.labels)
    sizes = [_room(found) for found in rankings]

    def draw(canvas: Canvas) -> None:
        axes = style.panels(canvas, len(rankings), 1, height_ratios=sizes)
        for ax, found in zip(axes, rankings, strict=True):
            _diagram(ax, found, look)
        counts = counted([len(found.table.datasets) for found in rankings], "datasets").replace("n =", "N =")
        heading(canvas, f"Mean ranks by {results.headline.title} over {counts} (1 is best)")

    parts = []
    for found in rankings:
        p = words.p_value(found.test.p)
        datasets = found.table.datasets
        over = (
            f", averaged over {', '.join(SHORT.get(name, name) for name in found.averaged)}" if found.averaged else ""
        )
        verdict = (
            "A thick bar joins losses whose ranks differ by less than Nemenyi's critical difference CD at level 0.05."
            if found.differ
            else "It finds no difference between the losses, so one bar joins all of them."
        )
        parts.append(
            f"{f'{found.name}: mean' if found.name else 'Mean'} ranks over N = {len(datasets)} datasets "
            f"({', '.join(datasets)}), each counted once with its mean over seeds{over}. Friedman's test (Iman and "
            f"Davenport's F): p {p if p.startswith('<') else f'= {p}'}. {verdict}"
        )
    return Drawing("ranks-accuracy", " ".join(parts), WIDTH, 0.58 + 0.62 * sum(1 + size for size in sizes), draw)


def _room(found: Ranking) -> float:
    """The height of a diagram, in ranks: the bars, the names below them, and the axis."""
    return 0.17 * len(found.groups) + 0.2 + 0.3 * ((len(found.table.losses) + 1) // 2) + 1


def _diagram(ax: Axes, found: Ranking, look: dict[str, Look]) -> None:
    """One ranking: the axis, the names of the losses, the bars, and the critical difference."""
    losses, ranks = found.table.losses, found.test.ranks
    written = style.shown(losses)
    rank_of = dict(zip(losses, ranks.tolist(), strict=True))
    count, half = len(losses), (len(losses) + 1) // 2
    bars = 0.17 * len(found.groups) + 0.2  # the room of the bars between the axis and the first name
    ax.plot([1, count], [0, 0], color=INK, lw=1.2)
    for rank in range(1, count + 1):
        ax.plot([rank, rank], [0, 0.1], color=INK, lw=1)
        if count <= 12 or rank == 1 or rank % 5 == 0:
            ax.text(rank, 0.17, str(rank), ha="center", va="bottom", fontsize=8)
    for place, index in enumerate(np.argsort(ranks, kind="stable")):
        left = place < half
        down = place if left else count - 1 - place
        loss = losses[index]
        _name(ax, loss, written[loss], rank_of[loss], look, left, bars + 0.3 * down, count)
    for level, group in enumerate(found.groups):
        ends = [rank_of[loss] for loss in group]
        ax.plot([min(ends) - 0.04, max(ends) + 0.04], [-0.2 - 0.17 * level] * 2, color=INK, lw=3.2,
                solid_capstyle="round", label="not different")  # fmt: skip
    ax.plot([1, 1 + found.difference], [0.72, 0.72], color=INK, lw=1.4, marker="|", markersize=7, label="CD")
    ax.text(1 + found.difference / 2, 0.8, f"CD = {found.difference:.2f}", ha="center", va="bottom", fontsize=8)
    ax.set_ylim(-bars - 0.3 * half, 1.15)
    ax.set_axis_off()
    if found.name:
        ax.set_title(style.short(found.name), fontsize=8.5)


def _name(
    ax: Axes, loss: str, name: str, rank: float, look: dict[str, Look], left: bool, down: float, count: int
) -> None:
    edge = 1 - 0.06 * count if left else count + 0.06 * count
    ax.plot([rank, rank, edge], [0, -down, -down], color=LINE, lw=0.9, zorder=1)
    ax.plot(rank, 0, look[loss].marker, color=look[loss].colour, markersize=6, mec="white", mew=0.6, zorder=5,
            label=loss)  # fmt: skip
    text = f"{name}  {rank:.2f}" if left else f"{rank:.2f}  {name}"
    ax.text(edge + (-0.012 if left else 0.012) * count, -down, text, ha="right" if left else "left", va="center")


def pairwise_heatmap(results: Results, experiment: str, at: Mapping[str, Any] = EVERYWHERE) -> Drawing | None:
    """The headline metric of every loss minus that of every other, best first; None below three losses."""
    headline = results.headline
    pairs = series.pairs(results, experiment, at)
    pairs = pairs[pairs["low"].notna()]
    labels = series.order(results, [*pairs["a"], *pairs["b"]])
    if len(labels) < 3:
        return None
    table = {(row["a"], row["b"]): (row["delta"], row["verdict"]) for row in pairs.to_dict("records")}
    table |= {(b, a): (-delta, MIRRORED.get(verdict, verdict)) for (a, b), (delta, verdict) in table.items()}
    standing = {label: np.mean([found[0] for (a, _), found in table.items() if a == label]) for label in labels}
    ordered = sorted(labels, key=lambda label: -headline.sign * standing[label])
    drawn = ordered if len(ordered) <= MOST_PAIRED else [*ordered[: MOST_PAIRED // 2], *ordered[-MOST_PAIRED // 2 :]]
    size = len(drawn)
    written = list(style.shown(drawn, 30).values())
    numbered = size > MOST_NAMED  # names do not fit above the columns
    names = 0.078 * max(map(len, written)) + (0.35 if numbered else 0.1)  # inches, roughly
    cell = min(0.46, (WIDTH - names - 0.3) / size)
    points = max(pairs["points"], key=len)
    decided = int(pairs["verdict"].isin(DECIDED).sum())

    def draw(canvas: Canvas) -> None:
        ax: Axes = canvas.subplots()
        values = np.array([[table.get((a, b), (np.nan, ""))[0] for b in drawn] for a in drawn])
        most = style.reach(values[np.isfinite(values)]) or 1.0
        strong = [[table.get((a, b), (0, ""))[1] in DECIDED for b in drawn] for a in drawn]
        alpha: Any = np.where(strong, 1.0, FAINT)  # by cell, which matplotlib's types do not know
        ax.pcolormesh(values, cmap=DIVERGING, vmin=-most, vmax=most, edgecolors="white", lw=0.8, alpha=alpha)
        _write(ax, drawn, table, most, min(7.5, 19 * cell))
        heads = [str(number) for number in range(1, size + 1)] if numbered else written
        turned: dict[str, Any] = {"rotation": 45, "ha": "left", "va": "baseline", "rotation_mode": "anchor"}
        ax.set_xticks(np.arange(size) + 0.5, heads, **({} if numbered else turned))
        ax.xaxis.tick_top()
        sides = [f"{name}  {number}" for number, name in enumerate(written, 1)] if numbered else written
        ax.set_yticks(np.arange(size) + 0.5, sides)
        ax.set_ylim(size, 0)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel(", ".join(part for part in (f"{headline.title}, row minus column", headline.unit) if part))
        left_out = f" (best and worst {size // 2} of {len(ordered)} losses)" if size < len(ordered) else ""
        place = named(results, points[0])
        heading(canvas, f"{place}: {decided} of {len(pairs)} pairs of losses differ in {headline.title}{left_out}")

    averaged = varied(points)
    over = ", ".join(SHORT.get(name, name) for name in averaged)
    caption = (
        "The row is ▲ better, ▼ worse, ≈ equivalent to the column; no mark: undecided; ×: not testable. "
        + (f"Means over {len(points)} points, which differ in {over}. " if averaged else "")
        + f"{counted(list(pairs['n'])).replace('n = ', '')}; 95 % simultaneous intervals over all pairs. Exploratory: "
        f"the planned comparisons are those with {results.info.baseline}."
    )
    height = 0.95 + cell * size + (0.15 if numbered else names * 0.75)
    return Drawing(f"pairs-{experiment}", caption, WIDTH, height, draw)


def _write(
    ax: Axes, drawn: Sequence[str], table: dict[tuple[str, str], tuple[float, str]], most: float, size: float
) -> None:
    """The difference of every pair, and below it the sign of its verdict."""
    common: dict[str, Any] = {"in_layout": False, "ha": "center", "va": "center", "fontsize": size, "linespacing": 0.95}
    for i, a in enumerate(drawn):
        for j, b in enumerate(drawn):
            if (a, b) not in table:
                ax.text(j + 0.5, i + 0.5, "·" if i == j else "–", color=LINE, **common)
                continue
            delta, verdict = table[a, b]
            number = words.signed(delta, 0 if abs(delta) >= 99.5 else 1 if abs(delta) >= 9.95 or len(drawn) > 8 else 2)
            sign = MARKS[verdict].sign
            strong = verdict in DECIDED
            ink = "white" if strong and abs(delta) > 0.62 * most else INK if strong else SOFT
            ax.text(j + 0.5, i + 0.5, f"{number}\n{sign}" if sign else number, color=ink, **common)
