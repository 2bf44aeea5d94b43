"""An archive → the one folder in it, at its place. Nothing in an archive may point outside that folder."""

from __future__ import annotations

import contextlib
import posixpath
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lossbench.core.errors import DataError
from lossbench.data.download.http import Progress
from lossbench.data.download.sources import File

# Pictures hardly shrink: an archive that would grow more than this holds no pictures, but is meant to fill a disk.
MOST_GROWTH = 20
SLACK = 1 << 20


class ArchiveError(Exception):
    """What an honest archive would not have, or a place where it cannot go."""


def unpack(name: str, file: File, folder: Path, progress: Progress) -> None:
    """Unpack `file` beside its target, then move the folder in it there in one step; or leave nothing."""
    place = folder / file.place
    target = (folder / file.unpack).resolve()  # of a link to another disk: beside what it links to
    staging = target.with_name(f".{target.name}.unpacking")
    shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
    try:
        staging.mkdir(parents=True)
        progress.start(f"unpacking {file.place}", 0, file.size)
        with place.open("rb") as raw:
            members = _zip if place.suffix == ".zip" else _tar
            for _ in members(raw, staging, _Gate(file.size)):
                progress.at(min(raw.tell(), file.size))
        if not (staging / target.name).is_dir():
            raise ArchiveError(f"holds no folder '{target.name}'")
        _move(staging / target.name, target)
    except ArchiveError as error:
        raise DataError(_sentence(name, file, place, str(error))) from error
    # What tarfile, zipfile and what they use raise about bytes that they cannot read; a ValueError is a name with \0.
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        why = str(error).partition("\n")[0].rstrip(":")  # tarfile writes a line for every compression it tried
        raise DataError(_sentence(name, file, place, f"is damaged ({why})")) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


class _Gate:
    """Lets members of an archive pass that stay inside it and do not grow too much."""

    def __init__(self, size: int) -> None:
        self.most, self.grown = MOST_GROWTH * size + SLACK, 0

    def admit(self, name: str, size: int, *, plain: bool, link: str | None = None) -> None:
        if not plain:
            raise ArchiveError(f"is not unpacked: its member '{name}' is neither file nor folder")
        if _outside(name) or (link is not None and _outside(link)):
            raise ArchiveError(f"is not unpacked: its member '{name}' points outside")
        self.grown += size
        if self.grown > self.most:
            raise ArchiveError(f"is not unpacked: it would grow to more than {self.most:,} bytes")


def _outside(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return ".." in parts or parts[0] == "" or ":" in parts[0]  # up, from the root, from a drive


def _zip(raw: BinaryIO, into: Path, gate: _Gate) -> Iterator[None]:
    with zipfile.ZipFile(raw) as archive:
        for entry in archive.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)  # 0 where it was packed by another system
            gate.admit(entry.filename, entry.file_size, plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            archive.extract(entry, into)
            yield


def _tar(raw: BinaryIO, into: Path, gate: _Gate) -> Iterator[None]:
    with tarfile.open(fileobj=raw) as archive:
        # Python's own filter stands behind our check: it follows links through links. Before 3.11.4 it is not there.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        for member in archive:
            link = None
            if member.issym():
                link = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.linkname))
            elif member.islnk():
                link = member.linkname
            plain = member.isreg() or member.isdir() or link is not None
            gate.admit(member.name, member.size, plain=plain, link=link)
            archive.extract(member, into)
            yield


def _move(folder: Path, target: Path) -> None:
    """Put `folder` at `target` by one rename. What else is at `target` (lfw/pairs.txt) comes along."""
    others = list(target.iterdir()) if target.is_dir() else []
    if double := next((other.name for other in others if (folder / other.name).exists()), None):
        raise ArchiveError(f"is not unpacked: an incomplete {target} is there with '{double}' in it, move it away")
    try:
        for other in others:
            other.rename(folder / other.name)
        folder.rename(target)  # onto an empty folder, which a rename replaces
    except BaseException:  # Ctrl-C too: `folder` will be removed, and what came along was not ours
        for other in others:
            with contextlib.suppress(OSError):
                (folder / other.name).rename(other)
        raise


def _sentence(name: str, file: File, place: Path, why: str) -> str:
    return f"{name}: {place} {why}; a good copy from {file.addresses[0]} belongs there"
