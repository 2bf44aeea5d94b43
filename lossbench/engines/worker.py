"""What happens inside a cell's own process: train, and put the record in the store."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossbench.core.errors import LossbenchError, StoreError
from lossbench.core.model import Cause, Cell, Record, Status
from lossbench.engines.preflight import preflight, probe
from lossbench.plugins.registry import Registry
from lossbench.store.records import Store

if TYPE_CHECKING:
    from lossbench.training import cell as train


# What a process of its own may be asked besides training a cell; it tells what it is about to do.
ASIDE: dict[str, Callable[..., Any]] = {"preflight": preflight, "probe": probe}


def work(job: dict[str, Any]) -> int:
    """Do one job; the exit code of its process."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # file names may be no Unicode
    # Absolute from the start: plugins may change the working folder.
    registry, data = Registry(Path(folder).absolute() for folder in job["plugins"]), Path(job["data"]).absolute()
    if job["task"] in ASIDE:
        cells, begin = [Cell.from_json(cell) for cell in job["cells"]], partial(_write_step, Path(job["step"]))
        reply = json.dumps(ASIDE[job["task"]](cells, registry, data, begin, **job["more"]))
        Path(job["reply"]).write_text(reply)
        return 0
    cell, store = Cell.from_json(job["cell"]), Store(job["store"])
    if job["gpu"] is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = job["gpu"]  # before CUDA wakes: this process sees its own GPU alone
    if job["memory"]:
        _limit_memory(job["memory"])
    try:
        warm = store.checkpoint(cell.warm_cell().key) if cell.warm else None
        outcome = outcome_of(cell, registry, data, warm, store.partial(cell.key), job["checkpoint"])
        store.write(outcome.record, outcome.correct, outcome.checkpoint)
    except StoreError as error:
        print(error)
        return os.EX_IOERR
    store.partial(cell.key).unlink(missing_ok=True)
    return 0


def _write_step(path: Path, what: str) -> None:
    path.write_text(what, errors="backslashreplace")


def outcome_of(
    cell: Cell, registry: Registry, data: Path, warm: bytes | None, partial: Path | None = None, every: float = 60
) -> train.Outcome:
    """What becomes of a cell, as plain data, whatever its plugins do short of ending the process.

    `partial` is where a cell that takes long keeps its state `every` so many seconds.
    """
    from lossbench.training import cell as train
    from lossbench.training import measure
    from lossbench.training.checkpoints import Checkpointer

    try:
        return train.run(cell, registry, data, warm, Checkpointer(partial, cell.key, every) if partial else None)
    except Exception as error:
        traceback.print_exc()
        status: Status = "oom" if _out_of_memory(error) else "failed"
        # A full disk is an OSError; ours say that data or plugins changed or cannot be read.
        outside = status == "oom" or isinstance(error, OSError | LossbenchError)
        cause: Cause = "environment" if outside else "plugin"
        text = "".join(traceback.format_exception(error))
        return train.Outcome(Record(cell, status, text, cause, environment=measure.environment(cell.threads)))


def _limit_memory(size: int) -> None:
    """Let this process add `size` bytes to what it has, and no more: asking for more fails like a full machine."""
    import resource

    with contextlib.suppress(OSError, ValueError):  # the scheduler watches the resident memory too
        held = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData:"))
        most = int(held.split()[1]) * 1024 + size
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _out_of_memory(error: Exception) -> bool:
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
