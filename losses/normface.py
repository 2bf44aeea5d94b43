"""NormFace: softmax of cosines times one learned scale; neither weights nor features have a length.

    L = −log softmax(s cos θ)_y

s is learned from its starting value `s` (10 in the authors' prototxt), or kept with `learn = false`. A fixed small s
puts a floor under the loss: with C classes it cannot fall below log(1 + (C − 1) e^{−s C/(C − 1)}).

Wang, Xiang, Cheng & Yuille, "NormFace: L2 Hypersphere Embedding for Face Verification", ACM Multimedia 2017.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from lossbench.fused import cosines
from lossbench.margin import check_labels, init_weight

RANGES = {"s": (4.0, 64.0)}


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, s: float = 10.0, learn: bool = True) -> None:
        super().__init__()
        if not 0 < s < math.inf:
            raise ValueError(f"s must be above 0, got {s}")
        self.weight = init_weight(classes, features)
        self.s = nn.Parameter(torch.tensor(float(s)), requires_grad=learn)

    def logits(self, features):
        return cosines(features, self.weight) * self.s

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        return F.cross_entropy(self.logits(features), labels)
