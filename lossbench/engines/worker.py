"""What happens inside a cell's own process: train, and put the record in the store."""

from __future__ import annotations

import contextlib
import json
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossbench.registry import Kind, Registry
from lossbench.schema import Cell, Record, Spec, Status
from lossbench.store import Store

if TYPE_CHECKING:
    from lossbench import train


def work(job: dict[str, Any]) -> int:
    """Do one job; the exit code of its process."""
    registry = Registry(Path(folder) for folder in job["plugins"])
    if job["task"] == "preflight":
        problems = preflight([Cell.from_json(cell) for cell in job["cells"]], registry, Path(job["data"]))
        Path(job["reply"]).write_text(json.dumps(problems))
        return 0
    cell, store = Cell.from_json(job["cell"]), Store(job["store"])
    if job["memory"]:
        _limit_memory(job["memory"])
    warm = store.checkpoint(cell.warm_cell().key).read_bytes() if cell.warm else None
    outcome = outcome_of(cell, registry, Path(job["data"]), warm, store.partial(cell.key), job["checkpoint"])
    store.write(outcome.record, outcome.correct, outcome.checkpoint)
    store.partial(cell.key).unlink(missing_ok=True)
    return 0


def outcome_of(
    cell: Cell, registry: Registry, data: Path, warm: bytes | None, partial: Path | None = None, every: float = 60
) -> train.Outcome:
    """What becomes of a cell, as plain data, whatever its plugins do short of ending the process.

    `partial` is where a cell that takes long keeps its state `every` so many seconds.
    """
    from lossbench import measure, train

    try:
        return train.run(cell, registry, data, warm, train.Partial(partial, every) if partial else None)
    except Exception as error:
        traceback.print_exc()
        status: Status = "oom" if _out_of_memory(error) else "failed"
        text = "".join(traceback.format_exception(error))
        return train.Outcome(Record(cell, status, error=text, environment=measure.environment(cell.threads)))


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


def preflight(cells: list[Cell], registry: Registry, data: Path) -> list[str]:
    """Build everything that these cells name, once, and push two images through: what is wrong, a sentence each.

    Ranges are for a plugin's constructor to refuse, so this finds them before anything trains.
    """
    import torch

    from lossbench.batches import as_input
    from lossbench.data import load_dataset

    problems: dict[str, None] = {}

    def refuse(spec: Spec, kind: Kind, error: Exception) -> None:
        what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        problems[f"{spec.where}: {kind} '{spec.label}': {what}"] = None

    datasets: dict[str, Any] = {}
    backbones: dict[str, bool] = {}
    losses: set[str] = set()
    for cell in cells:
        place = f"{cell.dataset.label} {cell.classes}"
        if place not in datasets:
            try:
                options = cell.dataset.options
                datasets[place] = load_dataset(cell.dataset.name, data=data, registry=registry, **options)
            except Exception as error:
                datasets[place] = None
                refuse(cell.dataset, "dataset", error)
        dataset = datasets[place]
        built = f"{cell.backbone.label} {place}"
        if dataset and built not in backbones:
            backbones[built] = True
            try:
                network = registry.find("backbone", cell.backbone.name).load()
                backbone = network(dataset.in_shape, cell.width, **cell.backbone.options).train()
                shape = tuple(backbone(as_input(dataset.train.gather(torch.arange(2).numpy()))).shape)
                if shape != (2, cell.width):
                    raise ValueError(f"gives features of shape {shape} for two images, not (2, {cell.width})")
            except Exception as error:
                refuse(cell.backbone, "backbone", error)
        for spec in [*cell.losses, *([cell.warm.loss] if cell.warm else [])]:
            if spec.label not in losses:
                losses.add(spec.label)
                try:
                    loss = registry.find("loss", spec.name).load()(cell.width, cell.classes, **spec.options)
                    value = loss(torch.randn(2, cell.width), torch.arange(2))
                    if value.shape != ():
                        raise ValueError(f"gives a tensor of shape {tuple(value.shape)}, not one number")
                except Exception as error:
                    refuse(spec, "loss", error)
    return list(problems)
