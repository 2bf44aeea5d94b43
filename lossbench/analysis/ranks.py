"""Losses across datasets, by ranks. N is the number of datasets: seeds, widths and subsets are averaged inside one.

`Results.ranking` keeps what is computed here; the table, the diagram and report.json read it there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lossbench import stats
from lossbench.core.labels import parse_label

if TYPE_CHECKING:
    from lossbench.analysis.results import Results


@dataclass(frozen=True)
class Ranking:
    """The losses that every dataset has, by mean rank of accuracy; tests where there are datasets enough."""

    table: stats.DatasetMeans
    test: stats.Friedman
    difference: float  # Nemenyi's, beyond which two mean ranks differ
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

        All of them where Friedman's test finds no difference; it needs three losses, so two are judged by Nemenyi's.
        """
        ranks = self.test.ranks
        everyone = tuple(int(index) for index in ranks.argsort(kind="stable"))
        tested = not math.isnan(self.test.p)
        found = [everyone] if tested and not self.differ else stats.tie_groups(ranks, self.difference)
        return [tuple(self.table.losses[index] for index in group) for group in found]


def ranked(results: Results) -> Ranking | None:
    """None where there are not two datasets with two losses in common."""
    by_dataset: dict[str, list[dict[str, float]]] = {}
    tuned = results.outline.tuning.experiments if results.outline.tuning else {}
    there = {point["experiment"] for point in results.points}
    for point in results.points:
        if tuned.get(point["experiment"]) in there:
            continue  # its tuned twin stands for it: the same seeds twice would count for more than they are
        found = {label: results.measured.at("accuracy", point, label) for label in results.labels}
        means = {label: sum(values.values()) / len(values) for label, values in found.items() if values}
        by_dataset.setdefault(identity(point["dataset"]), []).append(means)
    shared = [label for label in results.labels if all(any(label in m for m in of) for of in by_dataset.values())]
    if len(by_dataset) < 2 or len(shared) < 2:
        return None
    values = {}
    for dataset, of_points in by_dataset.items():
        whole = [means for means in of_points if all(label in means for label in shared)]
        if not whole:
            return None  # no point of this dataset has all of them: nothing to rank side by side
        values[dataset] = {label: [means[label] for means in whole] for label in shared}
    table = stats.over_datasets(values)
    pairs = stats.pairwise(table, baseline=results.outline.baseline) if results.outline.baseline in shared else []
    difference = stats.critical_difference(len(shared), len(by_dataset))
    return Ranking(table, stats.friedman(table), difference, pairs)


def identity(dataset: str) -> str:
    """What makes a dataset another one: its name, or the folder it is read from; a subset of it is no other."""
    name, options = parse_label(dataset)
    return f"{name} {options['path']}" if "path" in options else name
