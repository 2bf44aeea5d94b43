"""The fork server: a process that imports torch once and forks a clean child for every job.

Run as `python -m lossbench.engines.server MODULE…` by `lossbench.engines.local`. It speaks lines of JSON: a job comes
in on stdin as {"id", "log", "job"}; {"id", "pid"} goes out when it starts and {"id", "exit"} when it ends (negative:
the signal that killed it). Only plain data crosses, nothing is pickled, the user's own `__main__` is never imported.

When stdin closes, because the parent stopped or was killed, all children are killed and the server ends: no orphans.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from lossbench.files import opened


def serve(modules: list[str], work: Callable[[dict[str, Any]], int]) -> None:
    """Preload, then fork a child that calls `work(job)` for every line that comes in."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a module that prints on import must not garble the protocol
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception:  # whoever needs it will say so in the cell's own log
            continue
    gc.collect()
    gc.freeze()  # keeps the children's garbage collectors off the shared pages
    children: dict[int, str] = {}
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)  # a signal handler must never wait
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
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
                    pid = _fork(request, work, (wake_read, wake_write, out.fileno()))
                    children[pid] = request["id"]
                    print(json.dumps({"id": request["id"], "pid": pid}), file=out, flush=True)
    except BrokenPipeError:  # the parent is gone
        pass
    finally:
        for pid in children:
            kill_group(pid)


def kill_group(pid: int) -> None:
    """Kill a job's process and everything it started."""
    for kill in (os.killpg, os.kill):  # the group does not exist yet in a child's first instant
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _fork(request: dict[str, Any], work: Callable[[dict[str, Any]], int], private: tuple[int, ...]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        server = os.getppid()
        os.setsid()  # a group of its own, so that a deadline can kill all that the cell started
        _die_with_parent(server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for descriptor in private:
            os.close(descriptor)
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            log = opened(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        except OSError:  # a FIFO, a folder, no room: the cell is worth more than what it prints
            log = nothing
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        code = work(request["job"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # not sys.exit: the server's own stack is still above us


def _die_with_parent(parent: int) -> None:
    """Ask the system to kill us when the server dies, however it dies (Linux; elsewhere its own end does)."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:  # it died between the fork and the call
            os._exit(70)


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
