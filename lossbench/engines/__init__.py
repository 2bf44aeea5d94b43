"""Where cells run. `local`: one process a cell on this machine, forked from a server that has torch loaded."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The cores that this process may use, which a container may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
