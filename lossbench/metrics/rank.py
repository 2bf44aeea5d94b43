"""Rank-k identification rate: the share of probes whose own identity is among the k nearest of all identities."""

from __future__ import annotations

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "higher", ("verification",)
NAMES = {"rank@1": ("Rank-1", {"k": 1})}


def measure(test: Evaluation, *, k: int) -> float | None:
    if test.identified is None:
        return None
    return 100 * float((test.identified.rank <= k).mean())
