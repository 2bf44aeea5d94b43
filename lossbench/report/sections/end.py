"""Sections that close the report: cost, published numbers, threats, environment."""

from __future__ import annotations

import math

from lossbench.analysis.cost import PHASES
from lossbench.analysis.points import place
from lossbench.analysis.results import Results
from lossbench.report import words
from lossbench.report.blocks import Block, Prose, Section, Table


def cost(results: Results) -> Section:
    """Step-time ratios and the memory ledger."""
    blocks: list[Block] = []
    ratios = {
        place(row, row["loss"]): row
        for row in results.comparisons[results.comparisons["metric"] == "step_seconds"].to_dict("records")
    }
    rows = []
    for row in results.phases.to_dict("records"):
        found = ratios.get(place(row, row["loss"]))
        ratio = words.ratio(found) if found else "1" if row["loss"] == results.outline.baseline else words.DASH
        split = (f"{row[name]:.2f}" if words.finite(row[name]) else words.DASH for name in PHASES)
        rows.append(
            {
                "experiment": row["experiment"],
                "loss": row["loss"],
                "C": str(row["classes"]),
                "M": str(row["width"]),
                f"step time / {results.outline.baseline} [95 %]": ratio,
                "median ms": f"{row['step']:.2f}",
                "forward / backward / optimizer, ms": " / ".join(split),
                "rounds": str(found["n"]) if found else "",
                "verdict": found["verdict"] if found else "baseline",
            }
        )
    if rows:
        caption = (
            "Timing cells: one process alone, rounds that visit every loss in shuffled order on the same batches; "
            "ratios are paired by round. The phases are medians of their own and need not add up to the step's."
        )
        blocks.append(Table.of(rows, left=["experiment", "loss", "verdict"], caption=caption))
    else:
        blocks.append(Prose("No step times: the suite has no finished timing cells."))
    rows = [
        {
            "experiment": row["experiment"],
            "loss": row["loss"],
            "C": str(row["classes"]),
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
    if front := _front(results):
        blocks.append(front)
    return Section("cost", "Cost", tuple(blocks))


def _front(results: Results) -> Table | None:
    """Which choices of loss and width no other beats, by their chance."""
    rows = [
        {
            "experiment": row["experiment"],
            "loss": row["loss"],
            "C": str(row["classes"]),
            "M": str(row["width"]),
            "accuracy, %": words.number(row["accuracy"]),
            "head memory": words.size(row["bytes"]),
            "P(front), memory": words.number(row["front_memory"]),
            "step, ms": words.number(1000 * row["seconds"]),
            "P(front), time": words.number(row["front_time"]),
        }
        for row in results.front.to_dict("records")
        if not (math.isnan(row["front_memory"]) and math.isnan(row["front_time"]))
    ]
    if not rows:
        return None
    caption = (
        "The Pareto front: the share of joint resamples of seeds (and rounds) in which no other choice is as accurate "
        "and as cheap, and better in one. Memory: among all losses and widths of an experiment; time: among the losses "
        "of one timing cell. Head memory: FC layer, class weights and what the loss owns. A chance, not a p value; two "
        "equal losses have about ½ each."
    )
    return Table.of(rows, left=["experiment", "loss"], caption=caption)


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
    nothing = Prose("The suite states no published numbers of losses that were measured.")
    return Section("published", "Published against measured", (table or nothing,))


def threats(results: Results) -> Section:
    """What a careful reader should be warned of."""
    rows = [{"guard": found.guard, "where": found.where, "warning": found.text} for found in results.threats]
    table = Table.of(rows, left=["guard", "where", "warning"]) if rows else Prose("No guard fired.")
    return Section("threats", "Threats and warnings that fired", (table,))


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
