"""Records → every number that a report states, as plain frames. No prose, no files written."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from lossbench import stats
from lossbench.errors import StoreError
from lossbench.schema import GEOMETRY, Cell, Outline
from lossbench.store import Store, tabulated
from lossbench.text import VERIFICATION_METRICS, Claim
from lossbench.theory import minimum_width

# Columns whose means over seeds the tables show.
MEANS = ("angle_train", "angle_test", *GEOMETRY, *VERIFICATION_METRICS)

POINT = ["experiment", "dataset", "backbone", "classes", "width"]  # where losses are compared, seed by seed


class Metric(NamedTuple):
    """How a metric is read: its column, its unit, and which way is better."""

    column: str
    unit: str
    higher_is_better: bool


METRICS = {
    "accuracy": Metric("accuracy", "points", True),
    "angle": Metric("angle_test", "degrees", False),
    "angle_train": Metric("angle_train", "degrees", False),
    "weight_angle": Metric("weight_angle", "degrees", True),
    "simplex_distance": Metric("simplex_distance", "", False),
    "feature_norm": Metric("norm_test", "", True),
    "step_seconds": Metric("", "%", False),  # paired rounds of timing cells, as a ratio
    "fc_bytes": Metric("bytes_fc", "bytes", False),
    **{name: Metric(name, "points", name != "eer") for name in VERIFICATION_METRICS},
}
COMPARED = ("accuracy", "angle", *VERIFICATION_METRICS)  # with the baseline, wherever they were measured

COMPARISON_COLUMNS = [
    *("experiment", "metric", "loss", "baseline", "n", "delta", "low", "high", "p", "p_holm", "dz", "tost_p"),
    *("verdict", "seeds_needed", "unit", "dataset", "backbone", "classes", "width", "correlation"),
]
CLAIM_COLUMNS = [
    *("text", "experiment", "metric", "verdict", "delta", "low", "high", "n"),
    *("unit", "p_holm", "seeds_needed", "evidence"),
]


@dataclass(frozen=True)
class Results:
    """Everything the report says, before it is put into words."""

    outline: Outline
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
    def labels(self) -> list[str]:
        """All losses as the suite orders them, the baseline first."""
        found = dict.fromkeys(spec.label for cell in self.cells if cell.kind == "train" for spec in cell.losses)
        rest = [label for label in found if label != self.outline.baseline]
        return [self.outline.baseline, *rest]

    @cached_property
    def statuses(self) -> Counter[str]:
        """How the distinct cells of the plan ended; `missing` for those without a record."""
        planned = {cell.key for cell in self.cells}
        known = dict(zip(self.records["key"], self.records["status"], strict=True))
        return Counter(known.get(key, "missing") for key in planned)

    def flagged(self, flag: str) -> dict[str, int]:
        """How many cells of each loss carry a flag."""
        frame = self.records[[flag in flags for flags in self.records["flags"]]] if len(self.records) else self.records
        return {str(label): int(count) for label, count in frame["label"].value_counts().items()}

    @cached_property
    def main(self) -> pd.DataFrame:
        """A row a loss and point: mean accuracy with interval, both standard errors, angles, failures."""
        rows = []
        planned = self.records[self.records["kind"] == "train"]
        for point, group in _points(planned):
            for label in self.labels:
                mine = group[group["label"] == label]
                if mine.empty:
                    continue
                done = mine[mine["status"] == "done"]
                accuracy = done["accuracy"].astype(float)
                mean, low, high = stats.mean_interval(accuracy)
                total = float(done["total"].iloc[0]) if len(done) else math.nan
                rows.append(
                    {
                        **point,
                        "loss": label,
                        "n": len(done),
                        "failures": len(mine) - len(done),
                        "accuracy": mean,
                        "low": low,
                        "high": high,
                        "seed_se": accuracy.std(ddof=1) / math.sqrt(len(done)) if len(done) > 1 else math.nan,
                        "test_se": math.sqrt(mean * (100 - mean) / total) if len(done) else math.nan,
                        "task": mine["task"].iloc[0],
                        **{name: done[name].astype(float).mean() for name in MEANS},
                        **{name: done[name].astype(float).mean() for name in done if name.startswith("bytes_")},
                        "minimum": minimum_width(point["classes"]),
                    }
                )
        return pd.DataFrame(rows)

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """Every loss against the baseline at every point; p is Holm-adjusted over an experiment and metric."""
        rows = [row for metric in COMPARED for row in self._metric_comparisons(metric)]
        rows += self._time_comparisons()
        families: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in rows:
            families.setdefault((row["experiment"], row["metric"]), []).append(row)
        for family in families.values():
            _adjust(family)
            for row in family:
                row["verdict"] = stats.verdict(row["p_holm"], row["tost_p"])
        return _frame(rows, COMPARISON_COLUMNS)

    def _metric_comparisons(self, metric: str) -> Iterator[dict[str, Any]]:
        for point, group in _points(self.trained):
            for label in self.labels[1:]:
                if not (group["label"] == label).any() or group[METRICS[metric].column].isna().all():
                    continue
                yield {
                    **point,
                    "metric": metric,
                    "loss": label,
                    "baseline": self.outline.baseline,
                    **self._contrast([point], metric, label, self.outline.baseline),
                }

    def _time_comparisons(self) -> Iterator[dict[str, Any]]:
        for point, rounds in self.timings():
            baseline = rounds.get(self.outline.baseline)
            for label in self.labels[1:]:
                if baseline and label in rounds:
                    yield {
                        **point,
                        "metric": "step_seconds",
                        "loss": label,
                        "baseline": self.outline.baseline,
                        **_as_percent(stats.time_ratio(rounds[label], baseline)),
                    }

    def timings(self) -> Iterator[tuple[dict[str, Any], dict[str, list[float]]]]:
        """(point, seconds a step of every round by loss) of each timing cell."""
        frame = self.records[(self.records["kind"] == "timing") & (self.records["status"] == "done")]
        for point, group in _points(frame):
            yield point, group["rounds"].iloc[0]

    @cached_property
    def _trained_values(self) -> dict[tuple[Any, ...], pd.DataFrame]:
        """The finished accuracy cells of each point and loss, by seed: looked up once for every comparison."""
        return {key: group.set_index("seed") for key, group in self.trained.groupby([*POINT, "label"], sort=False)}

    def _contrast(self, points: Sequence[Mapping[str, Any]], metric: str, a: str, b: str) -> dict[str, Any]:
        """a − b on a metric, paired by seed (means over points within a seed, if there are several)."""
        column, unit, _ = METRICS[metric]
        sides = []
        for label in (a, b):
            found = [self._at(point, label) for point in points]
            known = [pd.Series(dtype=float) if frame is None else frame[column].astype(float) for frame in found]
            sides.append(pd.concat(known, axis=1) if len(known) > 1 else known[0] if known else pd.Series(dtype=float))
        whole = pd.concat(sides, axis=1, keys=("a", "b")).dropna()  # seeds without gaps, at every point
        first, second = (whole[side].mean(axis=1) if whole[side].ndim > 1 else whole[side] for side in ("a", "b"))
        margin, resolution = None, 0.0
        if metric == "accuracy":  # equal differences of few test images are chance, not certainty
            totals = [frame["total"].max() for point in points if (frame := self._at(point, a)) is not None]
            margin, resolution = self.outline.margin, 100 / float(max(totals)) if totals else 0.0
        found_pair = stats.paired(first, second, resolution=resolution)
        return {
            **_numbers(found_pair),
            "tost_p": stats.tost(first, second, margin, resolution=resolution) if margin else math.nan,
            "unit": unit,
            "correlation": stats.correlation(first, second),
        }

    def _at(self, point: Mapping[str, Any], label: str) -> pd.DataFrame | None:
        return self._trained_values.get((*(point[name] for name in POINT), label))

    @cached_property
    def claims(self) -> pd.DataFrame:
        """A row a claim of the suite, its verdict by the same rule as a comparison, in the claim's direction."""
        rows = [self._claim(claim) for claim in self.outline.claims]
        _adjust(rows)
        for row in rows:
            row["verdict"], row["evidence"] = self._claim_verdict(row)
        return _frame(rows, CLAIM_COLUMNS)

    def _claim(self, claim: Claim) -> dict[str, Any]:
        stated = claim.model_dump(include={"text", "experiment", "metric", "better", "than"})
        if claim.metric == "step_seconds":
            mine = [rounds for point, rounds in self.timings() if _covers(claim, point)]
            better = [seconds for rounds in mine for seconds in rounds.get(claim.better, [])]
            than = [seconds for rounds in mine for seconds in rounds.get(claim.than, [])]
            return {**stated, **_as_percent(stats.time_ratio(better, than))}
        covered = [point for point, _ in _points(self.trained) if _covers(claim, point)]
        return {**stated, **self._contrast(covered, claim.metric, claim.better, claim.than)}

    def _claim_verdict(self, row: Mapping[str, Any]) -> tuple[str, str]:
        metric = METRICS[row["metric"]]
        if row["n"] < stats.FEWEST_SEEDS:
            return "undecided", f"only {row['n']} paired seeds" if row["n"] else "not run"
        word = stats.verdict(row["p_holm"], row["tost_p"])
        right_way = (row["delta"] > 0) == metric.higher_is_better
        if word.startswith("different"):
            return ("supported" if right_way else "contradicted"), word
        return "undecided", word

    @cached_property
    def environments(self) -> list[dict[str, Any]]:
        """The distinct environments of the records, most used first."""
        count = Counter(self.records["fingerprint"].dropna())
        by_print = dict(zip(self.records["fingerprint"], self.records["environment"], strict=True))
        return [{**by_print[name], "cells": cells} for name, cells in count.most_common()]

    def records_csv(self) -> str:
        plain = self.records.drop(columns=["curve", "angles", "features", "rounds", "timing", "environment", "error"])
        text: str = plain.to_csv(index=False, lineterminator="\n")
        return text


def analyse(runs: Sequence[str | os.PathLike[str]]) -> Results:
    """Read one or more run folders of the same suite."""
    stores = [Store(run) for run in runs]
    outlines, cells = zip(*(store.plan() for store in stores), strict=True)
    if len(names := sorted({outline.name for outline in outlines})) > 1:
        raise StoreError(f"these runs are of different suites ({', '.join(names)}); report them one by one")
    merged = {(cell.experiment, cell.label, cell.key): cell for group in cells for cell in group}
    places = Counter((cell.experiment, cell.label, cell.width, cell.classes, cell.seed) for cell in merged.values())
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


def _points(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    for values, group in frame.groupby(POINT, sort=False):
        yield dict(zip(POINT, values, strict=True)), group


def _numbers(found: stats.Paired) -> dict[str, Any]:
    return {"n": found.n, "delta": found.delta, "low": found.low, "high": found.high, "p": found.p, "dz": found.dz}


def _as_percent(ratio: stats.Paired) -> dict[str, Any]:
    """A time ratio as a difference in percent, 0 meaning equal, like every other delta of the report."""
    percent = {name: 100 * (getattr(ratio, name) - 1) for name in ("delta", "low", "high")}
    return {
        **_numbers(ratio),
        **percent,
        "tost_p": math.nan,
        "unit": "%",
        "correlation": math.nan,
    }


def _adjust(family: list[dict[str, Any]]) -> None:
    """Holm's p over one family, and the seeds (or rounds) that would decide each row at the family's level."""
    for row, adjusted in zip(family, stats.holm([row["p"] for row in family]), strict=True):
        needed = stats.seeds_needed(row["dz"], level=stats.LEVEL / len(family))
        row["p_holm"] = adjusted
        row["seeds_needed"] = None if needed is None else max(needed, row["n"] + 1)


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    """The rows as a frame; seeds needed is a whole number where the verdict is open, else empty."""
    for row in rows:
        open_question = row["verdict"] == "undecided" and row.get("evidence") != "equivalent"
        row["seeds_needed"] = row["seeds_needed"] if open_question else None
    whole = pd.array([row["seeds_needed"] for row in rows], dtype="Int64")
    return pd.DataFrame(rows, columns=columns).assign(seeds_needed=whole)


def _covers(claim: Claim, point: Mapping[str, Any]) -> bool:
    width = minimum_width(point["classes"]) if claim.width == "min" else claim.width
    return claim.experiment == point["experiment"] and width in (None, point["width"])
