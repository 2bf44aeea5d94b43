"""Fork servers: processes with torch loaded, from which every cell's own process is forked in milliseconds.

There is one server for each set of libraries that the plugins of a cell import, started when a cell first needs it.
What a library does on import (patch a function of torch, switch a backend off) thus reaches only cells that import it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lossbench.core import guard
from lossbench.core.errors import LossbenchError, RunError
from lossbench.core.model import Cell
from lossbench.plugins.registry import Plugin, Registry

# Everything a cell imports lazily, so that a fork costs milliseconds: torch's optimizer pulls in the last three.
PRELOAD = ("numpy", "torch", "torch.optim", "torch._dynamo", "torch._inductor.config", "lossbench.training.cell")
LOADED = ("numpy", "torch")  # libraries that PRELOAD covers

# One thread until a cell says otherwise; cuBLAS is deterministic only with a workspace of a fixed size. What a step
# frees the next one asks for again: glibc keeps it, and does not give it back to the system to be zeroed page by page.
FIXED = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # the most that every glibc accepts
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}

IMPORT_SECONDS = 120.0  # for one library of a plugin to be imported
START_SECONDS = 600.0  # for torch, which a cold network disk may make slow

Event = dict[str, Any]


class Server:
    """A running fork server. What it says of its jobs goes to `events`; {"id": None, "server": …} when it has died."""

    def __init__(self, libraries: Mapping[str, Plugin], events: queue.Queue[Event]) -> None:
        self._libraries = libraries  # module → the plugin that imports it
        self._importing: tuple[str, float] | None = ("", time.monotonic())
        arguments = ["-m", "lossbench.engines.server", *PRELOAD, *libraries]
        self._process, self._lifeline = guard.started(arguments, FIXED, stderr=subprocess.DEVNULL)
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
        """Complain if an import takes too long; the caller closes the servers."""
        if self._importing is None:
            return
        module, since = self._importing
        limit = IMPORT_SECONDS if module in self._libraries else START_SECONDS
        if time.monotonic() - since > limit:
            raise LossbenchError(self._fault(module, f"did not end within {limit:g} seconds"))

    def fault(self) -> LossbenchError:
        """Why it died, in a sentence."""
        if self._importing is None:
            return RunError("the process that starts cells died; finished cells are safe, run the same command again")
        code = self._process.wait()
        return LossbenchError(self._fault(self._importing[0], f"ended the process ({guard.how_it_ended(code)})"))

    def _fault(self, module: str, what: str) -> str:
        if plugin := self._libraries.get(module):
            return f"{plugin.path}: importing '{module}' {what}"
        return f"the process that starts cells could not import '{module}': it {what}; try `python -c 'import torch'`"

    def submit(self, name: str, log: Path, job: dict[str, Any]) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # a dead server tells of itself through the events
            self._process.stdin.write(json.dumps({"id": name, "log": str(log), "job": job}).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Kill whatever runs and wait until all of it is gone."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._importing is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=10)
        os.close(self._lifeline)  # the guard ends what is still there
        try:
            self._process.wait(timeout=guard.PATIENCE_SECONDS + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(timeout=10)
        self._process.stdout.close()


class Servers:
    """The fork servers of a run: cells are submitted, and what becomes of them is heard from all servers at once."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._events: queue.Queue[Event] = queue.Queue()
        self._running: dict[frozenset[str], Server] = {}

    def of(self, cell: Cell) -> Server:
        """The server for a cell, which is started if it is the first of its kind."""
        imports = self._imports(cell)
        kind = frozenset(imports)
        if kind not in self._running:
            self._running[kind] = Server(imports, self._events)
        return self._running[kind]

    def _imports(self, cell: Cell) -> dict[str, Plugin]:
        """The modules of libraries that the cell's plugins import. Its data is prepared: that plugin does not run."""
        plugins = [self.registry.find("backbone", cell.backbone.name)]
        plugins += [self.registry.find("loss", spec.name) for spec in cell.losses]
        return {
            module: plugin
            for plugin in plugins
            for module in plugin.footprint.modules
            if module.partition(".")[0] not in LOADED
        }

    def start(self, cells: Sequence[Cell]) -> None:
        """Start the servers of these cells, and wait until they have imported what they should."""
        wanted = [self.of(cell) for cell in cells]
        while not all(server.ready for server in wanted):
            self.next(0.02)

    def submit(self, name: str, log: Path, job: dict[str, Any]) -> None:
        """Start a job that trains a cell."""
        self.of(Cell.from_json(job["cell"])).submit(name, log, job)

    def next(self, timeout: float) -> Event | None:
        """News of a job, or None if there is none for a while; an error if a server died or is stuck."""
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            for server in self._running.values():
                server.check()
            return None
        if event["id"] is None:
            raise event["server"].fault()
        return event

    def close(self) -> None:
        for server in self._running.values():
            server.close()
        self._running.clear()


@contextlib.contextmanager
def serving(registry: Registry) -> Iterator[Servers]:
    """Servers that end with the block."""
    servers = Servers(registry)
    try:
        yield servers
    finally:
        servers.close()
