"""Circle loss: each cosine is pushed the harder, the further it is from where it should be.

    L = −log softmax(z̃)_y,   z̃_y = γ [1 + m − c_y]₊ (c_y − 1 + m),   z̃_j = γ [c_j + m]₊ (c_j − m)  (j ≠ y),   c = cos θ

(the form with class labels). The factors in brackets are weights, constants for the gradient. γ = 256 is the authors'
for faces; like the s of ArcFace, it is meant for thousands of classes.

Sun, Cheng, Zhang, Zhang, Zheng, Wang & Wei, "Circle Loss: A Unified Perspective of Pair Similarity Optimization", CVPR
2020.
"""

import math

from torch import nn

from lossbench.fused import cosines, margin_cross_entropy
from lossbench.margin import check_labels, init_weight

BY_DESIGN = {"gradient": "the weights of the cosines are constants, as published"}
MARGIN_OFF = {"m": 0.0}
RANGES = {"m": (0.1, 0.5), "gamma": (8.0, 256.0)}


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, m: float = 0.25, gamma: float = 256.0) -> None:
        super().__init__()
        if not 0 <= m <= 1:
            raise ValueError(f"m must lie in 0…1, got {m}")
        if not 0 < gamma < math.inf:
            raise ValueError(f"gamma must be above 0, got {gamma}")
        self.m, self.gamma = m, gamma
        self.weight = init_weight(classes, features)

    def logits(self, features):
        return cosines(features, self.weight) * self.gamma

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        cosine = cosines(features, self.weight)
        target = cosine.gather(1, labels[:, None]).squeeze(1)
        target = (1 + self.m - target.detach()).relu() * (target - (1 - self.m))
        rivals = (cosine.detach() + self.m).relu() * (cosine - self.m)
        return margin_cross_entropy(rivals, labels, target, self.gamma)
