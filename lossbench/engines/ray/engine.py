"""Cells on a Ray cluster: the local engine's scheduler here, the local engine itself (`node`) on the nodes.

A cell is a Ray task that streams messages back: where it runs, the state it keeps, its record. The driver alone writes
to the store. A task whose worker or node dies is sent elsewhere, with the state that it last sent; what a plugin does
to its own process is a status, as it is locally.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from lossbench.core.errors import ClusterLostError, RunError
from lossbench.core.files import write_atomically
from lossbench.core.model import Cell, Record, Status
from lossbench.engines import local
from lossbench.engines.ray import node
from lossbench.engines.ray.cluster import Cluster, check, connected
from lossbench.engines.servers import Servers
from lossbench.plugins.registry import Registry
from lossbench.store.records import Store

__all__ = ["Cluster", "check", "connected", "execute"]

ATTEMPTS = 3
POLL_SECONDS = 0.5
GRACE_SECONDS = 30.0  # a node that does not enforce the time limit itself is given so much more
WARM_STARTS_KEPT = 8  # in Ray's memory; older ones are put there again when a cell needs them


def execute(
    cells: Sequence[Cell],
    store: Store,
    cluster: Cluster,
    *,
    registry: Registry,
    data: Path,
    data_given: bool = False,
    jobs: int | None = None,
    on_event: Callable[[local.Event], None] = lambda event: None,
    timeout: float | None = None,
    memory: int | None = None,
    checkpoint: float = 60,
    fail_fast: bool = False,
    redo: frozenset[str] = frozenset(),
) -> None:
    """As `local.execute`, on a cluster: as many cells at a time as it has room for, unless `jobs` says.

    `data_given`: the user named the data folder, so nodes look nowhere else.
    """
    job = {
        **{"data": str(data.absolute()), "data_given": data_given, "store": str(store.root)},
        **{"timeout": timeout, "memory": memory, "checkpoint": checkpoint},
    }
    shared = {
        "run": uuid.uuid4().hex,
        "plugins": node.pack(registry),
        "folders": [str(folder.absolute()) for folder in registry.folders],
        "identity": node.identity(),
    }
    fleet = _Fleet(cluster, store, cluster.ray.put(shared))
    scheduler = _Scheduler(
        waiting=list(cells),
        store=store,
        servers=cast(Servers, fleet),  # to the scheduler both are something to submit cells to
        job=job,
        jobs=1,
        on_event=on_event,
        timeout=timeout,
        memory=memory,
        fail_fast=fail_fast,
        redo=redo,
        free_gpus=[],
        fleet=fleet,
        at_a_time=jobs,
    )
    try:
        scheduler.run()
    except ClusterLostError:
        fleet.flights.clear()  # there is nobody to cancel them
        raise
    except cluster.ray.exceptions.RayError as error:
        said = " ".join(str(error).split())
        raise RunError(f"the Ray cluster was lost ({said}); finished cells are safe, run the command again") from error
    finally:
        fleet.close()


@dataclass
class _Flight:
    """A cell on its way: how often it was tried, where it is, since when."""

    key: str
    job: dict[str, Any]
    attempt: int = 1
    node: str | None = None
    host: str = "a node"
    since: float | None = None
    stopped: bool = False  # by us, since it took too long


class _Fleet:
    """The cells in flight, each with the stream of its messages."""

    def __init__(self, cluster: Cluster, store: Store, shared: Any) -> None:
        self.cluster, self.store, self.shared = cluster, store, shared
        self.flights: dict[Any, _Flight] = {}
        self._warm: dict[str, Any] = {}

    def submit(self, key: str, log: Path, job: dict[str, Any]) -> None:
        del log  # it comes back with the record
        self.launch(_Flight(key, job))

    def launch(self, flight: _Flight, on: str | None = None) -> None:
        cell = Cell.from_json(flight.job["cell"])
        state = self.store.partial(flight.key)
        partial = state.read_bytes() if state.is_file() else None
        arguments = ["work", flight.job, self.shared, self.warm_start(cell), partial]
        self.flights[self.cluster.submit(f"lossbench: {cell.title}", arguments, on=on)] = flight

    def warm_start(self, cell: Cell) -> Any:
        """The folder of the cell's warm start in Ray's memory, put there once for all cells that need it."""
        if not cell.warm:
            return None
        key = cell.warm_cell().key
        if key not in self._warm:
            files = {path.name: path.read_bytes() for path in (self.store.cells / key).iterdir() if path.is_file()}
            self._warm[key] = self.cluster.ray.put(files)
            for old in list(self._warm)[:-WARM_STARTS_KEPT]:
                del self._warm[old]
        return self._warm[key]

    def elsewhere(self, flight: _Flight) -> str | None:
        """A node for another attempt: not the one where the last went wrong, if that is still there and not alone."""
        room = self.cluster.room()
        others = [name for name, places in room.items() if places and name != flight.node]
        return others[flight.attempt % len(others)] if others and room.get(flight.node or "") else None

    def messages(self) -> Iterator[tuple[Any, node.Message | Exception]]:
        """What has come within a moment; an exception where a task or its node died."""
        ray = self.cluster.ray
        self.cluster.check_alive()
        if not self.flights:  # all that is left is held by another run
            time.sleep(POLL_SECONDS)
            return
        for stream in ray.wait(list(self.flights), timeout=POLL_SECONDS)[0]:
            try:
                yield stream, self.cluster.fetch(stream)
            except StopIteration:
                yield stream, RuntimeError("its task ended without a result")
            except ray.exceptions.RayError as error:
                yield stream, error

    def stop(self, stream: Any) -> None:
        with contextlib.suppress(Exception):  # gone already, or the whole cluster is
            self.cluster.ray.cancel(stream, force=True)

    def close(self) -> None:
        for stream in self.flights:
            self.stop(stream)


@dataclass
class _Scheduler(local._Scheduler):
    """The local engine's rules (claims, warm starts first, timing alone, fail fast) for cells that run elsewhere."""

    fleet: _Fleet
    at_a_time: int | None

    def start_what_can(self) -> None:
        self.jobs = self.at_a_time or self.fleet.cluster.size()  # nodes come and go
        self.free_gpus = ["any"] * self.jobs  # Ray gives them out
        super().start_what_can()

    def listen(self) -> None:
        for stream, message in self.fleet.messages():
            flight = self.fleet.flights[stream]
            if isinstance(message, Exception):
                self.lost(stream, *self.fate(message))
            elif "node" in message:
                flight.node, flight.host = message["node"], message["host"]
            elif "started" in message:
                flight.since = time.monotonic()
            elif "partial" in message:
                self.keep(flight.key, message["partial"])
            elif "refused" in message:
                raise RunError(f"node {flight.host}: {message['refused']}")
            else:
                self.landed(stream, message)

    def landed(self, stream: Any, message: node.Message) -> None:
        """Put a cell's record, as the node sent it, into the store."""
        key = self.fleet.flights[stream].key
        record = Record.from_json(message["record"])
        self.store.write_log(key, message["log"].encode(errors="backslashreplace"))
        if (record.error or "").startswith("its process was killed by SIGKILL"):
            # Nobody but the system (short of memory), a person or the plugin itself does that: the first two may not
            # do it elsewhere.
            self.lost(stream, "failed", record.error or "")
            return
        self.store.write(record, message["correct"], message["checkpoint"])
        if not message["unfinished"]:
            self.store.partial(key).unlink(missing_ok=True)
        del self.fleet.flights[stream]
        self.finish(key, record.status, "")

    def lost(self, stream: Any, status: Status, why: str) -> None:
        """A worker or its node died: try again elsewhere, three times in all."""
        flight = self.fleet.flights.pop(stream)
        if flight.stopped:
            self.finish(flight.key, "timeout", f"killed after {self.timeout:g} seconds; its node did not do it")
        elif flight.attempt >= ATTEMPTS:
            self.finish(flight.key, status, f"{why} (on {flight.host}; tried {ATTEMPTS} times)")
        else:
            title = self.running[flight.key].cell.title
            self.fleet.cluster.notify(f"{title}: {why} (on {flight.host}); it is tried again")
            again = _Flight(flight.key, flight.job, flight.attempt + 1)
            self.fleet.launch(again, on=self.fleet.elsewhere(flight))

    def fate(self, error: Exception) -> tuple[Status, str]:
        """What became of a task, in words."""
        exceptions = self.fleet.cluster.ray.exceptions
        if isinstance(error, exceptions.OutOfMemoryError):
            return "oom", "its node had no memory left, so Ray ended it"
        if isinstance(error, exceptions.NodeDiedError):
            return "failed", "its node was lost"
        if isinstance(error, exceptions.WorkerCrashedError):
            return "failed", "its worker died"
        return "failed", f"its task failed: {(str(error).strip().splitlines() or [type(error).__name__])[-1].strip()}"

    def keep(self, key: str, state: bytes) -> None:
        """The state of a cell, for another attempt or another driver; one that is lost costs time and nothing else."""
        path = self.store.partial(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, state)

    def enforce_limits(self) -> None:
        """The nodes do; this is for one that no longer answers."""
        for stream, flight in self.fleet.flights.items():
            if self.timeout is None or flight.since is None or flight.stopped:
                continue
            if time.monotonic() - flight.since > self.timeout + GRACE_SECONDS:
                flight.stopped = True
                self.fleet.stop(stream)
