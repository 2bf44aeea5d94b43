"""The fork server: a process that imports torch once and forks a clean child for every job.

Run as `python -m lossbench.engines.server MODULE…` by `lossbench.engines.servers`, under a guard. It speaks lines of
JSON: {"importing": MODULE} goes out before each import and {"ready"} after the last; a job comes in on stdin as {"id",
"log", "job", "fresh"}; {"id", "pid"} goes out when it starts and {"id", "exit"} when it ends (negative: the signal that
killed it). Only plain data crosses, nothing is pickled, the user's own `__main__` is never imported.

A job is two processes: the one that works, and its warden, whose pid is reported. The warden limits the size of the log
and, as soon as the job is over, kills everything that the job has started, whatever session it has moved to. When stdin
closes, because the parent stopped or was killed, the server kills all jobs and ends: no orphans.

A job with `fresh` = n > 0 works in up to n new interpreters instead of a fork, one after another: the next one starts
when one ends with the exit code `fresh.AGAIN`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from lossbench.core.files import opened
from lossbench.core.guard import adopt_orphans, die_with_parent, end_descendants, end_tree, leave_as, reap, wake_on
from lossbench.engines import eager, fresh

LOG_END = 1 << 19  # bytes kept from the beginning of a log, and as many from its end
FLUSH_SECONDS = 1.0  # between two writes of the end of a long log
FRESH = "from lossbench.engines import server; server.main()"


def serve(modules: list[str]) -> None:
    """Preload, then fork a child that calls `worker.work(job)` for every line that comes in."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a module that prints on import must not garble the protocol

    def say(**what: Any) -> None:
        print(json.dumps(what), file=out, flush=True)

    _preload(modules, say)
    say(ready=True)
    children: dict[int, str] = {}
    wake_read = wake_on(signal.SIGCHLD)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pending = b""
    try:
        while True:
            ready, _, _ = select.select([0, wake_read], [], [])
            if wake_read in ready:
                os.read(wake_read, 4096)
                for pid, status in reap().items():
                    if pid in children:  # and not one that a library started when it was imported
                        say(id=children.pop(pid), exit=os.waitstatus_to_exitcode(status))
            if 0 not in ready:
                continue
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for request in map(json.loads, lines):
                pid = os.fork()
                if not pid:
                    _guarded(request, modules, out.fileno())
                children[pid] = request["id"]
                say(id=request["id"], pid=pid)
    except BrokenPipeError:  # the parent is gone
        pass
    finally:
        for pid in children:
            end_tree(pid)


def _preload(modules: list[str], say: Callable[..., None]) -> None:
    for module in modules:
        say(importing=module)
        with contextlib.suppress(Exception, SystemExit):  # the cell that needs it fails with the error in its own log
            importlib.import_module(module)
    eager.spare_dynamo()
    if worker := sys.modules.get("lossbench.engines.worker"):
        with contextlib.suppress(Exception):  # another plugin may claim the name: the plan says so
            worker.warm_up()
    gc.collect()
    gc.freeze()  # keeps the children's garbage collectors off the shared pages


def _guarded(request: dict[str, Any], modules: list[str], out: int) -> NoReturn:
    """The warden of one job: start its processes, keep their log, and leave as the last did, with nothing left."""
    try:
        os.setsid()
        die_with_parent(os.getppid())
        adopt_orphans()
        os.close(out)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        wake_read = wake_on(signal.SIGCHLD)
        log = _Log(request["log"])
        job = request["job"]
        start = fresh.starter(job, ["-c", FRESH, *modules]) if request["fresh"] else partial(_work, job)
        for _ in range(max(1, request["fresh"])):
            status = _ended(start, wake_read, log)
            if os.waitstatus_to_exitcode(status) != fresh.AGAIN:
                break
        log.flush()
        leave_as(status)
    finally:
        os._exit(os.EX_SOFTWARE)  # not sys.exit: the server's own stack is still above us


def _ended(start: Callable[[], int], wake: int, log: _Log) -> int:
    """The wait status of a new process that calls `start`, once it and everything that it has started are gone."""
    read, write = os.pipe()
    process = os.fork()
    if not process:
        os.close(read)
        _leave(partial(_settled, start, write))
    os.close(write)
    status = _watched(process, read, wake, log)
    end_descendants(os.getpid())
    os.set_blocking(read, False)
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(read, 1 << 16):
            log.write(chunk)
    os.close(read)
    return status


def _watched(job: int, output: int, wake: int, log: _Log) -> int:
    """Copy what a job prints into its log until it ends; returns its wait status."""
    listening = [output, wake]
    while True:
        ready, _, _ = select.select(listening, [], [], FLUSH_SECONDS)
        if output in ready:
            if chunk := os.read(output, 1 << 16):
                log.write(chunk)
            else:  # it closed its output and goes on
                listening = [wake]
        if wake in ready:
            os.read(wake, 4096)
            if (status := reap().get(job)) is not None:  # the others are orphans that we adopted
                return status
        log.flush_now_and_then()


def _settled(start: Callable[[], int], output: int) -> int:
    """Work in a separate group, without the server's pipes; the output goes to the warden."""
    die_with_parent(os.getppid())
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for target in (1, 2):
        os.dup2(output, target)
    os.close(output)
    return start()


def main() -> NoReturn:
    """A fresh process of a job: import what the server has imported, then work."""
    job = fresh.received()
    _preload(sys.argv[1:], lambda **what: None)
    _leave(partial(_work, job))


def _work(job: dict[str, Any]) -> int:
    from lossbench.engines.worker import work  # loaded already, unless it fails to

    return work(job)


def _leave(work: Callable[[], int]) -> NoReturn:
    """End this process with the exit code that `work` returns, whatever it does."""
    code = os.EX_SOFTWARE
    try:
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _Log:
    """Keeps the beginning and the end of what is written to it. If the disk is full, the log is lost, not the cell."""

    def __init__(self, path: str) -> None:
        self._file = os.open(os.devnull, os.O_WRONLY)
        with contextlib.suppress(OSError):  # a FIFO, a folder, a full disk: the cell matters more
            self._file = opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._head, self._left_out, self._tail = 0, 0, b""
        self._flushed, self._next = True, 0.0

    def write(self, chunk: bytes) -> None:
        first = chunk[: LOG_END - self._head]
        with contextlib.suppress(OSError):
            os.write(self._file, first)
        self._head += len(first)
        tail = self._tail + chunk[len(first) :]
        self._left_out += max(0, len(tail) - LOG_END)
        self._tail, self._flushed = tail[-LOG_END:], len(first) == len(chunk) and self._flushed

    def flush_now_and_then(self) -> None:
        if time.monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Write the end of a long log to the disk."""
        if self._flushed:
            return
        note = f"\n[… {self._left_out:,} bytes left out …]\n".encode() if self._left_out else b""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, LOG_END)
            os.pwrite(self._file, note + self._tail, LOG_END)
        self._flushed, self._next = True, time.monotonic() + FLUSH_SECONDS


if __name__ == "__main__":
    serve(sys.argv[1:])
