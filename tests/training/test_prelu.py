"""PReLU layers of eager cells: a faster gradient than torch's, with the same bits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from conftest import SMALL
from torch import nn

from lossbench.data import load_dataset
from lossbench.plan.cells import plan
from lossbench.training import measure, prelu, state
from lossbench.training.batches import Batches

SHAPES = [(50, 8, 14, 14), (5, 3, 7, 6), (4, 6, 9), (7, 6), (6,), (1, 1, 1, 1), (0, 4, 3, 3)]
LAYOUTS = list(itertools.product((torch.contiguous_format, torch.channels_last), repeat=2))  # of input and gradient


def gradients(layer: nn.PReLU, x: torch.Tensor, upstream: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    layer.weight.grad = None
    output = layer(x)
    output.backward(upstream)
    assert x.grad is not None and layer.weight.grad is not None
    return [output.detach(), x.grad, layer.weight.grad]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("slopes", ["one", "per channel"])
@pytest.mark.parametrize("layouts", LAYOUTS, ids=str)
def test_the_gradient_of_a_layer_is_that_of_torch_to_the_bit(shape, slopes, layouts, monkeypatch):
    monkeypatch.setattr(prelu, "CHUNK", 500)  # so that batches are cut, and not always evenly
    torch.manual_seed(0)
    x, upstream = torch.randn(shape), torch.randn(shape)
    x[x.abs() < 0.1] = 0.0  # where the two sides meet
    if x.ndim == 4:
        x, upstream = (
            part.contiguous(memory_format=layout) for part, layout in zip((x, upstream), layouts, strict=True)
        )
    layer = nn.PReLU(shape[1] if slopes == "per channel" and len(shape) > 1 else 1)
    nn.init.uniform_(layer.weight, -0.5, 1.5)
    expected = gradients(layer, x, upstream)
    prelu.quicken(nn.Sequential(layer))
    found = gradients(layer, x, upstream)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))
    assert [part.stride() for part in found] == [part.stride() for part in expected]


@pytest.mark.parametrize("extreme", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["input", "upstream"])
def test_what_is_not_finite_stays_not_finite(extreme, where):
    x, upstream = torch.tensor([[1.0, -1.0]]), torch.ones(1, 2)
    (x if where == "input" else upstream)[0] = extreme
    layer = nn.PReLU(2)
    prelu.quicken(layer)
    output, to_x, to_slope = gradients(layer, x, upstream)
    assert not (output.isfinite().all() and to_x.isfinite().all() and to_slope.isfinite().all())


def trained(cell, registry, dataset) -> str:
    """The digest of a cell's parameters after its steps."""
    fresh = state.build(cell, cell.loss, registry, dataset.in_shape)
    fresh.train()
    batches = Batches.of(cell, dataset)
    for step in range(cell.schedule.steps):
        fresh.update(*batches.at(step))
    return measure.parameter_digest(fresh.backbone, fresh.loss)


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_cell_trains_to_the_same_bits_with_and_without_it(channels_last, read_suite, registry, monkeypatch):
    cell = replace(plan(read_suite(SMALL))[0], channels_last=channels_last)
    digits, calls = load_dataset("digits"), []
    monkeypatch.setattr(prelu, "_forward", lambda layer, x, fast=prelu._forward: calls.append(1) or fast(layer, x))
    fast = trained(cell, registry, digits)
    assert calls
    calls.clear()
    monkeypatch.setattr(state, "quicken", lambda network: None)
    assert trained(cell, registry, digits) == fast
    assert not calls


@pytest.mark.parametrize("other", [{"autocast": "bfloat16"}, {"compile": True}])
def test_compiled_and_low_precision_cells_keep_the_layers_of_torch(other, read_suite, registry):
    cell = replace(plan(read_suite(SMALL))[0], **other)
    network = state.build(cell, cell.loss, registry, (1, 8, 8)).backbone
    layers = [layer for layer in network.modules() if isinstance(layer, nn.PReLU)]
    assert layers and all("forward" not in vars(layer) for layer in layers)
