"""Losses across datasets, by ranks. N is the number of datasets: seeds and points are averaged within each.

Nothing is averaged over tasks or backbones: where a dataset has several, there is one ranking for each of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lossbench import stats
from lossbench.analysis.records import RunData
from lossbench.core.labels import parse_label
from lossbench.core.point import Point, varied


@dataclass(frozen=True)
class Ranking:
    """The losses that every dataset has, by mean rank of the headline metric; tested if datasets are enough."""

    table: stats.DatasetMeans
    test: stats.Friedman
    difference: float  # Nemenyi's critical difference of two mean ranks
    pairs: list[stats.RankedPair]  # each loss with the baseline, by Wilcoxon's test
    averaged: tuple[str, ...]  # the axes over whose values accuracies were averaged within a dataset
    task: str = ""  # the one it is about, where datasets have several
    backbone: str = ""  # likewise

    @property
    def name(self) -> str:
        """What it is about, where there are several rankings."""
        return ", ".join(part for part in (self.task, self.backbone and f"backbone {self.backbone}") if part)

    @property
    def enough(self) -> bool:
        return len(self.table.datasets) >= stats.FEWEST_DATASETS

    @property
    def differ(self) -> bool:
        """Whether Friedman's test finds a difference between the losses."""
        return self.test.p < stats.LEVEL

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The bars of a critical-difference diagram: losses whose ranks do not differ.

        All losses if Friedman's test finds no difference; it needs three losses, so two are judged by Nemenyi's test.
        """
        ranks = self.test.ranks
        everyone = tuple(int(index) for index in ranks.argsort(kind="stable"))
        tested = not math.isnan(self.test.p)
        found = [everyone] if tested and not self.differ else stats.tie_groups(ranks, self.difference)
        return [tuple(self.table.losses[index] for index in group) for group in found]


def rankings(data: RunData) -> list[Ranking]:
    """One ranking, or one per task and backbone where a dataset has several of them."""
    tasks = {point: rows["task"].iloc[0] for point, rows in data.trained_at.items()}
    places = [(identity(point["dataset"]), tasks[point], point["backbone"], point) for point in _points(data)]

    def several(values: Iterable[tuple[str, str]]) -> bool:
        """Whether a dataset has more than one of these values."""
        return max(Counter(dataset for dataset, _ in set(values)).values(), default=0) > 1

    by_task = several((dataset, task) for dataset, task, *_ in places)
    by_backbone = several((dataset, backbone) for dataset, _, backbone, _ in places)
    groups: dict[tuple[str, str], list[Point]] = {}
    for _, task, backbone, point in places:
        groups.setdefault((task if by_task else "", backbone if by_backbone else ""), []).append(point)
    found = ((names, _ranked(data, points)) for names, points in groups.items())
    return [replace(ranking, task=task, backbone=backbone) for (task, backbone), ranking in found if ranking]


def _ranked(data: RunData, points: Sequence[Point]) -> Ranking | None:
    """The ranking over these points; None without two datasets that have two losses in common."""
    baseline, sign = data.info.baseline, data.headline.sign
    by_dataset: dict[str, dict[Point, dict[str, float]]] = {}
    for point in points:
        found = {loss: data.measured.at(data.headline.name, point, loss) for loss in data.labels}
        means = {loss: sign * sum(values.values()) / len(values) for loss, values in found.items() if values}
        by_dataset.setdefault(identity(point["dataset"]), {})[point] = means
    shared = [loss for loss in data.labels if all(any(loss in m for m in of.values()) for of in by_dataset.values())]
    if len(by_dataset) < 2 or len(shared) < 2:
        return None
    values = {}
    averaged: dict[str, None] = {}
    for dataset, of_points in by_dataset.items():
        complete = {point: means for point, means in of_points.items() if all(loss in means for loss in shared)}
        if not complete:
            return None  # no point of this dataset has all losses
        values[dataset] = {loss: [means[loss] for means in complete.values()] for loss in shared}
        averaged |= dict.fromkeys(varied(complete))
        averaged |= dict.fromkeys(["experiment"] * (len({point["experiment"] for point in complete}) > 1))
    table = stats.over_datasets(values)
    pairs = stats.pairwise(table, baseline=baseline) if baseline in shared else []
    difference = stats.critical_difference(len(shared), len(by_dataset))
    stated = replace(table, means=sign * table.means)
    return Ranking(stated, stats.friedman(table), difference, pairs, tuple(averaged))


def _points(data: RunData) -> list[Point]:
    """The points that are ranked: a tuned twin stands for its experiment, whose seeds must not count twice."""
    tuning = data.info.tuning
    twins = tuning.experiments if tuning else {}
    present = {point["experiment"] for point in data.points}
    return [point for point in data.points if twins.get(point["experiment"]) not in present]


def identity(dataset: str) -> str:
    """The identity of a dataset: the name, or the folder that is read; a subset is the same dataset."""
    name, options = parse_label(dataset)
    return f"{name} {options['path']}" if "path" in options else name
