"""Download one file from the first address that has it: resumed, retried, checked, then renamed into place.

A download grows as PLACE.part. PLACE is complete or missing, even after an interruption; the next try resumes the part.
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from lossbench.core.errors import DataError
from lossbench.core.files import opened
from lossbench.data.download.sources import File

CHUNK = 1 << 18
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # HTTP statuses that may be temporary
REACH_SECONDS = 4.0  # for all addresses together


class Progress(Protocol):
    """Receives the progress of a download."""

    def start(self, what: str, done: int, total: int) -> None:
        """`what`, of `total` bytes, begins, or resumes at `done`."""

    def at(self, done: int) -> None:
        """`done` bytes are complete."""


class Silence:
    """Progress that is not shown."""

    def start(self, what: str, done: int, total: int) -> None: ...

    def at(self, done: int) -> None: ...


@dataclass(frozen=True)
class Patience:
    """Seconds to wait for a server, number of tries, and the pause between them (doubled each time).

    A server that sends fewer than `rate` bytes per second over `window` seconds is given up, too.
    """

    timeout: float = 30.0
    tries: int = 4
    pause: float = 0.5
    rate: float = 1024
    window: float = 60.0


class AddressError(Exception):
    """An address failed; `passing`: another try may succeed, `status`: the HTTP status, if there is one."""

    def __init__(self, why: str, *, passing: bool, status: int = 0) -> None:
        super().__init__(why)
        self.passing, self.status = passing, status


def download(name: str, file: File, place: Path, progress: Progress, patience: Patience) -> None:
    """Download `file` of the dataset `name` to `place`; DataError says why no address worked."""
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
    raise DataError(f"{name}: {', '.join(reasons)}; or download it to {place} by hand")


def differs(path: Path, file: File) -> str:
    """How the file at `path` differs from the published one; empty if it does not."""
    if (size := path.stat().st_size) != file.size:
        return f"{size:,} bytes instead of {file.size:,}"
    expected = {name: value for name, value in (("sha256", file.sha256), ("md5", file.md5)) if value}
    with path.open("rb") as stream:
        got = digests(stream, *expected)
    wrong = (f"{name} expected {expected[name]}, got {got[name]}" for name in expected if got[name] != expected[name])
    return next(wrong, "")


def digests(stream: BinaryIO | gzip.GzipFile, *algorithms: str) -> dict[str, str]:
    # usedforsecurity: some systems refuse md5 otherwise
    found = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    while chunk := stream.read(1 << 20):
        for digest in found.values():
            digest.update(chunk)
    return {name: digest.hexdigest() for name, digest in found.items()}


def _download(address: str, file: File, part: Path, progress: Progress, patience: Patience) -> None:
    """Complete `part` and check it. Only tries that make no progress are counted."""
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
            raise AddressError(f"sent a file that is not the published one ({wrong})", passing=False)
        again = True  # the older part may be of another version or mirror: once more, from the start


def _transfer(address: str, file: File, part: Path, progress: Progress, patience: Patience) -> bool:
    """Download the rest of `part`; True if it was resumed."""
    have = _size(part)
    if have == file.size:
        return True  # only the check is left
    if have > file.size:
        part.unlink()
        have = 0
    # No If-Range: the checksum detects a changed file anyway, without storing an ETag.
    headers = {"User-Agent": "lossbench", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        response = _answer(urllib.request.Request(address, headers=headers), patience)
    except AddressError as error:
        if error.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            part.unlink()  # of a longer file than the server has now
            error.passing = True
        raise
    with response:
        start = (
            have if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
        )  # else the server sends all of it again
        given = response.headers.get("Content-Range", "")
        if start and not given.startswith(f"bytes {have}-"):
            part.unlink()
            raise AddressError(f"sent the range '{given}' instead of the rest from byte {have}", passing=True)
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and start + int(length) != file.size:  # a login page, for example
            raise AddressError(f"offers {start + int(length):,} bytes instead of {file.size:,}", passing=False)
        progress.start(file.place, start, file.size)
        with os.fdopen(opened(part, os.O_RDWR | os.O_CREAT), "r+b") as stream:
            stream.truncate(start)
            stream.seek(start)
            _pour(response.read1, stream, start, file.size, progress, patience)
    return start > 0


def _answer(request: urllib.request.Request, patience: Patience) -> Any:
    """The response of a server. Requested in a thread: socket timeouts do not end a header that comes byte by byte."""
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
        raise AddressError(f"gave no complete answer within {longest:g} s", passing=True) from None
    with asking(patience.timeout):
        if isinstance(found, BaseException):
            raise found
    return found


def _pour(
    read: Callable[[int], bytes], stream: BinaryIO, done: int, size: int, progress: Progress, patience: Patience
) -> None:
    """Write the response to disk; errors of `read` are the server's, others are local."""
    began, had = time.monotonic(), done
    while True:
        chunk = b""
        with asking(patience.timeout), contextlib.suppress(http.client.IncompleteRead):  # the size tells, below
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
    os.fsync(stream.fileno())  # before the rename: after a power cut the name must not exist without its bytes
    if done < size:
        raise AddressError(f"ended after {done:,} of {size:,} bytes", passing=True)


@contextlib.contextmanager
def asking(timeout: float) -> Iterator[None]:
    """Turn errors of a server or network into an AddressError."""
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
        # No server, or the wrong one: another try is no use, the next address may work.
        hopeless = isinstance(cause, socket.gaierror | ConnectionRefusedError | ssl.SSLCertVerificationError)
        why = " ".join((getattr(cause, "strerror", None) or str(cause) or type(cause).__name__).split())
        raise AddressError(f"cannot be reached ({why})", passing=not hopeless) from error


def unreachable(files: Mapping[str, File], seconds: float = REACH_SECONDS) -> dict[str, str]:
    """The files that no address can provide now, each with a reason; all addresses are asked at once.

    The threads are daemons and are not waited for: a name lookup cannot be interrupted.
    """
    answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def ask(name: str, address: str) -> None:
        request = urllib.request.Request(address, headers={"User-Agent": "lossbench"})
        try:
            with asking(seconds):
                urllib.request.urlopen(request, timeout=seconds).close()
        except AddressError as why:
            answers.put((name, f"{address} {why}"))
        else:
            answers.put((name, ""))

    for name, file in files.items():
        for address in file.addresses:
            threading.Thread(target=ask, args=(name, address), daemon=True).start()
    waiting = {name: len(file.addresses) for name, file in files.items()}
    reasons = {name: f"{file.addresses[0]} sent nothing for {seconds:g} s" for name, file in files.items()}
    end = time.monotonic() + seconds
    while waiting:
        try:
            name, why = answers.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        if name not in waiting:
            continue
        waiting[name] = waiting[name] - 1 if why else 0
        reasons[name] = why
        if not waiting[name]:
            del waiting[name]
    return {name: why for name, why in reasons.items() if why}


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
