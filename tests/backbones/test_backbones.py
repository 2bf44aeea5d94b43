"""The contract of a backbone, held by every one of them, and the networks of the paper."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lossbench
from lossbench.plugins.registry import Registry

NAMES = Registry().names("backbone")
SMALL = {"cnn": {"channels": 4, "depths": [1, 1]}, "mlp": {}, "timm": {"model": "resnet10t"}}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # torch's own, from timm's scripted parts


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("in_shape", "width"), [((1, 28, 28), 9), ((3, 32, 32), 1), ((3, 33, 47), 9)])
def test_every_backbone_gives_features_of_the_asked_width(name, in_shape, width):
    backbone = lossbench.create_backbone(name, in_shape, width, **SMALL[name])
    images = torch.randn(2, *in_shape)
    features = backbone(images)
    assert features.shape == (2, width)
    features.sum().backward()
    assert all(parameter.grad is not None for parameter in backbone.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_every_backbone_names_its_fc_layer_and_is_decided_by_the_seed(name):
    made = []
    for _ in range(2):
        torch.manual_seed(3)
        made.append(lossbench.create_backbone(name, (1, 16, 16), 5, **SMALL[name]))
    first, second = made
    assert isinstance(first.fc, nn.Linear)
    assert first.fc.out_features == 5
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_does_not_depend_on_the_rest_of_the_batch(name):
    backbone = lossbench.create_backbone(name, (1, 16, 16), 5, **SMALL[name]).eval()
    images = torch.randn(4, 1, 16, 16)
    with torch.no_grad():
        assert torch.allclose(backbone(images)[:1], backbone(images[:1]), atol=1e-5)


# The table of the L-Softmax paper: the convolutions as (channels in, channels out, stride).
TABLE = {
    "mnist": [(1, 64, 1)] + [(64, 64, 1)] * 9,
    "cifar10": [(3, 64, 1)]
    + [(64, 64, 1)] * 4
    + [(64, 96, 1)] + [(96, 96, 1)] * 3
    + [(96, 128, 1)] + [(128, 128, 1)] * 3,
    "cifar100": [(3, 96, 1)]
    + [(96, 96, 1)] * 4
    + [(96, 192, 1)] + [(192, 192, 1)] * 3
    + [(192, 384, 1)] + [(384, 384, 1)] * 3,
    "face": [(3, 64, 2)] + [(64, 64, 1)] * 4 + [(64, 256, 1)] + [(256, 256, 1)] * 11,
}  # fmt: skip


@pytest.mark.parametrize("preset", TABLE)
def test_a_preset_is_the_papers_network(preset):
    size = {"mnist": 28, "face": 160}.get(preset, 32)
    backbone = lossbench.create_backbone("cnn", (TABLE[preset][0][0], size, size), 256, preset=preset)
    convolutions = [module for module in backbone.modules() if isinstance(module, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.stride[0]) for c in convolutions] == TABLE[preset]
    assert all(c.kernel_size == (3, 3) and c.padding == (1, 1) for c in convolutions)
    kinds = [type(module) for module in backbone.layers]
    for place, kind in enumerate(kinds):
        if kind is nn.Conv2d:
            assert kinds[place + 1 : place + 3] == [nn.PReLU, nn.BatchNorm2d]
    pools = kinds.count(nn.MaxPool2d)
    assert pools == (4 if preset == "face" else 3)
    side = size // (2 if preset == "face" else 1)
    for _ in range(pools):
        side = -(-side // 2)
    assert backbone.fc.in_features == TABLE[preset][-1][1] * side * side


def test_one_number_of_channels_scales_the_preset():
    backbone = lossbench.create_backbone("cnn", (3, 32, 32), 9, preset="cifar10", channels=16)
    outgoing = [module.out_channels for module in backbone.modules() if isinstance(module, nn.Conv2d)]
    assert outgoing == [16] * 5 + [24] * 4 + [32] * 4


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("cnn", {"channels": 0}, "channels must be at least 1"),
        ("cnn", {"channels": [4]}, "one number or 3"),
        ("cnn", {"depths": [0]}, "depths must be"),
        ("cnn", {"stem": 0}, "stem must be"),
        ("mlp", {"hidden": [0]}, "hidden must"),
        ("timm", {"model": "resnet81"}, "did you mean 'resnet"),
        ("timm", {"model": "resnet10t", "drop_everything": 1}, "does not take these options"),
    ],
)
def test_impossible_networks_are_refused_in_a_sentence(name, options, problem):
    with pytest.raises(ValueError, match=problem):
        lossbench.create_backbone(name, (1, 16, 16), 4, **options)


def test_timm_options_reach_timm():
    backbone = lossbench.create_backbone("timm", (3, 32, 32), 7, model="vit_tiny_patch16_224", depth=2)
    assert len(backbone.body.blocks) == 2
    assert backbone(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
