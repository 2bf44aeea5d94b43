"""Runs on a node of a cluster: the local engine runs one cell in a separate folder. Independent of Ray.

Only plain data comes in and goes out. The cell runs as it does locally, in a process forked from a server that has
torch loaded, so its result is the same to the bit and nothing it does to its process affects others. The server stays
for the cells to come and ends with the process that started it, however that ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lossbench.core import files
from lossbench.core.errors import PluginError
from lossbench.core.model import Cell
from lossbench.engines import scheduler
from lossbench.engines.local import Local
from lossbench.engines.protocol import Limits, Resources, RunContext
from lossbench.engines.servers import Servers
from lossbench.plugins.registry import FOLDER, Registry
from lossbench.store.records import Store

POLL_SECONDS = 0.5  # between two looks at the state that a cell saves
SCRATCH = "lossbench-node-"  # prefix of the folders of cells
YOUNG_SECONDS = 60  # a folder may have been made just now and not be locked yet

Message = dict[str, Any]


def pack(registry: Registry) -> list[dict[str, bytes]]:
    """The plugin files of each of the registry's folders, by relative path: what travels to the nodes."""
    return [
        {
            f"{kind}/{path.name}": path.read_bytes()
            for kind in FOLDER.values()
            for path in sorted((folder / kind).glob("*.py"))
            if path.is_file()
        }
        for folder in registry.folders
    ]


def unpack(packed: Sequence[Mapping[str, bytes]], into: Path) -> list[Path]:
    """Folders that a Registry reads, with the files of `pack`."""
    folders = [into / str(number) for number in range(len(packed))]
    for folder, content in zip(folders, packed, strict=True):
        _write(folder, content)
    return folders


def identity() -> dict[str, str]:
    """Must be the same on all machines of a run: the source of this package, and torch (its build may differ)."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return {"lossbench": digest.hexdigest(), "place": str(package), "torch": version("torch").partition("+")[0]}


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """Why a machine must not take part in a run, or None."""
    if here["lossbench"] != there["lossbench"]:
        return (
            f"its lossbench ({there['place']}) differs from that of this run ({here['place']}); install the same on all"
        )
    if here["torch"] != there["torch"]:
        return f"it has torch {there['torch']}, this run torch {here['torch']}; results would not be comparable"
    return None


def probe(here: Mapping[str, str]) -> Iterator[Message]:
    """Whether this machine can take part."""
    problem = difference(here, identity())
    yield {"refused": problem} if problem else {"ready": True}


def work(
    planned: Mapping[str, Any],
    shared: Mapping[str, Any],
    warm: Mapping[str, bytes] | None = None,
    partial: bytes | None = None,
) -> Iterator[Message]:
    """Train one cell. Yields {"started"}, {"partial"} with each state it saves, at last {"record", "correct", …}.

    `planned` is the cell, `shared` what all cells of the run have in common, `warm` the folder of the warm start's
    record, `partial` the state that an earlier attempt saved. {"refused"} comes instead of a result when this machine
    would not run what was planned.
    """
    cell = Cell.from_json(planned)
    with _scratch() as root:
        folders = unpack(shared["plugins"], root / "plugins")
        registry = Registry(folders)
        if problem := difference(shared["identity"], identity()) or _stranger(cell, registry):
            yield {"refused": problem}
            return
        store = Store(root / "run")
        store.logs.mkdir(parents=True)
        if cell.warm and warm:
            _write(store.cells / cell.warm_cell().key, warm)
        if partial is not None:
            _write(store.partial(cell.key).parent, {store.partial(cell.key).name: partial})
        yield from _trained(cell, registry, store, shared)
        # Its log and error name the user's files, not the copies here.
        paths = dict(zip(map(str, folders), shared["folders"], strict=True)) | {str(store.root): shared["store"]}
        yield _result(cell.key, store, paths)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder of our own. Processes that were killed left theirs behind, unlocked: these are deleted."""
    for old in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError), files.locked(old, folder=True) as abandoned:
            if abandoned and time.time() - old.stat().st_mtime > YOUNG_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=SCRATCH) as folder, files.locked(Path(folder), folder=True):
        yield Path(folder).resolve()


def _trained(cell: Cell, registry: Registry, store: Store, shared: Mapping[str, Any]) -> Iterator[Message]:
    """Run the cell on the local engine, and pass on the state that it saves."""
    data = _data_folder(shared["data"], shared["data_given"])
    limits = Limits(**shared["limits"])
    context = RunContext(store, registry, data, _servers.started(cell, shared["run"], registry), limits)
    yield {"started": True}

    def run() -> None:
        engine = Local(Resources(jobs=1))
        with engine.open([cell], context):
            scheduler.execute([cell], engine, store, scheduler.Rules(limits.timeout))

    state = store.partial(cell.key)
    passed = _modified(state)
    with ThreadPoolExecutor(1) as pool:
        try:
            ended: Future[None] = pool.submit(run)
            while not ended.done():
                wait([ended], POLL_SECONDS)
                if (modified := _modified(state)) != passed:
                    passed = modified
                    with contextlib.suppress(FileNotFoundError):  # the cell has just finished
                        yield {"partial": state.read_bytes()}
            ended.result()
        except BaseException:  # when the task is stopped, so is the cell; a server that failed is not used again
            _servers.close()
            raise


def _result(key: str, store: Store, paths: Mapping[str, str]) -> Message:
    record = store.read(key)
    assert record is not None, "every cell ends with a record"
    log = store.log(key).read_text(errors="replace") if store.log(key).is_file() else ""
    for there, here in paths.items():
        log = log.replace(there, here)
        record["error"] = record["error"] and record["error"].replace(there, here)
    return {
        "record": record,
        "correct": store.correct(key) if "correct.npz" in record["files"] else None,
        "checkpoint": store.checkpoint(key) if "checkpoint.pt" in record["files"] else None,
        "examples": {name: found for name in record["metrics"] if (found := store.examples(key, name)) is not None},
        "kept": {name: store.kept(key, name, checksum) for name, checksum in record["kept"].items()},
        "unfinished": store.partial(key).is_file(),  # it can resume from the state that was passed on
        "log": log,
    }


def _stranger(cell: Cell, registry: Registry) -> str | None:
    """Why a plugin of the cell differs from the planned one: an installed package may differ by machine.

    A dataset is identified by its arrays, which the cell itself compares.
    """
    for kind, spec in cell.plugins:
        try:
            same = registry.unchanged(kind, spec)
        except PluginError as error:
            return f"{error}; install the same plugins on all machines"
        if not same:
            return f"its {kind} '{spec.name}' differs from that of this run; install the same plugins on all machines"
    return None


def _data_folder(planned: str, given: bool) -> Path:
    """The data folder of this machine: the one the user named, else its own $LOSSBENCH_DATA, else the driver's."""
    own = os.environ.get("LOSSBENCH_DATA")
    return Path(own if own and not given else planned)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _write(folder: Path, content: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


class _Servers:
    """The fork servers of this process, kept for the next cells of the same run."""

    def __init__(self) -> None:
        self._servers: Servers | None = None
        self._purpose: object = None

    def started(self, cell: Cell, run: str, registry: Registry) -> Servers:
        """Servers that are up: loading torch takes seconds, which must not count as the first cell's own."""
        devices = {name: value for name, value in os.environ.items() if name.endswith("VISIBLE_DEVICES")}
        purpose = (run, devices)  # Ray may give each cell another GPU
        if self._servers is None or purpose != self._purpose:
            self.close()
            self._servers, self._purpose = Servers(registry), purpose
        self._servers.registry = registry  # its folders are those of this cell alone
        self._servers.start([cell])
        return self._servers

    def close(self) -> None:
        if self._servers is not None:
            self._servers.close()
        self._servers = None


_servers = _Servers()
