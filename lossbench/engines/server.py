"""The fork server: a process that imports torch once and forks a clean child for every job.

Run as `python -m lossbench.engines.server MODULE…` by `lossbench.engines.servers`, under a guard. It speaks lines of
JSON: {"importing": MODULE} goes out before each import and {"ready"} after the last; a job comes in on stdin as {"id",
"log", "job"}; {"id", "pid"} goes out when it starts and {"id", "exit"} when it ends (negative: the signal that killed
it). Only plain data crosses, nothing is pickled, the user's own `__main__` is never imported.

A job is two processes: the one that works, and its warden, whose pid is told. The warden keeps the log within bounds
and ends everything that the job has started, whatever session it has moved to, as soon as the job itself is over. When
stdin closes, because the parent stopped or was killed, all jobs are killed and the server ends: no orphans.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from lossbench.core.files import opened
from lossbench.core.guard import adopt_orphans, die_with_parent, end_descendants, end_tree, leave_as

LOG_END = 1 << 19  # bytes of a log that are kept from its beginning, and as many from its end
FLUSH_SECONDS = 1.0  # between two writings of the end of a long log

Work = Callable[[dict[str, Any]], int]


def serve(modules: list[str], work: Work) -> None:
    """Preload, then fork a child that calls `work(job)` for every line that comes in."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a module that prints on import must not garble the protocol
    for module in modules:
        print(json.dumps({"importing": module}), file=out, flush=True)
        with contextlib.suppress(Exception, SystemExit):  # whoever needs it will say so in the cell's own log
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # keeps the children's garbage collectors off the shared pages
    print(json.dumps({"ready": True}), file=out, flush=True)
    children: dict[int, str] = {}
    wake_read = _wake_on_signals()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    pending = b""
    try:
        while True:
            for ready, _ in selector.select():
                if ready.fd == wake_read:
                    os.read(wake_read, 4096)
                    _reap(children, out)
                    continue
                chunk = os.read(0, 1 << 16)
                if not chunk:
                    return
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    request = json.loads(line)
                    pid = os.fork()
                    if not pid:
                        _guarded(request, work, out.fileno())
                    children[pid] = request["id"]
                    print(json.dumps({"id": request["id"], "pid": pid}), file=out, flush=True)
    except BrokenPipeError:  # the parent is gone
        pass
    finally:
        for pid in children:
            end_tree(pid)


def _guarded(request: dict[str, Any], work: Work, out: int) -> NoReturn:
    """The warden of one job: fork it, keep its log, and leave as it does, with nothing left behind."""
    try:
        os.setsid()
        die_with_parent(os.getppid())
        adopt_orphans()
        os.close(out)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        wake_read = _wake_on_signals()
        read, write = os.pipe()
        job = os.fork()
        if not job:
            os.close(read)
            _job(request["job"], work, write)
        os.close(write)
        log = _Log(request["log"])
        status = _watched(job, read, wake_read, log)
        end_descendants(os.getpid())
        os.set_blocking(read, False)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(read, 1 << 16):
                log.write(chunk)
        log.flush()
        leave_as(status)
    finally:
        os._exit(70)  # not sys.exit: the server's own stack is still above us


def _watched(job: int, output: int, wake: int, log: _Log) -> int:
    """Copy what a job prints into its log until it ends; its status."""
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
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:  # the job, or an orphan that we adopted
                if ended[0] == job:
                    return ended[1]
        log.flush_now_and_then()


def _job(job: dict[str, Any], work: Work, output: int) -> NoReturn:
    """The process that works: a group of its own, no way to the server, output to the warden."""
    code = 70
    try:
        die_with_parent(os.getppid())
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for target in (1, 2):
            os.dup2(output, target)
        os.close(output)
        code = work(job)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _Log:
    """A file that keeps the first and the last of what is written to it; a disk that is full costs the log alone."""

    def __init__(self, path: str) -> None:
        self._file = os.open(os.devnull, os.O_WRONLY)
        with contextlib.suppress(OSError):  # a FIFO, a folder, no room: the cell is worth more than what it prints
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
        """Bring the end of a long log to the disk."""
        if self._flushed:
            return
        note = f"\n[… {self._left_out:,} bytes left out …]\n".encode() if self._left_out else b""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, LOG_END)
            os.pwrite(self._file, note + self._tail, LOG_END)
        self._flushed, self._next = True, time.monotonic() + FLUSH_SECONDS


def _wake_on_signals() -> int:
    """A descriptor that becomes readable when a child ends."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)  # a signal handler must never wait
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake_read


def _reap(children: dict[int, str], out: Any) -> None:
    while children:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        if pid in children:
            ended = {"id": children.pop(pid), "exit": os.waitstatus_to_exitcode(status)}
            print(json.dumps(ended), file=out, flush=True)


if __name__ == "__main__":
    from lossbench.engines.worker import work

    serve(sys.argv[1:], work)
