"""Every loss against the baseline at every point, paired by seed, with verdicts: comparisons.csv."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from lossbench import stats
from lossbench.analysis.measured import time_contrast
from lossbench.analysis.records import RunData
from lossbench.core.point import AXES

COMPARISON_COLUMNS = [
    *("point", "experiment", "metric", "loss", "baseline", "n", "delta", "low", "high", "p", "p_holm", "dz", "tost_p"),
    *("verdict", "seeds_needed", "unit", *AXES, "correlation"),
    *("wins", "ties", "p_equivalent", "p_flip"),  # of the headline metric
    *("censored", "censored_baseline"),  # of times to target: the paired seeds that did not reach it
]
Row = dict[str, Any]


def against_baseline(data: RunData) -> pd.DataFrame:
    """One row per metric, point and loss; p values are Holm-adjusted over an experiment and metric."""
    rows = [*_compared(data), *_timed(data)]
    decide(rows, data.headline.name, data.info.margin)
    for family in families(rows):
        if family[0]["metric"] == data.headline.name:
            _add_nonparametric(family, data.info.margin, data.headline.sign)
    return frame_of(rows, COMPARISON_COLUMNS)


def _compared(data: RunData) -> Iterator[Row]:
    baseline, measured = data.info.baseline, data.measured
    compared = [metric.name for metric in data.metrics.values() if metric.compared and metric.source != "rounds"]
    if data.headline.name == "recall@1":  # another name of a retrieval's accuracy
        compared.remove("accuracy")
    for metric in dict.fromkeys([*compared, data.headline.name]):
        margin = data.info.margin if metric == data.headline.name else None
        known = {point for point, _ in measured.values[metric]}
        for point in (point for point in data.points if point in known):
            for loss in (loss for loss in data.labels[1:] if (point, loss) in measured.totals):
                found = measured.contrast(metric, [point], loss, baseline, margin)
                row = {**point.row, "metric": metric, "loss": loss, "baseline": baseline, **found._asdict()}
                yield row | (_censored(data, row) if data.metrics[metric].source == "curves" else {})


def _censored(data: RunData, row: Row) -> Row:
    """The number of paired seeds that did not reach the target, of the loss and of the baseline."""
    sides = [(row["point"], row[side]) for side in ("loss", "baseline")]
    paired = set.intersection(*(set(data.measured.at(row["metric"], *side)) for side in sides))
    counts = [len(paired & data.to_target.censored.get(side, set())) for side in sides]
    return dict(zip(("censored", "censored_baseline"), counts, strict=True))


def _timed(data: RunData) -> Iterator[Row]:
    baseline = data.info.baseline
    for cell in data.timed:
        for loss in data.labels[1:]:
            if baseline in cell.rounds and loss in cell.rounds:
                found = time_contrast(cell.rounds[loss], cell.rounds[baseline], cell.process)
                row = {**cell.point.row, "metric": "step_seconds", "loss": loss, "baseline": baseline}
                yield row | found._asdict()


def _add_nonparametric(family: Sequence[Row], margin: float, sign: int) -> None:
    """Add the seeds won, the probability of equivalence, and p by sign flips where one below the level is possible.

    `sign` is −1 if smaller values win.
    """
    flips = []
    for row in family:
        a, b = row["sides"]
        won = stats.wins(a, b) if sign > 0 else stats.wins(b, a)
        row["wins"], row["ties"] = won.wins, won.ties
        row["p_equivalent"] = stats.rope(a, b, margin, resolution=row["resolution"]).equivalent
        flips.append(stats.sign_flip(a, b, stats.LEVEL / len(family)).p)
    for row, p in zip(family, stats.holm(flips), strict=True):
        row["p_flip"] = p


def families(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows over which p values are adjusted: those of one experiment and metric."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["experiment"], row["metric"]), []).append(row)
    return list(found.values())


def decide(rows: Iterable[Row], headline: str, margin: float) -> None:
    """Add Holm's p over each family, the verdict, and the seeds (or processes) that would decide an open one."""
    for family in families(rows):
        for row, adjusted in zip(family, stats.holm([row["p"] for row in family]), strict=True):
            row["p_holm"] = adjusted
            row["verdict"] = stats.verdict(adjusted, row["tost_p"])
            within = margin if row["metric"] == headline else None
            row["seeds_needed"] = _to_decide(row, len(family), within) if row["verdict"] == "undecided" else None


def _to_decide(row: Mapping[str, Any], family: int, margin: float | None) -> int | None:
    """The seeds that decide an undecided comparison with 80 % power if the estimates hold; None above 10,000.

    It is decided by a significant difference, adjusted over the family, or by equivalence within the margin.
    """
    ways = [stats.seeds_needed(row["dz"], level=stats.LEVEL / family)]
    if margin is not None and row["sd"] > 0:
        ways.append(stats.seeds_for_equivalence((margin - abs(row["delta"])) / row["sd"]))
    known = [needed for needed in ways if needed is not None]
    return max(min(known), row["n"] + 1) if known else None


def frame_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """The rows as a frame; seeds_needed is a whole number or missing."""
    whole = pd.array([row["seeds_needed"] for row in rows], dtype="Int64")
    return pd.DataFrame(rows, columns=list(columns)).assign(seeds_needed=whole)
