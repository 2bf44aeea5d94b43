"""The engine interface: an engine runs single cells somewhere and reports their outcome.

An engine knows nothing of claims, warm starts, retries or other cells: that is the scheduler's job. A minimal engine
is a class with `open`, `size`, `submit`, `events` and `cancel`; `local.Local` is an example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lossbench.core.model import Cell, Record
from lossbench.engines.servers import Servers
from lossbench.plugins.registry import Registry
from lossbench.store.records import Store


@dataclass(frozen=True)
class Resources:
    """The resources that an engine may use."""

    jobs: int | None = None  # cells at a time; None: as many as fit
    address: str | None = None  # of the cluster
    cpus_per_cell: float | None = None  # None: its threads
    gpus_per_cell: float = 0


@dataclass(frozen=True)
class Limits:
    """The limits of one cell, and how often it saves its state."""

    timeout: float | None = None  # seconds
    memory: int | None = None  # bytes
    checkpoint: float = 60  # seconds between two saved states


@dataclass(frozen=True)
class RunContext:
    """What an engine needs to know about a run."""

    store: Store
    registry: Registry
    data: Path
    servers: Servers  # on this machine
    limits: Limits = Limits()
    data_given: bool = False  # the user named the data folder, so no machine may use another one
    notify: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class Started:
    """A cell's process is running: its time limit counts from here."""

    key: str


@dataclass(frozen=True)
class Ended:
    """A cell's process is gone.

    Either the store has its record, or `failure` says what happened. The scheduler writes a failure to the store,
    unless its cause is the environment and the engine has attempts left.
    """

    key: str
    failure: Record | None = None


class Engine(Protocol):
    """Runs cells, each in a separate process. Created with `Resources` as its only argument."""

    attempts: int = 1  # to run a cell that fails because of the environment
    patience: float = 0  # seconds beyond the time limit, for an engine that enforces the limit itself
    gpu: bool | None = None  # whether cells can use a GPU; None: if this machine has one

    def check(self) -> None:
        """Raise a LossbenchError if the engine cannot be used at all. Starts nothing."""
        return

    def open(self, cells: Sequence[Cell], context: RunContext) -> AbstractContextManager[None]:
        """Get ready for these cells. When the context ends, however it ends, none of their processes is left."""
        ...

    def size(self, device: str = "cpu") -> int:
        """The number of cells that can run at a time, and how many of them on a GPU ("cuda")."""
        ...

    def submit(self, cell: Cell) -> None:
        """Start a cell. If its record turns out `done`, it must be in the store before `Ended` is reported."""
        ...

    def events(self) -> Iterable[Started | Ended]:
        """Events since the last call; waits briefly if there are none. A RunError ends the whole run."""
        ...

    def cancel(self, key: str) -> None:
        """Kill a cell with everything it has started. `Ended` follows."""
        ...
