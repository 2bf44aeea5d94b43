"""Where cells run: `protocol` defines an engine, `scheduler` decides which cell runs when, on any engine."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, NamedTuple

from lossbench.core.errors import LossbenchError, nearest

if TYPE_CHECKING:
    from lossbench.engines.protocol import Engine, Resources


class _Entry(NamedTuple):
    module: str
    name: str
    options: tuple[str, ...] = ()  # the fields of `Resources` that only some engines understand


# To add an engine, implement `protocol.Engine` in one file and name it here.
ENGINES = {
    "local": _Entry("lossbench.engines.local", "Local"),
    "ray": _Entry("lossbench.engines.ray.engine", "Ray", ("address", "cpus_per_cell", "gpus_per_cell")),
}


def create(name: str, resources: Resources) -> Engine:
    """An engine by name, not yet started."""
    if name not in ENGINES:
        raise LossbenchError(f"unknown engine '{name}'; {nearest(name, ENGINES)}")
    engine: Engine = getattr(importlib.import_module(ENGINES[name].module), ENGINES[name].name)(resources)
    return engine


def available_cores() -> int:
    """The number of cores that this process may use; a container may have fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
