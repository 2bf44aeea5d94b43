"""One cell, from its plan to its record: data, state, loop, evaluation.

Everything random comes from the cell's seed by a named stream.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lossbench.core.errors import PluginError
from lossbench.core.model import GEOMETRY, Cell, Record
from lossbench.data import Dataset, load_dataset
from lossbench.plugins.metrics import METRICS
from lossbench.plugins.optimizers import timm_version
from lossbench.plugins.registry import Registry
from lossbench.training import artefacts, measure
from lossbench.training.batches import Batches
from lossbench.training.checkpoints import Checkpointer, as_bytes
from lossbench.training.evaluation import NotFiniteError, drawable, evaluate, with_training_images
from lossbench.training.loop import DivergedError, Progress, train
from lossbench.training.measuring import measure_defaults, measure_named
from lossbench.training.state import TrainState, build
from lossbench.training.timing import Share, time_share

COLD = "cold classifier"  # the flag of a cell whose warm start had no class weights that fit its loss
SMALL_CLASSES = "small classes"  # the flag of a cell whose balanced batches repeat examples of a class


@dataclass(frozen=True)
class Outcome:
    """The output of a cell: its record, and the files beside it.

    One bit per test example; for a warm start, a checkpoint (a .pt file); the values per test example of the metrics
    that have any; the files that the cell keeps, by name.
    """

    record: Record
    correct: NDArray[np.bool_] | None = None
    checkpoint: bytes | None = None
    examples: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    kept: Mapping[str, bytes] = field(default_factory=dict)


def run(
    cell: Cell,
    registry: Registry,
    data: Path,
    warm_start: bytes | None = None,
    checkpointer: Checkpointer | None = None,
) -> Outcome:
    """Train and evaluate one cell, unless it is a timing cell; `warm_start` is the checkpoint that it refines."""
    assert cell.kind != "timing"
    dataset, memory = _prepared(cell, registry, data)
    state = build(cell, cell.loss, registry, dataset.in_shape)
    environment = environment_of(cell)
    cold = _refine(state, warm_start) if warm_start is not None else None
    batches = Batches.of(cell, dataset)
    started = time.perf_counter()
    try:
        progress = train(state, batches, cell, dataset, checkpointer)
        measure.synchronise(cell.device)
        record = Record(
            cell,
            "done",
            seconds={"train": time.perf_counter() - started, "step_median": statistics.median(progress.step_seconds)},
            curve=tuple(progress.curve),
            bytes=measure.ledger(state.backbone, state.loss, state.optimizer, state.class_weights),
            environment=environment,
            digest=measure.parameter_digest(state.backbone, state.loss),
            flags=(
                *progress.flags,
                *([COLD] if cold else []),
                *([SMALL_CLASSES] if batches.small_classes else []),
            ),
        )
        if cell.kind == "warm":
            checkpoint = as_bytes(state.checkpoint())
            return Outcome(replace(record, bytes={**record.bytes, "peak": memory.added()}), checkpoint=checkpoint)
        return _evaluated(record, state, dataset, progress, registry, memory)
    except DivergedError as error:
        return Outcome(Record(cell, "diverged", error=str(error), curve=tuple(error.curve), environment=environment))


def run_share(cell: Cell, registry: Registry, data: Path, process: int) -> Share:
    """The part of a timing cell that one of its processes measures; `timing.joined` makes the record of them all."""
    dataset, memory = _prepared(cell, registry, data)
    environment = environment_of(cell)
    share = time_share(cell, registry, dataset, process)
    return {**share, "peak": memory.added(), "environment": environment}


def _prepared(cell: Cell, registry: Registry, data: Path) -> tuple[Dataset, measure.PeakMemory]:
    """The data of a cell and a meter of its memory, in a process that is set up as every cell's is."""
    check_unchanged(cell, registry)  # before a plugin runs: it may change the working folder
    settle(cell)
    dataset = _dataset(cell, registry, data)
    if cell.compile:
        compile_first(cell, registry, dataset)
    return dataset, measure.PeakMemory(cell.device)


def environment_of(cell: Cell) -> dict[str, Any]:
    """Where a cell runs."""
    if not cell.compile:
        return measure.environment(cell.threads, cell.device)
    from lossbench.training import compiled  # takes seconds

    return measure.environment(cell.threads, cell.device, compiled.compiler_version())


def settle(cell: Cell) -> None:
    """The settings of torch in the process of a cell; compiled code depends on them."""
    torch.set_num_threads(cell.threads)
    # As torch.use_deterministic_algorithms(True), which imports the compiler too: that takes as long as torch itself.
    torch.set_deterministic_debug_mode("error")
    # A debugging aid that would cost every allocation; torch gives the module no types.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # as said


def compile_first(cell: Cell, registry: Registry, dataset: Dataset) -> float:
    """Compile the backbone of a cell on one batch, or read its code; the seconds of a compilation, 0 if none.

    It is another network that does it, so the cell's own is untouched, and so are its meters and clocks.
    """
    from lossbench.training import compiled  # takes seconds

    def first_pass() -> None:
        state = build(cell, cell.loss, registry, dataset.in_shape)
        state.train()
        compiled.fit_vectors(state.backbone)
        images, _ = Batches.of(cell, dataset).at(0)
        state.features(images).sum().backward()  # type: ignore[no-untyped-call]  # torch gives it no types

    return compiled.prepare(cell, dataset.in_shape, first_pass)


def _evaluated(
    record: Record,
    state: TrainState,
    dataset: Dataset,
    progress: Progress,
    registry: Registry,
    memory: measure.PeakMemory,
) -> Outcome:
    """The record with the results of the task and the metrics, and the files beside it."""
    cell = record.cell
    try:
        test = evaluate(state, dataset, cell.task)
        test = with_training_images(test, state, dataset, cell.seed)
    except NotFiniteError as error:
        raise DivergedError(state.step - 1, progress.curve, str(error)) from error
    assert test.correct is not None and test.train is not None
    found = measure_defaults(cell, test)
    collapsed = test.predicted is not None and len(np.unique(test.predicted)) == 1
    record = replace(
        record,
        correct=int(test.correct.sum()),
        total=len(test.correct),
        angles={"train": test.train.angles, "test": test.angles},
        verification=test.details(),
        counts=test.counts,
        metrics=found.metrics,
        bytes={**record.bytes, "peak": memory.added()},  # before the files of metrics are run
        features=drawable(test, cell.seed) if cell.width == 2 else None,
        flags=(*record.flags, *(["collapsed"] if collapsed else [])),
    )
    named = measure_named(cell, registry, test, record.to_json(), cell.metrics)
    metrics = {**found.metrics, **named.metrics}
    columns = {name: METRICS[name].column for name in metrics if name in METRICS}
    record = replace(
        record,
        metrics=metrics,
        measured={**found.measured, **named.measured},
        geometry={column: metrics[name] for name, column in columns.items() if column in GEOMETRY},
    )
    examples = {**found.examples, **named.examples}
    return Outcome(record, test.correct, None, examples, artefacts.kept(cell.keep, test, state))


def check_unchanged(cell: Cell, registry: Registry) -> None:
    """Refuse to train with plugins that have changed since the cell was planned."""
    for kind, spec in cell.plugins:
        if not registry.unchanged(kind, spec):
            raise PluginError(
                f"{registry.find(kind, spec.name).path}: it, a module or library that it imports, or a file that it "
                "names has changed since this run was planned; run the same command again"
            )
    if cell.schedule.timm not in (None, version := timm_version(cell.schedule.optimizer)):
        planned = f"optimizer '{cell.schedule.optimizer}': planned with timm {cell.schedule.timm}"
        raise PluginError(f"{planned}, but this is timm {version}; run the same command again")


def _dataset(cell: Cell, registry: Registry, data: Path) -> Dataset:
    dataset = load_dataset(cell.dataset.name, seed=cell.seed, data=data, registry=registry, **cell.dataset.options)
    if cell.dataset.source != dataset.version:
        raise PluginError(
            f"{cell.dataset.label}: its data has changed since this run was planned; run the command again"
        )
    return dataset


def _refine(state: TrainState, warm_start: bytes) -> str | None:
    """Go on from a warm start; why no class weights were handed over, if none were."""
    checkpoint: dict[str, Any] = torch.load(io.BytesIO(warm_start), weights_only=True, map_location=state.device)
    if cold := state.refine(checkpoint):
        print(f"warm start: no class weights were transferred: {cold}")
    return cold
