"""Run a function in a separate process: if it hangs, exits or crashes, the caller is told and not affected."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from lossbench.core import guard

GRACE_SECONDS = 5.0  # for a process that has closed its pipe to be gone

# What runs apart: it is given a callback that sends a message to the caller.
Work = Callable[[Callable[[Any], None]], object]


@dataclass
class LostError(Exception):
    """The function did not return: it raised something, its process ended with a code, or (neither) it hung."""

    raised: str | None = None
    code: int | None = None  # negative: the signal that killed it


def messages(work: Work, seconds: float, *, fresh: bool = False, renew: bool = False) -> Iterator[Any]:
    """What `work` sends, until it returns; LostError if it does not.

    It has `seconds` in all, or between two messages (`renew`). The process is forked, which takes milliseconds where
    importing torch again takes seconds; or it is a `fresh` Python, which is safe even if the caller has threads, and
    everything below it ends with the caller. Then `work` must be picklable.
    """
    receiver, exit_code, end = _fresh(work) if fresh else _forked(work)
    deadline = time.monotonic() + seconds
    try:
        while receiver.poll(max(0.0, deadline - time.monotonic())):
            try:
                kind, content = receiver.recv()
            except (EOFError, OSError):
                raise LostError(code=exit_code()) from None
            if kind == "end":
                return
            if kind == "raised":
                raise LostError(raised=content)
            yield content
            if renew:
                deadline = time.monotonic() + seconds
        raise LostError
    finally:
        end()
        receiver.close()


_Started = tuple[Connection, Callable[[], int | None], Callable[[], None]]  # messages, exit code, how to end it


def _forked(work: Work) -> _Started:
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_in_fork, args=(sender, work, os.getpid()), daemon=True)
    process.start()
    sender.close()

    def exit_code() -> int | None:
        process.join(GRACE_SECONDS)
        code: int | None = process.exitcode
        return code

    def end() -> None:
        guard.end_tree(process.pid)
        process.join()

    return receiver, exit_code, end


def _fresh(work: Work) -> _Started:
    start = "from lossbench.core import apart; apart.main()"
    process, lifeline = guard.started(["-c", start], {}, stderr=None)
    assert process.stdin and process.stdout
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        pickle.dump(work, stdin)
    with process.stdout as stdout:
        receiver = Connection(os.dup(stdout.fileno()), writable=False)
    # The exit code is asked for before the lifeline ends: the guard exits as its process did.
    return receiver, process.wait, lambda: guard.end(process, lifeline)


def _in_fork(sender: Connection, work: Work, parent: int) -> None:
    guard.die_with_parent(parent)
    guard.adopt_orphans()  # what the function starts can be ended with it
    with contextlib.suppress(OSError):
        os.setsid()  # a Ctrl-C in the terminal is the caller's to handle
    _run(sender, work)


def main() -> None:
    """The fresh process: messages go to what was stdout, and what the function prints to stderr."""
    sender = Connection(os.dup(1), readable=False)
    os.dup2(2, 1)
    _run(sender, pickle.load(sys.stdin.buffer))


def _run(sender: Connection, work: Work) -> None:
    try:
        work(lambda content: sender.send(("message", content)))
    except BaseException as error:  # a plugin may raise SystemExit or KeyboardInterrupt, too
        sender.send(("raised", f"{type(error).__name__}: {error}"))
    sender.send(("end", None))
