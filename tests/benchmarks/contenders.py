"""What is timed against what: our losses, pytorch-metric-learning's, and the paper's Algorithm 1 as it is printed."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import lossbench
from lossbench.plugins.registry import Registry

SHAPES = [(50, 10, 256), (256, 10, 256), (256, 100, 256), (128, 1000, 512), (128, 10575, 512)]  # B, C, M
PLAIN = "plain softmax"
LARGEST_PRINTED = 50_000_000  # elements of the B×C×M tensor above which Algorithm 1 is not tried

Step = Callable[[], None]


def plain_softmax(features: Tensor, labels: Tensor, classes: int) -> Step:
    """The yardstick: what everybody writes."""
    head = torch.nn.Linear(features.shape[1], classes)
    return forward_and_backward(
        lambda: F.cross_entropy(F.linear(features, head.weight, head.bias), labels), [features, *head.parameters()]
    )


def ours(name: str, features: Tensor, labels: Tensor, classes: int, **options: object) -> Step:
    loss = lossbench.create_loss(name, features.shape[1], classes, **options)
    advance = getattr(loss, "advance", None)

    def step() -> Tensor:
        value: Tensor = loss(features, labels)
        if advance:
            advance()
        return value

    return forward_and_backward(step, [features, *loss.parameters()])


def theirs(name: str, features: Tensor, labels: Tensor, classes: int) -> Step:
    """pytorch-metric-learning's loss of the same kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pytorch_metric_learning import losses

        make = {
            "l_softmax": lambda **sizes: losses.LargeMarginSoftmaxLoss(margin=4, scale=1, **sizes),
            "a_softmax": lambda **sizes: losses.SphereFaceLoss(margin=4, scale=1, **sizes),
            "arcface": losses.ArcFaceLoss,
            "cosface": losses.CosFaceLoss,
            "subcenter_arcface": losses.SubCenterArcFaceLoss,
            "normface": losses.NormalizedSoftmaxLoss,
        }[name]
        loss = make(num_classes=classes, embedding_size=features.shape[1])
    return forward_and_backward(lambda: loss(features, labels), [features, *loss.parameters()])


THEIRS = ["l_softmax", "a_softmax", "arcface", "cosface", "subcenter_arcface", "normface"]


def algorithm_1(features: Tensor, labels: Tensor, classes: int, alpha: float = 1.0) -> Step:
    """W-Softmax as the paper prints it, vectorised over the batch: every example has its own C×M weights."""
    weight = torch.nn.Parameter(torch.randn(classes, features.shape[1]))

    def step() -> Tensor:
        unit = F.normalize(weight)
        leaning = F.normalize(alpha * unit[labels][:, None, :] + unit[None, :, :], dim=2)  # B×C×M
        return F.cross_entropy(torch.einsum("bcm,bm->bc", leaning, features), labels)

    return forward_and_backward(step, [features, weight])


def forward_and_backward(value: Callable[[], Tensor], parameters: list[Tensor]) -> Step:
    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        value().backward()  # type: ignore[no-untyped-call]  # torch gives it no types

    return step


def batch(shape: tuple[int, int, int]) -> tuple[Tensor, Tensor, int]:
    size, classes, features = shape
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, features, generator=generator, requires_grad=True)
    return x, torch.randint(0, classes, (size,), generator=generator), classes


def contenders(shape: tuple[int, int, int], names: list[str] | None = None) -> dict[str, Step]:
    """Everything that can be timed at this shape, by label; plain softmax first."""
    x, labels, classes = batch(shape)
    found = {PLAIN: plain_softmax(x, labels, classes)}
    for name in names or Registry().names("loss"):
        found[name] = ours(name, x, labels, classes)
        if name in THEIRS:
            found[f"{name} (pytorch-metric-learning)"] = theirs(name, x, labels, classes)
        if name == "w_softmax" and shape[0] * shape[1] * shape[2] <= LARGEST_PRINTED:
            found["w_softmax (Algorithm 1 as printed)"] = algorithm_1(x, labels, classes)
    return found
