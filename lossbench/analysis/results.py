"""Records → every number that a report states, as plain frames. No prose, no files written."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lossbench import stats
from lossbench.analysis.points import (
    POINT,
    Contrast,
    Measured,
    Point,
    contrast,
    paired_values,
    place,
    points,
    time_contrast,
)
from lossbench.core.errors import StoreError
from lossbench.core.geometry import minimum_width
from lossbench.core.model import GEOMETRY, Cell, SuiteInfo
from lossbench.plugins.metrics import COMPARED, METRICS, SCORES, columns
from lossbench.store.records import Plan, Store, tabulated

if TYPE_CHECKING:
    from lossbench.analysis.ranks import Ranking
    from lossbench.analysis.warnings import Threat

# Columns whose means over seeds the tables show.
MEANS = tuple(
    name
    for name in dict.fromkeys(["angle_train", "angle_test", *GEOMETRY, *columns("test"), *columns("record")])
    if name != "accuracy" and not name.startswith("bytes_")  # these have columns of their own
)
BULKY = ("curve", "angles", "features", "rounds", "timing", "environment", "error", "cause")  # of a record, in no table

COMPARISON_COLUMNS = [
    *("experiment", "metric", "loss", "baseline", "n", "delta", "low", "high", "p", "p_holm", "dz", "tost_p"),
    *("verdict", "seeds_needed", "unit", "dataset", "backbone", "classes", "width", "correlation"),
    *("wins", "ties", "p_equivalent", "p_flip"),  # of accuracies
]


@dataclass(frozen=True)
class Results:
    """Everything the report says, before it is put into words."""

    outline: SuiteInfo
    runs: tuple[str, ...]
    cells: tuple[Cell, ...]
    records: pd.DataFrame  # one row a planned cell with a record
    damaged: Mapping[str, str]

    @cached_property
    def trained(self) -> pd.DataFrame:
        """The finished accuracy cells."""
        frame = self.records
        return frame[(frame["kind"] == "train") & (frame["status"] == "done")]

    @cached_property
    def measured(self) -> Measured:
        return Measured(self.trained)

    @cached_property
    def labels(self) -> list[str]:
        """All losses as the suite orders them, the baseline first."""
        found = dict.fromkeys(spec.label for cell in self.cells if cell.kind == "train" for spec in cell.losses)
        rest = [label for label in found if label != self.outline.baseline]
        return [self.outline.baseline, *rest]

    @cached_property
    def points(self) -> list[dict[str, Any]]:
        """The points where something was trained to the end."""
        return [point for point, _ in points(self.trained)]

    @cached_property
    def statuses(self) -> Counter[str]:
        """How the distinct cells of the plan ended; `missing` for those without a record."""
        planned = {cell.key for cell in self.cells}
        known = dict(zip(self.records["key"], self.records["status"], strict=True))
        return Counter(known.get(key, "missing") for key in planned)

    def flagged(self, flag: str) -> dict[str, int]:
        """How many cells of each loss carry a flag; trials are not meant to be good, and do not count."""
        frame = self.records[self.records["kind"] != "trial"]
        frame = frame[[flag in flags for flags in frame["flags"]]] if len(frame) else frame
        return {str(label): int(count) for label, count in frame["label"].value_counts().items()}

    @cached_property
    def main(self) -> pd.DataFrame:
        """A row a loss and point: mean accuracy with interval, both standard errors, angles, failures, tie letters."""
        rows = []
        planned = self.records[self.records["kind"] == "train"]
        shown = [*MEANS, *(name for name in planned if name.startswith("bytes_"))]
        for point, group in points(planned):
            letters = self._letters(point)
            done = group[group["status"] == "done"]
            means = done[[*shown, "total"]].astype(float).groupby(done["label"]).mean()
            counts = group["label"].value_counts()
            task = group["task"].iloc[0]
            for label in (label for label in self.labels if label in counts):
                accuracy = list(self.measured.at("accuracy", point, label).values())
                mean, low, high = stats.mean_interval(accuracy)
                found = means.loc[label] if label in means.index else dict.fromkeys([*shown, "total"], math.nan)
                n = len(accuracy)
                rows.append(
                    {
                        **point,
                        "loss": label,
                        "n": n,
                        "failures": int(counts[label]) - n,
                        "accuracy": mean,
                        "low": low,
                        "high": high,
                        "seed_se": float(np.std(accuracy, ddof=1)) / math.sqrt(n) if n > 1 else math.nan,
                        "test_se": math.sqrt(mean * (100 - mean) / found["total"]) if n else math.nan,
                        "ties": letters.get(label, ""),
                        "task": task,
                        **{name: found[name] for name in shown},
                        "minimum": minimum_width(point["classes"]),
                    }
                )
        return pd.DataFrame(rows)

    def _letters(self, point: Point) -> dict[str, str]:
        """The tie groups of the losses at a point, by accuracy."""
        found = {label: self.measured.at("accuracy", point, label) for label in self.labels}
        found = {label: values for label, values in found.items() if values}
        seeds = sorted({seed for values in found.values() for seed in values})
        table = [[values.get(seed, math.nan) for values in found.values()] for seed in seeds]
        if not found or len(found) < 2:
            return {}
        resolution = self.measured.resolution("accuracy", [point], next(iter(found)))
        return dict(zip(found, stats.tie_letters(table, resolution=resolution), strict=True))

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """Every loss against the baseline at every point; p is Holm-adjusted over an experiment and metric."""
        rows = [row for metric in COMPARED for row in self._metric_comparisons(metric)]
        rows += self._time_comparisons()
        families: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in rows:
            families.setdefault((row["experiment"], row["metric"]), []).append(row)
        for (_, metric), family in families.items():
            decide(family, self.outline.margin if metric == "accuracy" else None)
            if metric == "accuracy":
                self._without_a_distribution(family)
        return frame_of(rows, COMPARISON_COLUMNS)

    def _without_a_distribution(self, family: list[dict[str, Any]]) -> None:
        """What else is known of the pairs: shares won, the chance of equivalence, and p by sign flips, if it can be."""
        flips = []
        for row in family:
            sides = (self.measured.at("accuracy", row, row[side]) for side in ("loss", "baseline"))
            a, b = paired_values(*sides)
            won = stats.wins(a, b)
            resolution = self.measured.resolution("accuracy", [row], row["loss"])
            row["wins"], row["ties"] = won.wins, won.ties
            row["p_equivalent"] = stats.rope(a, b, self.outline.margin, resolution=resolution).equivalent
            flips.append(stats.sign_flip(a, b, stats.LEVEL / len(family)).p)
        for row, p in zip(family, stats.holm(flips), strict=True):
            row["p_flip"] = p

    def _metric_comparisons(self, metric: str) -> Iterator[dict[str, Any]]:
        baseline = self.outline.baseline
        measured_at = {key[:-1] for key in self.measured.values[metric]}
        for point in self.points:
            for label in self.labels[1:]:
                here = place(point, label)
                if here in self.measured.totals and here[:-1] in measured_at:
                    found = self.contrast([point], metric, label, baseline)
                    yield {**point, "metric": metric, "loss": label, "baseline": baseline, **found._asdict()}

    def contrast(
        self, where: Sequence[Point], metric: str, a: str, b: str, *, than_metric: str | None = None
    ) -> Contrast:
        """a − b on a metric, paired by seed (means over points within a seed, if there are several)."""
        measured = self.measured
        margin = self.outline.margin if metric == "accuracy" else None
        return contrast(
            measured.over(metric, where, a),
            measured.over(than_metric or metric, where, b),
            METRICS[metric].unit,
            margin,
            measured.resolution(metric, where, a),  # equal differences of few test images are chance, not certainty
        )

    def _time_comparisons(self) -> Iterator[dict[str, Any]]:
        baseline = self.outline.baseline
        for point, rounds in self.timings():
            for label in self.labels[1:]:
                if baseline in rounds and label in rounds:
                    found = time_contrast(rounds[label], rounds[baseline])
                    yield {**point, "metric": "step_seconds", "loss": label, "baseline": baseline, **found._asdict()}

    def timings(self) -> Iterator[tuple[dict[str, Any], dict[str, list[float]]]]:
        """(point, seconds a step of every round by loss) of each timing cell."""
        for point, group in points(self._timed):
            yield point, group["rounds"].iloc[0]

    @cached_property
    def _timed(self) -> pd.DataFrame:
        return self.records[(self.records["kind"] == "timing") & (self.records["status"] == "done")]

    @cached_property
    def timing_notes(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """(point, phases by loss and how quiet it was) of each timing cell."""
        return [(point, group["timing"].iloc[0]) for point, group in points(self._timed)]

    @cached_property
    def claims(self) -> pd.DataFrame:
        """A row a claim of the suite, its verdict by the same rule as a comparison, in the claim's direction."""
        from lossbench.analysis.claims import judged

        return judged(self)

    @cached_property
    def published(self) -> pd.DataFrame:
        """A row a published number and point: the prediction interval, the verdict, what differs."""
        from lossbench.analysis.published import judged

        return judged(self)

    @cached_property
    def threats(self) -> list[Threat]:
        """The warnings that these results deserve, gravest first."""
        from lossbench.analysis.warnings import fired

        return fired(self)

    @cached_property
    def tuning(self) -> pd.DataFrame:
        """A row a loss and point that was tuned: as written, as tuned, the difference, and what was chosen."""
        from lossbench.analysis.tuning import tabulated

        return tabulated(self)

    @cached_property
    def ranking(self) -> Ranking | None:
        """The losses across datasets, by mean rank of accuracy; None where there is nothing to rank."""
        from lossbench.analysis.ranks import ranked

        return ranked(self)

    @cached_property
    def phases(self) -> pd.DataFrame:
        """One row per timed loss: median milliseconds of a step, whole and by phase."""
        from lossbench.analysis.cost import phases

        return phases(self)

    @cached_property
    def front(self) -> pd.DataFrame:
        """One row per loss and point: its chance to be on the Pareto fronts of accuracy with memory and with time."""
        from lossbench.analysis.cost import front

        return front(self)

    @cached_property
    def class_angles(self) -> pd.DataFrame:
        """One row per point, loss, split and class: the mean angle over the `n` seeds that have one, in degrees."""
        rows = []
        for point, group in points(self.trained):
            by_label = group["angles"].groupby(group["label"]).agg(list)
            for label in (label for label in self.labels if label in by_label.index):
                for split in ("train", "test"):
                    by_class = zip_longest(*(found.get(split, []) for found in by_label[label]))
                    for number, angles in enumerate(by_class):
                        if known := [angle for angle in angles if angle is not None]:
                            found = {"loss": label, "split": split, "class": number, "n": len(known)}
                            rows.append({**point, **found, "angle": float(np.mean(known))})
        return pd.DataFrame(rows, columns=[*POINT, "loss", "split", "class", "n", "angle"])

    @cached_property
    def environments(self) -> list[dict[str, Any]]:
        """The distinct environments of the records, most used first."""
        count = Counter(self.records["fingerprint"].dropna())
        by_print = dict(zip(self.records["fingerprint"], self.records["environment"], strict=True))
        return [{**by_print[name], "cells": cells} for name, cells in count.most_common()]

    @cached_property
    def plain_records(self) -> pd.DataFrame:
        """The records without what is no single value."""
        return self.records.drop(columns=list(BULKY))

    def correct(self, key: str) -> NDArray[np.bool_]:
        """One bit per test example of a finished cell, from whichever run has it."""
        for run in self.runs:
            try:
                return Store(run).correct(key)
            except (OSError, ValueError):
                continue
        raise StoreError(f"{key}: its correctness bits are in none of the runs")


def analyse(runs: Sequence[str | os.PathLike[str]], plans: Sequence[Plan] | None = None) -> Results:
    """Read one or more run folders of the same suite; `plans` are theirs, absent: the last plan of each folder."""
    stores = [Store(run) for run in runs]
    outlines, cells = zip(*(plans or [store.plan() for store in stores]), strict=True)
    if len(names := sorted({outline.name for outline in outlines})) > 1:
        raise StoreError(f"these runs are of different suites ({', '.join(names)}); report them one by one")
    merged = {(cell.experiment, cell.label, cell.key): cell for group in cells for cell in group}
    trained = (cell for cell in merged.values() if cell.kind != "warm")  # trials have warm starts of their own
    places = Counter((cell.experiment, cell.label, cell.width, cell.classes, cell.seed, cell.trial) for cell in trained)
    if twice := next((place for place, count in places.items() if count > 1), None):
        raise StoreError(
            f"these runs have different cells for {twice[1]} of experiment '{twice[0]}' (another profile or version of "
            "the suite or a plugin); report them one by one"
        )
    records: dict[str, Any] = {}
    damaged: dict[str, str] = {}
    for store in stores:
        sound, bad = store.scan()
        damaged |= bad
        # A cell that failed in one run and finished in another is finished.
        records |= {key: record for key, record in sound.items() if records.get(key, record)["status"] != "done"}
        records = {**sound, **records}
    frame = tabulated(list(merged.values()), records)
    return Results(outlines[0], tuple(str(run) for run in runs), tuple(merged.values()), frame, damaged)


def decide(family: list[dict[str, Any]], margin: float | None = None) -> None:
    """Holm's p over one family, the verdict of each row, and the seeds (or rounds) that would decide an open one."""
    for row, adjusted in zip(family, stats.holm([row["p"] for row in family]), strict=True):
        row["p_holm"] = adjusted
        row["verdict"] = stats.verdict(adjusted, row["tost_p"])
        row["seeds_needed"] = seeds_to_decide(row, len(family), margin) if row["verdict"] == "undecided" else None


def seeds_to_decide(row: Mapping[str, Any], family: int, margin: float | None) -> int | None:
    """The seeds that would decide an open question if things are as they look, with 80 % chance; None above 10,000.

    Either way decides: to find the difference at the level of a family of so many, or that it is within the margin.
    """
    ways = [stats.seeds_needed(row["dz"], level=stats.LEVEL / family)]
    if margin is not None and row["sd"] > 0:
        ways.append(stats.seeds_for_equivalence((margin - abs(row["delta"])) / row["sd"]))
    known = [needed for needed in ways if needed is not None]
    return max(min(known), row["n"] + 1) if known else None


def frame_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """The rows as a frame; seeds needed is a whole number where the verdict is open, else empty."""
    whole = pd.array([row["seeds_needed"] for row in rows], dtype="Int64")
    return pd.DataFrame(rows, columns=list(columns)).assign(seeds_needed=whole)


__all__ = ["COMPARED", "METRICS", "POINT", "SCORES", "Results", "analyse"]
