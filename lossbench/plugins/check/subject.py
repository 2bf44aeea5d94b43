"""The loss under test: how the checks build and evaluate it.

Every evaluation uses copies of a fresh loss and of the inputs, so that a fault of one kind (such as a forward pass that
changes its input) cannot show up as a fault of another kind.
"""

from __future__ import annotations

import copy
import math
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args, get_origin

import numpy as np
import torch
from torch import Tensor, nn

from lossbench.plugins import class_weights
from lossbench.plugins.registry import CLASS_WEIGHTS, Plugin, Registry

SIZE, CLASSES, FEATURES = 12, 7, 5  # B, C, M of the generic point: all different, so that shapes cannot be confused
TRUE_NORM = 3.0  # the length of features along a class weight
ANGLES = tuple(math.pi * step / 240 for step in range(241))  # of a sweep from a class weight to its opposite

KEEP_FINITE = "clamp what goes into a division, sqrt, log, exp or acos (lossbench.margin has sine and arc_margin)"
SWEEP = 3, 4  # C, M of the sweep over angles: the last axis is orthogonal to all class weights


def or_explain(name: str) -> str:
    """The end of a sentence about a deviation that may be intended."""
    return f'or say why it is intended in BY_DESIGN = {{"{name}": "…"}}'


class NotApplicable(Exception):  # noqa: N818 (it is no error)
    """The property does not apply to this loss; the text says why."""


class Remark(Exception):  # noqa: N818 (as above)
    """Not a failure, but the author should know; the text says what."""


class Result(NamedTuple):
    """A loss's value and its gradients: `features`, and every parameter by name."""

    value: Tensor
    gradients: dict[str, Tensor]

    def problem(self) -> str | None:
        """What is not finite, in words."""
        if not torch.isfinite(self.value):
            return f"the loss is {self.value.item()}"
        for name, gradient in self.gradients.items():
            if not torch.isfinite(gradient).all():
                return f"the gradient of {name} is not finite"
        return None


@dataclass(frozen=True)
class Subject:
    """One plugin with some of its options set: what a property tests."""

    plugin: Plugin
    registry: Registry
    options: Mapping[str, Any] = field(default_factory=dict)
    believed: bool = True  # the plugin's declarations are valid

    def declared(self, name: str) -> Any:
        """One of the plugin's declarations, or None."""
        return self.plugin.constants.get(name) if self.believed else None

    @property
    def margin_off(self) -> dict[str, Any]:
        """The declared options at which no margin is left."""
        declared = self.declared("MARGIN_OFF")
        if declared is None:
            raise NotApplicable("declares no MARGIN_OFF, so what its margin does is not tested")
        return dict(declared)

    @property
    def class_weights(self) -> str | None:
        """The path of the class weights, as the plugin names them."""
        return self.plugin.class_weights if self.believed else CLASS_WEIGHTS

    def place(self, loss: nn.Module, vectors: Tensor) -> None:
        """Give class i the direction `vectors[i]` (C×M) in a loss of this subject."""
        _place(loss, vectors, self.class_weights)

    def variants(self) -> Iterator[Subject]:
        """This subject, then one for each flipped bool and each other choice of a Literal."""
        yield self
        for name, option in self.plugin.options.items():
            choices: tuple[Any, ...] = ()
            if option.annotation is bool:
                choices = (True, False)
            elif get_origin(option.annotation) is Literal:
                choices = get_args(option.annotation)
            for choice in choices:
                if choice != option.default:
                    yield replace(self, options={**self.options, name: choice})

    def build(
        self,
        features: int = FEATURES,
        classes: int = CLASSES,
        *,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> nn.Module:
        """A fresh loss in training mode; `options` override the subject's own."""
        reseed(seed)
        loss: nn.Module = self.plugin.load()(features, classes, **{**self.options, **(options or {})})
        return loss.to(dtype).train()

    def settled(
        self, features: int = FEATURES, classes: int = CLASSES, *, options: Mapping[str, Any] | None = None
    ) -> nn.Module:
        """A loss at the end of its schedule, with its full margin."""
        loss = self.build(features, classes, options=options)
        vectors = class_vectors(loss, features, classes, self.class_weights)
        begin(loss, 1)
        for _ in range(3):
            evaluate(loss, TRUE_NORM * vectors, torch.arange(classes), on_a_copy=False)
            advance(loss)
        return loss

    @cached_property
    def by_angle(self) -> list[float]:
        """The loss at each of ANGLES between a feature and its class weight."""
        return [self.at_angle(angle) for angle in ANGLES]

    def at_angle(self, angle: float) -> float:
        """The loss of one feature at an angle to its class weight, orthogonal to the weights of all other classes."""
        _, features = SWEEP
        point = torch.zeros(1, features, dtype=torch.float64)
        point[0, 0], point[0, -1] = TRUE_NORM * math.cos(angle), TRUE_NORM * math.sin(angle)
        loss = copied(self._axis_loss)
        reseed(0)
        return float(loss(point, torch.tensor([0])).detach())  # with gradients enabled: some losses look at that

    @cached_property
    def _axis_loss(self) -> nn.Module:
        """A loss whose class weights are the first axes."""
        _ = self.margin_off  # a loss without a margin promises nothing here
        classes, features = SWEEP
        loss = self.settled(features, classes)
        self.place(loss, torch.eye(classes, features, dtype=torch.float64))
        return loss


def batch(size: int = SIZE, features: int = FEATURES, classes: int = CLASSES, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A generic point: random directions, lengths from 1 to 20, every class as often as the size allows."""
    source = torch.Generator().manual_seed(seed)
    directions = torch.randn(size, features, generator=source, dtype=torch.float64)
    lengths = torch.logspace(0, 1.3, size, dtype=torch.float64)[torch.randperm(size, generator=source)]
    labels = (torch.arange(size) % classes)[torch.randperm(size, generator=source)]
    return directions / directions.norm(dim=1, keepdim=True) * lengths[:, None], labels


def evaluate(loss: nn.Module, features: Tensor, labels: Tensor, *, seed: int = 0, on_a_copy: bool = True) -> Result:
    """Value and gradients at one point; `loss` and the inputs are not changed unless `on_a_copy` is false."""
    loss = copied(loss) if on_a_copy else loss
    leaf = features.detach().clone().requires_grad_()
    parameters = {name: value for name, value in loss.named_parameters() if value.requires_grad}
    reseed(seed)
    value = loss(leaf.clone(), labels.clone())
    if not isinstance(value, Tensor) or value.ndim:
        raise TypeError("forward must return a tensor with one number: take the mean over the batch")
    gradients = torch.autograd.grad(value, [leaf, *parameters.values()], allow_unused=True)
    named = zip(("features", *parameters), (leaf, *parameters.values()), gradients, strict=True)
    return Result(value.detach(), {name: torch.zeros_like(at) if g is None else g for name, at, g in named})


def copied(loss: nn.Module) -> nn.Module:
    """A copy of the loss with all its state."""
    try:
        return copy.deepcopy(loss)
    except RuntimeError as error:  # torch cannot copy a tensor with a graph
        raise NotApplicable("cannot be copied, because it keeps tensors of an earlier step") from error


def logits(loss: nn.Module, features: Tensor) -> Tensor:
    """The scores as prediction computes them: in evaluation mode, without gradients."""
    was_training = loss.training
    with torch.no_grad():
        scores: Tensor = loss.eval().logits(features.clone())  # type: ignore[operator]  # a plugin's method
    loss.train(was_training)
    return scores


def _place(loss: nn.Module, vectors: Tensor, path: str | None) -> None:
    """Give class i the direction `vectors[i]` (C×M), for any layout of the class weights.

    `path` names them; otherwise a parameter of their shape is searched.
    """
    classes, features = vectors.shape
    known = class_weights.stored(loss, path)
    named = sorted(loss.named_parameters(), key=lambda item: known is None or item[0] != known[0])
    for _, parameter in named:
        shape = tuple(parameter.shape)
        layouts: list[Tensor] = []
        if shape == (classes, features) or (len(shape) == 3 and shape[1:] == (classes, features)):
            layouts = [vectors.expand(shape)]
        elif shape == (features, classes):
            layouts = [vectors.T]
        elif len(shape) == 3 and (shape[0], shape[2]) == (classes, features):
            layouts = [vectors[:, None].expand(shape)]
        elif len(shape) == 2 and shape[1] == features and shape[0] % classes == 0:
            times = shape[0] // classes
            layouts = [vectors.repeat_interleave(times, 0), vectors.repeat(times, 1)]
        for layout in layouts:
            with torch.no_grad():
                parameter.copy_(layout)
            if len(layouts) == 1 or torch.equal(logits(loss, vectors.to(parameter)).argmax(1), torch.arange(classes)):
                return
    raise NotApplicable("no parameter of it has a direction for each class")


def class_vectors(loss: nn.Module, features: int, classes: int, path: str | None) -> Tensor:
    """The directions of the classes in the loss; random unit vectors if it has none."""
    weight = class_weights.rows(loss, path, classes, features)
    if weight is not None:
        return nn.functional.normalize(weight)
    source = torch.Generator().manual_seed(1)
    return nn.functional.normalize(torch.randn(classes, features, generator=source, dtype=torch.float64))


def same_parameters(source: nn.Module, target: nn.Module) -> None:
    """Copy every parameter of `source` that `target` has with the same name and number of elements."""
    given = dict(source.named_parameters())
    with torch.no_grad():
        for name, parameter in target.named_parameters():
            if name in given and given[name].numel() == parameter.numel():
                parameter.copy_(given[name].view_as(parameter))


def begin(loss: nn.Module, steps: int) -> None:
    if hook := getattr(loss, "begin", None):
        hook(steps)


def advance(loss: nn.Module) -> None:
    if hook := getattr(loss, "advance", None):
        hook()


def train(loss: nn.Module, steps: int, *, length: int = 10) -> None:
    """Train the loss for a few steps of a training of `length` steps on random features."""
    begin(loss, length)
    for step in range(steps):
        result = evaluate(loss, *batch(seed=step), seed=step, on_a_copy=False)
        with torch.no_grad():
            for name, parameter in loss.named_parameters():
                if name in result.gradients:
                    parameter.sub_(0.001 * result.gradients[name])
        advance(loss)


def near(one: Tensor, other: Tensor, tolerance: float = 1e-9) -> bool:
    """Equal up to rounding in float64."""
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * max(1.0, float(other.abs().max())))


def draws(subject: Subject) -> bool:
    """True if the loss draws random numbers: another seed gives another value."""
    values = [evaluate(subject.build(), *batch(), seed=seed).value for seed in range(3)]
    return not all(torch.equal(values[0], value) for value in values)


def reseed(seed: int) -> None:
    """Seed the three global generators that a loss may use."""
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


@contextmanager
def isolated() -> Iterator[None]:
    """One thread, deterministic algorithms as in training, no warnings; the caller's generators are restored.

    In this mode torch fills new memory with NaN, which reveals a loss that reads uninitialised memory.
    """
    threads, python, numpy = torch.get_num_threads(), random.getstate(), np.random.get_state()
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        random.setstate(python)
        np.random.set_state(numpy)
