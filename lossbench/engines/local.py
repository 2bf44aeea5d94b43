"""Cells on this machine: one process each, as many at a time as asked, statuses for those that die."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lossbench.core import gpus
from lossbench.core.errors import LossbenchError
from lossbench.core.guard import descendants, end_tree, how_it_ended
from lossbench.core.model import Cause, Cell, Record, Status
from lossbench.engines.servers import Server, Servers
from lossbench.plugins.registry import Registry
from lossbench.store.records import Store

STEP_SECONDS = 120.0  # for a plugin to be built and run once before anything trains
FAILED = 70  # the exit code of a process whose log ends with the reason

# How long to wait before looking again at a cell that another run is working on.
POLL_SECONDS = 0.5
MEMORY_POLL_SECONDS = 0.1  # between two looks at the memory of the cells


@dataclass(frozen=True)
class Event:
    """Something happened to a cell: it started, it has a record now, or we wait for another run that holds it."""

    kind: Literal["started", "ended", "held"]
    cell: Cell
    record: dict[str, Any] | None = None


def preflight(
    servers: Servers,
    cells: Sequence[Cell],
    registry: Registry,
    data: Path,
    needed: Mapping[str, str] | None = None,
    limit: float = STEP_SECONDS,
) -> list[str]:
    """What is wrong with the plugins of these cells, a sentence each, found in processes of their own.

    A plugin that takes longer than `limit` seconds to build or to run once is a problem, too; so is a loss without
    class weights if `needed` has its label.
    """
    distinct = {
        (c.dataset.label, c.classes, c.width, c.backbone.label, tuple(spec.meaning() for spec in c.losses)): c
        for c in cells
    }
    problems: dict[str, None] = {}
    for server, mine in _by_server(servers, list(distinct.values())):
        more = {"needed": dict(needed or {})}
        found, fault = _aside("preflight", servers, server, mine, registry, data, limit, **more)
        problems.update(dict.fromkeys([*found, *([fault] if fault else [])]))
    return list(problems)


def probe(servers: Servers, cells: Sequence[Cell], registry: Registry, data: Path) -> list[dict[str, Any]]:
    """The cost of each of these cells, one of every kind; none where that could not be found out."""
    return [
        cost
        for server, mine in _by_server(servers, cells)
        for cost in _aside("probe", servers, server, mine, registry, data, STEP_SECONDS)[0]
    ]


def _by_server(servers: Servers, cells: Sequence[Cell]) -> list[tuple[Server, list[Cell]]]:
    """The cells by the server that they belong to; all of these are started at once."""
    found: dict[Server, list[Cell]] = {}
    for cell in cells:
        found.setdefault(servers.of(cell), []).append(cell)
    return list(found.items())


def _aside(
    task: str,
    servers: Servers,
    server: Server,
    cells: Sequence[Cell],
    registry: Registry,
    data: Path,
    limit: float,
    **more: Any,
) -> tuple[list[Any], str | None]:
    """The answer of a process that does something else than train; or what it was doing when it died or hung."""
    with tempfile.TemporaryDirectory() as folder:
        reply, log, step = (Path(folder, name) for name in ("reply.json", "log", "step"))
        job = {
            "task": task,
            "cells": [cell.to_json(where=True) for cell in cells],
            "data": str(data.absolute()),
            "plugins": [str(folder) for folder in registry.folders],
            "reply": str(reply),
            "step": str(step),
            "more": more,
        }
        server.submit(task, log, job)
        pid, doing, since = 0, "", time.monotonic()
        while True:
            event = servers.next(POLL_SECONDS) or {}
            if "pid" in event:
                pid, since = event["pid"], time.monotonic()
            if "exit" in event:
                break
            now = step.read_text() if step.exists() else ""
            if now != doing:
                doing, since = now, time.monotonic()
            if pid and time.monotonic() - since > limit:
                end_tree(pid)
                return [], f"{doing or task}: did not end within {limit:g} seconds"
        if reply.exists():
            return json.loads(reply.read_text()), None
        doing = step.read_text() if step.exists() else task
        said = log.read_text(errors="replace").strip().splitlines()[-1:] if event["exit"] == FAILED else []
        return [], f"{doing}: ended its process ({(said or [how_it_ended(event['exit'])])[0]})"


def execute(
    cells: Sequence[Cell],
    store: Store,
    servers: Servers,
    *,
    registry: Registry,
    data: Path,
    jobs: int,
    on_event: Callable[[Event], None] = lambda event: None,
    timeout: float | None = None,
    memory: int | None = None,
    checkpoint: float = 60,
    cells_per_gpu: int = 1,
    fail_fast: bool = False,
    redo: frozenset[str] = frozenset(),
) -> None:
    """Train `cells` (unique keys, warm starts before those that need them), `jobs` at a time; timing cells alone.

    A cell that another run on the same folder holds is left to it and waited for. `redo` names the cells whose
    present record is to be replaced. `timeout` is in seconds a cell, `memory` in bytes; a cell keeps its state every
    `checkpoint` seconds, from which it goes on when it is started again.
    """
    common = {
        "task": "cell",
        "data": str(data),
        "store": str(store.root),
        "plugins": [str(folder) for folder in registry.folders],
        "memory": memory,
        "checkpoint": checkpoint,
    }
    places = gpu_places(cells, cells_per_gpu)
    _Scheduler(list(cells), store, servers, common, jobs, on_event, timeout, memory, fail_fast, redo, places).run()


def gpu_places(cells: Sequence[Cell], cells_per_gpu: int = 1) -> list[str]:
    """A place for each cell that may be on a GPU at the same time; an error when cells want one and there is none."""
    if all(cell.device == "cpu" for cell in cells):
        return []
    found = gpus.visible()
    if not found:
        wanting = next(cell for cell in cells if cell.device != "cpu")
        raise LossbenchError(
            f"experiment '{wanting.experiment}' has device = \"{wanting.device}\", but this machine has no GPU; "
            'use device = "cpu"'
        )
    return [gpu for _ in range(cells_per_gpu) for gpu in found]  # one cell on each before a second on any


@dataclass
class _Running:
    """A cell at work: the claim it holds, since when, and the process it has (none until the server says so)."""

    cell: Cell
    claim: ExitStack
    since: float
    pid: int | None = None
    gpu: str | None = None
    killed: tuple[Status, str] | None = None  # why we ended it ourselves


@dataclass
class _Scheduler:
    waiting: list[Cell]
    store: Store
    servers: Servers
    job: dict[str, Any]  # what all jobs have in common
    jobs: int
    on_event: Callable[[Event], None]
    timeout: float | None
    memory: int | None
    fail_fast: bool
    redo: frozenset[str]
    free_gpus: list[str]

    def run(self) -> None:
        self.running: dict[str, _Running] = {}
        told = False
        try:
            while True:
                self.start_what_can()
                if not self.running and not self.waiting:
                    return
                if not self.running and not told:
                    told = True
                    self.on_event(Event("held", self.waiting[0]))
                self.enforce_limits()
                self.listen()
        finally:
            for running in self.running.values():
                running.claim.close()

    def start_what_can(self) -> None:
        """Fill the free places, in order; skip what must wait for its warm start or is held by another run."""
        for cell in list(self.waiting):
            alone = cell.kind == "timing" or any(other.cell.kind == "timing" for other in self.running.values())
            if len(self.running) >= self.jobs or (alone and self.running):
                return
            if cell.warm and self.is_pending(cell.warm_cell().key):
                continue
            if cell.device != "cpu" and not self.free_gpus:
                continue
            claim = ExitStack()
            if claim.enter_context(self.store.claim(cell.key, alone=cell.kind == "timing")):
                self.waiting.remove(cell)
                self.start(cell, claim)
            else:
                claim.close()

    def start(self, cell: Cell, claim: ExitStack) -> None:
        known = self.store.read(cell.key)
        if known is not None and cell.key not in self.redo:  # another run finished it meanwhile
            claim.close()
            self.on_event(Event("ended", cell, known))
            return
        if known is not None:
            self.store.set_aside(cell.key)
        gpu = self.free_gpus.pop(0) if cell.device != "cpu" else None
        self.running[cell.key] = _Running(cell, claim, time.monotonic(), gpu=gpu)
        if cell.warm and not self.is_done(cell.warm_cell().key):
            warm = cell.warm_cell().key
            cause: Cause = (self.store.read(warm) or {"cause": "environment"}).get("cause") or "plugin"
            self.finish(cell.key, "failed", f"its warm start ({warm}) did not finish", cause)
            return
        self.servers.submit(cell.key, self.store.log(cell.key), {**self.job, "cell": cell.to_json(), "gpu": gpu})
        self.on_event(Event("started", cell))

    def listen(self) -> None:
        """Wait for news of one cell, or for a moment."""
        event = self.servers.next(POLL_SECONDS if self.memory is None else MEMORY_POLL_SECONDS)
        if event is None:
            return
        key = event["id"]
        if "pid" in event:
            self.running[key].pid = event["pid"]
        elif killed := self.running[key].killed:
            self.finish(key, *killed)
        else:
            problem = f"{_died(event['exit'])}; its log: {self.store.log(key)}"
            self.finish(key, "failed", problem, _cause(event["exit"]))

    def enforce_limits(self) -> None:
        """Kill what takes too long or holds too much memory, with all that it has started."""
        for running in self.running.values():
            if running.pid is None or running.killed:
                continue
            if self.timeout is not None and time.monotonic() - running.since > self.timeout:
                running.killed = ("timeout", f"killed after {self.timeout:g} seconds")
            elif self.memory is not None and (held := memory_below(running.pid)) > self.memory:
                running.killed = ("oom", f"killed when it held {held:,} bytes; --memory allows {self.memory:,}")
            if running.killed:
                end_tree(running.pid)

    def finish(self, key: str, status: Status, problem: str, cause: Cause = "environment") -> None:
        """Account for a cell whose process is gone; the dead cannot write, so their record is written here."""
        running = self.running[key]
        record = self.store.read(key)
        if record is None:
            self.store.write(Record(running.cell, status, problem, cause))
            record = self.store.read(key)
        del self.running[key]
        if running.gpu is not None:
            self.free_gpus.append(running.gpu)
        running.claim.close()
        if self.fail_fast and record is not None and record["status"] != "done":
            self.waiting.clear()
        self.on_event(Event("ended", running.cell, record))

    def is_pending(self, key: str) -> bool:
        """Whether that cell will still get a record: from us, or from another run that holds it."""
        if key in self.running or any(cell.key == key for cell in self.waiting):
            return True
        if self.store.read(key) is not None:
            return False
        with self.store.claim(key) as free:
            return not free

    def is_done(self, key: str) -> bool:
        record = self.store.read(key)
        return record is not None and record["status"] == "done"


def memory_below(warden: int) -> int:
    """Resident bytes of all processes of a cell; mapped files, such as datasets, are not counted.

    A process may end while it is looked at: what cannot be read any more holds nothing.
    """
    total = 0
    for pid in descendants(warden):
        with contextlib.suppress(OSError, ValueError, StopIteration):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += int(next(line for line in lines if line.startswith("RssAnon:")).split()[1]) * 1024
    return total


def _cause(code: int) -> Cause:
    """Who ended a process: its own code, which exited or crashed, or somebody else, who killed it."""
    crashes = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS)
    return "plugin" if code != os.EX_IOERR and (code >= 0 or -code in crashes) else "environment"


def _died(code: int) -> str:
    if code == os.EX_IOERR:
        return "its record could not be written, or its warm start not be read"
    if code < 0:
        return f"its process was {how_it_ended(code)}"
    return f"its process ended with {how_it_ended(code)} before it had a result"
