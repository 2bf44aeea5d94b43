"""Records → every number that a report states. Each frame is computed once, by the module named beside it.

Tables, figures, prose and files read the numbers here; nothing in the report computes a statistic.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import pandas as pd

from lossbench.analysis import (
    accuracy,
    angles,
    answer,
    claims,
    comparisons,
    cost,
    published,
    ranks,
    tuning,
    verification,
    warnings,
)
from lossbench.analysis.claim_tests import Series
from lossbench.analysis.records import RunData
from lossbench.analysis.verdicts import Verdicts
from lossbench.core.point import Point
from lossbench.store.records import Plan, Scan


class Results(RunData):
    """The records with everything that is computed from them, before it is put into words."""

    @cached_property
    def main(self) -> pd.DataFrame:
        return accuracy.main(self)

    @cached_property
    def main_at(self) -> dict[Point, dict[str, dict[str, Any]]]:
        """The rows of `main` that have a finished seed, by point and loss."""
        found: dict[Point, dict[str, dict[str, Any]]] = {}
        for row in self.main.to_dict("records"):
            if row["n"]:
                found.setdefault(row["point"], {})[row["loss"]] = row
        return found

    @cached_property
    def verdicts(self) -> Verdicts:
        return Verdicts(self, claims.stated(self), claims.further(self, self._followed))

    @cached_property
    def _followed(self) -> list[Series | None]:
        return claims.followed_by(self)

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        return comparisons.against_baseline(self, self.verdicts)

    @cached_property
    def claims(self) -> pd.DataFrame:
        return claims.judged(self, self.verdicts, self._followed)

    @cached_property
    def published(self) -> pd.DataFrame:
        return published.judged(self)

    @cached_property
    def tuning(self) -> pd.DataFrame:
        return tuning.tuned(self)

    @cached_property
    def rankings(self) -> list[ranks.Ranking]:
        return ranks.rankings(self)

    @cached_property
    def phases(self) -> pd.DataFrame:
        return cost.phases(self)

    @cached_property
    def front(self) -> pd.DataFrame:
        return cost.front(self, self.main)

    @cached_property
    def times_to_target(self) -> pd.DataFrame:
        return cost.times_to_target(self)

    @cached_property
    def class_angles(self) -> pd.DataFrame:
        return angles.by_class(self)

    @cached_property
    def pair_intervals(self) -> verification.PairIntervals:
        return verification.pair_intervals(self)

    @cached_property
    def answer(self) -> answer.Answer:
        return answer.answered(self, self.main, self.main_at, self.comparisons)

    @cached_property
    def warnings(self) -> list[warnings.Caution]:
        return warnings.fired(self, self.comparisons)


def analyse(
    runs: Sequence[str | os.PathLike[str]],
    plans: Sequence[Plan] | None = None,
    scans: Sequence[Callable[[], Scan]] | None = None,
) -> Results:
    """Read run folders of the same suite; see `RunData.read`."""
    return Results.read(runs, plans, scans)
