"""A program on a terminal of its own."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable


def on_terminal(start: Callable[[int], subprocess.Popen[bytes]]) -> tuple[int, bytes]:
    """The exit code of what `start` starts on the terminal that it is given, and everything it sent there."""
    ours, theirs = pty.openpty()
    process = start(theirs)
    os.close(theirs)
    sent = b""
    try:
        while part := os.read(ours, 4096):
            sent += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    return process.wait(), sent
