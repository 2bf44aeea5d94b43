"""Which loss to use, per task: what the first screen of a report says.

One column per dataset (and backbone, and with default and tuned settings). It stands for the experiment that compares
most kinds of losses there, not the most options of one. Where that experiment varies further axes, the column shows the
point at which the baseline is best; other points are in the sections on axes and in the appendix.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from lossbench.analysis.ranks import identity
from lossbench.analysis.records import RunData
from lossbench.analysis.verdicts import AT_CHANCE, NOT_TESTABLE
from lossbench.core.labels import distinct
from lossbench.core.point import Point

Row = Mapping[str, Any]
RowsAt = Mapping[Point, Mapping[str, Row]]

NOT_COMPARED = "not compared"  # in place of a verdict: no seed of both losses has a value


@dataclass(frozen=True)
class Column:
    """A point that stands for a dataset, and the comparisons there by loss.

    `dataset` is its short name, with the backbone where a task has several; `name` also has the task where a dataset
    has several, and says `tuned` or `default` where both exist.
    """

    point: Point
    task: str
    dataset: str
    name: str
    tuned: bool
    baseline: Row  # of `Results.main`
    rows: Mapping[str, Row]  # of `Results.comparisons`, in the headline metric
    others: int  # points of the same experiment, dataset and backbone

    @property
    def seeds(self) -> int:
        return int(self.baseline["n"])


@dataclass(frozen=True)
class Standing:
    """What became of a loss over the columns of a task: its comparisons by verdict, or NOT_COMPARED."""

    loss: str
    by_verdict: Mapping[str, Sequence[tuple[Column, Row]]]

    def deltas(self, verdict: str) -> list[float]:
        return [float(row["delta"]) for _, row in self.by_verdict.get(verdict, ())]

    @property
    def mean(self) -> float:
        """The mean difference over the columns that compare it; NaN if none does."""
        found = [float(row["delta"]) for rows in self.by_verdict.values() for _, row in rows]
        known = [delta for delta in found if math.isfinite(delta)]
        return sum(known) / len(known) if known else math.nan


@dataclass(frozen=True)
class Task:
    """The columns of one task with default or tuned settings, and the standing of every loss, best first."""

    name: str
    tuned: bool
    columns: Sequence[Column]
    standings: Sequence[Standing]

    def having(self, verdict: str) -> list[Standing]:
        return [standing for standing in self.standings if standing.by_verdict.get(verdict)]


@dataclass(frozen=True)
class Answer:
    """The columns of the first table, the tasks (tuned ones first), and what the losses cost."""

    columns: Sequence[Column]
    tasks: Sequence[Task]
    step_ratios: Mapping[str, Sequence[float]]  # by loss, one per timed point
    extra_bytes: Mapping[str, Sequence[float]]  # by loss, one per column: class weights and loss state
    failures: Mapping[str, int]  # by loss, in all experiments

    @cached_property
    def losses(self) -> list[str]:
        """The losses that some column compares."""
        return list(dict.fromkeys(loss for column in self.columns for loss in column.rows))


def answered(data: RunData, main: pd.DataFrame, at: RowsAt, comparisons: pd.DataFrame) -> Answer:
    """The first screen as data; `at` are the rows of `main` that have a finished seed, by point and loss."""
    columns = _columns(data, at, comparisons)
    kinds = dict.fromkeys((column.task, column.tuned) for column in columns)
    tasks = [_task(data, name, tuned, columns) for name, tuned in sorted(kinds, key=lambda kind: not kind[1])]
    ratios = _step_ratios(data.info.baseline, comparisons)
    return Answer(columns, tasks, ratios, _extra_bytes(at, columns), _failures(main))


class Place(NamedTuple):
    """What a column is about."""

    task: str
    dataset: str
    backbone: str
    tuned: bool


def _columns(data: RunData, main: RowsAt, comparisons: pd.DataFrame) -> list[Column]:
    baseline = data.info.baseline
    tuned = set(data.info.tuning.experiments.values()) if data.info.tuning else set()
    compared: dict[Point, dict[str, Row]] = {}
    for row in comparisons[comparisons["metric"] == data.headline.name].to_dict("records"):
        compared.setdefault(row["point"], {})[row["loss"]] = row
    groups: dict[tuple[str, str, bool], list[Point]] = {}
    for point in (point for point in compared if baseline in main.get(point, ())):
        key = main[point][baseline]["task"], identity(point["dataset"]), point["experiment"] in tuned
        groups.setdefault(key, []).append(point)
    chosen: dict[Place, tuple[Point, int]] = {}
    for (task, dataset, is_tuned), points in groups.items():
        largest = max(points, key=lambda point: _kinds(compared[point]))  # the first of equals
        mine = [point for point in points if point["experiment"] == largest["experiment"]]
        for backbone in dict.fromkeys(point["backbone"] for point in mine):
            here = [point for point in mine if point["backbone"] == backbone]
            most = max(len(compared[point]) for point in here)
            full = (point for point in here if len(compared[point]) == most)
            best = max(full, key=lambda point: data.headline.sign * main[point][baseline]["value"])
            chosen[Place(task, dataset, backbone, is_tuned)] = best, len(here) - 1
    places = sorted(chosen, key=lambda place: not place.tuned)
    backbones = distinct(list(dict.fromkeys(place.backbone for place in places)))
    columns = []
    for place in places:
        point, others = chosen[place]
        same = [other for other in places if other.dataset == place.dataset]
        beside = [other for other in same if other.task == place.task]
        parts = [place.dataset.rpartition("/")[2]]
        parts += [backbones[place.backbone]] if len({other.backbone for other in beside}) > 1 else []
        dataset = ", ".join(parts)
        parts += [place.task] if len({other.task for other in same}) > 1 else []
        parts += ["tuned" if place.tuned else "default"] if len({other.tuned for other in beside}) > 1 else []
        rows = main[point][baseline], compared[point]
        columns.append(Column(point, place.task, dataset, ", ".join(parts), place.tuned, *rows, others))
    return columns


def _kinds(losses: Collection[str]) -> tuple[int, int]:
    """How many losses these labels are, without and with their options."""
    return len({label.partition("[")[0] for label in losses}), len(losses)


def _task(data: RunData, name: str, tuned: bool, columns: Sequence[Column]) -> Task:
    mine = [column for column in columns if (column.task, column.tuned) == (name, tuned)]
    standings = []
    for loss in (loss for loss in data.labels if any(loss in column.rows for column in mine)):
        found: dict[str, list[tuple[Column, Row]]] = {}
        for column in (column for column in mine if loss in column.rows):
            row = column.rows[loss]
            absent = row["verdict"] == NOT_TESTABLE and AT_CHANCE not in row["flags"]
            found.setdefault(NOT_COMPARED if absent else row["verdict"], []).append((column, row))
        standings.append(Standing(loss, found))
    sign = data.headline.sign
    best = sorted(standings, key=lambda standing: (math.isnan(standing.mean), -sign * standing.mean))
    return Task(name, tuned, mine, best)


def _step_ratios(baseline: str, comparisons: pd.DataFrame) -> dict[str, list[float]]:
    frame = comparisons[comparisons["metric"] == "step_seconds"]
    found: dict[str, list[float]] = {baseline: [1.0] * (len(frame) > 0)}
    for loss, delta in zip(frame["loss"], frame["delta"], strict=True):
        if math.isfinite(delta):
            found.setdefault(loss, []).append(1 + delta / 100)
    return found


def _extra_bytes(at: RowsAt, columns: Sequence[Column]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for column in columns:
        base = _head(column.baseline)
        for loss, row in at[column.point].items():
            if math.isfinite(extra := _head(row) - base):
                found.setdefault(loss, []).append(extra)
    return found


def _head(row: Row) -> float:
    """Bytes of what a loss owns: the class weights and its other state."""
    return float(row["bytes_classifier"] + row["bytes_loss"])


def _failures(main: pd.DataFrame) -> dict[str, int]:
    if main.empty:
        return {}
    return {str(loss): int(count) for loss, count in main.groupby("loss")["failures"].sum().items()}
