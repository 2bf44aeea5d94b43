"""Warnings about the results. One function per guard; to add one, list it in `GUARDS`.

A guard changes no number: it says where a number means less than it seems to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lossbench import stats
from lossbench.analysis.measured import losses_at
from lossbench.analysis.ranks import identity
from lossbench.analysis.records import RunData
from lossbench.analysis.tuning import tuned
from lossbench.analysis.verdicts import AT_CHANCE, ONE_SEED, UNDERTRAINED
from lossbench.core.point import Point

# The metrics at a fixed false rate: what the rate is a share of, and its name among the counts of a record.
NEGATIVES = {"tar": ("pairs of different classes", "different"), "tpir": ("searches without a mate", "nonmated")}
MOST_NAMED = 5  # in one warning; the others are counted


class Caution(NamedTuple):
    """A warning: which guard, where, and what it means in one sentence."""

    guard: str
    where: str
    text: str


def fired(data: RunData, comparisons: pd.DataFrame) -> list[Caution]:
    """The warnings for these results, most serious first."""
    return [found for guard in GUARDS for found in guard(data, comparisons)]


def diverged_cells(data: RunData, _: pd.DataFrame) -> Iterator[Caution]:
    """A mean over the remaining cells overstates a loss that often fails."""
    frame = data.records[data.records["kind"] == "train"]
    for (experiment, label), group in frame.groupby(["experiment", "label"], sort=False):
        lost = Counter(status for status in group["status"] if status != "done")
        if lost:
            listed = ", ".join(f"{count} {status}" for status, count in sorted(lost.items()))
            text = f"{listed} of {len(group)} cells of {label}: its numbers cover only the cells that finished."
            yield Caution("diverged cells", str(experiment), text)


def unresolved_rates(data: RunData, _: pd.DataFrame) -> Iterator[Caution]:
    """A false accept rate below one over the number of negatives cannot be set: the threshold then accepts none."""
    for experiment, group in data.trained.groupby("experiment", sort=False):
        for name, values in data.measured.values.items():
            kind, _, rate = name.partition("@")
            if kind not in NEGATIVES or experiment not in {point["experiment"] for point, _ in values}:
                continue
            what, counted = NEGATIVES[kind]
            fewest = min((found[counted] for found in group["counts"] if counted in found), default=None)
            if fewest is not None and fewest * float(rate) < 1:
                text = (
                    f"{fewest:,} {what} cannot resolve a rate of {float(rate):g}: {name} is measured at a threshold "
                    "that none of them passes."
                )
                yield Caution("unresolved rate", str(experiment), text)


def cold_classifiers(data: RunData, _: pd.DataFrame) -> Iterator[Caution]:
    """A loss that gets no class weights from the warm start is at a disadvantage."""
    frame = data.trained
    cold = frame[["cold classifier" in flags for flags in frame["flags"]]] if len(frame) else frame
    for (experiment, label), group in cold.groupby(["experiment", "label"], sort=False):
        text = (
            f"{label} received no class weights from the warm start ({len(group)} cells): its classifier was not "
            "pretrained, unlike that of the other losses, so part of its difference may be due to the initialisation."
        )
        yield Caution("cold classifier", str(experiment), text)


def small_classes(data: RunData, _: pd.DataFrame) -> Iterator[Caution]:
    """Balanced batches repeat the examples of a class that has too few."""
    frame = data.trained
    small = frame[["small classes" in flags for flags in frame["flags"]]] if len(frame) else frame
    for experiment, group in small.groupby("experiment", sort=False):
        text = (
            f"some classes have fewer than `per_class` training examples ({len(group)} cells): their balanced batches "
            "contain the same example more than once."
        )
        yield Caution("small classes", str(experiment), text)


def unpaired(data: RunData, comparisons: pd.DataFrame) -> Iterator[Caution]:
    """A comparison needs shared seeds, and pairing helps only if per-seed results are correlated."""
    frame = _headline(data, comparisons)
    for row in frame[frame["n"] == 0].to_dict("records"):
        if all(_seeds(data, row)):
            text = f"{row['loss']} and {row['baseline']} share no seed{data.at(row['point'])}: not compared."
            yield Caution("unpaired comparison", row["experiment"], text)
    for experiment, group in frame.groupby("experiment", sort=False):
        middle = group["correlation"].median()
        if middle <= 0:  # NaN compares false
            text = (
                "per-seed results of the losses and the baseline are not positively correlated (median "
                f"r = {middle:.2f}), so pairing does not tighten the intervals."
            )
            yield Caution("uncorrelated seeds", str(experiment), text)


def unequal_seeds(data: RunData, comparisons: pd.DataFrame) -> Iterator[Caution]:
    """Losses that finished different seeds than the baseline are compared on fewer seeds."""
    for experiment, group in _headline(data, comparisons).groupby("experiment", sort=False):
        odd = []
        for row in group.to_dict("records"):
            mine, base = map(set, _seeds(data, row))
            if mine != base:
                shared = len(mine & base)
                odd.append(f"{row['loss']}{data.at(row['point'])} ({len(mine)} and {len(base)}, {shared} shared)")
        if odd:
            text = f"losses and the baseline finished different seeds: {_listed(odd)}; only shared seeds are compared."
            yield Caution("unequal seeds", str(experiment), text)


def few_seeds(data: RunData, comparisons: pd.DataFrame) -> Iterator[Caution]:
    """Fewer than three pairs give no interval."""
    for experiment, group in _headline(data, comparisons).groupby("experiment", sort=False):
        if (n := int(group["n"].min())) < stats.FEWEST_SEEDS:
            text = f"{n} paired seeds: no interval and no verdict; at least {stats.FEWEST_SEEDS} are needed."
            yield Caution("too few seeds", str(experiment), text)


def at_chance(data: RunData, _: pd.DataFrame) -> Iterator[Caution]:
    """A network that has not learned anything says nothing about its loss."""
    by_experiment: dict[str, list[str]] = {}
    for point, loss in data.at_chance:
        by_experiment.setdefault(point["experiment"], []).append(loss)
    for experiment, losses in by_experiment.items():
        listed = _listed(_counted(losses))
        text = f"hardly better than guessing: {listed}. Comparisons and claims with them are not testable."
        yield Caution(AT_CHANCE, experiment, text)


def undertrained(data: RunData, _: pd.DataFrame) -> Iterator[Caution]:
    """Differences between networks that were still improving may change with more steps."""
    points: dict[str, list[Point]] = {}
    for point in data.undertrained:
        points.setdefault(point["experiment"], []).append(point)
    for experiment, mine in points.items():
        every = sum(point["experiment"] == experiment for point in data.points)
        text = (
            f"the training loss of {data.info.baseline} was still falling clearly at the last step"
            f"{f' ({len(mine)} of {every} points)' if every > 1 else ''}: differences may change with more steps."
        )
        yield Caution(UNDERTRAINED, experiment, text)


def one_seed(data: RunData, comparisons: pd.DataFrame) -> Iterator[Caution]:
    """A verdict that one seed more or less would change."""
    frame = _headline(data, comparisons)
    frame = frame[frame["flags"].str.contains(ONE_SEED)]
    for experiment, group in frame.groupby("experiment", sort=False):
        text = (
            f"the verdict on {_listed(_counted(group['loss']))} changes if one seed is left out, or if an extra "
            "seed, as extreme as the most extreme one at that point, is added."
        )
        yield Caution(ONE_SEED, str(experiment), text)


def pooled_seeds(data: RunData, _: pd.DataFrame) -> Iterator[Caution]:
    """More seeds do not replace more datasets: seeds on one dataset are not independent of it."""
    datasets = {identity(point["dataset"]) for point in data.points}
    if 1 < len(datasets) < stats.FEWEST_DATASETS:
        seeds = data.trained["seed"].nunique()
        text = (
            f"{len(datasets)} datasets with {seeds} seeds each are {len(datasets)} observations across datasets, not "
            f"{len(datasets) * seeds}: seeds are averaged first, and with fewer than {stats.FEWEST_DATASETS} datasets "
            "there is no test across them."
        )
        yield Caution("pooled seeds", ", ".join(sorted(datasets)), text)


def mixed_environments(data: RunData, comparisons: pd.DataFrame) -> Iterator[Caution]:
    """Cells of different machines or versions are not bit-identical, and their times do not compare."""
    if len(data.environments) < 2:
        return
    where = _by_seed(data, "fingerprint")
    for experiment, group in _headline(data, comparisons).groupby("experiment", sort=False):
        pairs = []
        for row in group.to_dict("records"):
            for seed in _seeds(data, row)[0]:
                mine, base = (where.get((row["point"], row[side], seed)) for side in ("loss", "baseline"))
                pairs += [(mine, base)] if base is not None else []
        if crossed := sum(mine != base for mine, base in pairs):
            text = (
                f"{crossed} of {len(pairs)} pairs combine cells from different environments (machine, torch or "
                "threads), which may explain part of their difference."
            )
            yield Caution("mixed environments", str(experiment), text)
    marks = ", ".join(str(found.get("fingerprint")) for found in data.environments)
    yield Caution("mixed environments", "all", f"records come from {marks}; wall times are compared only within one.")


def disturbed_times(data: RunData, _: pd.DataFrame) -> Iterator[Caution]:
    """Timing rounds in which other processes used the same cores."""
    for point, _rounds, notes in data.timed:
        if count := notes.get("disturbed", 0):
            text = f"{count} rounds of the timing cell{data.at(point)} shared their cores with other processes."
            yield Caution("disturbed timing", point["experiment"], text)


def second_look(data: RunData, _: pd.DataFrame) -> Iterator[Caution]:
    """Seeds added after looking at the results: every further analysis makes chance findings more likely."""
    for experiment, looks in data.info.looks.items():
        now = len({cell.seed for cell in data.cells if cell.experiment == experiment})
        before = ", ".join(str(count) for count in looks)
        text = (
            f"planned with {before} seeds before and {now} now: this is analysis number {len(looks) + 1} of these "
            "data, and p-values assume one. Fix the number of seeds in advance, or confirm with fresh seeds."
        )
        yield Caution("optional stopping", experiment, text)


def best_epoch(data: RunData, _: pd.DataFrame) -> Iterator[Caution]:
    """How much better the numbers would look if the best point of each curve were chosen on the test set."""
    found = {}
    for experiment, group in data.trained.groupby("experiment", sort=False):
        gaps = []
        for curve, correct, total in zip(group["curve"], group["correct"], group["total"], strict=True):
            if scored := [point["correct"] for point in curve if "correct" in point]:
                gaps.append(100 * (max(*scored, correct) - correct) / total)
        if gaps:
            found[str(experiment)] = float(np.mean(gaps))
    if found:
        ends = dict.fromkeys(f"{value:.2f}" for value in (min(found.values()), max(found.values())))
        text = (
            "accuracy is that of the last step; choosing the best point of each curve on the test set would look "
            f"{' to '.join(ends)} points better on average."
        )
        yield Caution("best epoch", ", ".join(found), text)


def tuned_baseline(data: RunData, _: pd.DataFrame) -> Iterator[Caution]:
    """Trials choose on few held-out images; what beats a baseline that tuning made worse may not beat its default."""
    baseline, sign = data.info.baseline, data.headline.sign
    for row in tuned(data).to_dict("records"):
        ends = [sign * row[end] for end in ("low", "high") if pd.notna(row[end])]
        if row["loss"] == baseline and ends and max(ends) < 0:
            text = (
                f"tuning made {baseline} worse by {abs(row['delta']):.2f} {row['unit']}".rstrip()
                + f" (interval {row['low']:+.2f} to {row['high']:+.2f}): a loss that is better than it may not be "
                "better than the default."
            )
            yield Caution("tuned baseline", row["experiment"], text)


def multiplicity(_: RunData, comparisons: pd.DataFrame) -> Iterator[Caution]:
    """With many comparisons some verdicts are wrong by chance; intervals are simultaneous within one family."""
    families = comparisons["family"].nunique()
    if len(comparisons) > 1:
        largest = round(stats.LEVEL / comparisons["level"].min())  # of comparisons and trends
        text = (
            f"{len(comparisons)} comparisons in {families} families, the largest with {largest} comparisons and "
            f"trends: intervals cover jointly with a probability of {1 - stats.LEVEL:g} within a family, not across "
            "families. Metrics that no claim names are exploratory."
        )
        yield Caution("multiplicity", "all", text)


GUARDS: tuple[Callable[[RunData, pd.DataFrame], Iterator[Caution]], ...] = (
    *(at_chance, undertrained, one_seed, diverged_cells, cold_classifiers, small_classes, unresolved_rates),
    *(unpaired, unequal_seeds, few_seeds, pooled_seeds, mixed_environments),
    *(disturbed_times, second_look, best_epoch, tuned_baseline, multiplicity),
)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _counted(names: Iterable[str]) -> list[str]:
    """Each name once, with the number of points if there are several."""
    return [f"{name} ({count} points)" if count > 1 else name for name, count in Counter(names).items()]


def _headline(data: RunData, comparisons: pd.DataFrame) -> pd.DataFrame:
    return comparisons[comparisons["metric"] == data.headline.name]


def _seeds(data: RunData, row: dict[str, Any]) -> tuple[dict[int, float], dict[int, float]]:
    """The headline metric of both sides of a comparison by seed."""
    point, metric = row["point"], data.headline.name
    return data.measured.at(metric, point, row["loss"]), data.measured.at(metric, point, row["baseline"])


def _by_seed(data: RunData, column: str) -> dict[tuple[Point, str, int], Any]:
    """A column of the finished accuracy cells by point, loss and seed."""
    frame = data.trained
    rows = zip(losses_at(frame), frame["seed"], frame[column], strict=True)
    return {(*at, seed): value for at, seed, value in rows}
