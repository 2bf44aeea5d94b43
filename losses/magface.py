"""MagFace: ArcFace whose margin grows with the feature's norm, and a pull towards large norms.

    L = −log softmax(z̃)_y + λ (1/a + a/high²),   z̃_j = s cos θ_j  (j ≠ y),   z̃_y = s cos(θ_y + m(a))
    a = clip(‖x‖, low, high),   m(a) = m_low + (m_high − m_low) (a − low) / (high − low)

λ is the option `strength`. Past θ_y = π − m(a) the target is s (cos θ_y − m sin m), as in ArcFace. The gradient runs
through m(a), too; a feature whose norm is outside low…high has no gradient along its norm, so a backbone with small
norms wants a smaller `low`. s = 64 is meant for thousands of classes: with ten, 4…30 is usual.

Meng, Zhao, Huang & Zhou, "MagFace: A Universal Representation for Face Recognition and Quality Assessment", CVPR 2021.
"""

import math

from torch import nn
from torch.linalg import vector_norm

from lossbench.fused import cosines, margin_cross_entropy
from lossbench.margin import arc_margin, check_labels, full_precision, init_weight

MARGIN_OFF = {"m_low": 0.0, "m_high": 0.0, "strength": 0.0}
MARGIN_OFF_EQUALS = "normface[s=64.0]"
BY_DESIGN = {"continuous": "past θ = π − m the published target drops by a jump and falls on"}
RANGES = {"s": (4.0, 64.0), "m_low": (0.05, 0.45), "m_high": (0.45, 0.8), "strength": (1.0, 35.0)}


class Loss(nn.Module):
    def __init__(
        self,
        features: int,
        classes: int,
        *,
        s: float = 64.0,
        m_low: float = 0.45,
        m_high: float = 0.8,
        low: float = 10.0,
        high: float = 110.0,
        strength: float = 35.0,
    ) -> None:
        super().__init__()
        if not 0 < s < math.inf:
            raise ValueError(f"s must be above 0, got {s}")
        if not 0 < low < high < math.inf:
            raise ValueError(f"low and high must be above 0 and in this order, got {low} and {high}")
        if not 0 <= m_low <= m_high <= math.pi / 2:
            raise ValueError(
                f"m_low and m_high must lie in 0…π/2 (radians) and in this order, got {m_low} and {m_high}"
            )
        if not 0 <= strength < math.inf:
            raise ValueError(f"strength must be at least 0, got {strength}")
        self.s, self.m_low, self.low, self.high, self.strength = s, m_low, low, high, strength
        self.slope = (m_high - m_low) / (high - low)
        self.weight = init_weight(classes, features)

    def logits(self, features):
        return cosines(features, self.weight) * self.s

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        norm = vector_norm(full_precision(features), dim=1).clamp(self.low, self.high)
        margin = self.m_low + self.slope * (norm - self.low)
        cosine = cosines(features, self.weight)
        target = arc_margin(cosine.gather(1, labels[:, None]).squeeze(1), margin)
        pull = (norm.reciprocal() + norm / self.high**2).mean()
        return margin_cross_entropy(cosine, labels, target, self.s) + self.strength * pull
