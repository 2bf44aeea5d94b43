"""What a check reports about one property of a plugin. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["pass", "fail", "fact", "skip"]


@dataclass(frozen=True)
class Finding:
    """One property: `pass`, `fail`, `fact` (informational, never a failure) or `skip` (not applicable), and why."""

    property: str
    status: Status
    sentence: str
