"""Contrastive loss: softmax plus pairs: those of one class draw together, others keep a distance.

    L = −log softmax(W x + b)_y + λ · mean over the batch's pairs of  ½ d² (one class) or ½ max(0, m − d)² (two classes)

d = ‖x_i − x_k‖, features as they are; λ is the option `strength`. Prediction uses the softmax. A batch of one has no
pairs and gives the softmax term alone. Two equal features of different classes (d = 0) have no direction to part in:
the gradient of their pair is 0.

Joint form: Sun, Chen, Wang & Tang, "Deep Learning Face Representation by Joint Identification-Verification", NIPS 2014;
pairs: Hadsell, Chopra & LeCun, "Dimensionality Reduction by Learning an Invariant Mapping", CVPR 2006.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from lossbench.margin import check_labels, full_precision, init_weight

MARGIN_OFF = {"strength": 0.0}
MARGIN_OFF_EQUALS = "softmax"
RANGES = {"m": (0.3, 10.0), "strength": (0.001, 0.1)}


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, m: float = 1.0, strength: float = 0.05) -> None:
        super().__init__()
        if not 0 <= m < math.inf:
            raise ValueError(f"m must be at least 0, got {m}")
        if not 0 <= strength < math.inf:
            raise ValueError(f"strength must be at least 0, got {strength}")
        self.m, self.strength = m, strength
        self.weight = init_weight(classes, features)
        self.bias = nn.Parameter(torch.zeros(classes))

    def logits(self, features):
        return F.linear(features, self.weight, self.bias)

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        square = _squared_distances(full_precision(features))
        apart = (self.m - square.sqrt()).relu().square()
        pairs = torch.where(labels[:, None] == labels, square, apart)  # each pair twice; one with itself adds 0
        pull = pairs.sum() / (2 * max(1, len(labels) * (len(labels) - 1)))
        return F.cross_entropy(full_precision(self.logits(features)), labels) + self.strength * pull


def _squared_distances(x):
    """‖x_i − x_k‖² (B×B) by one product, never below 1e-24, where the root's gradient would have no bound."""
    x = x - x.detach().mean(0)  # distances stay the same, and less is lost to cancellation
    length = x.square().sum(1)
    return torch.addmm(length[:, None] + length, x, x.T, alpha=-2).clamp_min(1e-24)
