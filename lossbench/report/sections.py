"""Results → the sections of the report, in their order. Each is a small function; add one and list it in `SECTIONS`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from lossbench import stats
from lossbench.report import figures
from lossbench.report.analysis import Results
from lossbench.report.blocks import Block, Figure, Prose, Section, Table
from lossbench.report.figures import finite

DASH = "–"


def sections(results: Results) -> list[Section]:
    """The whole report; a section without blocks is left out."""
    made = (build(results) for build in SECTIONS)
    return [section for section in made if section.blocks]


def findings(results: Results) -> Section:
    """At most three sentences, each with its difference, interval, seeds and verdict word."""
    frame = results.comparisons
    frame = frame[(frame["metric"] == "accuracy") & frame["low"].notna()]
    sentences: list[Block] = []
    if frame.empty:
        sentences.append(Prose("There are not yet enough finished cells to compare any loss with the baseline."))
        return Section("findings", "What we found", tuple(sentences))
    counts = frame["verdict"].value_counts()
    listed = ", ".join(f"{count} {word}" for word, count in counts.items())
    sentences.append(
        Prose(
            f"Of {len(frame)} comparisons of accuracy with {results.outline.baseline}, {listed} (Holm-adjusted, level {stats.LEVEL})."
        )
    )
    best = frame.loc[frame["delta"].idxmax()]
    worst = frame.loc[frame["delta"].idxmin()]
    sentences.append(Prose(f"The largest gain: {_sentence(best)}"))
    if worst["delta"] < 0:
        sentences.append(Prose(f"The largest loss: {_sentence(worst)}"))
    return Section("findings", "What we found", tuple(sentences))


def validity(results: Results) -> Section:
    """What this many seeds can and cannot show, and what did not finish."""
    blocks: list[Block] = []
    accuracy = results.comparisons[results.comparisons["metric"] == "accuracy"]
    if len(accuracy):
        seeds = int(accuracy["n"].min())
        if seeds < stats.FEWEST_SEEDS:
            blocks.append(
                Prose(f"With {seeds} seeds no interval is worth printing: three are the least, and few then.")
            )
        else:
            effect = _detectable(seeds)
            blocks.append(
                Prose(
                    f"With {seeds} paired seeds, a difference of {effect:.2f} standard deviations of the paired differences "
                    f"is found with 80 % chance at level {stats.LEVEL}; smaller ones mostly come out undecided. "
                    f"Intervals are 95 % t intervals of the paired differences; differences within "
                    f"±{results.outline.margin:g} points count as equivalent."
                )
            )
    statuses = results.statuses
    unfinished = {status: count for status, count in statuses.items() if status != "done"}
    if unfinished:
        listed = ", ".join(f"{count} {status}" for status, count in sorted(unfinished.items()))
        blocks.append(
            Prose(f"Of {statuses.total()} cells, {statuses['done']} are done; {listed}. Nothing is dropped silently.")
        )
    if results.damaged:
        blocks.append(Prose(f"{len(results.damaged)} entries of the run folder are damaged and were left out."))
    return Section("validity", "Validity", tuple(blocks))


def claims(results: Results) -> Section:
    """The claims of the suite with their verdicts."""
    if results.claims.empty:
        return Section("claims", "Claims", ())
    rows = [
        (row["text"], row["verdict"], _delta(row), str(row["n"]), row["evidence"], _whole(row["seeds_needed"]))
        for row in results.claims.to_dict("records")
    ]
    columns = ("claim", "verdict", "difference [95 % interval]", "n", "evidence", "seeds needed")
    caption = "n: paired seeds, or paired rounds for step times. p values are Holm-adjusted over the claims."
    return Section("claims", "Claims", (Table(columns, tuple(rows), caption, frozenset({"n", "seeds needed"})),))


def main_table(results: Results) -> Section:
    """Mean accuracy of every loss at every point."""
    blocks: list[Block] = []
    for experiment, frame in _by_experiment(results.main):
        rows = []
        for row in frame.to_dict("records"):
            spread = f"{_num(row['seed_se'])} / {_num(row['test_se'])}"
            angles = f"{_num(row['angle_train'], 1)} / {_num(row['angle_test'], 1)}"
            interval = f"[{_num(row['low'])}, {_num(row['high'])}]" if finite(row["low"]) else DASH
            cells = (
                row["loss"],
                _width(row),
                _num(row["accuracy"]),
                interval,
                spread,
                angles,
                str(row["n"]),
                str(row["failures"]),
            )
            rows.append(cells)
        columns = (
            "loss",
            "M",
            "accuracy, %",
            "95 % interval",
            "SE: seeds / test set",
            "angle°: train / test",
            "n",
            "failed",
        )
        first = frame.iloc[0]
        caption = f"{experiment}: {first['dataset']}, {first['classes']} classes, {first['backbone']}."
        blocks.append(Table(columns, tuple(rows), caption, frozenset(columns) - {"loss"}))
    return Section("accuracy", "Accuracy", tuple(blocks))


def against_baseline(results: Results) -> Section:
    """Paired differences from the baseline with their verdicts."""
    blocks: list[Block] = []
    frame = results.comparisons[results.comparisons["metric"] == "accuracy"]
    for experiment, group in _by_experiment(frame):
        rows = [
            (
                row["loss"],
                str(row["width"]),
                _delta(row, unit=False),
                _p(row["p_holm"]),
                _num(row["dz"]),
                _p(row["tost_p"]),
                _num(row["correlation"]),
                row["verdict"],
                _whole(row["seeds_needed"]),
            )
            for row in group.to_dict("records")
        ]
        columns = (
            "loss",
            "M",
            "Δ points [95 % interval]",
            "p (Holm)",
            "d_z",
            "p (TOST)",
            "r of seeds",
            "verdict",
            "seeds needed",
        )
        caption = f"{experiment}: each loss minus {results.outline.baseline}, paired by seed."
        blocks.append(Table(columns, tuple(rows), caption, frozenset(columns) - {"loss", "verdict"}))
    label = f"accuracy minus {results.outline.baseline}, points"
    svg = figures.differences(results, "accuracy", label, results.outline.margin)
    if svg:
        caption = (
            f"Difference from {results.outline.baseline} with 95 % interval; the band is ±{results.outline.margin:g} points, "
            "a filled dot is a difference after Holm's adjustment."
        )
        blocks.insert(0, Figure("differences", svg, caption))
    return Section("comparisons", f"Against {results.outline.baseline}", tuple(blocks))


def width(results: Results) -> Section:
    """Accuracy and memory against M."""
    blocks: list[Block] = []
    for experiment in dict.fromkeys(cell.experiment for cell in results.cells):
        if svg := figures.width_curve(results, experiment):
            caption = "Mean accuracy with 95 % intervals over seeds. M_min = C − 1 is the least width at which C class weights can stand at equal angles."
            blocks.append(Figure(f"width-{experiment}", svg, caption))
    return Section("width", "FC width", tuple(blocks))


def cost(results: Results) -> Section:
    """Step-time ratios and the memory ledger."""
    blocks: list[Block] = []
    times = results.comparisons[results.comparisons["metric"] == "step_seconds"]
    seconds = {_point(point): rounds for point, rounds in results.timings()}
    rows = []
    for row in times.to_dict("records"):
        rounds = seconds[_point(row)]
        ratio = f"{1 + row['delta'] / 100:.3f} [{1 + row['low'] / 100:.3f}, {1 + row['high'] / 100:.3f}]"
        milliseconds = 1000 * pd.Series(rounds[row["loss"]]).median()
        verdict = "slower" if row["delta"] > 0 else "faster"
        word = verdict if str(row["verdict"]).startswith("different") else row["verdict"]
        rows.append(
            (row["experiment"], row["loss"], str(row["width"]), ratio, f"{milliseconds:.2f}", str(row["n"]), word)
        )
    if rows:
        columns = (
            "experiment",
            "loss",
            "M",
            f"step time / {results.outline.baseline} [95 %]",
            "median ms",
            "rounds",
            "verdict",
        )
        caption = "Timing cells: one process alone, rounds that visit every loss in shuffled order on the same batches; paired by round."
        blocks.append(Table(columns, tuple(rows), caption, frozenset({"M", columns[3], "median ms", "rounds"})))
    rows = [
        (row["experiment"], row["loss"], _width(row), *(_bytes(row[f"bytes_{name}"]) for name in LEDGER))
        for row in results.main.to_dict("records")
        if row["n"]
    ]
    if rows:
        columns = (
            "experiment",
            "loss",
            "M",
            "FC layer",
            "class weights",
            "loss's own",
            "backbone",
            "optimizer",
            "peak",
        )
        caption = (
            "Memory by cause. FC layer is part of the backbone; peak is the most resident memory that training added."
        )
        blocks.append(Table(columns, tuple(rows), caption, frozenset(columns[2:])))
    return Section("cost", "Cost", tuple(blocks))


LEDGER = ("fc", "classifier", "loss", "model", "optimizer", "peak")


def published(results: Results) -> Section:
    """The numbers a paper prints, beside what was measured here."""
    rows = []
    for row in results.main.to_dict("records"):
        stated = results.outline.published.get(row["experiment"], {}).get(row["loss"])
        if stated is not None and row["n"]:
            rows.append(
                (row["experiment"], row["loss"], _width(row), f"{stated:.2f}", _num(row["accuracy"]), str(row["n"]))
            )
    columns = ("experiment", "loss", "M", "published, %", "measured, %", "n")
    caption = "Protocols differ in scale; the numbers stand side by side, not as a test."
    blocks = (Table(columns, tuple(rows), caption, frozenset(columns[2:])),) if rows else ()
    return Section("published", "Published against measured", blocks)


def environment(results: Results) -> Section:
    """Where it ran, and how to run it again."""
    blocks: list[Block] = []
    if len(results.environments) > 1:
        blocks.append(Prose("The records come from different environments; wall times are compared only within one."))
    rows = [
        tuple(
            str(found.get(name))
            for name in ("fingerprint", "cpu", "cores", "threads", "torch", "python", "system", "cells")
        )
        for found in results.environments
    ]
    if rows:
        columns = ("fingerprint", "CPU", "cores", "threads a cell", "torch", "Python", "system", "cells")
        blocks.append(Table(columns, tuple(rows), "", frozenset({"cores", "threads a cell", "cells"})))
    profile = f" --profile {results.outline.profile}" if results.outline.profile else ""
    blocks.append(Prose("To make this again:"))
    blocks.append(Prose(f"lossbench run {results.outline.source}{profile}", code=True))
    blocks.append(Prose("To write this report again from the records:"))
    blocks.append(Prose(f"lossbench report {' '.join(results.runs)}", code=True))
    return Section("environment", "Environment and commands", tuple(blocks))


SECTIONS = (findings, validity, claims, main_table, against_baseline, width, cost, published, environment)


# --- numbers into words ------------------------------------------------------------------------------------------


def _sentence(row: Any) -> str:
    return (
        f"{row['loss']} on {row['experiment']} ({row['dataset']}, M = {row['width']}) differs from {row['baseline']} by "
        f"{_delta(row)}, {row['n']} seeds: {row['verdict']}."
    )


def _delta(row: Any, unit: bool = True) -> str:
    if not finite(row["delta"]):
        return DASH
    digits = 0 if row["unit"] == "bytes" else 1 if row["unit"] == "%" else 2
    suffix = f" {row['unit']}" if unit else ""
    if not finite(row["low"]):
        return f"{row['delta']:+.{digits}f}{suffix}"
    return f"{row['delta']:+.{digits}f}{suffix} [{row['low']:+.{digits}f}, {row['high']:+.{digits}f}]"


def _num(value: Any, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if finite(value) else DASH


def _p(value: Any) -> str:
    return DASH if not finite(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _whole(value: Any) -> str:
    return str(int(value)) if finite(value) else ""


def _width(row: Any) -> str:
    return f"{row['width']} (min)" if row["width"] == row["minimum"] else str(row["width"])


def _bytes(value: Any) -> str:
    if not finite(value):
        return DASH
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:.0f} B"


def _point(row: Any) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("experiment", "dataset", "backbone", "classes", "width"))


def _by_experiment(frame: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    return [(str(name), group) for name, group in frame.groupby("experiment", sort=False)] if len(frame) else []


def _detectable(seeds: int) -> float:
    """The standardised effect that this many seeds find with 80 % chance."""
    low, high = 0.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if stats.power(middle, seeds) >= 0.8 else (middle, high)
    return high
