"""Losses across datasets, by ranks. N is the number of datasets: seeds and points are averaged within each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lossbench import stats
from lossbench.analysis.records import RunData
from lossbench.core.labels import parse_label


@dataclass(frozen=True)
class Ranking:
    """The losses that every dataset has, by mean rank of the headline metric; tested if datasets are enough."""

    table: stats.DatasetMeans
    test: stats.Friedman
    difference: float  # Nemenyi's critical difference of two mean ranks
    pairs: list[stats.RankedPair]  # each loss with the baseline, by Wilcoxon's test

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


def ranked(data: RunData) -> Ranking | None:
    """The ranking; None without two datasets that have two losses in common."""
    baseline, tuning, sign = data.info.baseline, data.info.tuning, data.headline.sign
    twins = tuning.experiments if tuning else {}
    present = {point["experiment"] for point in data.points}
    by_dataset: dict[str, list[dict[str, float]]] = {}
    for point in data.points:
        if twins.get(point["experiment"]) in present:
            continue  # its tuned twin stands for it: the same seeds must not count twice
        found = {loss: data.measured.at(data.headline.name, point, loss) for loss in data.labels}
        means = {loss: sign * sum(values.values()) / len(values) for loss, values in found.items() if values}
        by_dataset.setdefault(identity(point["dataset"]), []).append(means)
    shared = [loss for loss in data.labels if all(any(loss in m for m in of) for of in by_dataset.values())]
    if len(by_dataset) < 2 or len(shared) < 2:
        return None
    values = {}
    for dataset, of_points in by_dataset.items():
        complete = [means for means in of_points if all(loss in means for loss in shared)]
        if not complete:
            return None  # no point of this dataset has all losses
        values[dataset] = {loss: [means[loss] for means in complete] for loss in shared}
    table = stats.over_datasets(values)
    pairs = stats.pairwise(table, baseline=baseline) if baseline in shared else []
    test, difference = stats.friedman(table), stats.critical_difference(len(shared), len(by_dataset))
    return Ranking(replace(table, means=sign * table.means), test, difference, pairs)


def identity(dataset: str) -> str:
    """The identity of a dataset: the name, or the folder that is read; a subset is the same dataset."""
    name, options = parse_label(dataset)
    return f"{name} {options['path']}" if "path" in options else name
