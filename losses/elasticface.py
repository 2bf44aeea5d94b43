"""ElasticFace: ArcFace with a margin drawn anew for every example.

    L = −log softmax(z̃)_y,   z̃_j = s cos θ_j  (j ≠ y),   z̃_y = s cos(θ_y + m_i),   m_i ~ N(m, sigma²)

(ElasticFace-Arc.) Draws are kept in 0…π/2. Past θ_y = π − m_i the target is s (cos θ_y − m_i sin m_i), as in ArcFace;
the released code lets it rise again. Draws come from torch's global generator, in training mode only: in evaluation
every margin is the mean. s = 64 is meant for thousands of classes: with ten, 4…30 is usual.

Boutros, Damer, Kirchbuchner & Kuijper, "ElasticFace: Elastic Margin Loss for Deep Face Recognition", CVPR Workshops
2022.
"""

import math

import torch
from torch import nn

from lossbench.fused import cosines, margin_cross_entropy
from lossbench.margin import arc_margin, check_labels, init_weight

MARGIN_OFF = {"m": 0.0, "sigma": 0.0}
MARGIN_OFF_EQUALS = "normface[s=64.0]"
BY_DESIGN = {"continuous": "past θ = π − m the published target drops by a jump and falls on"}
RANGES = {"s": (4.0, 64.0), "m": (0.1, 0.6), "sigma": (0.0, 0.1)}


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, s: float = 64.0, m: float = 0.5, sigma: float = 0.05) -> None:
        super().__init__()
        if not 0 < s < math.inf:
            raise ValueError(f"s must be above 0, got {s}")
        if not 0 <= m <= math.pi / 2:
            raise ValueError(f"m must lie in 0…π/2 (radians), got {m}")
        if not 0 <= sigma < math.inf:
            raise ValueError(f"sigma must be at least 0, got {sigma}")
        self.s, self.m, self.sigma = s, m, sigma
        self.weight = init_weight(classes, features)

    def logits(self, features):
        return cosines(features, self.weight) * self.s

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        cosine = cosines(features, self.weight)
        target = cosine.gather(1, labels[:, None]).squeeze(1)
        margin = self.m
        if self.training:
            margin = torch.empty_like(target).normal_(self.m, self.sigma).clamp_(0, math.pi / 2)
        target = arc_margin(target, margin)
        return margin_cross_entropy(cosine, labels, target, self.s)
