"""Checks before training: is every plugin valid, and how long will the run take?

Both run in a separate process, so a plugin that crashes or hangs affects nothing else. `begin` is called with a
description of each step, so that the parent process can name the plugin that ended or blocked it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lossbench.core.errors import PluginError
from lossbench.core.format import Schedule
from lossbench.core.metric import BUILT_IN
from lossbench.core.model import Cell, Spec
from lossbench.data import load_dataset
from lossbench.data.dataset import Dataset
from lossbench.plan.forecast import kind_of
from lossbench.plugins import class_weights
from lossbench.plugins.metrics import of_spec
from lossbench.plugins.registry import Kind, Registry
from lossbench.training import measure
from lossbench.training.artefacts import restricted
from lossbench.training.batches import Batches, as_input
from lossbench.training.cell import compile_first, settle
from lossbench.training.evaluation import features_of
from lossbench.training.recipe import optimizer_of
from lossbench.training.state import TrainState, build

PROBE_STEPS = 5
PROBE_SECONDS = 1.0  # at most for one kind of cell, after its first step
PROBES_SECONDS = 15.0  # at most for all: kinds that are left take the mean cost of the others
COMPILE_SECONDS = 60.0  # the same for what is compiled first, which cells need not do again

Begin = Callable[[str], object]


def preflight(
    cells: list[Cell], registry: Registry, data: Path, begin: Begin, needed: Mapping[str, str] | None = None
) -> list[str]:
    """Build everything that these cells name, once, and run it on two images: what is wrong, one sentence each.

    A plugin's constructor refuses values out of range, so this finds them before anything trains. `needed` says, by
    the label of a loss, what is wrong if the loss has no class weights.
    """
    problems: dict[str, None] = {}
    results: dict[tuple[Any, ...], Any] = {}

    def tried(name: str, key: tuple[Any, ...], attempt: Callable[[], Any]) -> Any:
        """What `attempt` returns, made once for each key; None and a problem if it fails."""
        if key not in results:
            begin(name)
            results[key] = None
            try:
                results[key] = attempt()
            except (Exception, SystemExit) as error:
                known = isinstance(error, ValueError | PluginError)
                problems[f"{name}: {error}" if known else f"{name}: {type(error).__name__}: {error}"] = None
        return results[key]

    def plugin(kind: Kind, spec: Spec, sizes: tuple[Any, ...], attempt: Callable[[], Any]) -> Any:
        return tried(f"{spec.where}: {kind} '{spec.label}'", (kind, spec.meaning(), *sizes), attempt)

    for cell in cells:
        optimizer = cell.schedule.optimizer
        place = f"experiment.{cell.experiment}.schedule.optimizer: '{optimizer}'"
        tried(place, ("optimizer", optimizer), partial(_try_optimizer, cell.schedule))
        load = partial(load_dataset, cell.dataset.name, data=data, registry=registry, **cell.dataset.options)
        dataset = plugin("dataset", cell.dataset, (cell.classes,), load)
        if dataset is not None:
            sizes = (cell.width, cell.dataset.meaning(), cell.classes)
            runs = plugin("backbone", cell.backbone, sizes, partial(_try_backbone, cell, registry, dataset))
            if runs and cell.compile:
                shape = ("compile", dataset.in_shape)
                plugin("backbone", cell.backbone, shape, partial(_try_compiling, cell, registry, dataset))
        for spec in cell.metrics:
            plugin("metric", spec, (cell.task,), partial(_try_metric, spec, cell, registry))
        for spec in [*cell.losses, *([cell.warm.loss] if cell.warm else [])]:
            plugin("loss", spec, (cell.width, cell.classes), partial(_try_loss, spec, cell, registry, needed or {}))
    return list(problems)


def _try_backbone(cell: Cell, registry: Registry, dataset: Dataset) -> bool:
    backbone, images = _backbone(cell, registry, dataset)
    shape = tuple(backbone(images).shape)
    if shape != (2, cell.width):
        raise ValueError(f"returns features of shape {shape} for two images, expected (2, {cell.width})")
    return True


def _try_compiling(cell: Cell, registry: Registry, dataset: Dataset) -> None:
    from lossbench.training import compiled  # takes seconds

    compiled.check(*_backbone(cell, registry, dataset))


def _backbone(cell: Cell, registry: Registry, dataset: Dataset) -> tuple[nn.Module, Tensor]:
    """A backbone in training mode and two images."""
    network = registry.find("backbone", cell.backbone.name).load()
    backbone = network(dataset.in_shape, cell.width, **cell.backbone.options).train()
    return backbone, as_input(dataset.train.gather(np.arange(2)))


def _try_optimizer(schedule: Schedule) -> None:
    modules = [torch.nn.Linear(2, 2) for _ in range(2)]
    optimizer = optimizer_of(schedule, *modules)
    sum(module(torch.ones(2, 2)).sum() for module in modules).backward()
    optimizer.step()


def _try_metric(spec: Spec, cell: Cell, registry: Registry) -> None:
    """Load a metric; measure one of ours, which refuses options out of range, on a made-up network."""
    from lossbench.training.check import made_up  # no cell needs it

    metric = of_spec(registry, spec)
    measure = metric.measure
    if spec.source == BUILT_IN and metric.source == "test":
        measure(restricted(made_up(cell.task), metric.needs))


def _try_loss(spec: Spec, cell: Cell, registry: Registry, needed: Mapping[str, str]) -> None:
    plugin = registry.find("loss", spec.name)
    loss = plugin.load()(cell.width, cell.classes, **spec.options)
    value = loss(torch.randn(2, cell.width), torch.arange(2))
    if value.shape != ():
        raise ValueError(f"returns a tensor of shape {tuple(value.shape)}, expected a scalar")
    declared, sizes = plugin.class_weights, (cell.classes, cell.width)
    if plugin.names_class_weights and (problem := class_weights.problem(loss, declared, *sizes)):
        raise ValueError(problem)
    if spec.label in needed and class_weights.rows(loss, declared, *sizes) is None:
        raise ValueError(f"{needed[spec.label]}: {class_weights.missing(loss, declared)}")


def probe(cells: list[Cell], registry: Registry, data: Path, begin: Begin) -> list[dict[str, Any]]:
    """The cost of each kind of cell, from a few real steps: seconds per step, seconds to score, bytes at the peak.

    For a compiled kind also the seconds to compile it, 0 if that was done before, and of an eager step. `cells` has one
    cell of each kind.
    """
    costs: list[dict[str, Any]] = []
    meters: dict[str, measure.PeakMemory] = {}  # by device, made before its first kind: later kinds use what that frees
    began, compiling = time.perf_counter(), 0.0
    for cell in cells:
        if time.perf_counter() - began - compiling > PROBES_SECONDS or compiling > COMPILE_SECONDS:
            break
        begin(cell.title)
        settle(cell)
        dataset = load_dataset(cell.dataset.name, seed=cell.seed, data=data, registry=registry, **cell.dataset.options)
        if cell.device not in meters:
            meters[cell.device] = measure.PeakMemory(cell.device)
        more: dict[str, float] = {}
        if cell.compile:
            more["compile"] = compile_first(cell, registry, dataset)
            compiling += more["compile"]
            eager = build(replace(cell, compile=False), cell.loss, registry, dataset.in_shape)
            more["eager"] = _step_seconds(eager, Batches.of(cell, dataset))
        state = build(cell, cell.loss, registry, dataset.in_shape)
        step = _step_seconds(state, Batches.of(cell, dataset))
        some = dataset.test.take(np.arange(min(256, len(dataset.test))))
        started = time.perf_counter()
        features_of(state, some)
        image = (time.perf_counter() - started) / len(some)
        scored = len(dataset.test) + min(len(dataset.train), 10_000)
        cost = {"kind": kind_of(cell), "step": step, "score": image * scored, "bytes": meters[cell.device].added()}
        costs.append(cost | more)
    return costs


def _step_seconds(state: TrainState, batches: Batches) -> float:
    """Seconds per step of training, after the first one."""
    state.train()
    state.update(*batches.at(0))
    measure.synchronise(state.device)
    started = time.perf_counter()
    steps = 0
    while steps < PROBE_STEPS and (not steps or time.perf_counter() - started < PROBE_SECONDS):
        steps += 1
        state.update(*batches.at(steps))
    measure.synchronise(state.device)
    return (time.perf_counter() - started) / steps
