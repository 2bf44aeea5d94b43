"""The plain CNN of the L-Softmax paper: groups of 3×3 convolutions (PReLU, batch norm), pooling, one FC layer.

    stem → [group → 2×2 max pool] × len(depths) → FC of `width` units = the feature vector x

`channels` is one number for all groups or one a group; `depths` says how many convolutions each group has, `stem` how
many channels the first convolution has (0: as many as the first group). The defaults are the paper's network for MNIST
at a quarter of its channels. Xavier initialisation, no dropout.

Liu, Wen, Yu & Yang, "Large-Margin Softmax Loss for Convolutional Neural Networks", ICML 2016.
"""

import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(
        self,
        in_shape: tuple[int, int, int],
        width: int,
        *,
        channels: int | tuple[int, ...] = 16,
        depths: tuple[int, ...] = (3, 3, 3),
        stem: int = 0,
    ) -> None:
        super().__init__()
        if not depths or min(depths) < 1:
            raise ValueError(f"depths must be one or more whole numbers of at least 1, got {depths}")
        per_group = [channels] * len(depths) if isinstance(channels, int) else list(channels)
        if len(per_group) != len(depths):
            raise ValueError(f"channels must be one number or {len(depths)} (one a group of depths), got {channels}")
        if min(per_group) < 1:
            raise ValueError(f"channels must be at least 1, got {channels}")
        if stem < 0:
            raise ValueError(f"stem must be at least 0, got {stem}")
        incoming, height, breadth = in_shape
        first = stem or per_group[0]
        layers = conv(incoming, first)
        incoming = first
        for depth, outgoing in zip(depths, per_group, strict=True):
            for _ in range(depth):
                layers += conv(incoming, outgoing)
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


def conv(incoming: int, outgoing: int) -> list[nn.Module]:
    return [nn.Conv2d(incoming, outgoing, 3, padding=1), nn.PReLU(outgoing), nn.BatchNorm2d(outgoing)]
