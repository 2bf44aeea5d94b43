"""Drawings rendered on all cores: most of the time of a report is spent in matplotlib."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence

from lossbench.report.figures.style import Drawing

FEWEST = 4  # drawings for which further processes pay


def render(drawings: Sequence[Drawing]) -> None:
    """Render the SVG of every drawing; the bytes are the same as if each were rendered when asked for.

    Forked processes render a share each and end. Only a process with a single thread may fork: another thread could
    hold a lock, which the fork would never release. What a process that was killed has not rendered is rendered here.
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    workers = min(cores, len(drawings) // 2) if len(drawings) >= FEWEST and threading.active_count() == 1 else 1
    pipes = [_rendering(drawings[start::workers]) for start in range(1, workers)]
    for drawing in drawings[::workers]:
        _ = drawing.svg
    for start, (pid, pipe) in enumerate(pipes, 1):
        with os.fdopen(pipe, encoding="utf-8") as answer:
            text = answer.read()
        _, status = os.waitpid(pid, 0)
        if status == 0:
            for drawing, svg in zip(drawings[start::workers], json.loads(text), strict=True):
                drawing.__dict__["svg"] = svg  # its cached property


def _rendering(drawings: Sequence[Drawing]) -> tuple[int, int]:
    """A process that renders these drawings, and the pipe that it writes them to."""
    read, write = os.pipe()
    if pid := os.fork():
        os.close(write)
        return pid, read
    code = 1
    try:
        os.close(read)
        with os.fdopen(write, "w", encoding="utf-8") as answer:
            json.dump([drawing.svg for drawing in drawings], answer)
        code = 0
    finally:
        os._exit(code)  # whatever went wrong: this copy of the program must not go on
