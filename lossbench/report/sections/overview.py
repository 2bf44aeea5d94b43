"""The last sections of the report: what was not run, warnings, environment."""

from __future__ import annotations

from lossbench.analysis.results import Results
from lossbench.report import words
from lossbench.report.blocks import Block, Prose, Section, Table

MOST_NAMED = 5  # damaged entries of one kind; report.json names all


def validity(results: Results) -> Section:
    """What was not run, did not finish, or cannot be read."""
    texts = [f"Not run: {name}: {why}" for name, why in results.info.missing.items()]
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
    return Section("validity", "Not run and not finished", tuple(map(Prose, texts)))


def warnings(results: Results) -> Section:
    """The warnings of `analysis.warnings`; what is the same in several experiments is said once."""
    where: dict[tuple[str, str], list[str]] = {}
    for found in results.warnings:
        where.setdefault((found.guard, found.text), []).append(found.where)
    rows = [{"warning": guard, "where": ", ".join(named), "meaning": text} for (guard, text), named in where.items()]
    blocks = (Table.of(rows, left=["warning", "where", "meaning"]),) if rows else ()
    return Section("threats", "Warnings", blocks)


def environment(results: Results) -> Section:
    """The machines and versions of the records, and the commands that reproduce them."""
    blocks: list[Block] = []
    if len(results.environments) > 1:
        blocks.append(Prose("The records come from different environments; wall times are compared only within one."))
    names = ["fingerprint", "cpu", "cores", "threads", "torch", "python", "system", "device", "cells"]
    sometimes = ("compiler", "variables")
    names += [name for name in sometimes if any(name in found for found in results.environments)]
    if rows := [{name: str(found.get(name) or words.DASH) for name in names} for found in results.environments]:
        blocks.append(Table.of(rows, left=["fingerprint", "cpu", "torch", "python", "system", "device", *sometimes]))
    blocks += [
        Prose("To run the suite again:"),
        *(Prose(command, code=True) for command in results.info.command.splitlines()),
        Prose("To write this report again from the records:"),
        Prose(f"lossbench report {' '.join(results.runs)}", code=True),
    ]
    return Section("environment", "Environment and commands", tuple(blocks))
