"""Prepared datasets: memory-mapped uint8 arrays, made once from what a plugin's `load` returns.

    <data folder>/prepared/NAME-OPTIONS-SOURCE/
        meta.json               classes, version (a digest of all arrays), the sources and their state when read
        train_images.npy …      N×H×W×C uint8; labels, pairs and folds int64

OPTIONS and SOURCE are hashes of what decides the arrays: the options, including `size` and `gray`, the place of the
plugin, and its code. A folder appears by one rename and is never seen incomplete; if the plugin or the files it read
have changed, the dataset is prepared again and replaces the old one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from lossbench.core.errors import DataError
from lossbench.core.files import content, is_folder, staged, user_cache
from lossbench.core.guard import running_processes
from lossbench.data.dataset import Dataset, Images, Split
from lossbench.data.readers.images import at_size
from lossbench.plugins.registry import Plugin

PREPARED = "prepared"
FORMAT = 2  # raised when the layout or content of a prepared folder changes

# (name, images done, images in total)
Progress = Callable[[str, int, int], None]


def place(plugin: Plugin, options: Mapping[str, Any], root: Path) -> Path:
    """The folder for the prepared form of a dataset with these options; it may not exist yet."""
    # A copy of a plugin in another folder may read other files beside it, so it has a prepared form of its own.
    home = [] if plugin.built_in else [str(plugin.path.absolute())]
    wanted = _short(str(root.absolute()), options, *home)
    return _home(root) / f"{plugin.name}-{wanted}-{_short(FORMAT, plugin.source_hash)}"


def opened(folder: Path) -> Dataset | None:
    """The prepared dataset in a folder, with images memory-mapped; None if it is missing or outdated."""
    try:
        meta = json.loads(content(folder / "meta.json"))
        if any(_state(Path(path)) not in (state, None) for path, state in meta["sources"].items()):
            return None
        arrays = {path.stem: path for path in folder.glob("*.npy") if path.is_file()}
        train, test = (
            Split(np.load(arrays[f"{part}_images"], mmap_mode="r"), np.load(arrays[f"{part}_labels"]))
            for part in ("train", "test")
        )
        extra = {name: np.load(arrays[name]) for name in ("pairs", "folds") if name in arrays}
    except (OSError, ValueError, KeyError):  # missing or damaged: it is prepared again
        return None
    tested = tuple(meta["tested"]) if meta["tested"] is not None else None
    unseen = meta.get("unseen", "pairs" in extra)  # older ones do not say
    return Dataset(train, test, meta["classes"], **extra, tested=tested, unseen=unseen, version=meta["version"])


def classes_of(folder: Path) -> int | None:
    """The number of classes of a prepared dataset, from its meta.json alone."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return int(json.loads(content(folder / "meta.json"))["classes"])
    return None


def prepare(dataset: Dataset, folder: Path, *, size: int | None, gray: bool, progress: Progress) -> Dataset:
    """Write what a plugin loaded (`contract.checked`) as arrays to `folder`, and open it."""
    _sweep(folder.parent)
    staging = folder.with_name(f".{folder.name}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    digest = hashlib.sha256()
    states = {str(path): _state(path) for path in dataset.sources}  # before reading: later changes are noticed
    images = [at_size(split.whole, size, gray) for split in (dataset.train, dataset.test)]
    if (train_form := images[0].shape[1:]) != (test_form := images[1].shape[1:]):
        raise DataError(
            f"{_name(folder)}: training images are {train_form} (H×W×C) and test images {test_form}; "
            "set 'size' or 'gray'"
        )
    try:
        with staged(folder, staging):
            staging.mkdir(parents=True)
            total, done = sum(part.shape[0] for part in images), 0
            for part, split, source in zip(("train", "test"), (dataset.train, dataset.test), images, strict=True):
                _save(staging / f"{part}_labels.npy", split.labels, digest)
                for count in _write(staging / f"{part}_images.npy", source, digest):
                    progress(_name(folder), done + count, total)
                done += source.shape[0]
            for name, array in (("pairs", dataset.pairs), ("folds", dataset.folds)):
                if array is not None:
                    _save(staging / f"{name}.npy", array, digest)
            version = digest.hexdigest()[:16]
            plain = {name: getattr(dataset, name) for name in ("classes", "tested", "unseen")}
            meta = {**plain, "version": version, "sources": states}
            (staging / "meta.json").write_text(json.dumps(meta, indent=1))
            _remove_older(folder, staging.with_name(f"{staging.name}-old"))
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process was faster: its arrays are the same
            raise DataError(f"{folder}: the prepared data cannot be written ({error.strerror})") from error
    found = opened(folder)
    if found is None:
        raise DataError(f"{folder}: the data changed while it was being prepared; try again")
    return replace(found, sources=dataset.sources)


def _sweep(prepared: Path) -> None:
    """Delete what killed processes of this machine left incomplete."""
    running = running_processes()
    for left in prepared.glob(f".*-{socket.gethostname()}-*-*"):
        pid = left.name.split("-")[-2]
        if pid.isdigit() and int(pid) not in running:
            shutil.rmtree(left, ignore_errors=True)


def _home(root: Path) -> Path:
    """In the data folder or, if that is read-only (a shared folder), in the user's cache folder."""
    beside = root / PREPARED
    nearest = next(folder for folder in (beside, *beside.absolute().parents) if is_folder(folder))
    return beside if os.access(nearest, os.W_OK) else user_cache() / PREPARED


def _state(path: Path) -> list[int] | None:
    """A quick fingerprint of a source; None if it is gone (the prepared data stays valid).

    A file: its size and time. A folder: the number of its folders and the sum of their times, which change when a file
    is added or removed; a file changed in place is not noticed.
    """
    try:
        if path.is_file():
            return [path.stat().st_size, path.stat().st_mtime_ns]
        with os.scandir(path) as entries:
            times = [one.stat().st_mtime_ns for one in entries if is_folder(one) and one.name != PREPARED]
        return [len(times), sum(times)]
    except OSError:
        return None


def _write(path: Path, images: Images, digest: hashlib._Hash) -> Iterator[int]:
    """Write the images to one .npy file, block by block; yields how many are done."""
    shape = images.shape
    target = open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    digest.update(repr(shape).encode())
    done = 0
    for block in images.blocks():
        target[done : done + len(block)] = block
        digest.update(np.ascontiguousarray(block).data)
        done += len(block)
        yield done
    target.flush()


def _save(path: Path, array: NDArray[np.int64], digest: hashlib._Hash) -> None:
    digest.update(np.ascontiguousarray(array).data)
    np.save(path, array)


def _remove_older(folder: Path, aside: Path) -> None:
    """Remove what was prepared with the same options before; processes that have it open can still read it."""
    for older in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*"):
        with contextlib.suppress(OSError):
            older.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _name(folder: Path) -> str:
    """The name of the dataset in a prepared folder."""
    return folder.name.rsplit("-", 2)[0]


def _short(*decides: Any) -> str:
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:10]
