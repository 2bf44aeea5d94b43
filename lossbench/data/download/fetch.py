"""Have a dataset: what is missing is downloaded and unpacked, what is there is checked.

get(source, folder)      all of it is in `folder` afterwards, or a DataError says what to do
absent(source, folder)   the files that `get` would have to download
state(source, folder)    "yes", "partly" or "no", by a glance at names
verify(source, folder)   a line for every part, by reading it

A name that is there is whole, whatever stopped us: downloads grow under another name (`download`), archives are
unpacked beside their place and moved there in one step (`unpack`).
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
    """What `verify` found of one part."""

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
    """Fetch and unpack what of `source` is not in `folder`; what was put there by hand is checked and used.

    While another process fetches into `folder`, this is an error, or is waited for.
    """
    if not source.files:
        if state(source, folder) != "yes":
            places = " and ".join(str(folder / piece.path) for piece in source.pieces)
            raise DataError(f"{source.name}: {source.instructions}; unpacked, its files belong at {places}")
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
    """The files of `source` that are in `folder` in no form: neither as offered nor unpacked."""
    return [file for file in source.files if not (_forms(file, folder) or _unpacked(file, folder))]


def state(source: Source, folder: Path) -> State:
    """Whether `source` is there, by names alone: quick enough to ask of every set."""
    found = [_any(folder, piece) for piece in source.pieces]
    for file in source.files:
        found += [_any(folder, piece) for piece in file.pieces] if file.unpack else [bool(_forms(file, folder))]
    if all(found):  # of nothing, too: such a set needs nothing on disk
        return "yes"
    waiting = any(is_file(folder / file.place) for file in source.files)  # an archive that is not unpacked
    return "partly" if any(found) or waiting else "no"


def verify(source: Source, folder: Path) -> list[Check]:
    """Checksums of files and archives that are there; names, numbers and sizes of what is unpacked."""
    checks: list[Check] = []
    for file in source.files:
        offered = _check_forms(file, folder)
        if file.unpack:
            checks += offered + [_check_piece(piece, folder) for piece in file.pieces]
        else:
            checks += offered or [Check(file.place, "missing", "not here")]
    return checks + [_check_piece(piece, folder) for piece in source.pieces]


def _have(name: str, file: File, folder: Path, progress: Progress, patience: Patience) -> None:
    """One file of a set, unpacked if it is an archive."""
    if _unpacked(file, folder):
        return  # perhaps by hand
    place = folder / file.place
    if not _forms(file, folder):
        download(name, file, place, progress, patience)
    elif wrong := next((check for check in _check_forms(file, folder) if check.status == "wrong"), None):
        # Not removed: it may be dear to whoever put it there.
        raise DataError(
            f"{name}: {folder / wrong.path} is not the published file ({wrong.detail}); remove it and ask again, or "
            f"fetch {file.addresses[0]} by hand to {place}"
        )
    if file.unpack:
        unpack(name, file, folder, progress)


def _unpacked(file: File, folder: Path) -> bool:
    return bool(file.unpack) and all(_any(folder, piece) for piece in file.pieces)


def _forms(file: File, folder: Path) -> list[str]:
    """Under which names a file as offered is there: itself and, of a gzipped one, the same gunzipped."""
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
            return Check(file.place, "ok", "gzipped anew, content as published")
    except OSError as error:
        wrong = f"cannot be read: {error.strerror or error}"
    return Check(file.place, "wrong" if wrong else "ok", wrong or "checksum as published")


def _same_inside(place: Path, file: File) -> bool:
    """Whether a gzipped file holds the published content: gzip notes a time, so that packing anew changes its bytes."""
    try:
        with gzip.open(place) as stream:
            return digests(stream, "sha256")["sha256"] in {piece.sha256 for piece in file.pieces}
    except (gzip.BadGzipFile, EOFError, ValueError):
        return False


def _check_piece(piece: Piece, folder: Path) -> Check:
    found = [path for path in folder.glob(piece.path) if is_file(path)]
    if not found and piece.instead and (others := sum(is_file(path) for path in folder.glob(piece.instead))):
        return Check(piece.instead, "ok", f"{others:,} of {piece.count:,} files: a part of the set")
    if not found:
        return Check(piece.path, "missing", "not here")
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
        why = f"{folder} has no room left for a file of {file.size:,} bytes" + " and its content" * bool(file.unpack)
    return f"{name}: {why}; fetched by hand, {file.addresses[0]} belongs at {folder / file.place}"
