"""Before anything trains: is every plugin sound, and how long will it take?

Both run in a process of their own, so that a plugin that crashes or hangs hurts nobody. `begin` is told what comes
next, so that whoever watches the process can name the plugin that ended or blocked it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lossbench.core.errors import PluginError
from lossbench.core.model import Cell, Spec
from lossbench.data import load_dataset
from lossbench.plan.forecast import kind_of
from lossbench.plugins import class_weights
from lossbench.plugins.registry import Kind, Plugin, Registry
from lossbench.training import measure
from lossbench.training.batches import Batches, as_input
from lossbench.training.evaluation import features_of
from lossbench.training.state import build

PROBE_STEPS = 5
PROBE_SECONDS = 1.0  # at most for one kind of cell, after its first step
PROBES_SECONDS = 15.0  # at most for all: kinds that are left take the mean cost of the others


def preflight(
    cells: list[Cell],
    registry: Registry,
    data: Path,
    begin: Callable[[str], object],
    needed: Mapping[str, str] | None = None,
) -> list[str]:
    """Build everything that these cells name, once, and push two images through: what is wrong, a sentence each.

    Ranges are for a plugin's constructor to refuse, so this finds them before anything trains. `needed` says by the
    label of a loss what is wrong if it has no class weights.
    """
    problems: dict[str, None] = {}

    def refuse(spec: Spec, kind: Kind, error: BaseException) -> None:
        what = str(error) if isinstance(error, ValueError | PluginError) else f"{type(error).__name__}: {error}"
        problems[f"{_named(spec, kind)}: {what}"] = None

    datasets: dict[str, Any] = {}
    backbones: dict[str, bool] = {}
    losses: set[str] = set()
    for cell in cells:
        place = f"{cell.dataset.label} {cell.classes}"
        if place not in datasets:
            begin(_named(cell.dataset, "dataset"))
            try:
                options = cell.dataset.options
                datasets[place] = load_dataset(cell.dataset.name, data=data, registry=registry, **options)
            except (Exception, SystemExit) as error:
                datasets[place] = None
                refuse(cell.dataset, "dataset", error)
        dataset = datasets[place]
        built = f"{cell.backbone.label} {cell.width} {place}"
        if dataset and built not in backbones:
            backbones[built] = True
            begin(_named(cell.backbone, "backbone"))
            try:
                network = registry.find("backbone", cell.backbone.name).load()
                backbone = network(dataset.in_shape, cell.width, **cell.backbone.options).train()
                shape = tuple(backbone(as_input(dataset.train.gather(torch.arange(2).numpy()))).shape)
                if shape != (2, cell.width):
                    raise ValueError(f"gives features of shape {shape} for two images, not (2, {cell.width})")
            except (Exception, SystemExit) as error:
                refuse(cell.backbone, "backbone", error)
        for spec in [*cell.losses, *([cell.warm.loss] if cell.warm else [])]:
            if (sized := f"{spec.name} {spec.options} {cell.width} {cell.classes}") not in losses:
                losses.add(sized)
                begin(_named(spec, "loss"))
                try:
                    loss = registry.find("loss", spec.name).load()(cell.width, cell.classes, **spec.options)
                    value = loss(torch.randn(2, cell.width), torch.arange(2))
                    if value.shape != ():
                        raise ValueError(f"gives a tensor of shape {tuple(value.shape)}, not one number")
                    if wrong := without_class_weights(loss, registry.find("loss", spec.name), cell, spec, needed or {}):
                        raise ValueError(wrong)
                except (Exception, SystemExit) as error:
                    refuse(spec, "loss", error)
    return list(problems)


def _named(spec: Spec, kind: Kind) -> str:
    return f"{spec.where}: {kind} '{spec.label}'"


def without_class_weights(
    loss: nn.Module, plugin: Plugin, cell: Cell, spec: Spec, needed: Mapping[str, str]
) -> str | None:
    """What is wrong with the class weights of a loss: they are not what its file says, or a claim needs them."""
    if plugin.names_class_weights and (
        problem := class_weights.problem(loss, plugin.class_weights, cell.classes, cell.width)
    ):
        return problem
    if class_weights.rows(loss, plugin.class_weights, cell.classes, cell.width) is None and spec.label in needed:
        return f"{needed[spec.label]}: {class_weights.missing(loss, plugin.class_weights)}"
    return None


def probe(cells: list[Cell], registry: Registry, data: Path, begin: Callable[[str], object]) -> list[dict[str, Any]]:
    """What each kind of cell costs, from a few real steps: seconds a step and an image scored, and bytes at the peak.

    `cells` holds one of each kind.
    """
    costs: list[dict[str, Any]] = []
    meters: dict[str, measure.PeakMemory] = {}  # by device, made before its first kind: the next uses what that frees
    began = time.perf_counter()
    for cell in cells:
        if time.perf_counter() - began > PROBES_SECONDS:
            break
        begin(cell.title)
        torch.set_num_threads(cell.threads)
        dataset = load_dataset(cell.dataset.name, seed=cell.seed, data=data, registry=registry, **cell.dataset.options)
        if cell.device not in meters:
            meters[cell.device] = measure.PeakMemory(cell.device)
        state = build(cell, cell.loss, registry, dataset.in_shape)
        batches = Batches(dataset.train, cell.schedule.batch, cell.seed, dataset.augment, cell.device)
        state.train()
        state.update(*batches.at(0))
        measure.synchronise(cell.device)
        started = time.perf_counter()
        steps = 0
        while steps < PROBE_STEPS and (not steps or time.perf_counter() - started < PROBE_SECONDS):
            steps += 1
            state.update(*batches.at(steps))
        measure.synchronise(cell.device)
        step = (time.perf_counter() - started) / steps
        some = dataset.test.take(torch.arange(min(256, len(dataset.test))).numpy())
        started = time.perf_counter()
        features_of(state, some)
        image = (time.perf_counter() - started) / len(some)
        scored = len(dataset.test) + min(len(dataset.train), 10_000)
        costs.append(
            {"kind": kind_of(cell), "step": step, "score": image * scored, "bytes": meters[cell.device].added()}
        )
    return costs
