"""ArcFace: the target's angle must win by a fixed angle.

    L = −log softmax(z̃)_y,   z̃_j = s cos θ_j  (j ≠ y),   z̃_y = s cos(θ_y + m)

Past θ_y = π − m, where cos(θ + m) would rise again, the target is s (cos θ_y − m sin m): lower by a jump, and falling
on. m is in radians. s = 64 is meant for thousands of classes: with ten, 4…30 is usual.

Deng, Guo, Xue & Zafeiriou, "ArcFace: Additive Angular Margin Loss for Deep Face Recognition", CVPR 2019.
"""

import math

from torch import nn

from lossbench.fused import cosines, margin_softmax
from lossbench.margin import arc_margin_and_slope, check_labels, init_weight

MARGIN_OFF = {"m": 0.0}
MARGIN_OFF_EQUALS = "normface[s=64.0]"
BY_DESIGN = {"continuous": "past θ = π − m the published target drops by a jump and falls on"}
RANGES = {"s": (4.0, 64.0), "m": (0.1, 0.6)}


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, s: float = 64.0, m: float = 0.5) -> None:
        super().__init__()
        if not 0 < s < math.inf:
            raise ValueError(f"s must be above 0, got {s}")
        if not 0 <= m <= math.pi / 2:
            raise ValueError(f"m must lie in 0…π/2 (radians), got {m}")
        self.s, self.m = s, m
        self.weight = init_weight(classes, features)

    def logits(self, features):
        return cosines(features, self.weight) * self.s

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        return margin_softmax(features, self.weight, labels, lambda c: arc_margin_and_slope(c, self.m), self.s)
