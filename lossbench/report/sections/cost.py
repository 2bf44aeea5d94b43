"""Cost of the losses: step times, times to target, memory, Pareto fronts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from lossbench.analysis import target
from lossbench.analysis.cost import PHASES
from lossbench.analysis.results import Results
from lossbench.report import words
from lossbench.report.blocks import Anchor, Block, Section, Table
from lossbench.report.sections.rows import Row, anchor, at, compared, finished, per_experiment, table


class Costs(NamedTuple):
    """Costs at every point, and how a row of them is written."""

    frame: pd.DataFrame
    write: Callable[[Row], dict[str, str]]
    caption: str
    left: Sequence[str]
    anchors: Callable[[Row], list[Anchor]]


def cost(results: Results) -> Section:
    """Step-time ratios and times to target, at the points of the first table."""
    tables = []
    for costs in (_step_times(results), _times_to_target(results)):
        found = _stated(results, costs.frame).to_dict("records")
        rows = [{"experiment": row["experiment"]} | costs.write(row) for row in found]
        if rows:
            anchors = [costs.anchors(row) for row in found]
            tables.append(table(found, rows, costs.caption, left=["experiment", *costs.left], anchors=anchors))
    return Section("cost", "Cost", tuple(tables))


def cost_everywhere(results: Results) -> Section:
    """The same at all points, where there are more: one table per experiment."""
    tables: list[Block] = []
    for frame, write, caption, left, anchors in (_step_times(results), _times_to_target(results)):
        if len(_stated(results, frame)) < len(frame):
            tables += per_experiment(frame, write, caption, left=left, anchors=anchors)
    return Section("cost-everywhere", "Cost at every point", tuple(tables), appendix=True)


def memory(results: Results) -> Section:
    """Memory by cause, Pareto fronts."""
    found: list[Block | None] = [_memory(results), _front(results)]
    return Section("memory", "Memory and Pareto fronts", tuple(block for block in found if block), appendix=True)


def _named(row: Row) -> dict[str, str]:
    return {"experiment": row["experiment"], "loss": row["loss"]}


def _stated(results: Results, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows at points of the first table, of tuned settings if there are any; all rows, if there are none."""
    columns = results.answer.columns
    for chosen in ([column for column in columns if column.tuned], columns):
        points = {column.point for column in chosen}
        if len(frame) and (here := np.array([point in points for point in frame["point"]])).any():
            return frame[here]
    return frame


def _step_times(results: Results) -> Costs:
    baseline = results.info.baseline
    ratios = compared(results, "step_seconds")

    def write(row: Row) -> dict[str, str]:
        mine = ratios.get(at(row))
        unknown = "1" if row["loss"] == baseline else words.DASH
        return {
            "loss": row["loss"],
            f"step time / {baseline} [interval]": words.ratio(mine) if mine else unknown,
            "median ms": f"{row['step']:.2f}",
            "forward / backward / optimizer, ms": " / ".join(words.number(row[name]) for name in PHASES),
            "rounds": str(row["rounds"]),
            "processes": str(mine["n"]) if mine else "",
            "verdict": mine["verdict"] if mine else "baseline",
        }

    caption = (
        "Timing cells run alone. Each of several processes visits every loss in shuffled order on the same batches; "
        "the simultaneous 95 % interval of a ratio is that of the means of the processes. better: faster. The medians "
        "of the phases need not add up to that of the step."
    )
    left = ["loss", "verdict"]
    return Costs(results.phases, write, caption, left, lambda row: [Anchor(row["point"], None, "timing")])


def _times_to_target(results: Results) -> Costs:
    baseline = results.info.baseline
    steps, seconds = (compared(results, metric) for metric in (target.STEPS, target.SECONDS))

    def write(row: Row) -> dict[str, str]:
        return {
            "loss": row["loss"],
            "target, %": words.number(row["target"]),
            "steps": words.number(row[target.STEPS], 0),
            f"steps − {baseline} [interval]": _against(steps.get(at(row)), row, baseline),
            "seconds": words.number(row[target.SECONDS], 1),
            f"seconds − {baseline} [interval]": _against(seconds.get(at(row)), row, baseline),
            "censored": f"{row['censored']} of {row['n']}",
            "verdict (steps)": steps[at(row)]["verdict"] if at(row) in steps else "baseline",
        }

    caption = (
        f"Time to target: steps until the test accuracy first reaches the final accuracy of {baseline} (mean over its "
        f"seeds) minus {target.BELOW:g} point; only evaluated steps count. A seed that never reaches it is censored "
        "and counts with all its steps (restricted mean). Seconds: steps times the median time of a step, without "
        "evaluation."
    )
    left = ["loss", "verdict (steps)"]
    return Costs(results.times_to_target, write, caption, left, lambda row: [anchor(row)])


def _against(mine: Row | None, row: Row, baseline: str) -> str:
    return "0" if row["loss"] == baseline else words.difference(mine, unit=False) if mine else words.DASH


def _memory(results: Results) -> Table | None:
    found = finished(results).to_dict("records")
    rows = [
        _named(row)
        | {
            "FC layer": words.size(row["bytes_fc"]),
            "class weights": words.size(row["bytes_classifier"]),
            "loss state": words.size(row["bytes_loss"]),
            "whole backbone": words.size(row["bytes_model"]),
            "optimizer": words.size(row["bytes_optimizer"]),
            "peak": words.size(row["bytes_peak"]),
        }
        for row in found
    ]
    if not rows:
        return None
    caption = (
        "Memory by cause. The FC layer is part of the backbone; loss state: parameters and buffers of the loss besides "
        "the class weights; peak: resident memory that training added."
    )
    return table(found, rows, caption, left=["experiment", "loss"], anchors=[[anchor(row)] for row in found])


def _front(results: Results) -> Table | None:
    """Which losses and widths are on the Pareto fronts, with their probabilities."""
    headline = results.headline
    found = [
        row
        for row in results.front.to_dict("records")
        if not (math.isnan(row["front_memory"]) and math.isnan(row["front_time"]))
    ]
    rows = [
        _named(row)
        | {
            words.column(headline): words.number(row["value"], words.digits_of(headline.unit)),
            "head memory": words.size(row["bytes"]),
            "P(front), memory": words.number(row["front_memory"]),
            "step, ms": words.number(1000 * row["seconds"]),
            "P(front), time": words.number(row["front_time"]),
        }
        for row in found
    ]
    if not rows:
        return None
    caption = (
        "The Pareto front: P(front) is the share of joint resamples of seeds (and rounds) in which no other choice is "
        "at least as good and as cheap, and better in one of the two. Memory: among all losses and widths of an "
        "experiment; time: among the losses of one timing cell. Head memory: FC layer, class weights and loss state. "
        "P(front) is not a p-value; two equal losses have about ½ each."
    )
    return table(found, rows, caption, left=["experiment", "loss"], anchors=[[anchor(row)] for row in found])
