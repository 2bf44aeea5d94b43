"""Get a dataset: missing files are downloaded and unpacked, existing ones are checked.

get(source, folder)      afterwards all of it is in `folder`, or a DataError says what to do
absent(source, folder)   the files that `get` would download
state(source, folder)    "yes", "partly" or "no", by file names alone
verify(source, folder)   one Check per part, by reading it

A file is complete or missing, even after an interruption: downloads grow under another name (`download`), archives are
unpacked beside their place and moved there by one rename (`unpack`).
"""

from __future__ import annotations

import errno
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lossbench.core import files
from lossbench.core.errors import DataError
from lossbench.core.files import is_file
from lossbench.data.download.http import Patience, Progress, Silence, differs, digests, download
from lossbench.data.download.sources import File, Piece, Source
from lossbench.data.download.unpack import unpack

__all__ = ["Check", "Patience", "Progress", "Silence", "State", "absent", "get", "state", "verify"]

State = Literal["yes", "partly", "no"]


@dataclass(frozen=True)
class Check:
    """The result of `verify` for one part."""

    path: str
    status: Literal["ok", "wrong", "missing"]
    detail: str


def get(
    source: Source,
    folder: Path,
    progress: Progress | None = None,
    patience: Patience | None = None,
    *,
    wait: bool = False,
) -> None:
    """Download and unpack what is missing of `source` in `folder`; files put there by hand are checked and used.

    While another process downloads into `folder`, raise an error, or `wait` for it.
    """
    if not source.files:
        if state(source, folder) != "yes":
            places = " and ".join(str(folder / piece.path) for piece in source.pieces)
            raise DataError(f"{source.name}: {source.instructions}; unpack its files to {places}")
        return
    file = source.files[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with files.locked(folder.resolve(), folder=True, wait=wait) as ours:  # two processes would write the same file
            if not ours:
                raise DataError(f"{folder}: another lossbench is downloading into it; wait until it has finished")
            for file in source.files:
                _have(source.name, file, folder, progress or Silence(), patience or Patience())
    except files.LockError as error:
        raise DataError(
            f"{folder}: files cannot be locked there ({error.strerror}), so two downloads could write one file; "
            "download to a local disk with --data DIR and copy the data, or by hand (`lossbench data list -v`)"
        ) from error
    except OSError as error:
        raise DataError(_disk_trouble(source.name, file, folder, error)) from error


def absent(source: Source, folder: Path) -> list[File]:
    """The files of `source` that `folder` lacks, both as published and unpacked."""
    return [file for file in source.files if not (_forms(file, folder) or _unpacked(file, folder))]


def state(source: Source, folder: Path) -> State:
    """Whether `source` is in `folder`, by names alone: fast enough for every dataset."""
    found = [_any(folder, piece) for piece in source.pieces]
    for file in source.files:
        found += [_any(folder, piece) for piece in file.pieces] if file.unpack else [bool(_forms(file, folder))]
    if all(found):  # also of no files: such a dataset needs nothing on disk
        return "yes"
    waiting = any(is_file(folder / file.place) for file in source.files)  # an archive not yet unpacked
    return "partly" if any(found) or waiting else "no"


def verify(source: Source, folder: Path) -> list[Check]:
    """Check existing files and archives by checksum; unpacked files by name, number and size."""
    checks: list[Check] = []
    for file in source.files:
        offered = _check_forms(file, folder)
        if file.unpack:
            checks += offered + [_check_piece(piece, folder) for piece in file.pieces]
        else:
            checks += offered or [Check(file.place, "missing", "not found")]
    return checks + [_check_piece(piece, folder) for piece in source.pieces]


def _have(name: str, file: File, folder: Path, progress: Progress, patience: Patience) -> None:
    """Get one file of a dataset, unpacked if it is an archive."""
    if _unpacked(file, folder):
        return
    place = folder / file.place
    if not _forms(file, folder):
        download(name, file, place, progress, patience)
    elif wrong := next((check for check in _check_forms(file, folder) if check.status == "wrong"), None):
        raise DataError(  # not removed: somebody put it there
            f"{name}: {folder / wrong.path} is not the published file ({wrong.detail}); remove it and try again, or "
            f"download {file.addresses[0]} to {place}"
        )
    if file.unpack:
        unpack(name, file, folder, progress)


def _unpacked(file: File, folder: Path) -> bool:
    return bool(file.unpack) and all(_any(folder, piece) for piece in file.pieces)


def _forms(file: File, folder: Path) -> list[str]:
    """The names under which a published file exists: its own and, if it is gzipped, that of the unzipped file."""
    names = [file.place] if file.unpack else [file.place, *(piece.path for piece in file.pieces)]
    return [name for name in names if is_file(folder / name)]


def _check_forms(file: File, folder: Path) -> list[Check]:
    gunzipped = {piece.path: piece for piece in file.pieces}
    return [
        _check_piece(gunzipped[name], folder) if name in gunzipped else _check_file(file, folder / name)
        for name in _forms(file, folder)
    ]


def _check_file(file: File, place: Path) -> Check:
    try:
        wrong = differs(place, file)
        if wrong and place.suffix == ".gz" and not file.unpack and _same_inside(place, file):
            return Check(file.place, "ok", "recompressed, content as published")
    except OSError as error:
        wrong = f"cannot be read: {error.strerror or error}"
    return Check(file.place, "wrong" if wrong else "ok", wrong or "checksum as published")


def _same_inside(place: Path, file: File) -> bool:
    """Whether a gzipped file has the published content: gzip stores a time, so recompressing changes its bytes."""
    try:
        with gzip.open(place) as stream:
            return digests(stream, "sha256")["sha256"] in {piece.sha256 for piece in file.pieces}
    except (gzip.BadGzipFile, EOFError, ValueError):
        return False


def _check_piece(piece: Piece, folder: Path) -> Check:
    found = [path for path in folder.glob(piece.path) if is_file(path)]
    if not found and piece.instead and (others := sum(is_file(path) for path in folder.glob(piece.instead))):
        return Check(piece.instead, "ok", f"{others:,} of {piece.count:,} files: part of the dataset")
    if not found:
        return Check(piece.path, "missing", "not found")
    if piece.count not in (None, len(found)):
        return Check(piece.path, "wrong", f"{len(found):,} files instead of {piece.count:,}")
    flaw = next(filter(None, (_flaw(path, piece) for path in found)), "")
    told = "checksum as published" if piece.sha256 else f"{len(found):,} file{'s' * (len(found) > 1)}"
    return Check(piece.path, "wrong" if flaw else "ok", flaw or told)


def _flaw(path: Path, piece: Piece) -> str:
    try:
        if piece.size not in (None, size := path.stat().st_size):
            return f"{size:,} bytes instead of {piece.size:,}"
        if piece.sha256:
            with path.open("rb") as stream:
                got = digests(stream, "sha256")["sha256"]
            return "" if got == piece.sha256 else f"sha256 expected {piece.sha256}, got {got}"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return ""


def _any(folder: Path, piece: Piece) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in (piece.path, piece.instead) if pattern)


def _disk_trouble(name: str, file: File, folder: Path, error: OSError) -> str:
    why = f"{error.filename or folder} cannot be written ({error.strerror or error})"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        why = f"{folder} has no space left for a file of {file.size:,} bytes" + " and its content" * bool(file.unpack)
    return f"{name}: {why}; or download {file.addresses[0]} to {folder / file.place} by hand"
