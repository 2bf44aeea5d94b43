"""Work on another core, in a forked process."""

from __future__ import annotations

import marshal
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Made = TypeVar("Made")


def beside(work: Callable[[], Made]) -> Callable[[], Made]:
    """Begin `work` in a forked process; returns a function that waits for what it made, which is plain data.

    Plain data is what marshal can hold: texts, bytes, numbers, lists, tuples and dicts. Only a process with a single
    thread may fork: another thread could hold a lock, which the fork would never release. Where there is one core or
    several threads, and if the process was killed, the work is done when its result is asked for.
    """
    if cores() == 1 or threading.active_count() > 1:
        return work
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        _send(work, read, write)
    os.close(write)

    def made() -> Made:
        with os.fdopen(read, "rb") as answer:
            content = answer.read()
        _, status = os.waitpid(pid, 0)
        found: Made = marshal.loads(content) if status == 0 else work()
        return found

    return made


def _send(work: Callable[[], Any], read: int, write: int) -> None:
    """In the forked process: write what `work` makes, and end."""
    code = 1
    try:
        os.close(read)
        with os.fdopen(write, "wb") as answer:
            answer.write(marshal.dumps(work()))
        code = 0
    finally:
        os._exit(code)  # whatever went wrong: this copy of the program must not go on


def cores() -> int:
    """How many processes can run at once."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
