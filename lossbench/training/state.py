"""Training state: a backbone with a loss on top, built from a cell, and its checkpoints as plain tensors."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lossbench.core.errors import PluginError
from lossbench.core.model import Cell, Spec
from lossbench.core.streams import derive
from lossbench.plugins import class_weights
from lossbench.plugins.registry import CLASS_WEIGHTS, Registry
from lossbench.training.prelu import quicken
from lossbench.training.recipe import Counters, optimizer_of, start_momentum

Stored = tuple[str, bool]  # a tensor's name in the state, and whether the class weights are its transpose


@dataclass
class TrainState:
    """A backbone with a loss on top, and the optimizer of both; `step` counts from the start of the warm start.

    `width` and `classes` are the M and C that it was built for, `class_weights` where the loss has its class weights,
    `recipe` names the optimizer, `clip` is the largest norm of the gradient.
    """

    backbone: nn.Module
    loss: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    device: str = "cpu"
    autocast: str | None = None
    channels_last: bool = False
    compile: bool = False
    width: int = 0
    classes: int = 0
    class_weights: str | None = CLASS_WEIGHTS
    recipe: str = "sgd"
    clip: float | None = None
    advance: Callable[[], None] | None = field(init=False)

    def __post_init__(self) -> None:
        self.advance = getattr(self.loss, "advance", None)
        self._counters = Counters(self.optimizer)
        self._parameters = [tensor for _, tensor in self.named_parameters()]

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
        for parameter in self._parameters:  # as optimizer.zero_grad(), whose hooks take longer than this
            parameter.grad = None
        value.backward()  # type: ignore[no-untyped-call]  # torch gives it no types

    def move(self) -> None:
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self._parameters, self.clip)
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
            features: Tensor = self._network(images)
        shape = (len(images), self.width)
        if not isinstance(features, Tensor) or features.shape != shape or not features.is_floating_point():
            given = (
                f"{features.dtype} of shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features)
            )
            mode = "training" if self.backbone.training else "evaluation"
            raise PluginError(f"in {mode} mode the backbone gives {given}; features must be floats of shape {shape}")
        return features.float()

    def _network(self, images: Tensor) -> Tensor:
        if self.compile and self.backbone.training:
            from lossbench.training import compiled  # takes seconds

            return compiled.forward(self.backbone, images)
        features: Tensor = self.backbone(images)
        return features

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
            "recipe": self.recipe,
            "optimizer": {name: self.optimizer.state[tensor] for name, tensor in self.named_parameters()},
            "counters": self._counters.kept(),
            "class_weights": class_weights.stored(self.loss, self.class_weights),
            "step": self.step,
        }

    def fits(self, checkpoint: dict[str, Any]) -> bool:
        """Whether a checkpoint has exactly the tensors of this state, in their shapes and types."""
        shapes = {name: tensor.shape for name, tensor in self.named_parameters()}
        kept: dict[str, dict[str, Any]] = checkpoint["optimizer"]
        return (
            _form(self.backbone.state_dict()) == _form(checkpoint["backbone"])
            and _form(self.loss.state_dict()) == _form(checkpoint["loss"])
            and shapes.keys() == kept.keys()
            and all(
                {*value.shape} <= {1, *shapes[name]}  # an optimizer may keep sums over some dimensions
                for name, state in kept.items()
                for value in state.values()
                if isinstance(value, Tensor)
            )
        )

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Resume from a checkpoint of this cell."""
        self.backbone.load_state_dict(checkpoint["backbone"])
        self.loss.load_state_dict(checkpoint["loss"])
        for name, tensor in self.named_parameters():
            self.optimizer.state[tensor] = _placed(checkpoint["optimizer"][name], self.device)
        self._counters.restore(checkpoint.get("counters", {}))
        self.step = checkpoint["step"]

    def refine(self, checkpoint: dict[str, Any]) -> str | None:
        """Start from a shared warm start: the whole backbone, and the state that both losses have.

        Class weights are matched by role, even if the losses name them differently; everything else is matched by
        name. The optimizer continues if it is that of the warm start; another one starts afresh. Returns the reason if
        the loss keeps its freshly initialised class weights.
        """
        self.backbone.load_state_dict(checkpoint["backbone"])
        own, given = self.loss.state_dict(), checkpoint["loss"]
        source: Stored | None = checkpoint.get("class_weights", (CLASS_WEIGHTS, False))
        target = class_weights.stored(self.loss, self.class_weights)
        cold = self._cold(source, target, given)
        roles = [role[0] for role in (source, target) if role]
        taken = {name: (name, False) for name, value in given.items() if name not in roles and _fit(value, own, name)}
        if cold is None:
            assert source and target
            taken[target[0]] = (source[0], source[1] != target[1])
        self.loss.load_state_dict({**own, **{name: _turned(given[old], turn) for name, (old, turn) in taken.items()}})
        if checkpoint.get("recipe", "sgd") == self.recipe:
            self._continue(checkpoint, taken)
        self.step = checkpoint["step"]
        return None if all(name in taken for name, _ in self.loss.named_parameters()) else cold

    def _continue(self, checkpoint: dict[str, Any], taken: dict[str, tuple[str, bool]]) -> None:
        """Take over the state that the optimizer of a warm start keeps for the parameters that were `taken`."""
        for name, tensor in self.named_parameters():
            part, _, inner = name.partition(".")
            old, turn = (inner, False) if part == "backbone" else taken.get(inner, ("", False))
            state = checkpoint["optimizer"].get(f"{part}.{old}")
            if state is None or (turn and not _can_turn(state, tensor)):
                continue
            turned = {key: _turned(value, turn) for key, value in state.items()}
            self.optimizer.state[tensor] = _placed(turned, self.device)
        start_momentum(self.optimizer)
        self._counters.restore(checkpoint.get("counters", {}))

    def _cold(self, source: Stored | None, target: Stored | None, given: dict[str, Any]) -> str | None:
        """Why the class weights of a warm start cannot be copied to this loss."""
        if source is None or source[0] not in given:
            return "the loss of the warm start has no class weights to hand over"
        if target is None:
            return f"the loss has no class weights: {class_weights.missing(self.loss, self.class_weights)}"
        mine = dict(self.loss.named_parameters()).get(target[0])
        if mine is None:
            return f"the loss keeps its class weights '{target[0]}' fixed"
        theirs = _turned(given[source[0]], source[1] != target[1])
        if theirs.shape != mine.shape:
            return f"class weights of shape {tuple(theirs.shape)} do not fit into those of shape {tuple(mine.shape)}"
        return None


def build(cell: Cell, loss_spec: Spec, registry: Registry, in_shape: tuple[int, int, int]) -> TrainState:
    """A fresh backbone and loss: the backbone's initial weights depend on the seed alone, never on the loss.

    Both are made on the CPU, so that a seed means the same weights on every device.
    """
    seed_everything(derive(cell.seed, "init", "backbone"))
    network = registry.find("backbone", cell.backbone.name).load()
    backbone = network(in_shape, cell.width, **cell.backbone.options)
    seed_everything(derive(cell.seed, "init", "loss"))
    plugin = registry.find("loss", loss_spec.name)
    loss = plugin.load()(cell.width, cell.classes, **loss_spec.options)
    if plugin.names_class_weights and (
        problem := class_weights.problem(loss, plugin.class_weights, cell.classes, cell.width)
    ):
        raise PluginError(f"{plugin.path}: {problem}")
    backbone, loss = backbone.to(cell.device), loss.to(cell.device)
    if cell.channels_last:
        backbone = backbone.to(memory_format=torch.channels_last)
    if cell.device == "cpu" and not cell.compile and not cell.autocast:
        quicken(backbone)
    return TrainState(
        backbone,
        loss,
        optimizer_of(cell.schedule, backbone, loss, fused=cell.compile),
        device=cell.device,
        autocast=cell.autocast,
        channels_last=cell.channels_last,
        compile=cell.compile,
        width=cell.width,
        classes=cell.classes,
        class_weights=plugin.class_weights,
        recipe=cell.schedule.optimizer,
        clip=cell.schedule.clip,
    )


def seed_everything(seed: int) -> None:
    """The three global generators that a plugin's constructor may draw from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _form(state: dict[str, Any]) -> dict[str, Any]:
    return {name: (value.shape, value.dtype) if isinstance(value, Tensor) else None for name, value in state.items()}


def _fit(value: Any, own: dict[str, Any], name: str) -> bool:
    mine = own.get(name)
    return isinstance(value, Tensor) and isinstance(mine, Tensor) and mine.shape == value.shape


def _turned(value: Any, turn: bool) -> Any:
    """A matrix transposed, if it is to be; what an optimizer keeps besides matrices (a count of steps) stays."""
    return value.T.contiguous() if turn and isinstance(value, Tensor) and value.ndim == 2 else value


def _can_turn(state: dict[str, Any], turned: Tensor) -> bool:
    """Whether all that an optimizer keeps of a matrix has its shape or none: sums over rows cannot be transposed."""
    shapes = [value.shape for value in state.values() if isinstance(value, Tensor) and value.ndim]
    return all(shape == turned.T.shape for shape in shapes)


def _placed(state: dict[str, Any], device: str) -> dict[str, Any]:
    """On the device; torch's optimizers keep only their count of steps on the CPU.

    Names are interned, as in a state that was never saved: otherwise the bytes of its next checkpoint would differ.
    """
    return {
        sys.intern(name): value.to("cpu" if name == "step" else device) if isinstance(value, Tensor) else value
        for name, value in state.items()
    }
