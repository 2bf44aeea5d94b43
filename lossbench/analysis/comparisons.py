"""Every loss against the baseline at every point, with its verdict: comparisons.csv."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from lossbench import stats
from lossbench.analysis.records import RunData
from lossbench.analysis.verdicts import Asked, Judged, Verdicts
from lossbench.core.point import AXES

COMPARISON_COLUMNS = [
    *("point", "experiment", "metric", "loss", "baseline", "n", "delta", "low", "high", "level", "p", "p_adjusted"),
    *("dz", "median", "worst", "verdict", "flags", "seeds_needed", "seeds_needed_high", "unit", *AXES),
    *("seed_se", "test_se", "correlation", "wins", "ties", "family"),
    *("censored", "censored_baseline"),  # of times to target: the paired seeds that did not reach it
]
Row = dict[str, Any]


def against_baseline(data: RunData, verdicts: Verdicts) -> pd.DataFrame:
    """One row per metric, point and loss."""
    return frame_of(list(_rows(data, verdicts)), COMPARISON_COLUMNS)


def _rows(data: RunData, verdicts: Verdicts) -> Iterator[Row]:
    for asked in verdicts.of_table:
        (point,), found = asked.where, verdicts.contrast(asked)
        sign, source = data.metrics[asked.metric].sign, data.metrics[asked.metric].source
        won = stats.wins(sign * found.a, sign * found.b)
        yield {
            **point.row,
            "metric": asked.metric,
            "loss": asked.a,
            "baseline": asked.b,
            **row_of(verdicts.of(asked)),
            "correlation": stats.correlation(found.a, found.b),
            "wins": won.wins,
            "ties": won.ties,
            **(_censored(data, asked) if source == "curves" else {}),
        }


def row_of(found: Judged) -> Row:
    """A verdict as columns of a table; flags are one text."""
    return {**vars(found), "flags": "; ".join(found.flags)}


def _censored(data: RunData, asked: Asked) -> Row:
    """The number of paired seeds that did not reach the target, of the loss and of the baseline."""
    paired = set.intersection(*(set(data.measured.at(asked.metric, *side)) for side in asked.sides))
    counts = [len(paired & data.to_target.censored.get(side, set())) for side in asked.sides]
    return dict(zip(("censored", "censored_baseline"), counts, strict=True))


def frame_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """The rows as a frame; the seeds needed are whole numbers or missing."""
    names = ("seeds_needed", "seeds_needed_high")
    whole = {name: pd.array([row[name] for row in rows], dtype="Int64") for name in names}
    return pd.DataFrame(rows, columns=list(columns)).assign(**whole)
