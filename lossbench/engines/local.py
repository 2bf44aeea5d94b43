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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lossbench.engines.server import kill_group
from lossbench.errors import LossbenchError
from lossbench.registry import Registry
from lossbench.schema import Cell, Record
from lossbench.store import Store

# Everything a cell imports lazily, so that a fork costs milliseconds: torch's optimizer pulls in the last three.
PRELOAD = ("numpy", "torch", "torch.optim", "torch._dynamo", "torch._inductor.config", "lossbench.train")

# How long to wait before looking again at a cell that another run is working on.
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Event:
    """Something happened to a cell: it started, or it has a record now."""

    kind: Literal["started", "ended"]
    cell: Cell
    record: dict[str, Any] | None = None


class Server:
    """A running fork server; `events` yields what it says, ("down", …) when it has died."""

    def __init__(self, modules: Iterable[str]) -> None:
        single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lossbench.engines.server", *dict.fromkeys(modules)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **single},
            start_new_session=True,  # a Ctrl-C in the terminal is the parent's to handle
        )
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

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


def preflight(server: Server, cells: Sequence[Cell], registry: Registry, data: Path) -> list[str]:
    """What is wrong with the plugins of these cells, a sentence each, found in a process of its own."""
    distinct = {
        (c.dataset.label, c.classes, c.backbone.label, tuple(spec.label for spec in c.losses)): c for c in cells
    }
    with tempfile.TemporaryDirectory() as folder:
        reply, log = Path(folder, "reply.json"), Path(folder, "log")
        job = {
            "task": "preflight",
            "cells": [cell.to_json() for cell in distinct.values()],
            "data": str(data),
            "plugins": [str(folder) for folder in registry.folders],
            "reply": str(reply),
        }
        server.submit("preflight", log, job)
        while "exit" not in (event := server.events.get()):
            if event["id"] is None:
                raise LossbenchError("the process that loads plugins could not start; try `python -c 'import torch'`")
        if reply.exists():
            problems: list[str] = json.loads(reply.read_text())
            return problems
        tail = log.read_text(errors="replace").strip().splitlines()[-1:] or [_died(event["exit"])]
        return [f"building the plugins of this suite ended their process: {tail[0]}"]


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
    fail_fast: bool = False,
    redo: frozenset[str] = frozenset(),
) -> None:
    """Train `cells` (unique keys, warm starts before those that need them), `jobs` at a time; timing cells alone.

    A cell that another run on the same folder holds is left to it and waited for. `redo` names the cells whose
    present record is to be replaced.
    """
    waiting = list(cells)
    running: dict[str, Cell] = {}
    started_at: dict[str, float] = {}
    pids: dict[str, int] = {}
    timed_out: set[str] = set()
    claims: dict[str, ExitStack] = {}
    stopping = False

    def finish(cell: Cell, record: dict[str, Any] | None, problem: str, status: str = "failed") -> None:
        """Account for a cell whose process is gone; the dead cannot write, so their record is written here."""
        nonlocal stopping
        if record is None:
            store.write(Record(cell, status, error=problem))  # type: ignore[arg-type]
            record = store.read(cell.key)
        running.pop(cell.key, None)
        if held := claims.pop(cell.key, None):
            held.close()
        stopping = stopping or (fail_fast and record is not None and record["status"] != "done")
        on_event(Event("ended", cell, record))

    def start_what_can() -> None:
        for cell in list(waiting):
            if len(running) >= jobs or any(other.kind == "timing" for other in running.values()):
                return
            if cell.kind == "timing" and running:
                return
            if cell.warm and _pending(cell.warm_cell().key, waiting, running):
                continue
            held = ExitStack()
            if not held.enter_context(store.claim(cell.key)):
                continue
            waiting.remove(cell)
            known = store.read(cell.key)
            if known is not None and cell.key not in redo:
                held.close()
                on_event(Event("ended", cell, known))
                continue
            claims[cell.key] = held
            if cell.warm and not _is_done(store, cell.warm_cell().key):
                problem = f"its warm start ({cell.warm_cell().key}) did not finish"
                finish(cell, None, problem)
                continue
            running[cell.key] = cell
            started_at[cell.key] = time.monotonic()
            job = {
                "task": "cell",
                "cell": cell.to_json(),
                "data": str(data),
                "store": str(store.root),
                "plugins": [str(folder) for folder in registry.folders],
            }
            if cell.key in redo and known is not None:
                store.set_aside(cell.key)
            server.submit(cell.key, store.log(cell.key), job)
            on_event(Event("started", cell))

    try:
        while running or (waiting and not stopping):
            if not stopping:
                start_what_can()
            if not running and not waiting:
                break
            try:
                event = server.events.get(timeout=POLL_SECONDS)
            except queue.Empty:
                for key in running:
                    if timeout and time.monotonic() - started_at[key] > timeout and key in pids:
                        timed_out.add(key)
                        kill_group(pids[key])
                continue
            key = event["id"]
            if key is None:
                raise LossbenchError("the process server died; finished cells are safe, run the same command again")
            if "pid" in event:
                pids[key] = event["pid"]
            elif key in running:
                cell = running[key]
                record = store.read(key)
                if key in timed_out:
                    finish(cell, record, f"killed after {timeout:g} seconds", "timeout")
                else:
                    finish(cell, record, f"{_died(event['exit'])}; its log: {store.log(key)}")
    finally:
        for held in claims.values():
            held.close()


def _pending(key: str, waiting: Iterable[Cell], running: Iterable[str]) -> bool:
    return key in running or any(cell.key == key for cell in waiting)


def _is_done(store: Store, key: str) -> bool:
    record = store.read(key)
    return record is not None and record["status"] == "done"


def _died(code: int) -> str:
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code} before it had a result"
