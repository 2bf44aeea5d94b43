"""Losses across datasets, by ranks. N is the number of datasets: seeds and points are averaged within each.

Nothing is averaged over backbones: where a dataset has several, there is one ranking per backbone.
"""

from __future__ import annotations

import math
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
    backbone: str = ""  # the one it is about, where datasets have several

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
    """One ranking per backbone where a dataset has several backbones, else one or none."""
    found: dict[str, set[str]] = {}
    for point in _points(data):
        found.setdefault(identity(point["dataset"]), set()).add(point["backbone"])
    several = any(len(backbones) > 1 for backbones in found.values())
    names = dict.fromkeys(point["backbone"] for point in _points(data)) if several else [""]
    return [ranking for name in names if (ranking := ranked(data, name))]


def ranked(data: RunData, backbone: str = "") -> Ranking | None:
    """The ranking with one backbone, or with the only one of each dataset.

    None without two datasets that have two losses in common.
    """
    baseline, sign = data.info.baseline, data.headline.sign
    by_dataset: dict[str, dict[Point, dict[str, float]]] = {}
    for point in _points(data):
        if point["backbone"] == backbone or not backbone:
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
    table = stats.over_datasets(values)
    pairs = stats.pairwise(table, baseline=baseline) if baseline in shared else []
    difference = stats.critical_difference(len(shared), len(by_dataset))
    stated = replace(table, means=sign * table.means)
    return Ranking(stated, stats.friedman(table), difference, pairs, tuple(averaged), backbone)


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
