"""Losses, batches and slow reference formulas for the tests of losses."""

import math

import torch

from lossbench.plugins.registry import Registry

BATCH, CLASSES, FEATURES = 9, 6, 5
CLASSIC = ["hinge", "contrastive", "triplet", "prototype"]
ANGULAR = ["arcface", "subcenter_arcface", "curricularface", "adaface", "magface", "elasticface"]
COSINE = [*ANGULAR, "normface", "cosface", "sphereface_r", "sphereface2", "circle"]
VARIANTS = [
    *[(name, {}) for name in (*COSINE, *CLASSIC)],
    ("sphereface_r", {"form": "v2"}),
    ("sphereface2", {"t": 1.5}),
    ("magface", {"low": 0.5, "high": 4.0}),
    ("hinge", {"p": 2}),
    ("hinge", {"form": "crammer_singer"}),
    ("triplet", {"squared": False}),
    ("prototype", {"form": "cpl"}),
]


def make(name, features=FEATURES, classes=CLASSES, dtype=torch.float64, seed=0, **options):
    torch.manual_seed(seed)
    return Registry().find("loss", name).load()(features, classes, **options).to(dtype)


def batch(dtype=torch.float64, seed=1, size=BATCH, features=FEATURES, classes=CLASSES):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, features, generator=generator, dtype=torch.float64) * 2
    y = torch.randint(0, classes, (size,), generator=generator)
    y[:2] = 0  # at least one pair of one class
    return x.to(dtype).requires_grad_(), y


def gradients(value, *inputs):
    return torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)


def assert_same(loss, reference, x, y, tolerance=1e-10):
    """Value and gradients of the plugin and of the plain form agree; `reference` takes features, weights, labels."""
    got, want = loss(x, y), reference(x, loss.weight, y)
    assert got.ndim == 0
    assert abs(got.item() - want.item()) <= tolerance * max(1, abs(want.item()))
    for ours, theirs in zip(gradients(got, x, loss.weight), gradients(want, x, loss.weight), strict=True):
        assert theirs.abs().max() > 1e-6
        assert (ours - theirs).abs().max() <= tolerance * max(1.0, theirs.abs().max().item())


def angle(a, b):
    return torch.acos((a @ b) / (a.norm() * b.norm()))


def softmax_loss(rows, y):
    """−log softmax, row by row."""
    losses = [torch.log(sum(torch.exp(z - row[label]) for z in row)) for row, label in zip(rows, y, strict=True)]
    return sum(losses) / len(losses)


def by_angles(x, w, y, target, rival):
    """Softmax loss whose logit is target(θ, i) for the label and rival(θ, i) for any other class."""
    rows = [
        [(target if j == y[i] else rival)(angle(x[i], w[j]), i) for j in range(len(w))]  # plain loops, on purpose
        for i in range(len(x))
    ]
    return softmax_loss(rows, y)


def arc(theta, m):
    return torch.cos(theta + m) if theta <= math.pi - m else torch.cos(theta) - m * math.sin(m)


def scaled_cosine(s):
    return lambda theta, i: s * torch.cos(theta)
