"""Fresh processes of a job: new interpreters that run one after another.

Forks of a server have its memory layout; a new interpreter has one of its own. The processes of a job share a file
without a name, which is their stdin: its first line is the job, and each further line a note that one of them left for
the next.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

AGAIN = os.EX_TEMPFAIL  # the exit code of a process that leaves the rest of its job to the next one


def starter(job: dict[str, Any], arguments: Sequence[str]) -> Callable[[], NoReturn]:
    """A function that replaces the process that calls it by a new Python with these arguments, which has the job."""
    shared = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as this process lives, which starts the others
    shared.write(_line(job))
    shared.flush()

    def start() -> NoReturn:
        os.lseek(shared.fileno(), 0, os.SEEK_SET)
        os.dup2(shared.fileno(), 0)
        os.execv(sys.executable, [sys.executable, "-P", *arguments])

    return start


def received() -> dict[str, Any]:
    """The job of this process, with the `notes` of those before it."""
    job, *notes = map(json.loads, sys.stdin.buffer)
    return {**job, "notes": notes}


def note(content: Any) -> None:
    """Leave plain data to the next process."""
    with open(0, "ab", closefd=False) as shared:
        shared.write(_line(content))


def _line(content: Any) -> bytes:
    return json.dumps(content).encode() + b"\n"
