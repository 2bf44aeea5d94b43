"""Cells on this machine: one process each, as many at a time as asked, statuses for those that die."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lossbench.engines import gpus
from lossbench.engines.server import kill_group
from lossbench.errors import LossbenchError, RunError
from lossbench.registry import Registry
from lossbench.schema import Cell, Record, Status
from lossbench.store import Store

# Everything a cell imports lazily, so that a fork costs milliseconds: torch's optimizer pulls in the last three.
PRELOAD = ("numpy", "torch", "torch.optim", "torch._dynamo", "torch._inductor.config", "lossbench.train")

# One thread until a cell says otherwise; cuBLAS is deterministic only with a workspace of a fixed size. What a step
# frees the next one asks for again: glibc keeps it, and does not give it back to the system to be zeroed page by page.
FIXED = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # the most that every glibc accepts
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}

# How long to wait before looking again at a cell that another run is working on.
POLL_SECONDS = 0.5
MEMORY_POLL_SECONDS = 0.1  # between two looks at the memory of the cells


@dataclass(frozen=True)
class Event:
    """Something happened to a cell: it started, it has a record now, or we wait for another run that holds it."""

    kind: Literal["started", "ended", "held"]
    cell: Cell
    record: dict[str, Any] | None = None


class Server:
    """A running fork server; `events` yields what it says, ("down", …) when it has died."""

    def __init__(self, modules: Iterable[str]) -> None:
        self._process = subprocess.Popen(
            # -P and our own path: the server must import the package that we are, not one in the working folder.
            [sys.executable, "-P", "-m", "lossbench.engines.server", *dict.fromkeys(modules)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **FIXED, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # a Ctrl-C in the terminal is the parent's to handle
        )
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.events.put(json.loads(line))
        self.events.put({"id": None})

    def submit(self, name: str, log: Path, job: dict[str, Any]) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # a dead server tells of itself through `events`
            self._process.stdin.write(json.dumps({"id": name, "log": str(log), "job": job}).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Kill whatever runs and wait until all of it is gone."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(timeout=10)
        assert self._process.stdout
        self._process.stdout.close()


@contextlib.contextmanager
def serving(cells: Sequence[Cell], registry: Registry) -> Iterator[Server]:
    """A fork server with everything preloaded that these cells' plugins import."""
    imports: list[str] = []
    for cell in {(c.backbone.name, c.dataset.name, *(spec.name for spec in c.losses)): c for c in cells}.values():
        for plugin in (registry.find("backbone", cell.backbone.name), registry.find("dataset", cell.dataset.name)):
            imports += plugin.imports
        for spec in cell.losses:
            imports += registry.find("loss", spec.name).imports
    server = Server([*PRELOAD, *imports])
    try:
        yield server
    finally:
        server.close()


def preflight(
    server: Server, cells: Sequence[Cell], registry: Registry, data: Path, needed: Mapping[str, str] | None = None
) -> list[str]:
    """What is wrong with the plugins of these cells, a sentence each, found in a process of its own."""
    distinct = {
        (c.dataset.label, c.classes, c.width, c.backbone.label, tuple(spec.label for spec in c.losses)): c
        for c in cells
    }
    problems, died = _aside("preflight", server, list(distinct.values()), registry, data, needed=dict(needed or {}))
    return [f"building the plugins of this suite ended their process: {died}"] if died else problems


def probe(server: Server, cells: Sequence[Cell], registry: Registry, data: Path) -> list[dict[str, Any]]:
    """The cost of each of these cells, one of every kind; empty when that could not be found out."""
    costs, died = _aside("probe", server, cells, registry, data)
    return [] if died else costs


def _aside(
    task: str, server: Server, cells: Sequence[Cell], registry: Registry, data: Path, **more: Any
) -> tuple[list[Any], str | None]:
    """The answer of a process that does something else than train, or how it died."""
    with tempfile.TemporaryDirectory() as folder:
        reply, log = Path(folder, "reply.json"), Path(folder, "log")
        job = {
            "task": task,
            "cells": [cell.to_json(where=True) for cell in cells],
            "data": str(data),
            "plugins": [str(folder) for folder in registry.folders],
            "reply": str(reply),
            "more": more,
        }
        server.submit(task, log, job)
        while "exit" not in (event := server.events.get()):
            if event["id"] is None:
                raise LossbenchError("the process that loads plugins could not start; try `python -c 'import torch'`")
        if reply.exists():
            return json.loads(reply.read_text()), None
        return [], (log.read_text(errors="replace").strip().splitlines()[-1:] or [_died(event["exit"])])[0]


def execute(
    cells: Sequence[Cell],
    store: Store,
    server: Server,
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
    _Scheduler(list(cells), store, server, common, jobs, on_event, timeout, memory, fail_fast, redo, places).run()


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
    server: Server
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
            self.finish(cell.key, "failed", f"its warm start ({cell.warm_cell().key}) did not finish")
            return
        self.server.submit(cell.key, self.store.log(cell.key), {**self.job, "cell": cell.to_json(), "gpu": gpu})
        self.on_event(Event("started", cell))

    def listen(self) -> None:
        """Wait for news of one cell, or for a moment."""
        try:
            event = self.server.events.get(timeout=POLL_SECONDS if self.memory is None else MEMORY_POLL_SECONDS)
        except queue.Empty:
            return
        key = event["id"]
        if key is None:
            raise RunError("the process server died; finished cells are safe, run the same command again")
        if "pid" in event:
            self.running[key].pid = event["pid"]
        elif killed := self.running[key].killed:
            self.finish(key, *killed)
        else:
            self.finish(key, "failed", f"{_died(event['exit'])}; its log: {self.store.log(key)}")

    def enforce_limits(self) -> None:
        """Kill what takes too long or holds too much memory, with all that it has started."""
        for running in self.running.values():
            if running.pid is None or running.killed:
                continue
            if self.timeout is not None and time.monotonic() - running.since > self.timeout:
                running.killed = ("timeout", f"killed after {self.timeout:g} seconds")
            elif self.memory is not None and (held := group_memory(running.pid)) > self.memory:
                running.killed = ("oom", f"killed when it held {held:,} bytes; --memory allows {self.memory:,}")
            if running.killed:
                kill_group(running.pid)

    def finish(self, key: str, status: Status, problem: str) -> None:
        """Account for a cell whose process is gone; the dead cannot write, so their record is written here."""
        running = self.running[key]
        record = self.store.read(key)
        if record is None:
            self.store.write(Record(running.cell, status, error=problem))
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


def group_memory(leader: int) -> int:
    """Resident bytes of all processes in a cell's group; mapped files, such as datasets, are not counted.

    A process may end while it is looked at: what cannot be read any more holds nothing.
    """
    total = 0
    for folder in Path("/proc").iterdir() if Path("/proc/self").exists() else ():
        with contextlib.suppress(OSError, ValueError, LookupError):
            if folder.name.isdigit() and os.getpgid(int(folder.name)) == leader:
                lines = (folder / "status").read_text().splitlines()
                held = next((line for line in lines if line.startswith("RssAnon:")), "RssAnon: 0")
                total += int(held.split()[1]) * 1024
    return total


def _died(code: int) -> str:
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code} before it had a result"
