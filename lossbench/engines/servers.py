"""Fork servers: processes with torch loaded, from which every cell's own process is forked in milliseconds.

There is one server for each set of libraries that the plugins of a cell import, started when a cell first needs it.
What a library does on import (patch a function of torch, switch a backend off) thus reaches only cells that import it.
Servers also run what must happen before training in processes of their own: the preflight and the cost probe.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lossbench.core import ahead, guard
from lossbench.core.errors import LossbenchError, RunError
from lossbench.core.model import Cell, Spec
from lossbench.plugins.registry import Registry

LOADED = ("numpy", "torch")  # libraries that every server imports

IMPORT_SECONDS = 120.0  # for one library of a plugin to be imported
START_SECONDS = 600.0  # for torch, which a cold network disk may make slow
COMPILE_SECONDS = 1200.0  # for a backbone to be compiled, on a busy machine
STEP_SECONDS = 120.0  # for a plugin to be built and run once before anything trains
POLL_SECONDS = 0.5

Event = dict[str, Any]


class Server:
    """One running fork server. Puts its news into `events`, and {"id": None, "server": self} when it has died."""

    def __init__(self, libraries: Mapping[str, str], events: queue.Queue[Event]) -> None:
        self._libraries = libraries  # module → what imports it, such as the path of a plugin
        self._importing: tuple[str, float] | None = ("", time.monotonic())
        self._process, self._lifeline = ahead.launched(libraries) if libraries else ahead.taken()
        self._listener = threading.Thread(target=self._listen, args=(events,), daemon=True)
        self._listener.start()

    def _listen(self, events: queue.Queue[Event]) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            event = json.loads(line)
            if "importing" in event:
                self._importing = event["importing"], time.monotonic()
            elif "ready" in event:
                self._importing = None
            else:
                events.put(event)
        events.put({"id": None, "server": self})

    @property
    def ready(self) -> bool:
        """Whether it has imported everything."""
        return self._importing is None

    def check(self) -> None:
        """Raise if an import takes too long; the caller closes the servers."""
        if self._importing is None:
            return
        module, since = self._importing
        limit = IMPORT_SECONDS if module in self._libraries else START_SECONDS
        if time.monotonic() - since > limit:
            raise LossbenchError(self._fault(module, f"did not end within {limit:g} seconds"))

    def fault(self) -> LossbenchError:
        """Why it died."""
        if self._importing is None:
            return RunError("the process that starts cells died; finished cells are safe, run the same command again")
        code = self._process.wait()
        return LossbenchError(self._fault(self._importing[0], f"ended the process ({guard.how_it_ended(code)})"))

    def _fault(self, module: str, what: str) -> str:
        if origin := self._libraries.get(module):
            return f"{origin}: importing '{module}' {what}"
        return f"the process that starts cells could not import '{module}': it {what}; try `python -c 'import torch'`"

    def submit(self, name: str, log: Path, job: dict[str, Any], fresh: int = 0) -> None:
        """Start a job (see `worker.work`) in a separate process: a fork, or up to `fresh` new ones in turn."""
        assert self._process.stdin
        request = {"id": name, "log": str(log), "job": job, "fresh": fresh}
        with contextlib.suppress(BrokenPipeError):  # a dead server reports itself through the events
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Kill everything that runs and wait until it is gone."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._importing is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=10)
        guard.end(self._process, self._lifeline)
        self._listener.join(timeout=10)
        self._process.stdout.close()


class Servers:
    """The fork servers of a run. News of jobs comes from all servers through one queue."""

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or Registry()  # a run may start servers before it has read its suite
        self._events: queue.Queue[Event] = queue.Queue()
        self._running: dict[frozenset[str], Server] = {}

    def of(self, cell: Cell) -> Server:
        """The server for a cell; started if it is the first of its kind."""
        return self._with(self._imports(cell))

    def start_ahead(self) -> None:
        """Start the server that most cells need, the one without libraries: torch is imported while a suite is read."""
        self._with({})

    def keep(self, cells: Sequence[Cell]) -> None:
        """End the servers that none of these cells needs."""
        needed = {frozenset(self._imports(cell)) for cell in cells}
        for kind in self._running.keys() - needed:
            self._running.pop(kind).close()

    def _with(self, imports: Mapping[str, str]) -> Server:
        kind = frozenset(imports)
        if kind not in self._running:
            self._running[kind] = Server(imports, self._events)
        return self._running[kind]

    def _imports(self, cell: Cell) -> dict[str, str]:
        """The library modules that a cell imports, and for what. Its data is prepared: that plugin does not run."""
        plugins = [self.registry.find("backbone", cell.backbone.name)]
        plugins += [self.registry.find("loss", spec.name) for spec in cell.losses]
        found = {"timm.optim": f"optimizer '{cell.schedule.optimizer}'"} if cell.schedule.timm else {}
        found |= {"lossbench.training.compiled": "compile = true"} if cell.compile else {}
        for plugin in plugins:
            modules = (module for module in plugin.footprint.modules if module.partition(".")[0] not in LOADED)
            found |= dict.fromkeys(modules, str(plugin.path))
        return found

    def start(self, cells: Sequence[Cell]) -> None:
        """Start the servers of these cells, and wait until they have imported everything."""
        wanted = [self.of(cell) for cell in cells]
        while not all(server.ready for server in wanted):
            self.next(0.02)

    def next(self, timeout: float) -> Event | None:
        """News of a job, or None after `timeout` seconds; an error if a server died or is stuck."""
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            for server in self._running.values():
                server.check()
            return None
        if event["id"] is None:
            if event["server"] not in self._running.values():  # we ended it
                return None
            raise event["server"].fault()
        return event

    def preflight(
        self, cells: Sequence[Cell], data: Path, needed: Mapping[str, str] | None = None, limit: float = 0
    ) -> list[str]:
        """What is wrong with the plugins of these cells, one sentence each, found before anything trains.

        A plugin that takes longer than `limit` seconds (at least STEP_SECONDS) to build or to run once is a problem,
        and so is a loss without class weights if its label is in `needed`.
        """
        distinct = {
            (cell.classes, cell.width, cell.compile, *(spec.meaning() for spec in _plugins(cell))): cell
            for cell in cells
        }
        problems: dict[str, None] = {}
        for server, mine in self._by_server(list(distinct.values())):
            limit = max(limit, STEP_SECONDS)
            found, fault = self._ask("preflight", server, mine, data, limit, needed=dict(needed or {}))
            problems.update(dict.fromkeys([*found, *([fault] if fault else [])]))
        return list(problems)

    def remeasure(self, cells: Sequence[Cell], data: Path, store: Path, limit: float = 0) -> list[dict[str, Any]]:
        """Measure metrics of finished cells from what they kept; the cells that could not be, and why."""
        problems: list[dict[str, Any]] = []
        for server, mine in self._by_server(cells):
            limit = max(limit, STEP_SECONDS)
            found, fault = self._ask("remeasure", server, mine, data, limit, store=str(store.absolute()))
            problems += found
            if fault:
                problems += [{"key": cell.key, "why": fault, "damaged": False} for cell in mine]
        return problems

    def probe(self, cells: Sequence[Cell], data: Path) -> list[dict[str, Any]]:
        """The cost of each of these cells, one of every kind; none where it could not be measured."""
        return [
            cost
            for server, mine in self._by_server(cells)
            for cost in self._ask("probe", server, mine, data, _patience(mine))[0]
        ]

    def _by_server(self, cells: Sequence[Cell]) -> list[tuple[Server, list[Cell]]]:
        """The cells by server; all of these servers are started at once."""
        found: dict[Server, list[Cell]] = {}
        for cell in cells:
            found.setdefault(self.of(cell), []).append(cell)
        return list(found.items())

    def _ask(
        self, task: str, server: Server, cells: Sequence[Cell], data: Path, limit: float, **more: Any
    ) -> tuple[list[Any], str | None]:
        """The answer of a process that does not train, or what it was doing when it died or hung."""
        with tempfile.TemporaryDirectory() as folder:
            reply, log, step = (Path(folder, name) for name in ("reply.json", "log", "step"))
            job = {
                "task": task,
                "cells": [cell.to_json(where=True) for cell in cells],
                "data": str(data.absolute()),
                "plugins": [str(place.absolute()) for place in self.registry.folders],
                "reply": str(reply),
                "step": str(step),
                "more": more,
            }
            server.submit(folder, log, job)
            pid, doing, since = 0, "", time.monotonic()
            while True:
                event = self.next(POLL_SECONDS) or {}
                if event and event["id"] != folder:  # the end of an earlier question that we gave up
                    continue
                if "pid" in event:
                    pid, since = event["pid"], time.monotonic()
                if "exit" in event:
                    break
                now = step.read_text() if step.exists() else ""
                if now != doing:
                    doing, since = now, time.monotonic()
                if pid and time.monotonic() - since > limit:
                    guard.end_tree(pid)
                    return [], f"{doing or task}: did not end within {limit:g} seconds"
            if reply.exists():
                return json.loads(reply.read_text()), None
            doing = step.read_text() if step.exists() else task
            said = log.read_text(errors="replace").strip().splitlines()[-1:] if event["exit"] == os.EX_SOFTWARE else []
            return [], f"{doing}: ended its process ({(said or [guard.how_it_ended(event['exit'])])[0]})"

    def close(self) -> None:
        """End all servers and what they run; cells that come later get new ones."""
        for server in self._running.values():
            server.close()
        self._running, self._events = {}, queue.Queue()


def _patience(cells: Sequence[Cell]) -> float:
    """Seconds that one step of a probe may take."""
    return COMPILE_SECONDS if any(cell.compile for cell in cells) else STEP_SECONDS


def _plugins(cell: Cell) -> list[Spec]:
    return [cell.dataset, cell.backbone, *cell.metrics, *cell.losses, *([cell.warm.loss] if cell.warm else [])]
