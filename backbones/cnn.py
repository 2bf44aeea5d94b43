"""The plain CNNs of the L-Softmax paper: groups of 3×3 convolutions (PReLU, batch norm), pooling, one FC layer.

    stem → [group → 2×2 max pool] × groups → FC of `width` units = the feature vector x

    preset     stem         group 1   group 2   group 3   group 4
    mnist      64×1         64×3      64×3      64×3
    cifar10    64×1         64×4      96×4      128×4
    cifar100   96×1         96×4      192×4     384×4
    face       64×1, /2     64×4      256×4     256×4     256×4      (channels × convolutions; /2: stride 2)

`channels` as one number sets the stem's and scales the groups in the preset's proportions (8…16 fits a CPU); as a list
it gives every group its own. `depths` is the number of convolutions per group, `stem` the channels of the first one.
Convolution → PReLU → batch norm, as the W-Softmax paper orders them; Xavier initialisation; no dropout.

Liu, Wen, Yu & Yang, "Large-Margin Softmax Loss for Convolutional Neural Networks", ICML 2016.
"""

from typing import Literal

import torch
from torch import nn

PRESETS = {  # stem, its stride, channels per group, depths
    "mnist": (64, 1, (64, 64, 64), (3, 3, 3)),
    "cifar10": (64, 1, (64, 96, 128), (4, 4, 4)),
    "cifar100": (96, 1, (96, 192, 384), (4, 4, 4)),
    "face": (64, 2, (64, 256, 256, 256), (4, 4, 4, 4)),
}


class Backbone(nn.Module):
    def __init__(
        self,
        in_shape: tuple[int, int, int],
        width: int,
        *,
        preset: Literal["mnist", "cifar10", "cifar100", "face"] = "mnist",
        channels: int | tuple[int, ...] | None = None,
        depths: tuple[int, ...] | None = None,
        stem: int | None = None,
    ) -> None:
        super().__init__()
        first, stride, usual, usual_depths = PRESETS[preset]
        depths = usual_depths if depths is None else depths
        if not depths or min(depths) < 1:
            raise ValueError(f"depths must be one or more whole numbers of at least 1, got {depths}")
        per_group, scaled = _channels(channels, usual, len(depths))
        incoming, height, breadth = in_shape
        first = stem if stem is not None else scaled if scaled else first
        if first < 1:
            raise ValueError(f"stem must be at least 1, got {first}")
        layers = _conv(incoming, first, stride)
        incoming, height, breadth = first, -(-height // stride), -(-breadth // stride)
        for depth, outgoing in zip(depths, per_group, strict=True):
            for _ in range(depth):
                layers += _conv(incoming, outgoing)
                incoming = outgoing
            layers.append(nn.MaxPool2d(2, ceil_mode=True))  # ceil: an image of any size keeps at least one pixel
            height, breadth = -(-height // 2), -(-breadth // 2)
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(incoming * height * breadth, width)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, channels, height, width) → (B, `width`)."""
        return self.fc(self.layers(images).flatten(1))


def _channels(channels, usual, groups):
    """The channels of every group, and those of the stem where they follow from `channels` (else 0)."""
    usual = [*usual, *[usual[-1]] * groups][:groups]
    if channels is None:
        return usual, 0
    given = (
        [max(1, round(channels * size / usual[0])) for size in usual] if isinstance(channels, int) else list(channels)
    )
    if len(given) != groups:
        raise ValueError(f"channels must be one number or {groups} (one per group), got {channels}")
    if (channels if isinstance(channels, int) else min(given)) < 1:
        raise ValueError(f"channels must be at least 1, got {channels}")
    return given, given[0]


def _conv(incoming, outgoing, stride=1):
    return [nn.Conv2d(incoming, outgoing, 3, stride, padding=1), nn.PReLU(outgoing), nn.BatchNorm2d(outgoing)]
