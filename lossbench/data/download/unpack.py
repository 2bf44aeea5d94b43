"""An archive → the one folder in it, moved to its place. Nothing in an archive may point outside that folder."""

from __future__ import annotations

import contextlib
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

# Pictures hardly compress: an archive that grows more than this is meant to fill a disk.
MOST_GROWTH = 20
SLACK = 1 << 20
LINK_FILTER = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later; before, links are refused


class ArchiveError(Exception):
    """An invalid archive, or a target that cannot be written."""


def unpack(name: str, file: File, folder: Path, progress: Progress) -> None:
    """Unpack `file` beside its target, then move the folder in it there by one rename; or leave nothing."""
    place = folder / file.place
    target = (folder / file.unpack).resolve()  # if it is a link to another disk: beside what it links to
    staging = target.with_name(f".{target.name}.unpacking")
    shutil.rmtree(staging, ignore_errors=True)  # of a process that was killed
    try:
        staging.mkdir(parents=True)
        progress.start(f"unpacking {file.place}", 0, file.size)
        with place.open("rb") as raw:
            members = _zip if place.suffix == ".zip" else _tar
            for _ in members(raw, staging, _Gate(file.size)):
                progress.at(min(raw.tell(), file.size))
        if not (staging / target.name).is_dir():
            raise ArchiveError(f"has no folder '{target.name}'")
        _move(staging / target.name, target)
    except ArchiveError as error:
        raise DataError(_sentence(name, file, place, str(error))) from error
    # What tarfile, zipfile and what they use raise about unreadable bytes; a ValueError is a name with \0.
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        why = str(error).partition("\n")[0].rstrip(":")  # tarfile writes one line per compression that it tried
        raise DataError(_sentence(name, file, place, f"is damaged ({why})")) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


class _Gate:
    """Refuses members that are outside the archive's folder, special files, and archives that grow too much."""

    def __init__(self, size: int) -> None:
        self.most, self.grown = MOST_GROWTH * size + SLACK, 0

    def admit(self, name: str, size: int, *, plain: bool) -> None:
        if not plain:
            raise ArchiveError(f"is not unpacked: its member '{name}' is neither file nor folder")
        parts = name.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or ":" in parts[0]:  # up, from the root, from a drive
            raise ArchiveError(f"is not unpacked: its member '{name}' points outside")
        self.grown += size
        if self.grown > self.most:
            raise ArchiveError(f"is not unpacked: it would grow to more than {self.most:,} bytes")


def _zip(raw: BinaryIO, into: Path, gate: _Gate) -> Iterator[None]:
    with zipfile.ZipFile(raw) as archive:
        for entry in archive.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)  # 0 if it was packed by another system
            gate.admit(entry.filename, entry.file_size, plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            archive.extract(entry, into)
            yield


def _tar(raw: BinaryIO, into: Path, gate: _Gate) -> Iterator[None]:
    with tarfile.open(fileobj=raw) as archive:
        if LINK_FILTER:
            archive.extraction_filter = LINK_FILTER
        for member in archive:
            link = member.issym() or member.islnk()
            plain = member.isreg() or member.isdir() or bool(link and LINK_FILTER)
            gate.admit(member.name, member.size, plain=plain)
            try:
                archive.extract(member, into)
            except tarfile.TarError as error:
                if link:  # the filter's: it follows links through links
                    raise ArchiveError(f"is not unpacked: its member '{member.name}' points outside") from error
                raise
            yield


def _move(folder: Path, target: Path) -> None:
    """Put `folder` at `target` by one rename. Other files in `target` (lfw/pairs.txt) are kept."""
    others = list(target.iterdir()) if target.is_dir() else []
    if double := next((other.name for other in others if (folder / other.name).exists()), None):
        raise DataError(f"{target}: is incomplete and already has '{double}'; move it away and try again")
    try:
        for other in others:
            other.rename(folder / other.name)
        folder.rename(target)  # onto an empty folder, which a rename replaces
    except BaseException:  # Ctrl-C too: `folder` will be removed, and these files are not ours
        for other in others:
            with contextlib.suppress(OSError):
                (folder / other.name).rename(other)
        raise


def _sentence(name: str, file: File, place: Path, why: str) -> str:
    return f"{name}: {place} {why}; replace it with a good copy of {file.addresses[0]}"
