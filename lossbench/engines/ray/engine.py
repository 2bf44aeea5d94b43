"""Cells on a Ray cluster: each is a Ray task that runs the local engine on a node (`node`) and streams messages back.

Messages say where a cell runs, the state it saves, and its record. Only this process, the driver, writes to the store.
A cell whose worker or node dies is sent to another node, with the state that it last sent; what a plugin does to its
own process is a status, as it is locally.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from lossbench.core import files
from lossbench.core.errors import ClusterLostError, RunError
from lossbench.core.model import Cell, Record, Status
from lossbench.engines.protocol import Ended, Engine, Resources, RunContext, Started
from lossbench.engines.ray import cluster, node

POLL_SECONDS = 0.5
WARM_STARTS_KEPT = 8  # in Ray's memory; older ones are put there again when a cell needs them


@dataclass
class _Flight:
    """A cell that was sent off, and where it arrived."""

    cell: Cell
    node: str | None = None
    host: str = "a node"


class Ray(Engine):
    """The engine `ray`."""

    attempts = 3
    patience = 30.0  # the node enforces the time limit; this is for one that no longer answers

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.gpu = resources.gpus_per_cell > 0
        self._flights: dict[Any, _Flight] = {}  # by the stream of their messages
        self._failed_on: dict[str, list[str | None]] = {}  # the nodes of earlier attempts, by key
        self._warm: dict[str, Any] = {}

    def check(self) -> None:
        cluster.check(self._resources.address)

    @contextmanager
    def open(self, cells: Sequence[Cell], context: RunContext) -> Iterator[None]:
        self._context, limits = context, context.limits
        with cluster.connected(self._resources, cells, limits.memory, context.notify) as self._cluster:
            shared = {
                "run": uuid.uuid4().hex,
                "plugins": node.pack(context.registry),
                "folders": [str(folder.absolute()) for folder in context.registry.folders],
                "identity": node.identity(),
                "data": str(context.data.absolute()),
                "data_given": context.data_given,
                "store": str(context.store.root),
                "limits": asdict(limits),
            }
            self._shared = self._cluster.ray.put(shared)
            try:
                yield
            except ClusterLostError:
                self._flights.clear()  # nobody is left to cancel them
                raise
            except self._cluster.ray.exceptions.RayError as error:
                why = " ".join(str(error).split())
                raise RunError(
                    f"lost the Ray cluster ({why}); finished cells are safe, run the command again"
                ) from error
            finally:
                for flight in list(self._flights.values()):
                    self.cancel(flight.cell.key)
                self._flights.clear()
                self._warm.clear()

    def size(self, device: str = "cpu") -> int:
        """As many as the nodes have room for at the moment; Ray itself gives out the GPUs."""
        return self._resources.jobs or self._cluster.size()

    def submit(self, cell: Cell) -> None:
        state = self._context.store.partial(cell.key)
        partial = state.read_bytes() if state.is_file() else None
        arguments = ["work", cell.to_json(), self._shared, self._warm_start(cell), partial]
        stream = self._cluster.submit(f"lossbench: {cell.title}", arguments, on=self._elsewhere(cell.key))
        self._flights[stream] = _Flight(cell)

    def events(self) -> Iterator[Started | Ended]:
        for stream, message in self._messages():
            flight = self._flights[stream]
            if isinstance(message, Exception):
                status, why = self._fate(message)
                yield self._failed(stream, Record(flight.cell, status, why, "environment"))
            elif "node" in message:
                flight.node, flight.host = message["node"], message["host"]
            elif "started" in message:
                yield Started(flight.cell.key)
            elif "partial" in message:
                self._save(flight.cell.key, message["partial"])
            elif "refused" in message:
                raise RunError(f"node {flight.host}: {message['refused']}")
            else:
                yield self._landed(stream, message)

    def cancel(self, key: str) -> None:
        for stream in [stream for stream, flight in self._flights.items() if flight.cell.key == key]:
            with contextlib.suppress(Exception):  # it is gone already, or the whole cluster is
                self._cluster.ray.cancel(stream, force=True)

    def _messages(self) -> Iterator[tuple[Any, node.Message | Exception]]:
        """Messages that arrive shortly; an exception where a task or its node died."""
        ray = self._cluster.ray
        self._cluster.check_alive()
        if not self._flights:  # another run holds all that is left
            time.sleep(POLL_SECONDS)
            return
        for stream in ray.wait(list(self._flights), timeout=POLL_SECONDS)[0]:
            try:
                yield stream, self._cluster.fetch(stream)
            except StopIteration:
                yield stream, RuntimeError("its task ended without a result")
            except ray.exceptions.RayError as error:
                yield stream, error

    def _landed(self, stream: Any, message: node.Message) -> Ended:
        """Store the record that a node sent, unless the cell may do better on another node."""
        store, record = self._context.store, Record.from_json(message["record"])
        key = record.cell.key
        store.write_log(key, message["log"].encode(errors="backslashreplace"))
        if record.status == "failed" and record.cause == "environment":
            return self._failed(stream, record)
        files = {"examples": message["examples"], "kept": message["kept"]}
        store.write(record, message["correct"], message["checkpoint"], **files)
        if not message["unfinished"]:
            store.partial(key).unlink(missing_ok=True)
        del self._flights[stream]
        return Ended(key)

    def _failed(self, stream: Any, failure: Record) -> Ended:
        flight = self._flights.pop(stream)
        key = flight.cell.key
        self._failed_on.setdefault(key, []).append(flight.node)
        return Ended(key, replace(failure, error=f"{(failure.error or '').rstrip()} (on {flight.host})"))

    def _fate(self, error: Exception) -> tuple[Status, str]:
        """The failure of a task whose messages end with this error."""
        exceptions = self._cluster.ray.exceptions
        if isinstance(error, exceptions.OutOfMemoryError):
            return "oom", "its node ran out of memory, so Ray killed it"
        if isinstance(error, exceptions.NodeDiedError):
            return "failed", "its node was lost"
        if isinstance(error, exceptions.WorkerCrashedError):
            return "failed", "its worker died"
        return "failed", f"its task failed: {(str(error).strip().splitlines() or [type(error).__name__])[-1].strip()}"

    def _elsewhere(self, key: str) -> str | None:
        """A node for another attempt: not the one where the last failed, if that is alive and not the only one."""
        if not (failed := self._failed_on.get(key)):
            return None
        room = self._cluster.room()
        others = [name for name, places in room.items() if places and name != failed[-1]]
        return others[len(failed) % len(others)] if others and room.get(failed[-1] or "") else None

    def _warm_start(self, cell: Cell) -> Any:
        """The folder of the cell's warm start in Ray's memory, put there once for all cells that need it."""
        if not cell.warm:
            return None
        key = cell.warm_cell().key
        if key not in self._warm:
            folder = self._context.store.cells / key
            content = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
            self._warm[key] = self._cluster.ray.put(content)
            for old in list(self._warm)[:-WARM_STARTS_KEPT]:
                del self._warm[old]
        return self._warm[key]

    def _save(self, key: str, state: bytes) -> None:
        """Keep the state of a cell for another attempt or another driver; losing it costs only time."""
        path = self._context.store.partial(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            with files.staged(path) as staging:
                staging.write_bytes(state)
