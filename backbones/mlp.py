"""A multi-layer perceptron on the pixels: hidden layers with PReLU and batch norm, then the FC layer of `width` units.

    flatten → [linear → PReLU → batch norm] × len(hidden) → FC = the feature vector x

The smallest backbone that learns something: for quick looks at a loss, and for data that is not images.

Rumelhart, Hinton & Williams, "Learning representations by back-propagating errors", Nature 1986.
"""

import math

import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self, in_shape: tuple[int, int, int], width: int, *, hidden: tuple[int, ...] = (128,)) -> None:
        super().__init__()
        if hidden and min(hidden) < 1:
            raise ValueError(f"hidden must hold whole numbers of at least 1, got {hidden}")
        sizes = [math.prod(in_shape), *hidden]
        layers = []
        for incoming, outgoing in zip(sizes, hidden, strict=False):
            layers += [nn.Linear(incoming, outgoing), nn.PReLU(outgoing), nn.BatchNorm1d(outgoing)]
        self.layers = nn.Sequential(nn.Flatten(), *layers)
        self.fc = nn.Linear(sizes[-1], width)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, channels, height, width) → (B, `width`)."""
        return self.fc(self.layers(images))
