"""The first recorded step at which the training loss has covered 90 % of the way from its first point to its lowest.

A share of each curve's own range, since losses with a margin have other values; NaN where the loss never falls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

UNIT, BETTER, TASKS = "steps", "lower", ("classification", "verification", "retrieval")
FROM = "record"
COMPARED = False
CONVERGED = 0.9


def measure(record: Mapping[str, Any]) -> float:
    curve = record["curve"]
    losses = [point["loss"] for point in curve]
    if len(losses) < 2 or not min(losses) < losses[0]:
        return math.nan
    goal = losses[0] - CONVERGED * (losses[0] - min(losses))
    return float(next(point["step"] for point in curve if point["loss"] <= goal))
