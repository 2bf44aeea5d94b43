"""What is trained: a backbone with a loss on top, built from a cell, and its state as plain tensors."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lossbench.errors import PluginError
from lossbench.registry import Kind, Registry
from lossbench.schema import Cell, Spec
from lossbench.streams import derive


@dataclass
class Trainee:
    """A backbone with a loss on top, and the optimizer that moves both; `step` counts from the very beginning."""

    backbone: nn.Module
    loss: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    device: str = "cpu"
    autocast: str | None = None
    channels_last: bool = False
    advance: Callable[[], None] | None = field(init=False)

    def __post_init__(self) -> None:
        self.advance = getattr(self.loss, "advance", None)

    def update(self, images: Tensor, labels: Tensor) -> Tensor:
        """One optimizer step on one batch; the training loss, detached."""
        value = self.forward(images, labels)
        self.backward(value)
        self.move()
        return value.detach()

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        value: Tensor = self.loss(self.features(images), labels)
        return value

    def backward(self, value: Tensor) -> None:
        self.optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]  # torch gives it no types

    def move(self) -> None:
        self.optimizer.step()
        if self.advance:
            self.advance()
        self.step += 1

    def features(self, images: Tensor) -> Tensor:
        """Features (B×M) in float32: where `autocast` is on, only the backbone's products are of low precision."""
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        low = torch.autocast(self.device, getattr(torch, self.autocast)) if self.autocast else contextlib.nullcontext()
        with low:
            features: Tensor = self.backbone(images)
        return features.float()

    def train(self) -> None:
        self.backbone.train()
        self.loss.train()

    def eval(self) -> None:
        self.backbone.eval()
        self.loss.eval()

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        for part, module in (("backbone", self.backbone), ("loss", self.loss)):
            for name, parameter in module.named_parameters():
                yield f"{part}.{name}", parameter

    def is_finite(self) -> bool:
        return all(bool(parameter.isfinite().all()) for _, parameter in self.named_parameters())

    def checkpoint(self) -> dict[str, Any]:
        """Plain tensors by name: the backbone, the loss, and the optimizer's state of each parameter."""
        return {
            "backbone": self.backbone.state_dict(),
            "loss": self.loss.state_dict(),
            "optimizer": {name: self.optimizer.state[tensor] for name, tensor in self.named_parameters()},
            "step": self.step,
        }

    def fits(self, checkpoint: dict[str, Any]) -> bool:
        """Whether `restore` would find every tensor that this trainee has, in its shape and type, and no other."""
        shapes = {name: tensor.shape for name, tensor in self.named_parameters()}
        kept: dict[str, dict[str, Any]] = checkpoint["optimizer"]
        return (
            _form(self.backbone.state_dict()) == _form(checkpoint["backbone"])
            and _form(self.loss.state_dict()) == _form(checkpoint["loss"])
            and shapes.keys() == kept.keys()
            and all(
                value.shape == shapes[name]
                for name, state in kept.items()
                for value in state.values()
                if isinstance(value, Tensor) and value.ndim  # a count of steps has no dimension
            )
        )

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Go on from a checkpoint of this very cell."""
        self.backbone.load_state_dict(checkpoint["backbone"])
        self.loss.load_state_dict(checkpoint["loss"])
        for name, tensor in self.named_parameters():
            self.optimizer.state[tensor] = _placed(checkpoint["optimizer"][name], self.device)
        self.step = checkpoint["step"]

    def refine(self, checkpoint: dict[str, Any]) -> None:
        """Go on from a shared warm start: the backbone whole, and of the loss what both losses have (class weights)."""
        self.backbone.load_state_dict(checkpoint["backbone"])
        own = self.loss.state_dict()
        common = {
            name: value
            for name, value in checkpoint["loss"].items()
            if isinstance(value, Tensor) and isinstance(own.get(name), Tensor) and own[name].shape == value.shape
        }
        self.loss.load_state_dict({**own, **common})
        for name, tensor in self.named_parameters():
            part, _, inner = name.partition(".")
            if name in checkpoint["optimizer"] and (part == "backbone" or inner in common):
                self.optimizer.state[tensor] = _placed(checkpoint["optimizer"][name], self.device)
        self.step = checkpoint["step"]


def build(cell: Cell, loss_spec: Spec, registry: Registry, in_shape: tuple[int, int, int]) -> Trainee:
    """A fresh backbone and loss: the backbone's initial weights depend on the seed alone, never on the loss.

    Both are made on the CPU, so that a seed means the same weights on every device.
    """
    seed_everything(derive(cell.seed, "init", "backbone"))
    backbone = _plugin(registry, "backbone", cell.backbone)(in_shape, cell.width, **cell.backbone.options)
    seed_everything(derive(cell.seed, "init", "loss"))
    loss = _plugin(registry, "loss", loss_spec)(cell.width, cell.classes, **loss_spec.options)
    backbone, loss = backbone.to(cell.device), loss.to(cell.device)
    if cell.channels_last:
        backbone = backbone.to(memory_format=torch.channels_last)
    schedule = cell.schedule
    optimizer = torch.optim.SGD(
        [*backbone.parameters(), *loss.parameters()],
        lr=schedule.lr,
        momentum=schedule.momentum,
        weight_decay=schedule.weight_decay,
    )
    return Trainee(
        backbone, loss, optimizer, device=cell.device, autocast=cell.autocast, channels_last=cell.channels_last
    )


def seed_everything(seed: int) -> None:
    """The three global generators that a plugin's constructor may draw from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _form(state: dict[str, Any]) -> dict[str, Any]:
    return {name: (value.shape, value.dtype) if isinstance(value, Tensor) else None for name, value in state.items()}


def _placed(state: dict[str, Any], device: str) -> dict[str, Any]:
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in state.items()}


def _plugin(registry: Registry, kind: Kind, spec: Spec) -> Callable[..., nn.Module]:
    plugin = registry.find(kind, spec.name)
    if plugin.identity(spec.options) != spec.source:
        raise PluginError(
            f"{plugin.path}: it, a module or library that it imports, or a file that it names has changed since this "
            "run was planned; run the same command again"
        )
    entry: Callable[..., nn.Module] = plugin.load()
    return entry
