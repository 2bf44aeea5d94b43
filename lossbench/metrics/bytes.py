"""Memory of the head: the FC layer, the class weights and the other state of the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNIT, BETTER, TASKS = "bytes", "lower", ("classification", "verification", "retrieval")
FROM = "record"
TITLE = "head memory"
COMPARED = False


def measure(record: Mapping[str, Any]) -> int | None:
    sizes = [record["bytes"].get(name) for name in ("fc", "classifier", "loss")]
    return None if None in sizes else sum(sizes)
