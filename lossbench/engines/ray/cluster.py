"""A connection to a Ray cluster: join or start it, check that it can run cells, leave it again."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lossbench.core.errors import ClusterLostError, LossbenchError
from lossbench.core.guard import descendants, end_tree
from lossbench.core.model import Cell
from lossbench.engines import available_cores
from lossbench.engines.protocol import Resources
from lossbench.engines.ray import node

LOOK_SECONDS = 2.0  # between two looks at the nodes of the cluster
REACH_SECONDS = 5.0  # for an address to answer
HEAD_SECONDS = 20.0  # for a head that is gone to come back
GRACE_SECONDS = 10.0  # for the run to end by itself when the cluster is lost
ANSWER_SECONDS = 60.0  # for a node to say whether it can take part
FETCH_SECONDS = 300.0  # for a message that Ray has announced to arrive

# Ray repeats the log of its daemons on our standard output; the scheduler reports what becomes of cells.
QUIET = {"RAY_DEDUP_LOGS_SKIP_REGEX": ".", "RAY_USAGE_STATS_ENABLED": "0"}
# With this setting, the default on desktops, Ray's daemons listen on 127.0.0.1 only; there is no public option for it.
ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def _on_node(strange: list[str], task: str, *arguments: Any) -> Iterator[node.Message]:
    """The Ray task. It travels as text, so that a node without lossbench can say so."""
    import socket
    import sys

    import ray

    yield {"node": ray.get_runtime_context().get_node_id(), "host": socket.gethostname()}
    # Ray puts the driver's working folder first, where something else may be called lossbench.
    sys.path[:] = [place for place in sys.path if place not in strange]
    try:
        from lossbench.engines.ray import node
    except Exception as error:
        yield {"refused": f"it cannot import lossbench ({type(error).__name__}: {error}); install it on every node"}
        return
    yield from getattr(node, task)(*arguments)


@dataclass
class Cluster:
    """A connection to Ray, and what a cell asks of it."""

    ray: Any  # the module
    cpus: float
    gpus: float
    memory: int | None
    notify: Callable[[str], None]
    daemons: tuple[int, ...] = ()  # pids, if it was started for this run: then what dies does not come back
    _raylet: str = field(default="", init=False)
    _looked: float = field(default=-LOOK_SECONDS, init=False)
    _room: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        here = self.ray.get_runtime_context().get_node_id()
        self._raylet = next(entry["RayletSocketName"] for entry in self.ray.nodes() if entry["NodeID"] == here)

    def room(self) -> dict[str, int]:
        """How many cells fit on each node that is alive, by its id."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self.check_alive()
            before = sum(self._room.values())
            asked = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory or 0}
            asked = {name: amount for name, amount in asked.items() if amount}
            nodes = {entry["NodeID"]: entry["Resources"] for entry in self.ray.nodes() if entry["Alive"]}
            self._room = {name: room_for(asked, has) for name, has in nodes.items()}
            self._looked = time.monotonic()
            if before and not sum(self._room.values()):
                self.notify(f"no node with {self.needs()} is left; waiting for one")
        return self._room

    def check_alive(self) -> None:
        """Raise if the raylet here is gone or the head does not come back: Ray would soon end this process."""
        kept = "finished cells are safe, run the same command again"
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(REACH_SECONDS)
                line.connect(self._raylet)
        except OSError as error:
            raise ClusterLostError(f"Ray's raylet on this machine no longer answers ({error}); {kept}") from error
        host, _, port = self.ray.get_runtime_context().gcs_address.rpartition(":")
        end = time.monotonic() + (0 if self.daemons else HEAD_SECONDS)
        while True:
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
                return
            except OSError as error:
                if time.monotonic() > end:
                    raise ClusterLostError(
                        f"the head of the Ray cluster at {host}:{port} no longer answers ({error}); {kept}"
                    ) from error
                time.sleep(1)

    def fetch(self, stream: Any) -> node.Message:
        """The next message of a task that has announced one."""
        reference = next(stream)
        end = time.monotonic() + FETCH_SECONDS
        while True:
            try:
                message: node.Message = self.ray.get(reference, timeout=LOOK_SECONDS)
                return message
            except self.ray.exceptions.GetTimeoutError:
                self.check_alive()
                if time.monotonic() > end:
                    raise

    def size(self) -> int:
        """How many cells it can run at a time; at least one, which waits if no node has room."""
        return max(1, sum(self.room().values()))

    def needs(self) -> str:
        parts = [f"{self.cpus:g} CPUs", f"{self.gpus:g} GPUs" if self.gpus else ""]
        return " and ".join(filter(None, [*parts, f"{self.memory:,} bytes of memory" if self.memory else ""]))

    def submit(self, name: str, arguments: Sequence[Any], *, on: str | None = None, hard: bool = False) -> Any:
        """Start a task; the stream of its messages. `on`: the preferred node (`hard`: the only one, at no cost)."""
        self.check_alive()
        asked: dict[str, Any] = {"num_cpus": 0} if hard else {"num_cpus": self.cpus, "num_gpus": self.gpus}
        if self.memory and not hard:
            asked["memory"] = self.memory
        if on:
            affinity = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            asked["scheduling_strategy"] = affinity(node_id=on, soft=not hard)
        here, package = str(Path.cwd()), str(Path(__file__).parents[3])
        strange = [here] if here != package else []
        # Ray itself must not retry: it would start over, without the state that the cell had sent.
        task = self.ray.remote(_on_node).options(num_returns="streaming", max_retries=0, name=name, **asked)
        return task.remote(strange, *arguments)

    def check_nodes(self) -> None:
        """Refuse nodes that have another lossbench or torch. One that does not answer is asked again by every cell."""
        places = [name for name, room in self.room().items() if room]
        here = node.identity()
        asked = {self.submit("lossbench: check", ["probe", here], on=place, hard=True): place for place in places}
        end = time.monotonic() + ANSWER_SECONDS
        while asked and (left := end - time.monotonic()) > 0:
            for stream in self.ray.wait(list(asked), timeout=left)[0]:
                try:
                    message = self.fetch(stream)
                except (StopIteration, self.ray.exceptions.RayError):
                    message = {"ready": False}
                if "host" in message:
                    asked[stream] = message["host"]
                    continue
                host = asked.pop(stream)
                if "refused" in message:
                    raise LossbenchError(f"node {host}: {message['refused']}")


def room_for(asked: Mapping[str, float], has: Mapping[str, float]) -> int:
    """How often `asked` fits into the resources of a node; with a tolerance for rounding, since 3 × 0.1 is not 0.3."""
    return min(int(has.get(name, 0) / amount + 1e-9) for name, amount in asked.items())


@contextlib.contextmanager
def connected(
    asked: Resources, cells: Sequence[Cell], memory: int | None, notify: Callable[[str], None]
) -> Iterator[Cluster]:
    """A cluster that can run these cells: at the address or $RAY_ADDRESS, else one that is started on this machine."""
    with _initialised(asked.address) as (ray, daemons):
        if not asked.gpus_per_cell and (wanting := [cell for cell in cells if cell.device != "cpu"]):
            raise LossbenchError(
                f"experiment '{wanting[0].experiment}' has device = \"{wanting[0].device}\": set "
                "--gpus-per-cell to the share of a GPU that a cell needs, such as 1 or 0.5"
            )
        cpus = asked.cpus_per_cell or max(cell.threads for cell in cells)
        cluster = Cluster(ray, cpus, asked.gpus_per_cell, memory, notify, daemons)
        if not asked.jobs and not sum(cluster.room().values()):
            raise LossbenchError(
                f"no node of the Ray cluster has {cluster.needs()} for a cell; if nodes start on demand, set "
                "-j to the number of cells to run at a time"
            )
        with _watched(cluster):
            cluster.check_nodes()
            yield cluster


def check(address: str | None) -> None:
    """Raise at once if Ray is not installed or no cluster answers at the address."""
    with _quietly():
        ray = _imported()
    if ray.is_initialized():
        if address:
            raise LossbenchError("this process is already connected to a Ray cluster: omit the address")
    else:
        _reach(_place(address))


@contextlib.contextmanager
def _initialised(address: str | None) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """The module `ray`, connected, and the daemons that were started for it; both are ended again."""
    check(address)
    ray = _imported()
    if ray.is_initialized():  # by the user, who also ends it
        yield ray, ()
        return
    before = descendants(os.getpid())
    with _quietly():
        _connect(ray, _place(address))
    daemons = tuple(pid for pid in descendants(os.getpid()) if pid not in before) if _place(address) == "local" else ()
    with contextlib.ExitStack() as leaving:
        leaving.callback(ray.shutdown)
        try:
            yield ray, daemons
        except ClusterLostError:
            leaving.pop_all()
            _abandon(ray, daemons)
            raise


def _abandon(ray: Any, daemons: Sequence[int]) -> None:
    """Leave a cluster that is lost and end what is left of our own: `ray.shutdown` would wait for it."""
    ours = set(descendants(os.getpid()))
    for pid in daemons:
        if pid in ours:  # else the number may belong to another process by now
            end_tree(pid)
    atexit.unregister(ray.shutdown)


@contextlib.contextmanager
def _watched(cluster: Cluster) -> Iterator[None]:
    """If the cluster is lost while a call of Ray hangs, end this process as Ray itself would, but with a sentence."""
    left = threading.Event()

    def watch() -> None:
        while not left.wait(LOOK_SECONDS):
            try:
                cluster.check_alive()
            except ClusterLostError as error:
                if not left.wait(GRACE_SECONDS):
                    cluster.notify(str(error))
                    _abandon(cluster.ray, cluster.daemons)
                    os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        left.set()


def _place(address: str | None) -> str:
    return address or os.environ.get("RAY_ADDRESS") or "local"


def _quietly() -> contextlib.AbstractContextManager[None]:
    """Ray reads some of its settings when it is imported, others when it starts."""
    return _environment({name: value for name, value in QUIET.items() if name not in os.environ})


@contextlib.contextmanager
def _environment(ours: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _imported() -> Any:
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
        importlib.import_module("ray.cloudpickle").register_pickle_by_value(sys.modules[__name__])
    except ImportError as error:
        raise LossbenchError(f"the Ray engine needs Ray ({error}): pip install 'lossbench[ray]'") from error
    return ray


def _connect(ray: Any, address: str) -> None:
    options: dict[str, Any] = {"num_cpus": available_cores(), "include_dashboard": False} if address == "local" else {}
    alone = _alone(ray) if address == "local" else contextlib.nullcontext()
    handler = signal.getsignal(signal.SIGTERM)  # which Ray replaces
    try:
        with _hushed(), alone:
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        said = " ".join(str(error).split())
        raise LossbenchError(f"cannot join the Ray cluster at {address}: {said}") from error
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _alone(ray: Any) -> Iterator[None]:
    """Inside this context, Ray daemons listen on this machine only. Ray read the setting when it was imported."""
    constants = ray._private.ray_constants
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        with _environment(ALONE):
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Without the lines that Ray's core writes to stderr, past Python, until its error says the same."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _reach(address: str) -> None:
    """Raise if no Ray cluster answers at HOST:PORT; Ray itself would take minutes to find out."""
    host, colon, port = address.rpartition(":")
    if address in ("local", "auto"):
        return
    if "://" in address:
        raise LossbenchError(
            f"{address}: Ray's client is not supported; start lossbench on a machine of the cluster, with "
            "--address auto or HOST:6379"
        )
    if not colon or not port.isdecimal():
        raise LossbenchError(f"'{address}' is not the address of a Ray cluster: auto, or HOST:PORT such as head:6379")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS) as line:
            theirs = os.environ.get("RAY_USE_TLS", "0") != "0" or _speaks_http2(line)
    except (OSError, OverflowError) as error:
        raise LossbenchError(
            f"no Ray cluster answers at {address} ({error}); was `ray start --head` run there?"
        ) from error
    if not theirs:
        raise LossbenchError(
            f"the server at {address} is not a Ray cluster; the default port of `ray start --head` is 6379"
        )


def _speaks_http2(line: socket.socket) -> bool:
    """Whether the other end greets as gRPC does, with a SETTINGS frame; Ray would wait minutes for one."""
    line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    try:
        head = line.recv(9, socket.MSG_WAITALL)
    except OSError:  # it says nothing, or hangs up
        return False
    return len(head) == 9 and head[3] == 4
