"""Opening files without ever waiting: a FIFO, a socket or a device in the place of a file is an OSError at once."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def opened(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file at `path`; its kind is looked at after opening, so that nobody can swap it."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)  # less the umask
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, a FIFO that nobody reads, a device that is not there
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
    """Why something is no file, by its `st_mode`."""
    return f"it is {KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file"


def is_file(path: Path) -> bool:
    """Whether there is a file that can be looked at; Path.is_file raises where a folder above it may not be entered."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(entry: Path | os.DirEntry[str]) -> bool:
    """Whether there is a folder that can be looked at; a link that leads to itself is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False
