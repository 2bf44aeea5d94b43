"""CurricularFace: ArcFace whose hard rivals weigh more as training goes on.

    L = −log softmax(z̃)_y,   z̃_y = s T,   T = cos(θ_y + m)  (past θ_y = π − m: cos θ_y − m sin m, as in ArcFace)
    z̃_j = s cos θ_j  where cos θ_j ≤ T,   z̃_j = s cos θ_j (t + cos θ_j)  where a rival beats the target

t starts at 0 and is a moving average of the mean target cosine, t ← (1 − rate) t + rate · mean cos θ_y, once an
optimizer step (the authors move it before they use it, here it moves after the step). At t = 0 hard rivals count less
than in ArcFace, towards t = 1 more. s = 64 is meant for thousands of classes: with ten, 4…30 is usual.

Huang, Wang, Tai, Liu, Shen, Li, Li & Huang, "CurricularFace: Adaptive Curriculum Learning Loss for Deep Face
Recognition", CVPR 2020.
"""

import math

import torch
from torch import nn

from lossbench.fused import cosines, margin_cross_entropy
from lossbench.margin import arc_margin, check_labels, init_weight

MARGIN_OFF = {"m": 0.0}
BY_DESIGN = {"continuous": "past θ = π − m the published target drops by a jump and falls on"}
RANGES = {"s": (4.0, 64.0), "m": (0.1, 0.6)}


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, s: float = 64.0, m: float = 0.5, rate: float = 0.01) -> None:
        super().__init__()
        if not 0 < s < math.inf:
            raise ValueError(f"s must be above 0, got {s}")
        if not 0 <= m <= math.pi / 2:
            raise ValueError(f"m must lie in 0…π/2 (radians), got {m}")
        if not 0 <= rate <= 1:
            raise ValueError(f"rate must lie in 0…1, got {rate}")
        self.s, self.m, self.rate = s, m, rate
        self.weight = init_weight(classes, features)
        self.register_buffer("t", torch.zeros(()))
        self._seen: list = []  # target cosines since the last optimizer step

    def logits(self, features):
        return cosines(features, self.weight) * self.s

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        cosine = cosines(features, self.weight)
        target = cosine.gather(1, labels[:, None]).squeeze(1)
        if self.training and torch.is_grad_enabled():
            self._seen.append(target.detach())
        target = arc_margin(target, self.m)
        rivals = torch.where(cosine > target[:, None], cosine * (self.t + cosine), cosine)
        return margin_cross_entropy(rivals, labels, target, self.s)

    @torch.no_grad()
    def advance(self):
        """Move t: called once after each optimizer step."""
        if self._seen:
            self.t.lerp_(torch.cat(self._seen).mean().to(self.t.dtype), self.rate)
            self._seen.clear()
