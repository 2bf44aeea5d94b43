"""Rank-k identification rate: the share of probes whose own identity is among the k nearest of all identities."""

from __future__ import annotations

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "higher", ("verification",)
AT, TITLE = "k", "Rank-{k}"
NAMES = {"rank@1": ("Rank-1", {"k": 1})}


def measure(test: Evaluation, *, k: int) -> float | None:
    return None if test.searches is None else 100 * float((test.searches.rank <= k).mean())
