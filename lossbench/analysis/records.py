"""Run folders → the planned cells of a suite and their records as one table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lossbench import stats
from lossbench.analysis import readiness, target
from lossbench.analysis.measured import LossAt, Measured, losses_at
from lossbench.core.errors import StoreError
from lossbench.core.metric import Metric
from lossbench.core.model import Cell, SuiteInfo
from lossbench.core.point import Point, varied
from lossbench.store.records import Plan, Scan, Store, tabulated
from lossbench.suite.claims import default_applies
from lossbench.suite.settings import scored

# Columns that are no single values, or long texts: not in records.csv.
BULKY = (
    *("point", "curve", "angles", "features", "rounds", "timing", "environment", "error", "cause", "verification"),
    "counts",
)
BITS = ("accuracy", "recall@1")  # shares of correct test examples, for each of which a cell keeps a bit
MOST_EXAMPLES = 512  # cells whose values per example are held at a time


class TimingCell(NamedTuple):
    """A finished timing cell: seconds per step of every round by loss, phases by loss, and disturbances."""

    point: Point
    rounds: dict[str, list[float]]
    notes: dict[str, Any]

    @property
    def process(self) -> list[int]:
        """The process of every round. Older records state none: their rounds are of one process."""
        found: list[int] | None = self.notes.get("process")
        return [0] * max(map(len, self.rounds.values()), default=0) if found is None else found


@dataclass(frozen=True)
class RunData:
    """The content of the run folders of one suite. Everything in a report is computed from this."""

    info: SuiteInfo
    runs: tuple[str, ...]
    cells: tuple[Cell, ...]
    records: pd.DataFrame  # one row per planned cell that has a record
    damaged: Mapping[str, str]
    trials: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # their status, cause and score, by key

    @classmethod
    def read(
        cls,
        runs: Sequence[str | os.PathLike[str]],
        plans: Sequence[Plan] | None = None,
        scans: Sequence[Callable[[], Scan]] | None = None,
    ) -> Self:
        """Read run folders of the same suite.

        `plans` are theirs, by default the last plan of each folder; `scans` give their records, if they are being read.
        """
        stores = [Store(run) for run in runs]
        infos, cells = zip(*(plans or [store.plan() for store in stores]), strict=True)
        if len(names := sorted({info.name for info in infos})) > 1:
            raise StoreError(f"these runs belong to different suites ({', '.join(names)}); report them one by one")
        for key in ("baseline", "headline", "margin"):
            if len(found := list(dict.fromkeys(str(getattr(info, key)) for info in infos))) > 1:
                raise StoreError(f"these runs differ in '{key}' ({', '.join(found)}); report them one by one")
        merged = _merged(cells)
        records: dict[str, Any] = {}
        damaged: dict[str, str] = {}
        for scan in scans or [partial(store.scan, checkpoints=False) for store in stores]:
            sound, bad = scan()
            damaged |= bad
            # A cell that failed in one run and finished in another is finished.
            finished = {key for key, record in records.items() if record["status"] == "done"}
            records |= {key: record for key, record in sound.items() if key not in finished}
        folders = tuple(map(str, runs))
        info = SuiteInfo.joined(infos, folders)
        planned = {cell.experiment for cell in merged}
        info = replace(info, missing={name: why for name, why in info.missing.items() if name not in planned})
        table = tabulated(merged, records, info.metrics)
        trials = scored([cell for cell in merged if cell.trial is not None], records, info.headline_metric)
        return cls(info, folders, tuple(merged), table, damaged, trials)

    @cached_property
    def trained(self) -> pd.DataFrame:
        """The finished accuracy cells."""
        frame = self.records
        return frame[(frame["kind"] == "train") & (frame["status"] == "done")]

    @cached_property
    def trained_at(self) -> dict[Point, pd.DataFrame]:
        """They by point, in the order of the plan."""
        return dict(points(self.trained))

    @cached_property
    def measured(self) -> Measured:
        found = Measured(self.trained, self.metrics).add(self.to_target.values, self.to_target.grain)
        return found.add({"step_seconds": self._step_times}, {})

    @property
    def _step_times(self) -> dict[LossAt, dict[int, float]]:
        """The mean log seconds of a step by process: rounds of one process depend on each other, processes do not."""
        found: dict[LossAt, dict[int, float]] = {}
        for cell in self.timed:
            for loss, seconds in cell.rounds.items():
                found[cell.point, loss] = dict(enumerate(stats.log_times(seconds, cell.process).tolist()))
        return found

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The metrics of the suite by name."""
        return {metric.name: metric for metric in self.info.metrics}

    @cached_property
    def headline(self) -> Metric:
        """The metric that verdicts are about."""
        return self.info.headline_metric

    def margin(self, metric: str) -> float:
        """The suite's margin of equivalence, where it is one for this metric; 0: none."""
        return self.info.margin if default_applies(self.metrics[metric], self.headline) else 0.0

    @cached_property
    def at_chance(self) -> dict[LossAt, str]:
        """The losses whose networks have hardly learned anything at a point, each with a sentence that says so."""
        tested = self.trained.drop_duplicates("point", keep="last")[["point", "task", "counts"]]  # of the newest record
        known = {point: (task, counts) for point, task, counts in tested.itertuples(index=False)}
        found = {}
        for (point, loss), by_seed in self.measured.values.get("accuracy", {}).items():
            task, counts = known[point]
            chance, values = readiness.chance(task, point["classes"], counts), list(by_seed.values())
            if chance is not None and readiness.at_chance(values, chance):
                score = "recall@1" if task == "retrieval" else "accuracy"
                numbers = f"{score} {sum(values) / len(values):.1f} %, chance {chance:.1f} %"
                found[point, loss] = f"{loss} is at chance{self.at(point)}: {numbers}"
        return found

    @cached_property
    def undertrained(self) -> list[Point]:
        """The points at which the baseline was still improving when training ended."""
        baseline = self.trained[self.trained["label"] == self.info.baseline]
        return readiness.undertrained(zip(baseline["point"], baseline["curve"], strict=True))

    @cached_property
    def targets(self) -> dict[Point, float]:
        """By point, the accuracy to reach, in percent."""
        return target.targets(self.trained, self.info.baseline)

    @cached_property
    def to_target(self) -> target.Reached:
        """How long the cells take to reach it."""
        return self.reached(self.targets)

    def reached(self, targets: Mapping[Point, float]) -> target.Reached:
        """How long they take to reach other targets, such as those of an earlier run."""
        warm = {cell.key: cell.warm.steps for cell in self.cells if cell.warm}
        return target.reached(self.trained, targets, warm, {point: rounds for point, rounds, _ in self.timed})

    @cached_property
    def labels(self) -> list[str]:
        """All losses in the order of the suite, the baseline first."""
        found = dict.fromkeys(spec.label for cell in self.cells if cell.kind == "train" for spec in cell.losses)
        return [self.info.baseline, *(label for label in found if label != self.info.baseline)]

    @cached_property
    def experiments(self) -> list[str]:
        return list(dict.fromkeys(cell.experiment for cell in self.cells))

    @cached_property
    def points(self) -> list[Point]:
        """The points that have finished accuracy cells, in the order of the plan."""
        return list(self.trained_at)

    @cached_property
    def planned(self) -> dict[str, list[Point]]:
        """The points of the plan by kind of cell, in its order."""
        found: dict[str, dict[Point, None]] = {"train": {}, "timing": {}}
        for cell in self.cells:
            found.setdefault(cell.kind, {})[cell.point] = None
        return {kind: list(points) for kind, points in found.items()}

    @cached_property
    def axes(self) -> list[str]:
        """The axes that distinguish the planned points of the suite."""
        return varied(cell.point for cell in self.cells)

    def at(self, point: Point) -> str:
        """A point after the name of a loss: ` at digits, lr = 0.1`, the axes that vary in the suite."""
        told = point.told(self.axes)
        return f" at {told}" if told else ""

    def place(self, point: Point) -> str:
        """An experiment, and in brackets a point of it: the axes that vary in the suite."""
        told = point.told(self.axes)
        return f"{point['experiment']} ({told})" if told else str(point["experiment"])

    @cached_property
    def timed(self) -> list[TimingCell]:
        frame = self.records[(self.records["kind"] == "timing") & (self.records["status"] == "done")]
        return [TimingCell(point, rows["rounds"].iloc[0], rows["timing"].iloc[0]) for point, rows in points(frame)]

    @cached_property
    def statuses(self) -> Counter[str]:
        """How many distinct cells of the plan have each status; `missing`: no record."""
        known = dict(zip(self.records["key"], self.records["status"], strict=True))
        return Counter(known.get(key, "missing") for key in {cell.key for cell in self.cells})

    @cached_property
    def environments(self) -> list[dict[str, Any]]:
        """The distinct environments of the records, most used first; experiments may share a cell."""
        once = self.records.drop_duplicates("key")
        count = Counter(once["fingerprint"].dropna())
        by_print = dict(zip(once["fingerprint"], once["environment"], strict=True))
        return [{**by_print[name], "cells": cells} for name, cells in count.most_common()]

    @cached_property
    def plain_records(self) -> pd.DataFrame:
        """The columns of the records that hold single values, and the swept axes."""
        return flat(self.records).drop(columns=list(BULKY), errors="ignore")

    def flagged(self, flag: str) -> dict[str, int]:
        """The number of cells with a flag by loss, without trials, which are not expected to do well."""
        frame = self.records[self.records["kind"] != "trial"]
        found = Counter(label for label, flags in zip(frame["label"], frame["flags"], strict=True) if flag in flags)
        return dict(found.most_common())

    def examples(self, metric: str, point: Point, loss: str, seeds: Sequence[int]) -> NDArray[np.float64] | None:
        """Seeds × test examples: the values of a metric per example; None where not all of these cells have them."""
        keys = self._keys[point, loss]
        found: list[NDArray[np.float32]] = []
        for seed in seeds:
            values = self._examples(metric, keys[seed])
            if values is None or (found and len(values) != len(found[0])):
                return None  # most metrics have none: the other cells need not be read
            found.append(values)
        return np.stack(found) if found else None

    @cached_property
    def _keys(self) -> dict[LossAt, dict[int, str]]:
        """The keys of the finished accuracy cells by point and loss, and seed."""
        found: dict[LossAt, dict[int, str]] = {}
        for at, seed, key in zip(losses_at(self.trained), self.trained["seed"], self.trained["key"], strict=True):
            found.setdefault(at, {})[int(seed)] = key
        return found

    @cached_property
    def _stores(self) -> list[Store]:
        return [Store(run) for run in self.runs]

    @cached_property
    def _examples(self) -> Callable[[str, str], NDArray[np.float32] | None]:
        """The values of a metric per test example of a cell: bits of correct examples count 100, in points."""

        @lru_cache(maxsize=MOST_EXAMPLES)  # a baseline's are read for every loss that is compared with it
        def read(metric: str, key: str) -> NDArray[np.float32] | None:
            bits = metric in BITS
            for store in self._stores:
                try:
                    found = store.correct(key) if bits else store.examples(key, metric)
                except (OSError, ValueError):
                    continue
                if found is not None:
                    return np.float32(100 if bits else 1) * found.astype(np.float32)
            return None

        return read


def flat(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame with one column per swept axis in place of `point`; `axis.NAME` where a column has its name already."""
    if "point" not in frame:
        return frame
    names = dict.fromkeys(name for point in dict.fromkeys(frame["point"]) for name in point.extra)
    axes = {f"axis.{name}" if name in frame else name: [point.get(name) for point in frame["point"]] for name in names}
    return frame.drop(columns="point").assign(**axes)


def _merged(plans: Sequence[Sequence[Cell]]) -> list[Cell]:
    """The cells of all plans once each; refused where two of them are for the same loss, point and seed.

    A timing cell is left out if another one times the same losses and more: a profile and its base may have both.
    """
    merged = {(cell.experiment, cell.label, cell.key): cell for cells in plans for cell in cells}
    timing: dict[Point, dict[str, set[str]]] = {}  # by point and key, the losses
    for cell in merged.values():
        if cell.kind == "timing":
            timing.setdefault(cell.point, {})[cell.key] = {loss.label for loss in cell.losses}
    less = {key for at in timing.values() for key, losses in at.items() if any(losses < more for more in at.values())}
    merged = {name: cell for name, cell in merged.items() if cell.key not in less}
    trained = (cell for cell in merged.values() if cell.kind != "warm")  # trials have warm starts of their own
    count = Counter((cell.point, cell.label, cell.seed, cell.trial) for cell in trained)
    if twice := next((found for found, times in count.items() if times > 1), None):
        point, label, *_ = twice
        raise StoreError(
            f"these runs have different cells for {label} of experiment '{point['experiment']}' (another profile or "
            "version of the suite or a plugin); report them one by one"
        )
    return list(merged.values())


def points(frame: pd.DataFrame) -> Iterator[tuple[Point, pd.DataFrame]]:
    """Each point of a frame with its rows, in the order of the frame."""
    yield from frame.groupby("point", sort=False)
