"""Atomic writes, locks, and reads that never block (a FIFO or device raises OSError)."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class LockError(OSError):
    """The file system has no locks: NFS without its lock service, some FUSE file systems."""


@contextmanager
def staged(path: Path, staging: Path | None = None) -> Iterator[Path]:
    """A new name for a file or folder to write; renamed to `path` when the block ends, removed if it fails."""
    staging = staging or path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        yield staging
        staging.replace(path)
    finally:
        if is_folder(staging):
            shutil.rmtree(staging, ignore_errors=True)
        else:
            staging.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file at `path` by one rename: readers see the old content or the new, even after a power cut."""
    with staged(path) as staging:
        write_durably(staging, content)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for a file that is never changed; a copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@contextmanager
def locked(path: Path, *, folder: bool = False, shared: bool = False, wait: bool = False) -> Iterator[bool]:
    """Lock a file, created if missing, or a `folder` (no link to one); False if another process holds the lock.

    The system releases the lock when our process ends.
    """
    if folder:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    else:
        descriptor = opened(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
            ours = True
        except BlockingIOError:
            ours = False
        except OSError as error:
            raise LockError(error.errno, error.strerror, os.fspath(path)) from error
        yield ours
    finally:
        os.close(descriptor)


def opened(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file at `path`; the type is checked after opening, so that it cannot be swapped."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)  # less the umask
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, a FIFO without reader, no such device
            raise OSError(errno.EINVAL, not_a_file(Path(path).stat().st_mode), os.fspath(path)) from error
        raise
    if stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, not_a_file(mode), os.fspath(path))


def content(path: str | os.PathLike[str]) -> bytes:
    """All bytes of the regular file at `path`."""
    with open(opened(path), "rb", buffering=0) as handle:
        return handle.read()


def not_a_file(mode: int) -> str:
    """Why an `st_mode` is not that of a file."""
    return f"it is {KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file"


def is_file(path: Path) -> bool:
    """Path.is_file, but False instead of an error where a folder above may not be entered."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(entry: Path | os.DirEntry[str]) -> bool:
    """Path.is_dir, but False instead of an error, as for a link that leads to itself."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def user_cache() -> Path:
    """The cache folder of this user: ~/.cache/lossbench on Linux, or below $XDG_CACHE_HOME."""
    from platformdirs import user_cache_path

    return user_cache_path("lossbench", appauthor=False)
