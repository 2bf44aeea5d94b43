"""A check in a process of its own: a loss that hangs, exits or crashes is named, and the others are still checked."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, SpawnContext
from typing import TypeVar

from lossbench.core.guard import adopt_orphans, die_with_parent, end_tree

LIMIT = 120.0  # seconds that one loss may take; a sound one takes about two
GRACE = 5.0  # seconds in which a process that has closed its pipe is gone
# A fork costs milliseconds where importing torch again costs seconds; nothing has used torch's threads before it.
CONTEXT: ForkContext | SpawnContext = (
    multiprocessing.get_context("fork") if sys.platform == "linux" else multiprocessing.get_context("spawn")
)

Sent = TypeVar("Sent")
# What runs apart: it is given two callbacks, for each property that is about to be tried and for each result.
Work = Callable[[Callable[[str], None], Callable[[Sent], None]], None]


def apart(work: Work[Sent], seconds: float = LIMIT) -> tuple[list[Sent], tuple[str, str] | None]:
    """The results of `work` done in a child process; if it did not come to its end, the property and what happened."""
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_report, args=(sender, work, os.getpid()), daemon=True)
    process.start()
    assert process.pid is not None
    sender.close()
    results: list[Sent] = []
    trying, ended, raised = "loads", False, None
    deadline = time.monotonic() + seconds
    try:
        while not ended and receiver.poll(max(0.0, deadline - time.monotonic())):
            try:
                kind, said = receiver.recv()
            except (EOFError, OSError):
                process.join(GRACE)
                break
            ended = kind == "end"
            if kind == "trying":
                trying = said
            elif kind == "raised":
                raised = said
            elif kind == "result":
                results.append(said)
        code = process.exitcode
    finally:
        end_tree(process.pid)
        process.join()
        receiver.close()
    if ended and raised is None:
        return results, None
    return results, (trying, raised or (_late(seconds) if code is None else _died(code)))


def _report(sender: Connection, work: Work[Sent], parent: int) -> None:
    die_with_parent(parent)
    adopt_orphans()  # what the loss starts can be ended with it
    with contextlib.suppress(OSError):
        os.setsid()  # a Ctrl-C is the parent's to handle
    try:
        work(lambda name: sender.send(("trying", name)), lambda result: sender.send(("result", result)))
    except BaseException as error:  # a loss may raise KeyboardInterrupt, too
        sender.send(("raised", f"raises {type(error).__name__}: {error}"))
    sender.send(("end", None))


def _late(seconds: float) -> str:
    return f"does not come to an end within {seconds:g} seconds: look for a loop that never ends"


def _died(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        cause = {"SIGSEGV": " (a segmentation fault in compiled code)", "SIGKILL": " (perhaps for want of memory)"}
        return f"ends the whole process by {name}{cause.get(name, '')}: find out which call does, by running it alone"
    return f"ends the whole process with exit code {code}: raise an exception instead of calling os._exit"
