"""Properties of a backbone: features of the requested width, decided by the seed, one example at a time.

A function is a property: its docstring's first line is what holds, its return value what does not (None: it holds).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lossbench.plugins.check.subject import Subject, reseed

SHAPES = ((1, 28, 28), (3, 32, 32))  # channels, height, width
WIDTHS = (1, 9)
SIZE = 4


def runs(subject: Subject) -> str | None:
    """It gives finite features, B×width, for gray and colour images, and every parameter gets a gradient."""
    for shape in SHAPES:
        for width in WIDTHS:
            backbone = _build(subject, shape, width)
            features = backbone(_images(shape))
            at = f"for images of shape {shape} and width = {width}"
            if not isinstance(features, Tensor) or features.shape != (SIZE, width):
                given = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
                return f"forward gives {given} instead of B×width = {(SIZE, width)} {at}"
            if not torch.isfinite(features).all():
                return f"the features are not finite {at}"
            features.square().sum().backward()  # type: ignore[no-untyped-call]  # torch gives it no types
            if idle := [name for name, value in backbone.named_parameters() if value.grad is None]:
                return f"the parameter {idle[0]} gets no gradient: use it in forward(), or remove it"
    return None


def last_layer(subject: Subject) -> str | None:
    """Its last layer is `fc`, a linear layer with `width` outputs, whose memory reports state."""
    fc = getattr(_build(subject, SHAPES[0], 9), "fc", None)
    if isinstance(fc, nn.Linear) and fc.out_features == 9:
        return None
    return f"its `fc` is {type(fc).__name__}: call the last layer self.fc = nn.Linear(…, width)"


def deterministic(subject: Subject) -> str | None:
    """The same seed gives the same parameters and the same features."""
    first, second = (_build(subject, SHAPES[0], 9) for _ in range(2))
    for (name, one), other in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        if not torch.equal(one, other):
            return f"the same seed gives two different values of {name}: draw from torch's global generator alone"
    images, features = _images(SHAPES[0]), []
    for backbone in (first, second):
        reseed(0)
        features.append(backbone(images))
    return None if torch.equal(*features) else "the same seed gives two different feature vectors"


def one_by_one(subject: Subject) -> str | None:
    """In evaluation, the features of an image do not depend on the rest of the batch."""
    backbone, images = _build(subject, SHAPES[0], 9).eval(), _images(SHAPES[0])
    with torch.no_grad():
        alone, together = backbone(images[:1]), backbone(images)[:1]
    if torch.allclose(alone, together, atol=1e-4):
        return None
    return (
        "in evaluation mode an image's features change with the rest of the batch: use self.training, as BatchNorm does"
    )


def _build(subject: Subject, shape: tuple[int, int, int], width: int) -> nn.Module:
    reseed(0)
    backbone: nn.Module = subject.plugin.load()(shape, width, **subject.options)
    return backbone.train()


def _images(shape: tuple[int, int, int]) -> Tensor:
    return torch.randn(SIZE, *shape, generator=torch.Generator().manual_seed(0))
