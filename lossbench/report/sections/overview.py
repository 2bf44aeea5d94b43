"""The first and last sections of the report: findings, validity, warnings, environment."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from lossbench import stats
from lossbench.analysis.claims import outcomes
from lossbench.analysis.results import Results
from lossbench.report import words
from lossbench.report.blocks import Block, Prose, Section, Table

MOST_NAMED = 5  # damaged entries of one kind; report.json names all


def findings(results: Results) -> Section:
    """At most three sentences: the counts, the largest gain, the largest drop."""
    frame = results.comparisons
    headline = results.headline
    frame = frame[(frame["metric"] == headline.name) & frame["low"].notna()]
    if frame.empty:
        nothing = Prose("There are not yet enough finished cells to compare any loss with the baseline.")
        return Section("findings", "What we found", (nothing,))
    counts = ", ".join(f"{count} {word}" for word, count in frame["verdict"].value_counts().items())
    text = f"Of {len(frame)} comparisons of {headline.title} with {results.info.baseline}: {counts}"
    datasets = ", ".join(dict.fromkeys(label.partition("[")[0] for label in frame["dataset"]))
    text += f" (level {stats.LEVEL}, Holm-adjusted within each experiment; {datasets})"
    if len(results.claims):
        counted = sum(outcomes(results.claims).values(), Counter())
        verdicts = ", ".join(f"{count} {word}" for word, count in counted.most_common())
        text += f"; of {len(results.claims)} claims: {verdicts}"
    blocks = [Prose(f"{text}.")]
    kinds = ("gain", "drop") if headline.sign > 0 else ("improvement", "deterioration")  # a gain of −2 would confuse
    for kind, sign in zip(kinds, (headline.sign, -headline.sign), strict=True):
        if (row := _extreme(frame, sign)) is not None:
            blocks.append(Prose(f"The largest {kind}: {words.comparison(row, results.place(row['point']))}"))
    return Section("findings", "What we found", tuple(blocks))


def _extreme(frame: pd.DataFrame, sign: int) -> pd.Series | None:
    """The largest difference in one direction, of the significant ones if there are any: others may be chance."""
    side = frame[sign * frame["delta"] > 0]
    certain = side[side["verdict"].str.startswith("different")]
    rows = certain if len(certain) else side
    return rows.loc[(sign * rows["delta"]).idxmax()] if len(rows) else None


def validity(results: Results) -> Section:
    """The differences that these seeds can detect, and the cells that did not finish."""
    texts = _power(results)
    texts += [f"Not run: {name}: {why}" for name, why in results.info.missing.items()]
    if collapsed := results.flagged("collapsed"):
        listed = ", ".join(f"{label} ({count})" for label, count in collapsed.items())
        texts.append(f"Cells that predict the same class for every input: {listed}.")
    statuses = results.statuses
    if unfinished := {status: count for status, count in sorted(statuses.items()) if status != "done"}:
        listed = ", ".join(f"{count} {status}" for status, count in unfinished.items())
        texts.append(f"{statuses['done']} of {statuses.total()} cells are done; {listed}.")
    by_reason: dict[str, list[str]] = {}
    for name, why in results.damaged.items():
        by_reason.setdefault(why, []).append(name)
    for why, names in by_reason.items():
        listed = ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if (more := len(names) - MOST_NAMED) > 0 else "")
        texts.append(f"Excluded as damaged: {listed}: {why}.")
    return Section("validity", "Validity", tuple(map(Prose, texts)))


def _power(results: Results) -> list[str]:
    """The smallest difference that is detected with 80 % power."""
    frame = results.comparisons[results.comparisons["metric"] == results.headline.name]
    if frame.empty:
        return []
    seeds = int(frame["n"].min())
    if seeds < stats.FEWEST_SEEDS:
        least = f"an interval needs at least {stats.FEWEST_SEEDS}."
        return [f"Some comparisons have only {seeds} paired seeds: {least}"]
    family = int(frame.groupby("experiment").size().max())
    effect = stats.detectable_effect(seeds, level=stats.LEVEL / family)
    return [
        f"With {seeds} paired seeds and up to {family} comparisons per experiment, differences of {effect:.2f} "
        "standard deviations of the paired differences are detected with 80 % power; smaller ones are mostly "
        "undecided. Intervals are 95 % t intervals of the paired differences; a difference whose 90 % interval "
        f"lies within {words.within(results.info.margin, results.headline.unit)} counts as equivalent."
    ]


def warnings(results: Results) -> Section:
    """The warnings of `analysis.warnings`."""
    rows = [{"guard": found.guard, "where": found.where, "warning": found.text} for found in results.warnings]
    table = Table.of(rows, left=["guard", "where", "warning"]) if rows else Prose("No warnings.")
    return Section("threats", "Warnings", (table,))


def environment(results: Results) -> Section:
    """The machines and versions of the records, and the commands that reproduce them."""
    blocks: list[Block] = []
    if len(results.environments) > 1:
        blocks.append(Prose("The records come from different environments; wall times are compared only within one."))
    names = ("fingerprint", "cpu", "cores", "threads", "torch", "python", "system", "device", "cells")
    if rows := [{name: str(found.get(name)) for name in names} for found in results.environments]:
        blocks.append(Table.of(rows, left=["fingerprint", "cpu", "torch", "python", "system", "device"]))
    blocks += [
        Prose("To run the suite again:"),
        Prose(results.info.command, code=True),
        Prose("To write this report again from the records:"),
        Prose(f"lossbench report {' '.join(results.runs)}", code=True),
    ]
    return Section("environment", "Environment and commands", tuple(blocks))
