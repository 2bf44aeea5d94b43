"""One file from the first address that can give it: resumed, tried again, checked, and only then under its name.

A download grows as PLACE.part. Whatever stops it, PLACE is whole or not there, and the next try goes on with the part.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import os
import queue
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from lossbench.core.errors import DataError
from lossbench.core.files import opened
from lossbench.data.download.sources import File

CHUNK = 1 << 18
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # HTTP statuses that may be better a second later


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
    """How long to wait for a server, how often to ask it, and how long to pause (twice as long every time).

    A server that drips is given up too: one that sends fewer than `rate` bytes a second over `window` seconds.
    """

    timeout: float = 30.0
    tries: int = 4
    pause: float = 0.5
    rate: float = 1024
    window: float = 60.0


class AddressError(Exception):
    """One address could not give the file; `passing` when another try may, `status` when the server said so."""

    def __init__(self, why: str, *, passing: bool, status: int = 0) -> None:
        super().__init__(why)
        self.passing, self.status = passing, status


def download(name: str, file: File, place: Path, progress: Progress, patience: Patience) -> None:
    """`file` of the set `name` at `place`, or a DataError that says why no address gave it."""
    part = place.with_name(place.name + ".part")
    place.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for address in file.addresses:
        try:
            _download(address, file, part, progress, patience)
        except AddressError as why:
            reasons.append(f"{address} {why}")
        else:
            part.replace(place)
            return
    raise DataError(f"{name}: {', '.join(reasons)}; a copy fetched by hand belongs at {place}")


def differs(path: Path, file: File) -> str:
    """How the bytes at `path` differ from the published ones; empty when they do not."""
    if (size := path.stat().st_size) != file.size:
        return f"{size:,} bytes instead of {file.size:,}"
    expected = {name: value for name, value in (("sha256", file.sha256), ("md5", file.md5)) if value}
    with path.open("rb") as stream:
        got = digests(stream, *expected)
    wrong = (f"{name} expected {expected[name]}, got {got[name]}" for name in expected if got[name] != expected[name])
    return next(wrong, "")


def digests(stream: BinaryIO | gzip.GzipFile, *algorithms: str) -> dict[str, str]:
    # Not for secrets, and said so: some systems refuse md5 otherwise.
    found = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    while chunk := stream.read(1 << 20):
        for digest in found.values():
            digest.update(chunk)
    return {name: digest.hexdigest() for name, digest in found.items()}


def _download(address: str, file: File, part: Path, progress: Progress, patience: Patience) -> None:
    """The whole and right file at `part`. Only tries that get no further than the one before are counted."""
    tries, furthest, again = 0, 0, False
    while True:
        try:
            resumed = _transfer(address, file, part, progress, patience)
        except AddressError as error:
            size = _size(part)
            tries = 1 if size >= furthest + CHUNK else tries + 1
            furthest = max(furthest, size)
            if not error.passing or tries >= patience.tries:
                raise
            time.sleep(patience.pause * 2 ** (tries - 1))
            continue
        wrong = differs(part, file)
        if not wrong:
            return
        part.unlink()
        if again or not resumed:
            raise AddressError(f"sent another file than the published one ({wrong})", passing=False)
        again = True  # the older part may be of another version or another mirror: once more, from the beginning


def _transfer(address: str, file: File, part: Path, progress: Progress, patience: Patience) -> bool:
    """Bring `part` to the file's size, from where it ends; whether there was something to go on from."""
    have = _size(part)
    if have == file.size:
        return True  # only the check is missing
    if have > file.size:
        part.unlink()
        have = 0
    # No If-Range: the checksum tells a changed file anyway, and needs no memory of an ETag.
    headers = {"User-Agent": "lossbench", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        response = _answer(urllib.request.Request(address, headers=headers), patience)
    except AddressError as error:
        if error.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            part.unlink()  # of something longer than what is offered now
            error.passing = True
        raise
    with response:
        start = have if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0  # else all of it comes again
        given = response.headers.get("Content-Range", "")
        if start and not given.startswith(f"bytes {have}-"):
            part.unlink()
            raise AddressError(f"sent the range '{given}' instead of the rest from byte {have}", passing=True)
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and start + int(length) != file.size:  # a login page, say: not worth its checksum
            raise AddressError(f"offers {start + int(length):,} bytes instead of {file.size:,}", passing=False)
        progress.start(file.place, start, file.size)
        with os.fdopen(opened(part, os.O_RDWR | os.O_CREAT), "r+b") as stream:
            stream.truncate(start)
            stream.seek(start)
            _pour(response.read1, stream, start, file.size, progress, patience)
    return start > 0


def _answer(request: urllib.request.Request, patience: Patience) -> Any:
    """The beginning of a server's answer. Asked in a thread: a timeout of sockets ends no header that drips."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(urllib.request.urlopen(request, timeout=patience.timeout))
        except BaseException as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    longest = patience.timeout + patience.window
    try:
        found = answers.get(timeout=longest)
    except queue.Empty:
        raise AddressError(f"gave no whole answer within {longest:g} s", passing=True) from None
    with asking(patience.timeout):
        if isinstance(found, BaseException):
            raise found
    return found


def _pour(
    read: Callable[[int], bytes], stream: BinaryIO, done: int, size: int, progress: Progress, patience: Patience
) -> None:
    """Everything that comes, onto the disk; what `read` raises is the server's fault, the rest is not."""
    began, had = time.monotonic(), done
    while True:
        chunk = b""
        with (
            asking(patience.timeout),
            contextlib.suppress(http.client.IncompleteRead),
        ):  # which is told by the size, below
            chunk = read(CHUNK)
        if not chunk:
            break
        done += len(chunk)
        if done > size:
            raise AddressError(f"sends more than the {size:,} bytes that are published", passing=False)
        stream.write(chunk)
        progress.at(done)
        if (passed := time.monotonic() - began) >= patience.window:
            if done - had < patience.rate * passed and done < size:
                raise AddressError(f"sent only {done - had:,} bytes in {passed:.3g} s", passing=True)
            began, had = time.monotonic(), done
    stream.flush()
    os.fsync(stream.fileno())  # before it is renamed: a name that survives a power cut has its bytes
    if done < size:
        raise AddressError(f"ended after {done:,} of {size:,} bytes", passing=True)


@contextlib.contextmanager
def asking(timeout: float) -> Iterator[None]:
    """What a server, or the way to it, can do wrong becomes an AddressError."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        said = f"answers {error.code} {error.reason}".strip()
        raise AddressError(said, passing=error.code in PASSING, status=error.code) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, TimeoutError):
            raise AddressError(f"sent nothing for {timeout:g} s", passing=True) from error
        # Nobody there, or somebody else: to ask again at once is no use, the next address may be better.
        hopeless = isinstance(cause, socket.gaierror | ConnectionRefusedError | ssl.SSLCertVerificationError)
        why = " ".join((getattr(cause, "strerror", None) or str(cause) or type(cause).__name__).split())
        raise AddressError(f"cannot be reached ({why})", passing=not hopeless) from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
