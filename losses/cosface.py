"""CosFace (AM-Softmax): the target's cosine must win by a fixed amount.

    L = −log softmax(z̃)_y,   z̃_j = s cos θ_j  (j ≠ y),   z̃_y = s (cos θ_y − m)

The defaults are CosFace's; AM-Softmax has s = 30, m = 0.35. s = 64 is meant for thousands of classes: with ten, 4…30
is usual.

Wang, Wang, Zhou, Ji, Gong, Zhou, Li & Liu, "CosFace: Large Margin Cosine Loss for Deep Face Recognition", CVPR 2018.
Wang, Cheng, Liu & Liu, "Additive Margin Softmax for Face Verification", IEEE Signal Processing Letters 2018.
"""

import math

from torch import nn

from lossbench.fused import cosines, margin_softmax
from lossbench.margin import check_labels, init_weight

MARGIN_OFF = {"m": 0.0}
MARGIN_OFF_EQUALS = "normface[s=64.0]"
RANGES = {"s": (4.0, 64.0), "m": (0.1, 0.5)}


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, s: float = 64.0, m: float = 0.35) -> None:
        super().__init__()
        if not 0 < s < math.inf:
            raise ValueError(f"s must be above 0, got {s}")
        if not 0 <= m <= 2:
            raise ValueError(f"m must lie in 0…2, got {m}")
        self.s, self.m = s, m
        self.weight = init_weight(classes, features)

    def logits(self, features):
        return cosines(features, self.weight) * self.s

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        return margin_softmax(features, self.weight, labels, lambda c: (c - self.m, 1.0), self.s)
