"""Records on disk: one folder per cell, complete or missing.

runs/NAME/suite.toml            the suite when the run began
runs/NAME/plan.json             all cells of the suite, with their keys
runs/NAME/cells/KEY/            record.json, correct.npz (one bit per test example), checkpoint.pt (warm starts),
                                examples.npz (metrics with a value per test example), and what the cell keeps:
                                predictions.npz, features.npz, model.pt
runs/NAME/logs/KEY.log          what the cell's process printed
runs/NAME/partial/KEY.pt        the state of a running cell, saved every minute
runs/NAME/staging/              folders being written; renamed into cells/ when complete
runs/NAME/set_aside/            damaged or replaced folders: never read, never deleted
"""

from __future__ import annotations

import gc
import hashlib
import io
import json
import os
import shutil
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lossbench.core import files
from lossbench.core.beside import beside
from lossbench.core.current import current
from lossbench.core.errors import StoreError
from lossbench.core.metric import Metric
from lossbench.core.model import GEOMETRY, LEDGER, SECONDS, Cell, Record, Suite, SuiteInfo
from lossbench.core.point import Point
from lossbench.plugins.metrics import METRICS, columns
from lossbench.store.schema import parsed

if TYPE_CHECKING:
    import pandas

# Raised when a key changes its meaning or is removed; a new key does not raise them.
PLAN_VERSION = 1
RECORD_VERSION = 1
LOCAL_HEADER = struct.Struct("<4s5H3I2H")  # of a file in a zip archive
CHECKPOINT = "checkpoint.pt"  # of a warm start
CHECKSUM = b',\n "checksum": '  # the last field of record.json
MANY = 500  # records of which another process reads half

Plan = tuple[SuiteInfo, list[Cell]]  # what a report needs of a suite, and all cells of the suite
Scan = tuple[dict[str, dict[str, Any]], dict[str, str]]  # sound records, and what is wrong with the others


class Store:
    """One run folder."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)  # as given: for messages
        self.cells, self.logs = self.root / "cells", self.root / "logs"
        self._place = self.root.absolute()  # absolute: a plugin may change the working folder
        self._cells, self._staging, self._set_aside, self._claims, self._partial = (
            self._place / name for name in ("cells", "staging", "set_aside", "claims", "partial")
        )
        self.prepared: Plan | None = None  # what `prepare` last wrote; plan.json may be of another run by now

    # --- the run as a whole

    def prepare(self, suite: Suite, cells: Sequence[Cell]) -> None:
        """Make the folder ready for a run of `cells`, all cells of the suite."""
        with self._writing():
            for folder in (self._cells, self._place / "logs", self._staging, self._claims):
                folder.mkdir(parents=True, exist_ok=True)
            with files.locked(self._claims / "folder", shared=True):
                pass  # before anything trains: can files be locked here?
            planned = [cell.to_json() for cell in cells]
            info = replace(suite.info, looks=self._looks(cells, suite.info))
            plan = {"version": PLAN_VERSION, "suite": info.to_json(), "cells": planned}
            files.write_atomically(self._place / "suite.toml", suite.text.encode())
            files.write_atomically(self._place / "plan.json", json.dumps(plan, separators=(",", ":")).encode())
        self.prepared = info, list(cells)

    def _looks(self, cells: Sequence[Cell], info: SuiteInfo) -> dict[str, list[int]]:
        """The numbers of seeds that each experiment had in earlier plans of this folder (or of merged ones: `info`).

        Seeds added after looking at the results make chance findings likelier; the report warns about it. Seeds may
        also be added with --set or by another profile, so an experiment that keeps some of its cells is the same one.
        """
        try:
            before, old = self.plan()
        except StoreError:
            self._keep_plan()
            return dict(info.looks)
        found = dict(info.looks)
        known = {cell.key for cell in old}
        alike = (before.profile, before.overrides) == (info.profile, info.overrides)
        same = {cell.experiment for cell in cells if alike or cell.key in known}
        for name, seeds in _seeds([cell for cell in cells if cell.experiment in same]).items():
            looks = [*(before.looks.get(name) or found.get(name, [])), _seeds(old).get(name, seeds)]
            if kept := [count for place, count in enumerate(looks) if count != [*looks, seeds][place + 1]]:
                found[name] = kept
        return found

    def _keep_plan(self) -> None:
        """Set an unreadable plan (damaged, or of another version) aside before a new one is written."""
        if os.path.lexists(self._place / "plan.json"):
            self._set_aside.mkdir(parents=True, exist_ok=True)
            (self._place / "plan.json").rename(self._set_aside / f"plan.json-{uuid.uuid4().hex[:8]}")

    def plan(self) -> Plan:
        """The suite's info and cells, from the last plan of the run."""
        path = self.root / "plan.json"
        try:
            plan = json.loads(files.content(self._place / path.name))
            if plan.get("version") != PLAN_VERSION:
                raise StoreError(f"{path}: {_other_plan(plan.get('version'))}")
            info = SuiteInfo.from_json(plan["suite"])
            if not info.metrics:  # an older plan, which can only mean the metrics of lossbench
                info = replace(info, metrics=tuple(metric.plain for metric in METRICS.values()))
            return info, [Cell.from_json(cell) for cell in plan["cells"]]
        except FileNotFoundError:
            raise StoreError(f"{self.root}: is not a run folder (it has no plan.json)") from None
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{path}: is damaged; run the suite again with the same --out to rewrite it") from error

    # --- records

    def scan(self, *, checkpoints: bool = True) -> Scan:
        """All valid records by key (the content of record.json), and what is wrong with every other folder entry.

        `checkpoints`: a warm start needs its checkpoint. Reports do not: records are also kept and sent without them.
        """
        try:
            folders = sorted(entry.path for entry in os.scandir(self._cells))
        except FileNotFoundError:
            return {}, {}
        except OSError as error:
            raise StoreError(f"{self.cells}: cannot be read ({error.strerror})") from error
        with uncollected():
            if len(folders) < MANY:
                return _scanned(folders, checkpoints)
            half = len(folders) // 2
            rest = beside(lambda: _scanned(folders[half:], checkpoints))
            sound, damaged = _scanned(folders[:half], checkpoints)
            more_sound, more_damaged = rest()
            return sound | more_sound, damaged | more_damaged

    def read(self, key: str, *, checkpoints: bool = True) -> dict[str, Any] | None:
        """The record of one cell, or None if it is missing or damaged; `checkpoints` as in `scan`."""
        try:
            return _sound_record(str(self._cells / key), checkpoints)
        except (OSError, ValueError):
            return None

    def write(
        self,
        record: Record,
        correct: NDArray[np.bool_] | None = None,
        checkpoint: bytes | None = None,
        *,
        examples: Mapping[str, NDArray[np.float64]] | None = None,
        kept: Mapping[str, bytes] | None = None,
        carried: Mapping[str, str] | None = None,
    ) -> None:
        """Put a cell's folder in place by one rename; an existing one is set aside.

        `examples` are the values of metrics per test example. `kept` are further files by name; they may be large, so
        their checksums are compared when they are used, not whenever the record is read. `carried` are those of the
        present folder that stay, with their checksums.
        """
        key = record.cell.key
        parts = {}
        if correct is not None:
            buffer = io.BytesIO()
            np.savez(buffer, bits=np.packbits(correct), total=np.int64(len(correct)))
            parts["correct.npz"] = buffer.getvalue()
        if checkpoint is not None:
            parts[CHECKPOINT] = checkpoint
        if examples:
            buffer = io.BytesIO()
            stored = {name: _narrow(values) for name, values in examples.items()}
            np.savez(buffer, **stored)  # type: ignore[arg-type]  # its keywords are the names of the arrays
            parts["examples.npz"] = buffer.getvalue()
        sums = {name: _checksum(content) for name, content in parts.items()}
        parts |= kept or {}
        stays = {**(carried or {}), **{name: _checksum(content) for name, content in (kept or {}).items()}}
        content = {"version": RECORD_VERSION} | record.to_json() | {"files": sums, "kept": stays}
        parts["record.json"] = _signed(content)
        with self._writing():
            self._staging.mkdir(parents=True, exist_ok=True)
            self._cells.mkdir(parents=True, exist_ok=True)
            with files.staged(self._cells / key, self._staging / f"{key}-{uuid.uuid4().hex[:8]}") as staging:
                staging.mkdir()
                for name, part in parts.items():
                    files.write_durably(staging / name, part)
                for name in (name for name in stays if name not in parts):
                    files.link_or_copy(self._cells / key / name, staging / name)
                if os.path.lexists(self._cells / key):  # a link that leads nowhere, too
                    self.set_aside(key)
            _sync_folder(self._cells)

    def set_aside(self, name: str) -> Path:
        """Move an entry of cells/ to set_aside/; returns its new path."""
        with self._writing():
            self._set_aside.mkdir(parents=True, exist_ok=True)
            target = self._set_aside / f"{name}-{uuid.uuid4().hex[:8]}"
            (self._cells / name).rename(target)
        return self.root / target.relative_to(self._place)

    def lacks_checkpoint(self, key: str) -> bool:
        """Whether it is a sound record of a warm start whose checkpoint was deleted, so that no cell can refine it."""
        return not (self._cells / key / CHECKPOINT).exists() and self.read(key, checkpoints=False) is not None

    def checkpoint(self, key: str) -> bytes:
        """The checkpoint of a finished warm start; StoreError if its checksum is not that in the record."""
        path = self.cells / key / CHECKPOINT
        try:
            content = (self._cells / key / path.name).read_bytes()
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
        record = self.read(key)
        if record is None or record["files"].get(path.name) != _checksum(content):
            raise StoreError(f"{path}: is damaged; run the same command again to train it again")
        return content

    def correct(self, key: str) -> NDArray[np.bool_]:
        """One bit per test example of a finished cell."""
        bits, total = _packed(files.content(self._cells / key / "correct.npz"))
        return np.unpackbits(bits, count=total).view(bool)

    def examples(self, key: str, metric: str) -> NDArray[np.float64] | None:
        """The values of a metric per test example; None if it has only one for all."""
        try:
            with np.load(io.BytesIO(files.content(self._cells / key / "examples.npz"))) as found:
                return found[metric].astype(np.float64) if metric in found.files else None
        except FileNotFoundError:
            return None

    def kept(self, key: str, name: str, checksum: str) -> bytes:
        """A file that a cell keeps; StoreError if it is not the one that was written."""
        path = self.cells / key / name
        try:
            content = files.content(self._cells / key / name)
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
        if _checksum(content) != checksum:
            raise StoreError(f"{path}: is damaged")
        return content

    def partial(self, key: str) -> Path:
        """The file for the state of a running cell."""
        return self._partial / f"{key}.pt"

    def log(self, key: str) -> Path:
        return self.logs / f"{key}.log"

    def write_log(self, key: str, content: bytes) -> None:
        """Write the log of a cell that ran elsewhere."""
        with self._writing():
            (self._place / "logs").mkdir(parents=True, exist_ok=True)
            files.write_atomically(self._place / "logs" / f"{key}.log", content)

    # --- sharing the folder with other runs

    @contextmanager
    def claim(self, key: str, *, alone: bool = False) -> Iterator[bool]:
        """Lock a cell; False if another process has it. The system releases the lock when our process ends.

        `alone`: only if no other run on this folder holds any cell, and none may start one meanwhile (timing cells).
        """
        with self._writing():
            self._claims.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            with self._writing():
                ours = held.enter_context(files.locked(self._claims / key)) and held.enter_context(
                    files.locked(self._claims / "folder", shared=not alone)
                )
            yield ours

    def sweep_staging(self) -> None:
        """Delete what killed writers left incomplete, except for cells that another run holds."""
        for staged in list(self._staging.iterdir()) if self._staging.is_dir() else []:
            with self.claim(staged.name.partition("-")[0]) as ours:
                if ours:
                    shutil.rmtree(staged, ignore_errors=True)
        for state in self._partial.glob(".*.pt-*"):
            with self.claim(state.name[1:].partition(".")[0]) as ours:
                if ours:
                    state.unlink(missing_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except files.LockError as error:
            raise StoreError(
                f"{self.root}: files cannot be locked there ({error.strerror}), so two runs could train the same cell "
                "and overwrite each other; put the run folder on a local disk with --out DIR"
            ) from error
        except OSError as error:
            place = str(error.filename or self.root).replace(str(self._place), str(self.root), 1)
            raise StoreError(f"{place}: cannot be written ({error.strerror}); finished cells are safe") from error


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the garbage collector: where much is allocated and little freed, it takes a quarter of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _seeds(cells: Sequence[Cell]) -> dict[str, int]:
    """The number of seeds of each experiment."""
    seeds: dict[str, set[int]] = {}
    for cell in cells:
        seeds.setdefault(cell.experiment, set()).add(cell.seed)
    return {name: len(mine) for name, mine in seeds.items()}


def load_records(run_dir: str | os.PathLike[str]) -> pandas.DataFrame:
    """The records of a run as a table, one row per planned cell that has a record.

    Columns: key, status, error, cause, experiment, task, dataset, backbone, width, classes, loss, label, seed, kind,
    trial, point (a mapping, with the axes that the suite sweeps), correct, total, accuracy (percent), seconds_*,
    bytes_*, angle_train and angle_test (degrees, mean over classes), those of GEOMETRY, one per metric that has none
    of these (scores in percent), fingerprint, flags, options (a dict), and the curve, angles, rounds and timing as
    recorded. A cell that two experiments share has one row in each. A metric has a
    value only where it was measured with the code that the plan names.
    """
    store = Store(run_dir)
    info, cells = store.plan()
    return tabulated(cells, store.scan()[0], info.metrics)


def _narrow(values: NDArray[np.float64]) -> NDArray[np.floating[Any]]:
    """The values in float32, if that loses nothing: half the bytes."""
    with np.errstate(over="ignore"):
        short = values.astype(np.float32)
    return short if np.array_equal(short, values) else values


def tabulated(
    cells: Sequence[Cell], records: Mapping[str, Mapping[str, Any]], metrics: Sequence[Metric]
) -> pandas.DataFrame:
    """The planned cells that have a record, as `load_records` returns them."""
    import pandas

    names = _columns(metrics)
    columns = {metric.name: metric.column for metric in metrics}
    derived = {METRICS[m.name].column: METRICS[m.name].measure for m in metrics if _derived(m)}
    rows = [_row(cell, records[cell.key], names, columns, derived) for cell in cells if cell.key in records]
    one: dict[Point, Point] = {}  # an object per point: dicts compare the same object without looking at its values
    for row in rows:
        row["point"] = one.setdefault(row["point"], row["point"])
    return pandas.DataFrame(rows, columns=None if rows else names)


def _derived(metric: Metric) -> bool:
    """Whether a column is computed from any record, however old, by our own code."""
    return metric.source == "record" and metric.name in METRICS


def _columns(metrics: Iterable[Metric]) -> list[str]:
    return list(
        dict.fromkeys(
            [
                *("key", "status", "error", "cause", "experiment", "task", "dataset", "backbone", "width", "classes"),
                *("point", "loss", "label", "seed", "kind", "trial", "correct", "total", "accuracy"),
                *(f"seconds_{name}" for name in SECONDS),
                *(f"bytes_{name}" for name in LEDGER),
                *("angle_train", "angle_test"),
                *GEOMETRY,
                *columns(metrics, "test"),
                *("fingerprint", "flags", "options", "curve", "angles", "features", "rounds", "timing", "environment"),
                *("verification", "counts"),
                *columns(metrics, "record"),
            ]
        )
    )


def _row(
    cell: Cell,
    record: Mapping[str, Any],
    names: Sequence[str],
    columns: Mapping[str, str],
    derived: Mapping[str, Callable[[Any], Any]],
) -> dict[str, Any]:
    row = {
        **dict.fromkeys(names),
        **{name: record[name] for name in ("key", "status", "error", "correct", "total", "accuracy")},
        **{name: record[name] for name in ("curve", "angles", "features", "flags", "environment", "verification")},
        "cause": record.get("cause"),  # older records have none, nor counts
        "counts": record.get("counts", {}),
        **cell.summary(),  # of the plan: the suite may have changed since the record was made
        **cell.point.row,
        "rounds": _relabelled(record, cell, record["rounds"]),
        "timing": record["timing"] | {"phases": _relabelled(record, cell, record["timing"].get("phases", {}))},
        "label": cell.label,
        **{f"seconds_{name}": record["seconds"].get(name) for name in SECONDS},
        **{f"bytes_{name}": record["bytes"].get(name) for name in LEDGER},
        **{columns[name]: value for name, value in current(cell, record).items() if name in columns},
        **{column: measure(record) for column, measure in derived.items()},
        "fingerprint": record["environment"].get("fingerprint"),
    }
    return {name: row[name] for name in names}


def _relabelled(record: Mapping[str, Any], cell: Cell, by_label: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a timing cell by loss, under the labels of the current plan."""
    if not by_label:
        return {}
    then = [loss["label"] for loss in record["plan"]["losses"]]
    now = dict(zip(then, (spec.label for spec in cell.losses), strict=False))
    return {now[label]: found for label, found in by_label.items() if label in now}


def _scanned(folders: Iterable[str], checkpoints: bool) -> Scan:
    """The records in these folders of cells."""
    sound, damaged = {}, {}
    for folder in folders:
        name = folder.rpartition("/")[2]
        try:
            sound[name] = _sound_record(folder, checkpoints)
        except (OSError, ValueError) as error:
            damaged[name] = _why(error)
    return sound, damaged


def _sound_record(folder: str, checkpoints: bool = True) -> dict[str, Any]:
    """The record in a cell's folder, fully checked. Strings instead of Paths: a report reads thousands of records."""
    content = files.content(f"{folder}/record.json")
    body, _, rest = content.rpartition(CHECKSUM)
    if rest != f'"{_checksum(body)}"\n}}'.encode():
        raise ValueError("record.json was altered" if _is_json(content) else "record.json is truncated or not JSON")
    data = parsed(content, RECORD_VERSION)
    if not os.path.basename(folder) == data["key"] == data["plan"]["key"]:  # noqa: PTH119  # a Path each would cost more than the rest
        raise ValueError("its contents belong to another cell")
    for name, expected in data["files"].items():
        if name == CHECKPOINT and not checkpoints:
            continue
        content = files.content(f"{folder}/{name}")
        if _checksum(content) != expected:
            raise ValueError(f"{name} is damaged")
        if name == "correct.npz":
            _check_bits(content, data)
    # Large files: their content is compared when it is used, and whoever needs the space may delete them.
    kept = data.get("kept", {}).items()
    data["kept"] = {name: mark for name, mark in kept if os.path.exists(f"{folder}/{name}")}  # noqa: PTH110  # as above
    needed = {"train": "correct.npz", "trial": "correct.npz", "warm": CHECKPOINT}.get(data["cell"]["kind"])
    if data["status"] == "done" and needed and needed not in data["files"]:
        raise ValueError(f"{needed} is missing")
    return data


def _check_bits(content: bytes, data: Mapping[str, Any]) -> None:
    """Check the stored bits against the numbers in the record."""
    bits, total = _packed(content)
    correct = int.from_bytes(bits.tobytes(), "little").bit_count()  # padding is 0
    if (correct, total) != (data["correct"], data["total"]):
        raise ValueError(
            f"correct.npz has {correct} of {total} correct, its record {data['correct']} of {data['total']}"
        )


def _packed(content: bytes) -> tuple[NDArray[np.uint8], int]:
    """The packed bits of a correct.npz as `write` makes it, and their number."""
    try:
        first, bits, end = _member(content, 0)
        second, total, _ = _member(content, end)
        if (first, second) != (b"bits.npy", b"total.npy"):
            raise ValueError("it has other parts")
        return _flat(bits, "u1"), int(_flat(total, "<i8")[0])
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError("correct.npz is damaged") from error


def _member(content: bytes, at: int) -> tuple[bytes, bytes, int]:
    """Name, content and end of the file at an offset of an uncompressed zip archive.

    `np.load` takes 40 times as long, more than the rest of reading a record; the checksum was verified before.
    """
    mark, _, flags, method, _, _, _, size, _, name, extra = LOCAL_HEADER.unpack_from(content, at)
    if mark != b"PK\x03\x04" or flags & 8 or method:
        raise ValueError("it is not an uncompressed archive")
    at += LOCAL_HEADER.size
    if size == 0xFFFFFFFF:  # zip64: the size is in the extra field, after its kind and length
        size = int.from_bytes(content[at + name + 4 : at + name + 12], "little")
    start = at + name + extra
    return content[at : at + name], content[start : start + size], start + size


def _flat(content: bytes, kind: str) -> NDArray[Any]:
    """The numbers of a .npy file of known dtype."""
    start = 10 + int.from_bytes(content[8:10], "little")
    return np.frombuffer(content, dtype=kind, offset=start)


def _signed(record: Mapping[str, Any]) -> bytes:
    """A record as JSON text whose last field is the checksum of everything before it."""
    body = json.dumps(record, indent=1, allow_nan=False).encode().removesuffix(b"\n}")
    return body + CHECKSUM + f'"{_checksum(body)}"\n}}'.encode()


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "it is not a cell's folder, or one of its files is missing"
    if isinstance(error, OSError):
        return f"{Path(error.filename or 'a file').name} cannot be read ({error.strerror})"
    return str(error)


def _other_plan(version: Any) -> str:
    found = "has no version" if version is None else f"is a plan of version {version!r:.20}"
    return (
        f"{found}, and this lossbench reads version {PLAN_VERSION}; use the lossbench that wrote it, or run the suite "
        "again with the same --out to rewrite it"
    )


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
