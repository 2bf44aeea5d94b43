"""Results → the sections of the report, in their order. Each is a small function; add one and list it in `SECTIONS`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from lossbench import stats
from lossbench.report import figures, words
from lossbench.report.analysis import POINT, Results
from lossbench.report.blocks import Block, Figure, Prose, Section, Table


def sections(results: Results) -> list[Section]:
    """The whole report; a section without blocks is left out."""
    made = (build(results) for build in SECTIONS)
    return [section for section in made if section.blocks]


def findings(results: Results) -> Section:
    """At most three sentences, each with its difference, interval, seeds and verdict word."""
    frame = results.comparisons
    frame = frame[(frame["metric"] == "accuracy") & frame["low"].notna()]
    if frame.empty:
        nothing = Prose("There are not yet enough finished cells to compare any loss with the baseline.")
        return Section("findings", "What we found", (nothing,))
    counts = ", ".join(f"{count} {word}" for word, count in frame["verdict"].value_counts().items())
    compared = f"Of {len(frame)} comparisons of accuracy with {results.outline.baseline}: {counts}"
    blocks = [Prose(f"{compared} (level {stats.LEVEL}, Holm-adjusted within each experiment).")]
    best, worst = (frame.loc[place] for place in (frame["delta"].idxmax(), frame["delta"].idxmin()))
    if best["delta"] > 0:
        blocks.append(Prose(f"The largest gain: {words.comparison(best)}"))
    if worst["delta"] < 0:
        blocks.append(Prose(f"The largest drop: {words.comparison(worst)}"))
    return Section("findings", "What we found", tuple(blocks))


def validity(results: Results) -> Section:
    """What this many seeds can and cannot show, and what did not finish."""
    blocks: list[Block] = []
    accuracy = results.comparisons[results.comparisons["metric"] == "accuracy"]
    seeds = int(accuracy["n"].min()) if len(accuracy) else 0
    if len(accuracy) and seeds < stats.FEWEST_SEEDS:
        least = f"{stats.FEWEST_SEEDS} are the least for an interval, and few even then."
        blocks.append(Prose(f"Some comparisons have only {seeds} paired seeds: {least}"))
    elif len(accuracy):
        family = int(accuracy.groupby("experiment").size().max())
        effect = stats.detectable_effect(seeds, level=stats.LEVEL / family)
        blocks.append(
            Prose(
                f"With {seeds} paired seeds and up to {family} comparisons in an experiment, a difference of "
                f"{effect:.2f} standard deviations of the paired differences is found with 80 % chance or more; "
                "smaller ones mostly come out undecided. Intervals are 95 % t intervals of the paired differences; a "
                f"difference whose 90 % interval lies within ±{results.outline.margin:g} points counts as equivalent."
            )
        )
    for name, why in results.outline.missing.items():
        blocks.append(Prose(f"Not run: {name}: {why}"))
    if collapsed := results.flagged("collapsed"):
        listed = ", ".join(f"{label} ({count})" for label, count in collapsed.items())
        blocks.append(Prose(f"Cells that predict one class only, whatever they see: {listed}."))
    statuses = results.statuses
    if unfinished := {status: count for status, count in sorted(statuses.items()) if status != "done"}:
        listed = ", ".join(f"{count} {status}" for status, count in unfinished.items())
        blocks.append(Prose(f"Of {statuses.total()} cells {statuses['done']} are done; {listed}."))
    if results.damaged:
        blocks.append(Prose(f"Damaged entries of the run folder that were left out: {', '.join(results.damaged)}."))
    return Section("validity", "Validity", tuple(blocks))


def claims(results: Results) -> Section:
    """The claims of the suite with their verdicts."""
    rows = [
        {
            "claim": row["text"],
            "verdict": row["verdict"],
            "difference [95 % interval]": words.difference(row),
            "n": str(row["n"]),
            "p (Holm)": words.p_value(row["p_holm"]),
            "evidence": row["evidence"],
            "n needed": words.whole(row["seeds_needed"]),
        }
        for row in results.claims.to_dict("records")
    ]
    caption = "n: paired seeds, or paired rounds for step times. p is Holm-adjusted over the claims."
    table = Table.of(rows, left=["claim", "verdict", "evidence"], caption=caption) if rows else None
    return Section("claims", "Claims", (table,) if table else ())


def main_table(results: Results) -> Section:
    """Mean accuracy of every loss at every point."""
    blocks: list[Block] = []
    for experiment, frame in _by_experiment(results.main):
        rows = [
            {
                "loss": row["loss"],
                "M": words.width(row),
                "accuracy, %": words.number(row["accuracy"]),
                "95 % interval": words.interval(row["low"], row["high"]),
                "SE: seeds / test set": f"{words.number(row['seed_se'])} / {words.number(row['test_se'])}",
                "n": str(row["n"]),
                "failed": str(row["failures"]),
            }
            for row in frame.to_dict("records")
        ]
        if frame["classes"].nunique() > 1:
            rows = [{"C": str(k), **row} for k, row in zip(frame["classes"], rows, strict=True)]
        first = frame.iloc[0]
        caption = f"{experiment}: {first['dataset']}, {first['classes']} classes, {first['backbone']}."
        blocks.append(Table.of(rows, left=["loss"], caption=caption))
    return Section("accuracy", "Accuracy", tuple(blocks))


def against_baseline(results: Results) -> Section:
    """Paired differences from the baseline with their verdicts."""
    baseline, margin = results.outline.baseline, results.outline.margin
    blocks: list[Block] = []
    if svg := figures.differences(results, "accuracy", f"accuracy minus {baseline}, points", margin):
        band = f"the band is ±{margin:g} points, a filled dot is a difference after Holm's adjustment."
        blocks.append(Figure("differences", svg, f"Difference from {baseline} with 95 % interval; {band}"))
    compared = {_place(row): row for row in results.comparisons.to_dict("records") if row["metric"] == "accuracy"}
    for experiment, group in _by_experiment(results.main):
        rows = []
        for row in group.to_dict("records"):
            found = compared.get(_place(row), {"delta": None, "low": None, "unit": ""})
            rows.append(
                {
                    "loss": row["loss"],
                    "M": words.width(row),
                    "accuracy, %": words.number(row["accuracy"]),
                    "Δ points [95 % interval]": words.difference(found, unit=False),
                    "p (Holm)": words.p_value(found.get("p_holm")),
                    "d_z": words.number(found.get("dz")),
                    "p (TOST)": words.p_value(found.get("tost_p")),
                    "r of seeds": words.number(found.get("correlation")),
                    "verdict": "baseline" if row["loss"] == baseline else found.get("verdict", "not compared"),
                    "seeds needed": words.whole(found.get("seeds_needed")),
                }
            )
        if group["classes"].nunique() > 1:
            rows = [{"C": str(k), **row} for k, row in zip(group["classes"], rows, strict=True)]
        caption = f"{experiment}: each loss minus {baseline}, paired by seed."
        blocks.append(Table.of(rows, left=["loss", "verdict"], caption=caption))
    return Section("comparisons", f"Against {baseline}", tuple(blocks))


def width(results: Results) -> Section:
    """Accuracy and memory against M."""
    caption = (
        "Mean accuracy with 95 % intervals over seeds. M_min = C − 1 is the least width at which C class weights can "
        "stand at equal angles."
    )
    drawn = {
        name: figures.width_curve(results, name) for name in dict.fromkeys(cell.experiment for cell in results.cells)
    }
    blocks = (Figure(f"width-{name}", svg, caption) for name, svg in drawn.items() if svg)
    return Section("width", "FC width", tuple(blocks))


def verification(results: Results) -> Section:
    """Pairs of unseen classes told apart: what LFW papers print, with the verdict on each figure."""
    compared = {
        (*_place(row), row["metric"]): row
        for row in results.comparisons.to_dict("records")
        if row["metric"] in VERIFICATION
    }
    blocks: list[Block] = []
    main = results.main
    for experiment, frame in _by_experiment(main[main["task"] == "verification"] if len(main) else main):
        rows = []
        for row in frame.to_dict("records"):
            shown = {"loss": row["loss"], "M": words.width(row)}
            for metric, heading in VERIFICATION.items():
                found = compared.get((*_place(row), metric))
                shown[heading] = words.number(row[metric])
                shown[f"Δ {heading}"] = (
                    f"{words.difference(found, unit=False)} {found['verdict']}" if found else words.DASH
                )
            rows.append(shown)
        caption = (
            f"{experiment}: means over seeds in percent, paired differences from {results.outline.baseline} with 95 % "
            "intervals. TAR: pairs of one class accepted at the given rate of false accepts; EER: where both errors "
            "are equal; AUC: area under the ROC. Accuracy, by the threshold of the other folds, is in the tables above."
        )
        blocks.append(Table.of(rows, left=["loss"], caption=caption))
    return Section("verification", "Verification", tuple(blocks))


def geometry(results: Results) -> Section:
    """Where features and class weights stand."""
    blocks: list[Block] = []
    for experiment, frame in _by_experiment(results.main):
        rows = [
            {
                "loss": row["loss"],
                "M": words.width(row),
                "θ̄ train°": words.number(row["angle_train"], 1),
                "θ̄ test°": words.number(row["angle_test"], 1),
                "between weights°": words.number(row["weight_angle"], 1),
                "least°": words.number(row["weight_angle_least"], 1),
                "from the simplex": words.number(row["simplex_distance"], 3),
                "norm: train / test": f"{words.number(row['norm_train'], 1)} / {words.number(row['norm_test'], 1)}",
            }
            for row in frame.to_dict("records")
            if row["n"]
        ]
        if rows:
            caption = (
                f"{experiment}: θ̄ is the mean angle of a feature to its class's weight; then the mean and the least "
                "angle between two class weights, the root mean square distance of their cosines from −1/(C−1), and "
                "the mean length of a feature."
            )
            blocks.append(Table.of(rows, left=["loss"], caption=caption))
    return Section("geometry", "Geometry", tuple(blocks))


def cost(results: Results) -> Section:
    """Step-time ratios and the memory ledger."""
    blocks: list[Block] = []
    times = results.comparisons[results.comparisons["metric"] == "step_seconds"]
    rounds = {tuple(point.values()): seconds for point, seconds in results.timings()}
    rows = [
        {
            "experiment": row["experiment"],
            "loss": row["loss"],
            "M": str(row["width"]),
            f"step time / {row['baseline']} [95 %]": words.ratio(row),
            "median ms": f"{1000 * pd.Series(rounds[tuple(row[name] for name in POINT)][row['loss']]).median():.2f}",
            "rounds": str(row["n"]),
            "verdict": row["verdict"],
        }
        for row in times.to_dict("records")
    ]
    if rows:
        caption = (
            "Timing cells: one process alone, rounds that visit every loss in shuffled order on the same batches; "
            "ratios are paired by round."
        )
        blocks.append(Table.of(rows, left=["experiment", "loss", "verdict"], caption=caption))
    rows = [
        {
            "experiment": row["experiment"],
            "loss": row["loss"],
            "M": words.width(row),
            "FC layer": words.size(row["bytes_fc"]),
            "class weights": words.size(row["bytes_classifier"]),
            "loss's own": words.size(row["bytes_loss"]),
            "backbone": words.size(row["bytes_model"]),
            "optimizer": words.size(row["bytes_optimizer"]),
            "peak": words.size(row["bytes_peak"]),
        }
        for row in results.main.to_dict("records")
        if row["n"]
    ]
    if rows:
        caption = (
            "Memory by cause. The FC layer is part of the backbone; peak is the resident memory that training added."
        )
        blocks.append(Table.of(rows, left=["experiment", "loss"], caption=caption))
    return Section("cost", "Cost", tuple(blocks))


def published(results: Results) -> Section:
    """The numbers a paper prints, beside what was measured here."""
    rows = [
        {
            "experiment": row["experiment"],
            "loss": row["loss"],
            "M": str(row["width"]),
            "published, %": words.number(row["published"]),
            "measured, %": words.number(row["mean"]),
            "one more run [95 %]": words.interval(row["low"], row["high"]),
            "n": str(row["n"]),
            "verdict": row["verdict"],
            "differs": row["differs"] or words.DASH,
        }
        for row in results.published.to_dict("records")
    ]
    caption = (
        "The interval is where one more of our cells would fall. reproduced: what was published lies in it, and it is "
        f"no wider than ±{results.outline.margin:g} points; underpowered: it is wider; above, below: ours are above or "
        "below; not comparable: the protocols differ as listed, and the numbers only stand side by side."
    )
    table = Table.of(rows, left=["experiment", "loss", "verdict", "differs"], caption=caption) if rows else None
    return Section("published", "Published against measured", (table,) if table else ())


def environment(results: Results) -> Section:
    """Where it ran, and how to run it again."""
    blocks: list[Block] = []
    if len(results.environments) > 1:
        blocks.append(Prose("The records come from different environments; wall times are compared only within one."))
    names = ("fingerprint", "cpu", "cores", "threads", "torch", "python", "system", "device", "cells")
    if rows := [{name: str(found.get(name)) for name in names} for found in results.environments]:
        blocks.append(Table.of(rows, left=["fingerprint", "cpu", "torch", "python", "system", "device"]))
    blocks += [
        Prose("To make this again:"),
        Prose(results.outline.command, code=True),
        Prose("To write this report again from the records:"),
        Prose(f"lossbench report {' '.join(results.runs)}", code=True),
    ]
    return Section("environment", "Environment and commands", tuple(blocks))


SECTIONS = (
    *(findings, validity, claims, main_table, against_baseline, verification, width, geometry, cost, published),
    environment,
)
VERIFICATION = {"tar@0.01": "TAR at FAR 1 %", "eer": "EER", "auc": "AUC"}


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which loss at which point a row is about."""
    return tuple(row[name] for name in (*POINT, "loss"))


def _by_experiment(frame: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    return [(str(name), group) for name, group in frame.groupby("experiment", sort=False)] if len(frame) else []
