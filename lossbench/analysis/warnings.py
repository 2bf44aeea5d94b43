"""Results → what a careful reader should be warned of. One function a guard; add one and list it in `GUARDS`.

A guard changes no number: it says where the numbers promise less than they seem to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.special

from lossbench import stats
from lossbench.analysis import ranks
from lossbench.analysis.points import POINT, place, points
from lossbench.analysis.results import Results

MOST_NAMED = 5  # places that one warning names; the others are counted


class Threat(NamedTuple):
    """A warning that fired: which guard, where, and what it means in one sentence."""

    guard: str
    where: str
    text: str


def fired(results: Results) -> list[Threat]:
    """Every warning that these results deserve, gravest first."""
    return [threat for guard in GUARDS for threat in guard(results)]


def diverged_cells(results: Results) -> Iterator[Threat]:
    """A mean over the cells that survived flatters a loss that often fails."""
    frame = results.records[results.records["kind"] == "train"]
    for (experiment, label), group in frame.groupby(["experiment", "label"], sort=False):
        lost = Counter(status for status in group["status"] if status != "done")
        if lost:
            listed = ", ".join(f"{count} {status}" for status, count in sorted(lost.items()))
            text = f"{listed} of {len(group)} cells of {label}: its numbers are those of the cells that finished."
            yield Threat("diverged cells", str(experiment), text)


def cold_classifiers(results: Results) -> Iterator[Threat]:
    """A loss that its warm start hands no class weights begins behind the others."""
    frame = results.trained
    cold = frame[["cold classifier" in flags for flags in frame["flags"]]] if len(frame) else frame
    for (experiment, label), group in cold.groupby(["experiment", "label"], sort=False):
        text = (
            f"{label} received no class weights from the warm start ({len(group)} cells): its classifier was not "
            "pretrained, unlike that of the other losses, so part of its difference may come from the start."
        )
        yield Threat("cold classifier", str(experiment), text)


def unpaired(results: Results) -> Iterator[Threat]:
    """A comparison needs seeds in common; and pairs whose seeds do not go together gain nothing."""
    frame = _accuracy(results)
    for row in frame[frame["n"] == 0].to_dict("records"):
        sides = [results.measured.at("accuracy", row, label) for label in (row["loss"], row["baseline"])]
        if all(sides):
            text = f"{row['loss']} and {row['baseline']} have no seed in common at M = {row['width']}: not compared."
            yield Threat("unpaired comparison", row["experiment"], text)
    for experiment, group in frame.groupby("experiment", sort=False):
        middle = group["correlation"].median()
        if middle <= 0:  # NaN compares false
            text = (
                f"the seeds of a loss and of the baseline do not go together (median r = {middle:.2f}): pairing "
                "narrows no interval here."
            )
            yield Threat("unpaired comparison", str(experiment), text)


def unequal_seeds(results: Results) -> Iterator[Threat]:
    """Losses that finished other seeds than the baseline are compared on fewer."""
    for experiment, group in _accuracy(results).groupby("experiment", sort=False):
        odd = []
        for row in group.to_dict("records"):
            mine, base = (set(results.measured.at("accuracy", row, row[side])) for side in ("loss", "baseline"))
            if mine != base:
                common = len(mine & base)
                odd.append(f"{row['loss']} at M = {row['width']} ({len(mine)} and {len(base)}, {common} in common)")
        if odd:
            text = (
                f"seeds of a loss and of the baseline are not the same: {_named(odd)}; only common ones are compared."
            )
            yield Threat("unequal seeds", str(experiment), text)


def few_seeds(results: Results) -> Iterator[Threat]:
    """Below three pairs there is no interval, and below some more no rank test can reach the level."""
    for experiment, group in _accuracy(results).groupby("experiment", sort=False):
        n, family = int(group["n"].min()), len(group)
        needed = stats.pairs_needed(stats.LEVEL / family)
        if n < stats.FEWEST_SEEDS:
            text = f"{n} paired seeds: no interval and no test; {stats.FEWEST_SEEDS} are the least."
            yield Threat("too few seeds", str(experiment), text)
        elif n < needed:
            least = 2.0 ** (1 - n)
            text = (
                f"{n} paired seeds cannot give a rank or sign test a two-sided p below {least:.3g}; in a family of "
                f"{family} it takes {needed}, so none is printed and verdicts rest on the t test alone, which supposes "
                "differences that are near normal."
            )
            yield Threat("too few seeds for a rank test", str(experiment), text)


def pooled_seeds(results: Results) -> Iterator[Threat]:
    """Seeds on one dataset agree about what is particular to it: they are no further datasets."""
    datasets = {ranks.identity(point["dataset"]) for point in results.points}
    if 1 < len(datasets) < stats.FEWEST_DATASETS:
        seeds = results.trained["seed"].nunique()
        text = (
            f"{len(datasets)} datasets with {seeds} seeds each are {len(datasets)} observations across datasets, not "
            f"{len(datasets) * seeds}: seeds are averaged first, and below {stats.FEWEST_DATASETS} datasets nothing is "
            "tested across them."
        )
        yield Threat("pooled seeds", ", ".join(sorted(datasets)), text)


def mixed_environments(results: Results) -> Iterator[Threat]:
    """Cells of different machines or versions are not bit-identical, and their times do not compare."""
    if len(results.environments) < 2:
        return
    frame = results.trained
    where: dict[tuple[Any, ...], Any] = {}
    for *key, seed, mark in zip(*(frame[name] for name in (*POINT, "label", "seed", "fingerprint")), strict=True):
        where[(*key, seed)] = mark
    for experiment, group in _accuracy(results).groupby("experiment", sort=False):
        crossed = total = 0
        for row in group.to_dict("records"):
            mine, base = place(row, row["loss"]), place(row, row["baseline"])
            for seed in results.measured.at("accuracy", row, row["loss"]):
                if (*base, seed) in where:
                    total += 1
                    crossed += where[(*mine, seed)] != where[(*base, seed)]
        if crossed:
            text = (
                f"{crossed} of {total} pairs are of cells from different environments (machine, torch or threads): "
                "part of their difference may be the environment's."
            )
            yield Threat("mixed environments", str(experiment), text)
    marks = ", ".join(str(found.get("fingerprint")) for found in results.environments)
    yield Threat("mixed environments", "all", f"records of {marks}; wall times are compared only within one.")


def test_set_noise(results: Results) -> Iterator[Threat]:
    """A difference beyond the seeds' noise may still be within that of the choice of test examples."""
    frame = _accuracy(results)
    frame = frame[frame["verdict"].str.startswith("different")]
    keys = _keys(results) if len(frame) else {}
    bits: dict[str, np.ndarray[Any, Any]] = {}

    def correct(place_: tuple[Any, ...], seeds: Sequence[int]) -> np.ndarray[Any, Any]:
        for key in (keys[(*place_, seed)] for seed in seeds):
            if key not in bits:
                bits[key] = results.correct(key)
        return np.stack([bits[keys[(*place_, seed)]] for seed in seeds])

    for row in frame.to_dict("records"):
        mine, base = (results.measured.at("accuracy", row, row[side]) for side in ("loss", "baseline"))
        seeds = [seed for seed in mine if seed in base]
        if _beyond_any_test_set([mine[seed] for seed in seeds], [base[seed] for seed in seeds], _total(results, row)):
            continue
        a, b = (correct(place(row, row[side]), seeds) for side in ("loss", "baseline"))
        if a.shape == b.shape and stats.test_set_noise_dominates(a, b):
            both = stats.two_way(a, b)
            text = (
                f"{row['loss']} at M = {row['width']} is {row['verdict']} over seeds, but its {row['delta']:+.2f} "
                f"points are no more than the choice of {a.shape[1]:,} test examples explains; for other seeds and "
                f"examples the interval is [{100 * both.low:+.2f}, {100 * both.high:+.2f}]."
            )
            yield Threat("test-set noise", row["experiment"], text)


def _beyond_any_test_set(a: Sequence[float], b: Sequence[float], examples: float) -> bool:
    """True where the difference is too large for any choice of so many examples, whichever they got wrong.

    An example's mean gap g is at most 1 in size, so Var(g) ≤ E|g| ≤ the errors of both: most bits need not be read.
    """
    first, second = np.mean(a) / 100, np.mean(b) / 100
    if examples < 2:
        return False
    floor = float(scipy.special.ndtri(1 - stats.LEVEL / 2)) * np.sqrt((2 - first - second) / (examples - 1))
    return bool(abs(first - second) > floor + 1 / examples)


def _total(results: Results, row: dict[str, Any]) -> float:
    return results.measured.totals[place(row, row["loss"])]


def disturbed_times(results: Results) -> Iterator[Threat]:
    """Rounds in which the process did not have its cores to itself."""
    for point, notes in results.timing_notes:
        if count := notes.get("disturbed", 0):
            text = f"{count} rounds of the timing cell at M = {point['width']} shared their cores with something else."
            yield Threat("disturbed timing", point["experiment"], text)


def second_look(results: Results) -> Iterator[Threat]:
    """Seeds added after a look at the results: the more looks, the likelier a chance finding."""
    for experiment, looks in results.outline.looks.items():
        now = len({cell.seed for cell in results.cells if cell.experiment == experiment})
        before = ", ".join(str(count) for count in looks)
        text = (
            f"planned with {before} seeds before and {now} now: this is look {len(looks) + 1}, and p values count one; "
            "fix the number of seeds beforehand, or trust only what a fresh set of seeds confirms."
        )
        yield Threat("optional stopping", experiment, text)


def best_epoch(results: Results) -> Iterator[Threat]:
    """How much better the numbers would look had the best point of each curve been chosen on the test set."""
    for experiment, group in results.trained.groupby("experiment", sort=False):
        gaps = []
        for curve, correct, total in zip(group["curve"], group["correct"], group["total"], strict=True):
            if scored := [point["correct"] for point in curve if "correct" in point]:
                gaps.append(100 * (max(*scored, correct) - correct) / total)
        if gaps:
            text = (
                f"the last step counts; the best point of each curve, chosen on the test set, would look "
                f"{np.mean(gaps):.2f} points better on average."
            )
            yield Threat("best epoch", str(experiment), text)


def multiplicity(results: Results) -> Iterator[Threat]:
    """Many comparisons make some of them come out by chance; Holm's adjustment covers a family, not all of them."""
    frame = results.comparisons
    families = frame.groupby(["experiment", "metric"], sort=False).size()
    if len(frame) > 1:
        text = (
            f"{len(frame)} comparisons in {len(families)} families (an experiment and metric), the largest of "
            f"{families.max()}: in each family the chance of any false alarm is held at {stats.LEVEL}, over all of "
            "them it is not. Claims have families of their own; what was picked for its size afterwards, and "
            "metrics that no claim names, are exploratory."
        )
        yield Threat("multiplicity", "all", text)


GUARDS: tuple[Callable[[Results], Iterator[Threat]], ...] = (
    *(diverged_cells, cold_classifiers),
    *(unpaired, unequal_seeds, few_seeds, pooled_seeds, mixed_environments, test_set_noise),
    *(disturbed_times, second_look, best_epoch, multiplicity),
)


def _accuracy(results: Results) -> pd.DataFrame:
    return results.comparisons[results.comparisons["metric"] == "accuracy"]


def _keys(results: Results) -> dict[tuple[Any, ...], str]:
    """The key of every finished accuracy cell by place and seed."""
    found = {}
    for point, group in points(results.trained):
        for label, seed, key in zip(group["label"], group["seed"], group["key"], strict=True):
            found[(*place(point, label), seed)] = key
    return found


def _named(places: Sequence[str]) -> str:
    more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
    return ", ".join(places[:MOST_NAMED]) + more
