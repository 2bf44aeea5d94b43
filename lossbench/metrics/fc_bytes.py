"""Memory of the FC layer, the last layer of the backbone (M units)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNIT, BETTER, TASKS = "bytes", "lower", ("classification", "verification", "retrieval")
FROM = "record"
COLUMN = "bytes_fc"
COMPARED = False


def measure(record: Mapping[str, Any]) -> int | None:
    size: int | None = record["bytes"].get("fc")
    return size
