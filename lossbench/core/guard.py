"""The guard: a small process between a run and a process that it started; it ends with either of them.

Started as `python -I -S guard.py LIFELINE COMMAND…`, it runs COMMAND as its child and waits. LIFELINE is the reading
end of a pipe whose other end only the run holds: when the run ends, however it ends, the pipe closes, and the guard
kills the process and everything below it, whatever these are doing: importing, computing, or asleep in a session of
their own. Orphans below the guard become its children, so no descendant escapes by leaving its group.

Only the standard library is imported, so that it starts in milliseconds. The engines also use the functions that find
and end process trees.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LINUX = sys.platform == "linux"
PATIENCE_SECONDS = 10.0  # until killed processes are gone; longer only for one that the kernel holds


def started(
    arguments: list[str], environment: Mapping[str, str], stderr: int | None
) -> tuple[subprocess.Popen[bytes], int]:
    """A Python under a guard of its own, with pipes to its stdin and stdout, and the end of its lifeline to close.

    -P and our own path: it must import this package, not one in the working folder. In a session of its own it does not
    get a Ctrl-C in the terminal, which the parent handles.
    """
    lifeline, ours = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(lifeline), sys.executable, "-P", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
        pass_fds=(lifeline,),
    )
    os.close(lifeline)
    return process, ours


def end(process: subprocess.Popen[bytes], lifeline: int) -> None:
    """End what `started` has started, and wait until it is gone."""
    os.close(lifeline)
    try:
        process.wait(timeout=PATIENCE_SECONDS + 5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def descendants(root: int) -> list[int]:
    """All processes below `root`, each after its parent."""
    children: dict[int, list[int]] = {}
    for pid, parent in running_processes().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def end_descendants(root: int) -> None:
    """Kill everything below `root` and wait until it is gone.

    Orphans move up to the nearest reaper, which is `root` or below it: the walk is repeated until it finds none.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and (below := descendants(root)):
        for pid in below:
            _kill(pid)
        time.sleep(0.005)
    if root == os.getpid():
        reap()  # else they would stay as zombies


def end_tree(root: int) -> None:
    """Kill a process and everything below it."""
    end_descendants(root)
    _kill(root)


def adopt_orphans() -> None:
    """Let orphans among our descendants become our children (Linux; elsewhere their groups are killed)."""
    if LINUX:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Ask the system to kill us when our parent dies (Linux; elsewhere the guard does it)."""
    if LINUX:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died between the fork and the call
            os._exit(os.EX_SOFTWARE)


def wake_on(*signals: int) -> int:
    """A descriptor that becomes readable when one of these signals arrives; each byte is the number of one."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)  # a signal handler must never wait
    signal.set_wakeup_fd(wake_write)
    for number in signals:
        signal.signal(number, lambda *_: None)
    return wake_read


def leave_as(status: int) -> NoReturn:
    """End this process as a child of it ended: with the same exit code, or by the same signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def how_it_ended(code: int) -> str:
    """The exit code of a process (negative: the signal that killed it) in words."""
    return f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}"


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def running_processes() -> dict[int, int]:
    """The parent of every process that has not ended (a zombie has)."""
    if not LINUX:
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)
        return {int(pid): int(parent) for pid, parent in map(str.split, listed.stdout.splitlines())}
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # called often; plain names are all that is needed
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it ended meanwhile
                stat = Path("/proc", name, "stat").read_bytes()
                state, parent = stat[stat.rindex(b")") + 2 :].split()[:2]
                if state not in (b"Z", b"X"):
                    found[int(name)] = int(parent)
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def reap() -> dict[int, int]:
    """The children that have ended, by pid, with their wait status."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended


def main(lifeline: int, command: list[str]) -> NoReturn:
    """Run `command` until it ends or the lifeline does."""
    adopt_orphans()
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    wake_read = wake_on(signal.SIGCHLD, signal.SIGTERM)
    guard = os.getpid()
    child = os.fork()
    if not child:
        os.close(lifeline)
        for restored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(restored, signal.SIG_DFL)
        die_with_parent(guard)
        os.execv(command[0], command)
    nothing = os.open(os.devnull, os.O_RDWR)
    for inherited in (0, 1):  # the server's pipes must close when it ends
        os.dup2(nothing, inherited)
    while True:
        ready, _, _ = select.select([lifeline, wake_read], [], [])
        arrived = os.read(wake_read, 4096) if wake_read in ready else b""
        if lifeline in ready or signal.SIGTERM in arrived:
            end_descendants(guard)
            os._exit(os.EX_SOFTWARE)
        if (status := reap().get(child)) is not None:
            end_descendants(guard)
            leave_as(status)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
