"""Metrics of finished cells, from their records and what they kept; nothing is trained. Runs in a separate process."""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lossbench.core.current import stale
from lossbench.core.errors import StoreError
from lossbench.core.model import Cell, Record, Spec
from lossbench.data import load_dataset
from lossbench.metrics import Evaluation
from lossbench.plugins.metrics import of_spec
from lossbench.plugins.registry import Registry
from lossbench.store.records import Store
from lossbench.training.artefacts import FILES, unpacked
from lossbench.training.evaluation import evaluate, with_training_images
from lossbench.training.measuring import measure_named
from lossbench.training.state import build


def remeasure(
    cells: list[Cell], registry: Registry, data: Path, begin: Callable[[str], object], store: str
) -> list[dict[str, Any]]:
    """Measure what the records of these cells lack. For each that could not be: its key, why, and `damaged`."""
    problems = []
    for cell in cells:
        begin(f"{cell.title}: {', '.join(spec.label for spec in cell.metrics)}")
        with Store(store).claim(cell.key) as ours:
            if not ours:  # another run is at it
                continue
            try:
                _remeasured(cell, registry, data, Store(store))
            except StoreError as error:
                problems.append({"key": cell.key, "why": str(error), "damaged": True})
            except (Exception, SystemExit) as error:
                traceback.print_exc()
                problems.append({"key": cell.key, "why": f"{type(error).__name__}: {error}", "damaged": False})
    return problems


def _remeasured(cell: Cell, registry: Registry, data: Path, store: Store) -> None:
    content = store.read(cell.key)
    if content is None or not (wanting := stale(cell, content)):
        return
    torch.set_num_threads(cell.threads)
    torch.set_deterministic_debug_mode("error")
    kept = content.get("kept", {})
    found = measure_named(cell, registry, _evaluation(cell, wanting, kept, registry, data, store), content, wanting)
    record = Record.from_json(content)
    record = replace(
        record,
        cell=replace(record.cell, metrics=cell.metrics, default_metrics=cell.default_metrics),
        metrics={**record.metrics, **found.metrics},
        measured={**record.measured, **found.measured},
    )
    others = {name: store.examples(cell.key, name) for name in record.metrics if name not in found.metrics}
    examples = {name: values for name, values in others.items() if values is not None} | found.examples
    store.write(record, store.correct(cell.key), examples=examples, carried=kept)


def _evaluation(
    cell: Cell, wanting: list[Spec], kept: dict[str, str], registry: Registry, data: Path, store: Store
) -> Evaluation | None:
    """The evaluation that these metrics need, from the least of what was kept; None if they only need the record."""
    needs = [metric.needs for spec in wanting if (metric := of_spec(registry, spec)).source == "test"]
    if not needs:
        return None
    for level in FILES:  # each contains what the one before does
        if FILES[level] not in kept or any(list(FILES).index(need) > list(FILES).index(level) for need in needs):
            continue
        content = store.kept(cell.key, FILES[level], kept[FILES[level]])
        return _evaluated(cell, content, registry, data) if level == "model" else unpacked(content)
    raise StoreError(f"{store.cells / cell.key}: did not keep what its metrics need")


def _evaluated(cell: Cell, content: bytes, registry: Registry, data: Path) -> Evaluation:
    """The evaluation of a trained network, again."""
    dataset = load_dataset(cell.dataset.name, seed=cell.seed, data=data, registry=registry, **cell.dataset.options)
    state = build(cell, cell.loss, registry, dataset.in_shape)
    parts = torch.load(io.BytesIO(content), weights_only=True, map_location=cell.device)
    state.backbone.load_state_dict(parts["backbone"])
    state.loss.load_state_dict(parts["loss"])
    return with_training_images(evaluate(state, dataset, cell.task), state, dataset, cell.seed)
