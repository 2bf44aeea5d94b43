"""Sub-center ArcFace: ArcFace with K weights a class, of which the nearest one counts.

    L = −log softmax(z̃)_y,   cos θ_j = max_k cos θ_jk,   z̃_j = s cos θ_j  (j ≠ y),   z̃_y = s cos(θ_y + m)

Past θ_y = π − m the target is s (cos θ_y − m sin m), as in ArcFace. Mislabelled or unusual examples gather at a
class's minor sub-centers. The weights are K×C×M, so that the maximum over K runs along whole rows; a warm start from a
C×M softmax cannot fill them. s = 64 is meant for thousands of classes: with ten, 4…30 is usual.

Deng, Guo, Liu, Gong & Zafeiriou, "Sub-center ArcFace: Boosting Face Recognition by Large-Scale Noisy Web Faces", ECCV
2020.
"""

import math

import torch
from torch import nn

from lossbench.fused import cosines, margin_softmax
from lossbench.margin import arc_margin_and_slope, check_labels, init_weight

MARGIN_OFF = {"m": 0.0}
BY_DESIGN = {"continuous": "past θ = π − m the published target drops by a jump and falls on"}
RANGES = {"s": (4.0, 64.0), "m": (0.1, 0.6)}


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, k: int = 3, s: float = 64.0, m: float = 0.5) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if not 0 < s < math.inf:
            raise ValueError(f"s must be above 0, got {s}")
        if not 0 <= m <= math.pi / 2:
            raise ValueError(f"m must lie in 0…π/2 (radians), got {m}")
        self.s, self.m = s, m
        self.weight = nn.Parameter(torch.stack([init_weight(classes, features).data for _ in range(k)]))

    def logits(self, features):
        return cosines(features, self.weight) * self.s

    def forward(self, features, labels):
        check_labels(labels, self.weight.shape[1])
        return margin_softmax(features, self.weight, labels, lambda c: arc_margin_and_slope(c, self.m), self.s)
