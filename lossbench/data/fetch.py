"""Have a data set: download what is missing, check it, unpack it; never leave half of a file under its own name.

get(source, folder)      everything of it is in `folder` afterwards, or a DataError says what to do
state(source, folder)    "yes", "partly" or "no", by a glance
verify(source, folder)   a line for every part, by reading all of it

A download grows as PLACE.part, is checked, and then takes its name; an archive is unpacked beside its place and moved
there in one step. So whatever stops us, a name that is there is whole, and the next `get` goes on where this one ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import http.client
import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from lossbench.data.sources import File, Piece, Source
from lossbench.data.unpack import unpack
from lossbench.errors import DataError

CHUNK = 1 << 18
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # HTTP statuses that may be better a second later

State = Literal["yes", "partly", "no"]


class Progress(Protocol):
    """Is told how far things are."""

    def start(self, what: str, done: int, total: int) -> None:
        """Something of `total` bytes begins, or goes on at `done`."""

    def at(self, done: int) -> None:
        """So many bytes of it are done."""


class Silence:
    """The progress that nobody watches."""

    def start(self, what: str, done: int, total: int) -> None: ...

    def at(self, done: int) -> None: ...


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, and how often to ask again (at once, then after `pause`, twice that, …)."""

    timeout: float = 30.0
    tries: int = 4
    pause: float = 0.5


@dataclass(frozen=True)
class Check:
    """What `verify` found of one part."""

    path: str
    status: Literal["ok", "wrong", "missing"]
    detail: str


class _Failed(Exception):
    """One address could not give the file; `passing` when another try may."""

    def __init__(self, why: str, *, passing: bool) -> None:
        super().__init__(why)
        self.passing = passing


def get(source: Source, folder: Path, progress: Progress | None = None, patience: Patience | None = None) -> None:
    """Fetch and unpack what of `source` is not in `folder`; what was put there by hand is checked and used."""
    if not source.files:
        if source.pieces and state(source, folder) != "yes":
            places = " and ".join(str(folder / piece.path) for piece in source.pieces)
            raise DataError(f"{source.name}: {source.instructions}; unpacked, its files belong at {places}")
        return
    try:
        with _alone(folder):
            for file in source.files:
                _have(source, file, folder, progress or Silence(), patience or Patience())
    except OSError as error:
        raise DataError(_disk_trouble(source, folder, error)) from error


def state(source: Source, folder: Path) -> State:
    """Whether `source` is there, by names alone: quick enough to ask of every set."""
    found: list[bool] = [_any(folder, piece) for piece in source.pieces]
    traces = False
    for file in source.files:
        found += [_any(folder, piece) for piece in file.pieces] if file.unpack else [_file_here(file, folder)]
        traces |= (folder / file.place).is_file()
    if all(found):  # of nothing, too: such a set needs nothing on disk
        return "yes"
    return "partly" if any(found) or traces else "no"


def verify(source: Source, folder: Path) -> list[Check]:
    """Checksums of every file and archive that is there; names, numbers and sizes of what is unpacked."""
    checks = []
    for file in source.files:
        place = folder / file.place
        if place.is_file():
            checks.append(_check_file(file, place))
        loose = [] if file.unpack else [piece for piece in file.pieces if _any(folder, piece)]
        if not file.unpack and not loose and not place.is_file():
            checks.append(Check(file.place, "missing", "not here"))
        checks += [_check_piece(piece, folder) for piece in (file.pieces if file.unpack else loose)]
    return checks + [_check_piece(piece, folder) for piece in source.pieces]


def _have(source: Source, file: File, folder: Path, progress: Progress, patience: Patience) -> None:
    """One file of a set, unpacked if it is an archive."""
    place = folder / file.place
    if file.unpack and all(_any(folder, piece) for piece in file.pieces):
        return  # unpacked already, perhaps by hand
    if place.is_file() or (not file.unpack and _file_here(file, folder)):
        checks = verify(Source(**{**vars(source), "files": (file,)}), folder)
        for check in checks:
            if check.status == "wrong" and (not file.unpack or check.path == file.place):
                raise DataError(
                    f"{source.name}: {folder / check.path} is not what {file.addresses[0]} publishes ({check.detail}); "
                    f"remove it and fetch it again, by hand to {place} or with `lossbench data get {source.name}`"
                )
    else:
        _fetch(source, file, place, progress, patience)
    if file.unpack:
        unpack(source.name, file, folder, progress)


def _fetch(source: Source, file: File, place: Path, progress: Progress, patience: Patience) -> None:
    """Download to PLACE.part, check it, give it its name. The first address that can, serves."""
    part = place.with_name(place.name + ".part")
    place.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for address in file.addresses:
        try:
            _download(address, file, part, progress, patience)
        except _Failed as why:
            reasons.append(f"{address} {why}")
            continue
        part.replace(place)
        return
    raise DataError(f"{source.name}: {', '.join(reasons)}; a copy fetched by hand belongs at {place}")


def _download(address: str, file: File, part: Path, progress: Progress, patience: Patience) -> None:
    """The whole and right file at `part`; a try that brings nothing new counts, one that gets further does not."""
    tries, furthest, fresh = 0, 0, False
    while True:
        try:
            resumed = _transfer(address, file, part, progress, patience.timeout)
        except _Failed as why:
            size = _size(part)
            tries = tries + 1 if size < furthest + CHUNK else 1
            furthest = max(furthest, size)
            if not why.passing or tries >= patience.tries:
                raise
            time.sleep(patience.pause * 2 ** (tries - 1))
            continue
        wrong = _differs(part, file)
        if not wrong:
            return
        part.unlink()
        if fresh or not resumed:
            raise _Failed(f"sent another file than the published one ({wrong})", passing=False)
        fresh = True  # the part was perhaps of another version, or another mirror's: once more, from the beginning


def _transfer(address: str, file: File, part: Path, progress: Progress, timeout: float) -> bool:
    """Bring `part` to the file's size, from where it ends; whether it went on from an older part."""
    have = _size(part)
    if have == file.size:
        return True  # only the check is missing
    if have > file.size:
        part.unlink()
        have = 0
    # No If-Range: the checksum tells a changed file anyway, and needs no memory of an ETag.
    headers = {"User-Agent": "lossbench", **({"Range": f"bytes={have}-"} if have else {})}
    with _asking(address, timeout):
        response = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=timeout)
    with response:
        start = have if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
        given = response.headers.get("Content-Range", "")
        if start and not given.startswith(f"bytes {have}-"):
            part.unlink()
            raise _Failed(f"sent the range '{given}' instead of the rest from byte {have:,}", passing=True)
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and start + int(length) != file.size:
            raise _Failed(f"offers {start + int(length):,} bytes instead of {file.size:,}", passing=False)
        progress.start(file.place, start, file.size)
        with part.open("r+b" if start else "wb") as stream:
            stream.seek(start)
            _pour(response.read1, stream, address, start, file.size, progress, timeout)
    return start > 0


def _pour(
    read: Callable[[int], bytes],
    stream: BinaryIO,
    address: str,
    done: int,
    size: int,
    progress: Progress,
    timeout: float,
) -> None:
    """Everything that comes, to the disk; only what `read` raises is the server's fault."""
    while True:
        with _asking(address, timeout):
            chunk = read(CHUNK)
        if not chunk:
            break
        done += len(chunk)
        if done > size:
            raise _Failed(f"sends more than the {size:,} bytes that are published", passing=False)
        stream.write(chunk)
        progress.at(done)
    stream.flush()
    os.fsync(stream.fileno())  # before it is renamed: a name that survives a power cut has its bytes
    if done < size:
        raise _Failed(f"ended after {done:,} of {size:,} bytes", passing=True)


@contextlib.contextmanager
def _asking(address: str, timeout: float) -> Iterator[None]:
    """Turn what a server or the way to it can do wrong into _Failed."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise _Failed(f"answers {error.code} {error.reason}".rstrip(), passing=error.code in PASSING) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, TimeoutError):
            raise _Failed(f"sent nothing for {timeout:g} s", passing=True) from error
        # Nobody there, or somebody else: asking again at once helps nobody, the next address may.
        final = isinstance(cause, socket.gaierror | ConnectionRefusedError | ssl.SSLCertVerificationError | ValueError)
        why = (getattr(cause, "strerror", None) or str(cause) or type(cause).__name__).partition("\n")[0]
        raise _Failed(f"cannot be reached ({why})", passing=not final) from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One `get` at a time in a folder: two would write the same .part. The lock is the folder itself, and ends with us."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(f"{folder}: another lossbench is fetching data into it; wait for it to end") from error
        except OSError:
            pass  # a file system without locks: go on, as everybody else does there
        yield
    finally:
        os.close(handle)


def _check_file(file: File, place: Path) -> Check:
    try:
        wrong = _differs(place, file)
        if wrong and place.suffix == ".gz" and file.pieces and _content(place) == file.pieces[0].sha256:
            return Check(file.place, "ok", "gzipped anew, the content is the published one")
    except OSError as error:
        return Check(file.place, "wrong", f"cannot be read: {error.strerror or error}")
    return Check(file.place, "wrong" if wrong else "ok", wrong or "sha256 as published")


def _check_piece(piece: Piece, folder: Path) -> Check:
    found = _found(folder, piece.path)
    if not found and piece.instead and (others := _found(folder, piece.instead)):
        return Check(piece.instead, "ok", f"{len(others):,} of {piece.count:,} files: a part of the set")
    if not found:
        return Check(piece.path, "missing", "not here")
    try:
        for path in found:
            if piece.size is not None and path.stat().st_size != piece.size:
                return Check(piece.path, "wrong", f"{path.stat().st_size:,} bytes instead of {piece.size:,}")
            if piece.sha256 and (got := _digest(path, "sha256")["sha256"]) != piece.sha256:
                return Check(piece.path, "wrong", f"sha256 expected {piece.sha256}, got {got}")
    except OSError as error:
        return Check(piece.path, "wrong", f"cannot be read: {error.strerror or error}")
    if piece.count is not None and len(found) != piece.count:
        return Check(piece.path, "wrong", f"{len(found):,} files instead of {piece.count:,}")
    return Check(piece.path, "ok", "sha256 as published" if piece.sha256 else f"{len(found):,} files")


def _differs(path: Path, file: File) -> str:
    """How the bytes at `path` differ from the published ones; empty when they do not."""
    if (size := path.stat().st_size) != file.size:
        return f"{size:,} bytes instead of {file.size:,}"
    expected = {"sha256": file.sha256, "md5": file.md5}
    for algorithm, got in _digest(path, *(name for name, value in expected.items() if value)).items():
        if got != expected[algorithm]:
            return f"{algorithm} expected {expected[algorithm]}, got {got}"
    return ""


def _digest(path: Path, *algorithms: str) -> dict[str, str]:
    with path.open("rb") as stream:
        return _digests(stream, *algorithms)


def _content(path: Path) -> str:
    """The sha256 of what a gzipped file holds; empty when it holds nothing readable."""
    try:
        with gzip.open(path) as stream:
            return _digests(stream, "sha256")["sha256"]
    except (gzip.BadGzipFile, EOFError, ValueError):
        return ""


def _digests(stream: BinaryIO | gzip.GzipFile, *algorithms: str) -> dict[str, str]:
    # Not for secrets: md5 is what some publishers print, and some systems refuse it without saying so.
    digests = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    while chunk := stream.read(1 << 20):
        for digest in digests.values():
            digest.update(chunk)
    return {name: digest.hexdigest() for name, digest in digests.items()}


def _found(folder: Path, pattern: str) -> list[Path]:
    return [path for path in folder.glob(pattern) if path.is_file()]


def _any(folder: Path, piece: Piece) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in (piece.path, piece.instead) if pattern)


def _file_here(file: File, folder: Path) -> bool:
    return (folder / file.place).is_file() or (bool(file.pieces) and all(_any(folder, piece) for piece in file.pieces))


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _disk_trouble(source: Source, folder: Path, error: OSError) -> str:
    needed = sum(file.size for file in source.files)
    first = source.files[0]
    why = f"no room is left on the disk, {source.name} takes {needed:,} bytes and as much again unpacked"
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        why = f"{error.filename or folder}: cannot be written ({error.strerror or error})"
    return f"{source.name}: {why}; fetched by hand, {first.addresses[0]} belongs at {folder / first.place}"
