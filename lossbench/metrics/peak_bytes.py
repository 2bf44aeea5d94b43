"""Peak memory that training added to the process, or that it allocated on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNIT, BETTER, TASKS = "bytes", "lower", ("classification", "verification", "retrieval")
FROM = "record"
COLUMN = "bytes_peak"
COMPARED = False


def measure(record: Mapping[str, Any]) -> int | None:
    size: int | None = record["bytes"].get("peak")
    return size
