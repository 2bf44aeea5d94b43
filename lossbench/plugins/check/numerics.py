"""Numerical properties: gradients are correct, and nothing becomes infinite or NaN at extreme points.

A function is a property: its docstring's first line is what holds, its return value what does not (None: it holds).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lossbench.plugins.check.subject import (
    KEEP_FINITE,
    TRUE_NORM,
    NotApplicable,
    Subject,
    batch,
    copied,
    evaluate,
    logits,
    or_explain,
    reseed,
)

MANY = 10_575  # classes of CASIA-WebFace
PRECISIONS = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def gradient(subject: Subject) -> str | None:
    """The gradient is the derivative of the value (central differences in float64)."""
    return _wrong_slope(subject, size=6, classes=3) or _wrong_slope(subject, size=3, classes=6)  # either may be larger


def _wrong_slope(subject: Subject, size: int, classes: int) -> str | None:
    features, step = 4, 1e-6
    loss = subject.settled(features, classes)
    points, labels = batch(size, features, classes)
    exact = evaluate(loss, points, labels).gradients
    at = {"features": points, **{name: value.detach() for name, value in loss.named_parameters()}}
    for name, given in exact.items():
        claimed, slope = given.flatten(), given.new_empty(given.numel())
        for place_ in range(claimed.numel()):
            ends = []
            for sign in (1, -1):
                moved = at[name].flatten().clone()
                moved[place_] += sign * step
                ends.append(_value(loss, {**at, name: moved.view(at[name].shape)}, labels))
            slope[place_] = (ends[0] - ends[1]) / (2 * step)
        wrong = (claimed - slope).abs()
        if float(wrong.max()) > 1e-4 * float(slope.abs().max()) + 1e-6:
            worst = int(wrong.argmax())
            return (
                f"the gradient of {name} is {float(claimed[worst]):.4g} "
                f"where the slope of the loss is {float(slope[worst]):.4g} (B={size}, C={classes}): look for detach(), "
                f"no_grad() or a backward() of your own that is not the derivative, {or_explain('gradient')}"
            )
    return None


def _value(loss: nn.Module, at: dict[str, Tensor], labels: Tensor) -> float:
    """The loss at some features and parameters."""
    loss = copied(loss)
    with torch.no_grad():
        for name, parameter in loss.named_parameters():
            parameter.copy_(at[name])
    reseed(0)
    return float(loss(at["features"].clone(), labels.clone()).detach())  # grad stays on: some losses look at it


def finite_along_a_weight(subject: Subject) -> str | None:
    """Value and gradient are finite where a feature lies exactly along or against a class weight (cos θ = ±1)."""
    classes, features = 3, 5
    source = torch.Generator().manual_seed(2)
    corners = (torch.eye(classes, features), torch.randn(classes, features, generator=source))
    for vectors in corners:
        for sign, cosine in ((1.0, "+1"), (-1.0, "−1")):
            for turn, which in ((0, "its target"), (1, "a rival")):
                labels = torch.arange(2 * classes) % classes  # twice: equal features within a class
                points = sign * TRUE_NORM * vectors[(labels + turn) % classes]
                where = f"where the cosine to {which} is {cosine}"
                if problem := _not_finite(subject, points, labels, where, vectors=vectors):
                    return problem
    return None


def finite_at_zero(subject: Subject) -> str | None:
    """Value and gradient are finite for a zero feature vector, and for a batch of nothing else."""
    points, labels = batch()
    one_zero = points.clone()
    one_zero[0] = 0
    return _not_finite(subject, one_zero, labels, "for a zero feature vector") or _not_finite(
        subject, torch.zeros_like(points), labels, "for a batch of zero features"
    )


def finite_at_opposite_weights(subject: Subject) -> str | None:
    """Value and gradient are finite for two classes with opposite weights, the optimum of most losses."""
    features = 4
    vectors = torch.eye(1, features) * torch.tensor([[1.0], [-1.0]])
    points, labels = batch(6, features, 2)
    where = "for two classes with opposite weights"
    if problem := _not_finite(subject, points, labels, where, vectors=vectors):
        return problem
    option = subject.plugin.options.get("alpha")
    if option is None or option.annotation is not float:
        return None
    try:  # where W-Softmax divides 0 by 0
        return _not_finite(subject, points, labels, f"{where} at alpha = 1", vectors=vectors, options={"alpha": 1.0})
    except ValueError:  # a loss may refuse alpha = 1
        return None


def finite_at_any_length(subject: Subject) -> str | None:
    """Value and gradient are finite for features and for class weights of length 1e6 and 1e-6."""
    points, labels = batch()
    points = points / points.norm(dim=1, keepdim=True)
    source = torch.Generator().manual_seed(3)
    vectors = nn.functional.normalize(torch.randn(7, 5, generator=source))
    for length in (1e6, 1e-6):
        problem = _not_finite(subject, points * length, labels, f"for features of length {length:g}") or _not_finite(
            subject, points, labels, f"for class weights of length {length:g}", vectors=vectors * length
        )
        if problem:
            return problem
    return None


def finite_for_one_example(subject: Subject) -> str | None:
    """Value and gradient are finite for a batch of one example."""
    points, labels = batch(1)
    return _not_finite(subject, points, labels, "for a batch of one example")


def finite_in_low_precision(subject: Subject) -> str | None:
    """Value and gradient are finite in bfloat16, whole or under autocast."""
    points, labels = batch()
    for automatic in (False, True):
        where = "under autocast" if automatic else "at a generic point"
        loss = subject.build(dtype=torch.float32 if automatic else torch.bfloat16)
        with torch.autocast("cpu", torch.bfloat16) if automatic else nullcontext():
            if problem := evaluate(loss, points.bfloat16(), labels).problem():
                return f"{problem} in bfloat16 {where}: put scores through lossbench.margin.full_precision"
    return None


def _not_finite(
    subject: Subject,
    points: Tensor,
    labels: Tensor,
    where: str,
    *,
    vectors: Tensor | None = None,
    options: dict[str, Any] | None = None,
) -> str | None:
    """What is not finite at these points, in float32 and bfloat16."""
    classes = len(vectors) if vectors is not None else 7
    for dtype, precision in PRECISIONS.items():
        loss = subject.build(points.shape[1], classes, dtype=dtype, options=options)
        if vectors is not None:
            subject.place(loss, vectors)
        if problem := evaluate(loss, points.to(dtype), labels).problem():
            return f"{problem} {where}, in {precision}: {KEEP_FINITE}"
    return None


def two_classes(subject: Subject) -> str | None:
    """It works with two classes."""
    points, labels = batch(8, 3, 2)
    loss = subject.build(3, 2)
    if problem := evaluate(loss, points, labels).problem():
        return f"{problem} with two classes: {KEEP_FINITE}"
    return _wrong_shape(logits(loss, points), (8, 2))


def many_classes(subject: Subject) -> str | None:
    """It works with 10,575 classes."""
    points, labels, loss = _many(subject)
    if problem := evaluate(loss, points, labels).problem():
        return f"{problem} with {MANY:,} classes: {KEEP_FINITE}"
    return _wrong_shape(logits(loss, points), (len(points), MANY))


def step_memory(subject: Subject) -> str | None:
    """No tensor of a step is much larger than B×C and C×M: none has B×C×M or C×C numbers."""
    points, labels, loss = _many(subject)
    size, features = points.shape
    try:
        with _LargestTensor() as largest:  # type: ignore[no-untyped-call]  # torch gives the mode no types
            evaluate(loss, points, labels, on_a_copy=False)
    except Exception as error:
        raise NotApplicable(f"does not work with {MANY:,} classes") from error
    if largest.numel < size * MANY * features / 4:
        return None
    shape = "×".join(map(str, largest.shape))
    return (
        f"a step makes a tensor of {largest.numel:,} numbers ({shape}) at B={size}, C={MANY}, M={features}, "
        f"where B·C + C·M is {size * MANY + MANY * features:,}: replace the broadcast by a matrix product (features @ "
        "weight.T)"
    )


def _many(subject: Subject) -> tuple[Tensor, Tensor, nn.Module]:
    points, labels = batch(16, 16, MANY)
    return points.float(), labels, subject.build(16, MANY, dtype=torch.float32)


def _wrong_shape(scores: Tensor, shape: tuple[int, int]) -> str | None:
    if scores.shape == shape:
        return None
    return f"logits() gives {tuple(scores.shape)} instead of B×C = {shape}: return one score per class and example"


class _LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]  # as above
    """Records the largest storage that any operation allocates, including the backward pass (a view has none)."""

    numel: int = 0
    shape: tuple[int, ...] = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in self._tensors(made):
            numel = tensor.untyped_storage().nbytes() // tensor.element_size()
            if numel > self.numel:
                self.numel, self.shape = numel, tuple(tensor.shape)
        return made

    @staticmethod
    def _tensors(made: Any) -> Iterator[Tensor]:
        return (leaf for leaf in tree_leaves(made) if isinstance(leaf, Tensor))
