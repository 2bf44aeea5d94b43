"""Results → the sections of the report, in their order. Each is a small function; add one and list it in `SECTIONS`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from lossbench import stats
from lossbench.analysis.claims import OUTCOMES, outcomes, was_run
from lossbench.analysis.claims import places as claimed
from lossbench.analysis.points import place
from lossbench.analysis.results import Results
from lossbench.report import figures, words
from lossbench.report.blocks import Block, Prose, Section, Table
from lossbench.report.sections.end import cost, environment, published, threats
from lossbench.report.sections.grid import (
    across_datasets,
    by_experiment,
    classes,
    geometry,
    tuning,
    verification,
    width,
    with_classes,
)

MOST_NAMED = 5  # damaged entries of one kind; report.json names all


def sections(results: Results) -> list[Section]:
    """The whole report, the figures of a section before its tables; a section without blocks is left out."""
    found = []
    for section in (build(results) for build in SECTIONS):
        drawn = tuple(drawing.block() for drawing in figures.of_section(results, section.slug))
        if drawn or section.blocks:
            found.append(replace(section, blocks=(*drawn, *section.blocks)))
    return found


def findings(results: Results) -> Section:
    """At most three sentences: how many, the largest gain, the largest drop; with difference, seeds and verdict."""
    frame = results.comparisons
    frame = frame[(frame["metric"] == "accuracy") & frame["low"].notna()]
    if frame.empty:
        nothing = Prose("There are not yet enough finished cells to compare any loss with the baseline.")
        return Section("findings", "What we found", (nothing,))
    counts = ", ".join(f"{count} {word}" for word, count in frame["verdict"].value_counts().items())
    compared = f"Of {len(frame)} comparisons of accuracy with {results.outline.baseline}: {counts}"
    judged = ""
    if len(results.claims):
        came_out = sum(outcomes(results).values(), Counter())
        verdicts = ", ".join(f"{count} {word}" for word, count in came_out.most_common())
        judged = f"; of {len(results.claims)} claims: {verdicts}"
    datasets = ", ".join(dict.fromkeys(label.partition("[")[0] for label in frame["dataset"]))
    blocks = [Prose(f"{compared} (level {stats.LEVEL}, Holm-adjusted within each experiment; {datasets}){judged}.")]
    for kind, sign in (("gain", 1), ("drop", -1)):
        if (row := _extreme(frame, sign)) is not None:
            blocks.append(Prose(f"The largest {kind}: {words.comparison(row)}"))
    return Section("findings", "What we found", tuple(blocks))


def _extreme(frame: pd.DataFrame, sign: int) -> pd.Series | None:
    """The largest difference of one direction, of those beyond doubt if there are any: the rest may be chance."""
    side = frame[sign * frame["delta"] > 0]
    certain = side[side["verdict"].str.startswith("different")]
    rows = certain if len(certain) else side
    return rows.loc[(sign * rows["delta"]).idxmax()] if len(rows) else None


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
    by_reason: dict[str, list[str]] = {}
    for name, why in results.damaged.items():
        by_reason.setdefault(why, []).append(name)
    for why, names in by_reason.items():
        listed = ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if (more := len(names) - MOST_NAMED) > 0 else "")
        blocks.append(Prose(f"Left out as damaged: {listed}: {why}."))
    return Section("validity", "Validity", tuple(blocks))


def claims(results: Results) -> Section:
    """The claims of the suite with their verdicts; cases that were not run are counted, not listed."""
    counted = _statements(results)
    judged = zip(results.claims.to_dict("records"), results.outline.claims, strict=True)
    listed = [(row, claim) for row, claim in judged if was_run(row) or not counted]
    rows = [
        {
            "claim": row["text"],
            "verdict": row["verdict"],
            "difference [95 % interval]": words.difference(row),
            "n": str(row["n"]),
            "p (Holm)": words.p_value(row["p_holm"]),
            "evidence": row["evidence"],
            "n needed": words.whole(row["seeds_needed"]),
            "tested as": row["states"],
        }
        for row, _ in listed
    ]
    caption = (
        "n: paired seeds, or paired rounds for step times; over several widths or numbers of classes values are "
        "averaged inside a seed first. The difference of a trend is its slope, of something unchanged the largest. p "
        "is Holm-adjusted over the claims of a family; n needed: for 80 % chance to decide, if things are as they look."
    )
    blocks: list[Block] = [*counted]
    if rows:
        places = [claimed(results, claim) for _, claim in listed]
        left = ["claim", "verdict", "evidence", "tested as"]
        blocks.append(Table.of(rows, left=left, caption=caption, places=places))
    noted = dict.fromkeys((claim.statement or claim.text, claim.note) for claim in results.outline.claims if claim.note)
    blocks += [Prose(f"“{statement}”: {note}") for statement, note in noted]
    return Section("claims", "Claims", tuple(blocks) or (Prose("The suite states no claims."),))


def _statements(results: Results) -> list[Table]:
    """Where a statement has several cases: how many of them came out how."""
    came_out = outcomes(results)
    if len(came_out) == len(results.claims):
        return []
    rows = [{"statement": said, **{word: str(count[word]) for word in OUTCOMES}} for said, count in came_out.items()]
    caption = (
        "Cases of each statement: an experiment, a loss, a value of an option. Those that were run follow one by one."
    )
    return [Table.of(rows, left=["statement"], caption=caption)]


def main_table(results: Results) -> Section:
    """Mean accuracy of every loss at every point."""
    blocks: list[Block] = []
    for experiment, frame in by_experiment(results.main):
        rows = [
            {
                "loss": row["loss"],
                "M": words.width(row),
                "accuracy, %": words.number(row["accuracy"]),
                "95 % interval": words.interval(row["low"], row["high"]),
                "SE: seeds / test set": f"{words.number(row['seed_se'])} / {words.number(row['test_se'])}",
                "n": str(row["n"]),
                "failed": str(row["failures"]),
                "ties": row["ties"] or words.DASH,
            }
            for row in frame.to_dict("records")
        ]
        rows = with_classes(rows, frame)
        ties = (
            "Losses at one width share a letter if and only if they are not significantly different (paired t tests, "
            "Holm over all pairs)."
        )
        told = [", ".join(dict.fromkeys(map(str, frame[name]))) for name in ("dataset", "classes", "backbone")]
        caption = f"{experiment}: {told[0]}; {told[1]} classes; {told[2]}. {ties}"
        blocks.append(Table.of(rows, left=["loss", "ties"], caption=caption, experiment=experiment))
    return Section("accuracy", "Accuracy", tuple(blocks) or (Prose("No cell has finished."),))


def against_baseline(results: Results) -> Section:
    """Paired differences from the baseline with their verdicts."""
    baseline, margin = results.outline.baseline, results.outline.margin
    blocks: list[Block] = []
    compared = {
        place(row, row["loss"]): row for row in results.comparisons.to_dict("records") if row["metric"] == "accuracy"
    }
    for experiment, group in by_experiment(results.main):
        rows = []
        for row in group.to_dict("records"):
            found = compared.get(place(row, row["loss"]), {"delta": None, "low": None, "unit": ""})
            rows.append(
                {
                    "loss": row["loss"],
                    "M": words.width(row),
                    "accuracy, %": words.number(row["accuracy"]),
                    "Δ points [95 % interval]": words.difference(found, unit=False),
                    "p (Holm)": words.p_value(found.get("p_holm")),
                    "d_z": words.number(found.get("dz")),
                    "won": _won(found),
                    "p (TOST)": words.p_value(found.get("tost_p")),
                    "r of seeds": words.number(found.get("correlation")),
                    "verdict": "baseline" if row["loss"] == baseline else found.get("verdict", "not compared"),
                    "seeds needed": words.whole(found.get("seeds_needed")),
                }
            )
        rows = with_classes(rows, group)
        caption = (
            f"{experiment}: each loss minus {baseline}, paired by seed. d_z: Δ over the standard deviation of the "
            f"differences; won: seeds on which the loss is ahead; TOST: of equivalence within ±{margin:g} points."
        )
        blocks.append(Table.of(rows, left=["loss", "verdict"], caption=caption, experiment=experiment))
    return Section("comparisons", f"Against {baseline}", tuple(blocks) or (Prose("No cell has finished."),))


def _won(row: Mapping[str, Any]) -> str:
    return f"{row['wins']:.0f}/{row['n']}" if row.get("n") and words.finite(row.get("wins")) else words.DASH


SECTIONS: tuple[Callable[[Results], Section], ...] = (
    *(
        findings,
        validity,
        claims,
        main_table,
        against_baseline,
        tuning,
        across_datasets,
        verification,
        width,
        classes,
        geometry,
    ),
    *(cost, published, threats, environment),
)
