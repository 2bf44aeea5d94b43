"""What happens inside a cell's own process: train, and put the record in the store."""

from __future__ import annotations

import io
import json
import traceback
from pathlib import Path
from typing import Any

from lossbench.registry import Kind, Registry
from lossbench.schema import Cell, Record, Spec, Status
from lossbench.store import Store


def work(job: dict[str, Any]) -> int:
    """Do one job; the exit code of its process."""
    registry = Registry(Path(folder) for folder in job["plugins"])
    if job["task"] == "preflight":
        problems = preflight([Cell.from_json(cell) for cell in job["cells"]], registry, Path(job["data"]))
        Path(job["reply"]).write_text(json.dumps(problems))
        return 0
    _train(Cell.from_json(job["cell"]), registry, Path(job["data"]), Store(job["store"]))
    return 0


def _train(cell: Cell, registry: Registry, data: Path, store: Store) -> None:
    import torch

    from lossbench import measure, train

    try:
        warm = store.checkpoint(cell.warm_cell().key) if cell.warm else None
        outcome = train.run(cell, registry, data, warm)
        checkpoint = io.BytesIO()
        if outcome.checkpoint is not None:
            torch.save(outcome.checkpoint, checkpoint)
    except Exception as error:
        traceback.print_exc()
        status: Status = "oom" if _out_of_memory(error) else "failed"
        text = "".join(traceback.format_exception(error))
        store.write(Record(cell, status, error=text, environment=measure.environment(cell.threads)))
    else:
        store.write(outcome.record, outcome.correct, checkpoint.getvalue() or None)


def _out_of_memory(error: Exception) -> bool:
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def preflight(cells: list[Cell], registry: Registry, data: Path) -> list[str]:
    """Build everything that these cells name, once, and push two images through: what is wrong, a sentence each.

    Ranges are for a plugin's constructor to refuse, so this finds them before anything trains.
    """
    import torch

    from lossbench.data import load_dataset
    from lossbench.train import to_batch

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
                images, _ = to_batch(dataset.train, torch.arange(2).numpy())
                shape = tuple(backbone(images).shape)
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
