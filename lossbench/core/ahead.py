"""Starts the processes that import torch; for a run from the command line, before lossbench itself is imported.

Importing torch takes longer than anything else at the start of a run. Little is imported here, so that it can begin at
once, on another core.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator

from lossbench.core import guard
from lossbench.core.files import user_cache

# Everything that a cell imports, so that a fork costs milliseconds. torch._dynamo is spared: see `engines.eager`.
PRELOAD = ("numpy", "torch", "torch.optim", "lossbench.engines.worker")

# One thread until a cell says otherwise; cuBLAS is deterministic only with a workspace of a fixed size. What a step
# frees the next one asks for again: glibc keeps it, and does not give it back to the system to be zeroed page by page.
FIXED = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # the most that every glibc accepts
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}

COMPILED = "TORCHINDUCTOR_CACHE_DIR"  # where torch keeps compiled code; by default a folder that reboots delete

Process = tuple[subprocess.Popen[bytes], int]  # a fork server, and the end of its lifeline to close
_waiting: list[Process] = []  # at most one: the server that a run has yet to take


def launched(libraries: Iterable[str] = ()) -> Process:
    """A new fork server (`engines.server`) that imports these modules, too."""
    arguments = ["-m", "lossbench.engines.server", *PRELOAD, *libraries]
    environment = {**FIXED, COMPILED: os.environ.get(COMPILED) or str(user_cache() / "compiled")}
    return guard.started(arguments, environment, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def launching() -> Iterator[None]:
    """Launch the server that most cells need, the one without libraries; ended if no run has taken it."""
    _waiting.append(launched())
    try:
        yield
    finally:
        while _waiting:
            process, lifeline = _waiting.pop()
            with process:  # closes its pipes
                guard.end(process, lifeline)


def taken() -> Process:
    """The server without libraries that is waiting; a new one if there is none."""
    return _waiting.pop() if _waiting else launched()
