"""Parts of a report made on another core: drawings, which take most of the time of a small report, and the page."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from lossbench.report.figures.style import Drawing

FEWEST = 4  # drawings for which further processes pay

Made = TypeVar("Made")


def render(drawings: Sequence[Drawing]) -> None:
    """Render the SVG of every drawing; the bytes are the same as if each were rendered when asked for."""
    workers = max(1, min(_cores(), len(drawings) // 2)) if len(drawings) >= FEWEST else 1
    first, *others = (drawings[start::workers] for start in range(workers))
    found = [beside(partial(_rendered, share)) for share in others]
    _rendered(first)
    for share, svgs in zip(others, found, strict=True):
        for drawing, svg in zip(share, svgs(), strict=True):
            drawing.__dict__["svg"] = svg  # its cached property


def _rendered(drawings: Sequence[Drawing]) -> list[str]:
    return [drawing.svg for drawing in drawings]


def beside(work: Callable[[], Made]) -> Callable[[], Made]:
    """Begin `work` in a forked process; returns a function that waits for what it made, which JSON can hold.

    Only a process with a single thread may fork: another thread could hold a lock, which the fork would never release.
    Where there is one core or several threads, and if the process was killed, the work is done when its result is
    asked for.
    """
    if _cores() == 1 or threading.active_count() > 1:
        return work
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        _send(work, read, write)
    os.close(write)

    def made() -> Made:
        with os.fdopen(read, encoding="utf-8") as answer:
            text = answer.read()
        _, status = os.waitpid(pid, 0)
        found: Made = json.loads(text) if status == 0 else work()
        return found

    return made


def _send(work: Callable[[], object], read: int, write: int) -> None:
    """In the forked process: write what `work` makes, and end."""
    code = 1
    try:
        os.close(read)
        with os.fdopen(write, "w", encoding="utf-8") as answer:
            json.dump(work(), answer)
        code = 0
    finally:
        os._exit(code)  # whatever went wrong: this copy of the program must not go on


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
