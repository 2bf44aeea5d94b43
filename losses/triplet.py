"""Triplet loss: softmax plus triplets: a class mate must be nearer than any stranger, by a margin.

    L = −log softmax(W x + b)_y + λ · mean over triplets of max(0, d(a, p) − d(a, n) + m)

d is the squared Euclidean distance of unit features, as FaceNet has it (`squared = false`: not squared); λ is the
option `strength`. Triplets are mined inside the batch: for every anchor a and class mate p, the nearest stranger n
that is semi-hard, d(a, p) < d(a, n) < d(a, p) + m; a pair without one is left out. A batch without any gives the
softmax term alone. Prediction uses the softmax. Memory is O(B²): strangers are found by a sort, not in a B×B×B table.

Schroff, Kalenichenko & Philbin, "FaceNet: A Unified Embedding for Face Recognition and Clustering", CVPR 2015.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from lossbench.fused import cosines
from lossbench.margin import check_labels, full_precision, init_weight

MARGIN_OFF = {"strength": 0.0}
MARGIN_OFF_EQUALS = "softmax"
RANGES = {"m": (0.05, 1.0), "strength": (0.1, 10.0)}


class Loss(nn.Module):
    def __init__(
        self, features: int, classes: int, *, m: float = 0.2, strength: float = 1.0, squared: bool = True
    ) -> None:
        super().__init__()
        if not 0 <= m < math.inf:
            raise ValueError(f"m must be at least 0, got {m}")
        if not 0 <= strength < math.inf:
            raise ValueError(f"strength must be at least 0, got {strength}")
        self.m, self.strength, self.squared = m, strength, squared
        self.weight = init_weight(classes, features)
        self.bias = nn.Parameter(torch.zeros(classes))

    def logits(self, features):
        return F.linear(features, self.weight, self.bias)

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        distance = 2 - 2 * cosines(features, features)
        if not self.squared:
            distance = distance.clamp_min(1e-24).sqrt()  # clamped: the root's gradient at 0 would have no bound
        used, stranger = self._mine(distance.detach(), labels)
        excess = (distance - distance.gather(1, stranger) + self.m)[used]
        pull = excess.sum() / max(1, len(excess))
        return F.cross_entropy(full_precision(self.logits(features)), labels) + self.strength * pull

    def _mine(self, distance, labels):
        """Which (anchor, mate) pairs have a semi-hard stranger (B×B), and its index (B×B)."""
        mates = labels[:, None] == labels
        strangers, order = distance.masked_fill(mates, math.inf).sort(1)
        further = torch.searchsorted(strangers, distance, right=True)  # the first one further away than the mate
        further.clamp_max_(len(labels) - 1)  # only a NaN sorts past the end: the anchor itself stands there with ∞
        semi_hard = strangers.gather(1, further) < distance + self.m
        return semi_hard & mates.fill_diagonal_(False), order.gather(1, further)
