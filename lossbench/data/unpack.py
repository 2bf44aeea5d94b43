"""An archive → the one folder in it, at its place. Nothing in an archive may point outside that folder."""

from __future__ import annotations

import lzma
import os
import posixpath
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lossbench.data.sources import File
from lossbench.errors import DataError

if TYPE_CHECKING:
    from lossbench.data.fetch import Progress

# Pictures hardly shrink: an archive that would grow more than this is no set of pictures, but meant to fill a disk.
MOST_GROWTH = 20
SLACK = 1 << 20


class Refused(Exception):
    """A member that an honest archive would not have."""


def unpack(name: str, file: File, folder: Path, progress: Progress) -> None:
    """Unpack `file` beside its target, then move the folder in it there in one step; or leave nothing."""
    place, target = folder / file.place, folder / file.unpack
    staging = target.with_name(f".{target.name}.unpacking")
    shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
    try:
        staging.mkdir(parents=True)
        progress.start(f"unpacking {file.place}", 0, file.size)
        with place.open("rb") as raw:
            for _ in _extract(raw, staging, file.size):
                progress.at(raw.tell())
        if not (staging / target.name).is_dir():
            raise Refused(f"holds no folder '{target.name}'")
        _move(staging / target.name, target)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError) as error:
        raise DataError(_sentence(name, file, place, f"is damaged ({error})")) from error
    except Refused as error:
        raise DataError(_sentence(name, file, place, str(error))) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _sentence(name: str, file: File, place: Path, why: str) -> str:
    return f"{name}: {place} {why}; a good copy from {file.addresses[0]} belongs there"


def _extract(raw: BinaryIO, into: Path, size: int) -> Iterator[None]:
    """Every member, checked first; yields after each."""
    grown = 0

    def admit(member: str, bytes_: int) -> None:
        nonlocal grown
        parts = member.replace("\\", "/").split("/")
        if member.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
            raise Refused(f"has a member that points outside, '{member}', and is not unpacked")
        grown += bytes_
        if grown > MOST_GROWTH * size + SLACK:
            raise Refused(f"would grow to more than {MOST_GROWTH} times its size, and is not unpacked")

    if zipfile.is_zipfile(raw):
        with zipfile.ZipFile(raw) as archive:
            for entry in archive.infolist():
                kind = stat.S_IFMT(entry.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise Refused(f"has a member that is neither file nor folder, '{entry.filename}'")
                admit(entry.filename, entry.file_size)
                archive.extract(entry, into)
                yield
        return
    raw.seek(0)
    with tarfile.open(fileobj=raw) as archive:
        for member in archive:
            if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
                raise Refused(f"has a member that is neither file nor folder, '{member.name}'")
            admit(member.name, member.size)
            if member.issym() or member.islnk():
                base = posixpath.dirname(member.name) if member.issym() else ""
                admit(posixpath.normpath(posixpath.join(base, member.linkname)), 0)
            archive.extract(member, into, filter="data")
            yield


def _move(folder: Path, target: Path) -> None:
    """Put `folder` at `target` by one rename. Other things at `target` (lfw/pairs.txt) come along; doubles are refused."""
    if target.is_dir():
        others = list(target.iterdir())
        if double := next((other for other in others if (folder / other.name).exists()), None):
            raise Refused(f"cannot be unpacked, since an incomplete {target} has '{double.name}' already: move it away")
        for other in others:
            other.rename(folder / other.name)
    os.rename(folder, target)
