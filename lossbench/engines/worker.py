"""Runs inside the process of a job: train a cell and store its record, or answer a question about cells.

Each process of a timing cell measures a share of its rounds, and the last one stores the record.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lossbench.core.errors import LossbenchError, StoreError
from lossbench.core.model import Cause, Cell, Record, Status
from lossbench.engines.fresh import AGAIN, note
from lossbench.engines.preflight import preflight, probe
from lossbench.engines.remeasure import remeasure
from lossbench.plugins.registry import Registry
from lossbench.store.records import Store
from lossbench.training import cell as train
from lossbench.training import measure, timing
from lossbench.training.checkpoints import Checkpointer

# What a process may do besides training a cell; it writes down what it is about to try.
ASIDE: dict[str, Callable[..., Any]] = {"preflight": preflight, "probe": probe, "remeasure": remeasure}


def warm_up() -> None:
    """Read what every cell reads, once and before the fork: the sources of lossbench that datasets import."""
    _ = Registry().find("dataset", "digits").footprint
    if compiled := sys.modules.get("lossbench.training.compiled"):  # a server of compiled cells
        compiled.warm_up()


def work(job: dict[str, Any]) -> int:
    """Do one job; the exit code of its process."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # file names may be no Unicode
    registry, data = Registry(map(Path, job["plugins"])), Path(job["data"])
    if job["task"] in ASIDE:
        cells, step = [Cell.from_json(cell) for cell in job["cells"]], Path(job["step"])
        answer = ASIDE[job["task"]](
            cells, registry, data, lambda name: step.write_text(name, errors="backslashreplace"), **job["more"]
        )
        Path(job["reply"]).write_text(json.dumps(answer))
        return 0
    cell, store = Cell.from_json(job["cell"]), Store(job["store"])
    if job["gpu"] is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = job["gpu"]  # before CUDA starts: this process sees only its own GPU
    if job["memory"]:
        _limit_memory(job["memory"])
    try:
        run: Callable[[], train.Outcome | None]
        if cell.kind == "timing":
            run = partial(_timed, cell, registry, data, job["notes"])
        else:
            warm = store.checkpoint(cell.warm_cell().key) if cell.warm else None
            saved = Checkpointer(store.partial(cell.key), cell.key, job["checkpoint"])
            run = partial(train.run, cell, registry, data, warm, saved)
        outcome = _attempted(cell, run)
        if outcome is None:
            return AGAIN
        store.write(outcome.record, outcome.correct, outcome.checkpoint, examples=outcome.examples, kept=outcome.kept)
    except StoreError as error:
        print(error)
        return os.EX_IOERR
    store.partial(cell.key).unlink(missing_ok=True)
    return 0


def _attempted(cell: Cell, run: Callable[[], train.Outcome | None]) -> train.Outcome | None:
    """What `run` returns. Exceptions of the cell's plugins become a status."""
    try:
        return run()
    except Exception as error:
        traceback.print_exc()
        status: Status = "oom" if _out_of_memory(error) else "failed"
        # A full disk is an OSError; a LossbenchError says that data or plugins changed or cannot be read.
        outside = status == "oom" or isinstance(error, OSError | LossbenchError)
        cause: Cause = "environment" if outside else "plugin"
        text = "".join(traceback.format_exception(error))
        return train.Outcome(Record(cell, status, text, cause, environment=measure.environment(cell.threads)))


def _timed(cell: Cell, registry: Registry, data: Path, shares: Sequence[timing.Share]) -> train.Outcome | None:
    """Measure the next share of a timing cell; None if there are more to come."""
    assert cell.timing
    share = train.run_share(cell, registry, data, len(shares))
    if len(shares) + 1 < cell.timing.processes:
        note(share)
        return None
    return train.Outcome(timing.joined(cell, [*shares, share]))


def _limit_memory(size: int) -> None:
    """Let this process allocate `size` more bytes; beyond that, allocation fails as on a full machine."""
    with contextlib.suppress(OSError, ValueError):  # the engine watches the resident memory, too
        held = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData:"))
        most = int(held.split()[1]) * 1024 + size
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
