"""Cells on this machine: one process per cell, forked from a server that has torch loaded.

Timing cells have several processes, one after another, which are not forks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lossbench.core import gpus
from lossbench.core.errors import LossbenchError
from lossbench.core.guard import descendants, end_tree, how_it_ended
from lossbench.core.model import Cause, Cell, Record
from lossbench.engines import available_cores
from lossbench.engines.protocol import Ended, Engine, Resources, RunContext, Started

POLL_SECONDS = 0.5  # between two looks at the limits and at cells that another run holds
MEMORY_POLL_SECONDS = 0.1  # with a memory limit
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS)


@dataclass
class _Process:
    cell: Cell
    gpu: str | None
    pid: int | None = None  # of its warden, known once it has started
    failure: Record | None = None  # why we killed it


class Local(Engine):
    """The engine `local`. Every cell writes its own record; if its process dies first, the exit code says why."""

    def __init__(self, resources: Resources) -> None:
        self._jobs = resources.jobs or available_cores()
        self._running: dict[str, _Process] = {}

    @contextmanager
    def open(self, cells: Sequence[Cell], context: RunContext) -> Iterator[None]:
        self._context = context
        self._free_gpus = gpus_for(cells)
        self._gpus = len(self._free_gpus)
        try:
            yield
        finally:
            for key in list(self._running):
                self.cancel(key)
            self._running.clear()

    def size(self, device: str = "cpu") -> int:
        return self._jobs if device == "cpu" else min(self._jobs, self._gpus)

    def submit(self, cell: Cell) -> None:
        of = self._context
        gpu = self._free_gpus.pop(0) if cell.device != "cpu" else None
        self._running[cell.key] = _Process(cell, gpu)
        job = {
            "task": "cell",
            "cell": cell.to_json(),
            # Absolute: the servers may have been started in another working folder.
            "data": str(of.data.absolute()),
            "store": str(of.store.root.absolute()),
            "plugins": [str(folder.absolute()) for folder in of.registry.folders],
            "memory": of.limits.memory,
            "checkpoint": of.limits.checkpoint,
            "gpu": gpu,
        }
        fresh = cell.timing.processes if cell.timing else 0
        of.servers.of(cell).submit(cell.key, of.store.log(cell.key).absolute(), job, fresh)

    def events(self) -> Iterator[Started | Ended]:
        limit = self._context.limits.memory
        if limit is not None:
            self._enforce(limit)
        event = self._context.servers.next(POLL_SECONDS if limit is None else MEMORY_POLL_SECONDS)
        if event is None or (key := event["id"]) not in self._running:  # something else that the servers did
            return
        if "pid" in event:
            self._running[key].pid = event["pid"]
            yield Started(key)
            return
        process = self._running.pop(key)
        if process.gpu is not None:
            self._free_gpus.append(process.gpu)
        yield Ended(key, process.failure or self._death(process.cell, event["exit"]))

    def cancel(self, key: str) -> None:
        if pid := self._running[key].pid:
            end_tree(pid)

    def _enforce(self, limit: int) -> None:
        """Kill cells that hold too much memory."""
        for process in self._running.values():
            if not process.pid or process.failure or memory_below(process.pid) <= limit:
                continue
            time.sleep(MEMORY_POLL_SECONDS / 2)  # a process that is being started has its parent's memory until then
            if (held := memory_below(process.pid)) > limit:
                why = f"killed at {held:,} bytes of memory; --memory allows {limit:,}"
                process.failure = Record(process.cell, "oom", why, "environment")
                end_tree(process.pid)

    def _death(self, cell: Cell, code: int) -> Record:
        """The failure of a cell whose process ended with this code and without a record."""
        if code == os.EX_IOERR:
            why = "its record could not be written, or its warm start could not be read"
        elif code < 0:
            why = f"its process was {how_it_ended(code)}"
        else:
            why = f"its process ended with {how_it_ended(code)} before it produced a result"
        by_itself = code != os.EX_IOERR and (code >= 0 or -code in CRASHES)
        cause: Cause = "plugin" if by_itself else "environment"
        return Record(cell, "failed", f"{why}; its log: {self._context.store.log(cell.key)}", cause)


def gpus_for(cells: Sequence[Cell]) -> list[str]:
    """The GPUs to give out, one per cell at a time; an error if a cell wants one and this machine has none."""
    wanting = next((cell for cell in cells if cell.device != "cpu"), None)
    if wanting is None:
        return []
    if found := gpus.visible():
        return found
    raise LossbenchError(
        f"experiment '{wanting.experiment}' has device = \"{wanting.device}\", but this machine has no GPU; "
        'use device = "cpu"'
    )


def memory_below(warden: int) -> int:
    """Resident bytes of all processes of a cell, without mapped files such as datasets."""
    total = 0
    for pid in descendants(warden):
        with contextlib.suppress(OSError, ValueError, StopIteration):  # it has just ended
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += int(next(line for line in lines if line.startswith("RssAnon:")).split()[1]) * 1024
    return total
