"""AdaFace: a margin that follows image quality, read from the feature's norm.

    L = −log softmax(z̃)_y,   z̃_j = s cos θ_j  (j ≠ y),   z̃_y = s (cos(θ_y − m ẑ) − m ẑ − m)
    ẑ = clip(h (‖x‖ − μ) / (σ + 0.001), −1, 1),   ‖x‖ clipped to 0.001…100 and a constant for the gradient

Small norms (ẑ = −1) act as ArcFace does, large ones (ẑ = 1) as a negative angular margin with twice the additive one;
θ_y − m ẑ is kept in [0, π]. μ and σ are moving averages of the batch's mean and standard deviation, at the given
`rate`, from 20 and 100 as in the released code; they move once an optimizer step, so a batch is judged by those before
it. A short training wants a larger rate. s = 64 is meant for thousands of classes: with ten, 4…30 is usual.

Kim, Jain & Liu, "AdaFace: Quality Adaptive Margin for Face Recognition", CVPR 2022.
"""

import math

import torch
from torch import nn
from torch.linalg import vector_norm

from lossbench.fused import cosines, margin_cross_entropy
from lossbench.margin import check_labels, full_precision, init_weight, sine

MARGIN_OFF = {"m": 0.0}
MARGIN_OFF_EQUALS = "normface[s=64.0]"
BY_DESIGN = {"gradient": "the margin is read from the norm as a constant, as published"}
RANGES = {"s": (4.0, 64.0), "m": (0.1, 0.6), "rate": (0.01, 0.5)}


class Loss(nn.Module):
    def __init__(
        self, features: int, classes: int, *, s: float = 64.0, m: float = 0.4, h: float = 0.333, rate: float = 0.01
    ) -> None:
        super().__init__()
        if not 0 < s < math.inf:
            raise ValueError(f"s must be above 0, got {s}")
        if not 0 <= m <= math.pi / 2:
            raise ValueError(f"m must lie in 0…π/2 (radians), got {m}")
        if not 0 <= h < math.inf:
            raise ValueError(f"h must be at least 0, got {h}")
        if not 0 <= rate <= 1:
            raise ValueError(f"rate must lie in 0…1, got {rate}")
        self.s, self.m, self.h, self.rate = s, m, h, rate
        self.weight = init_weight(classes, features)
        self.register_buffer("mean", torch.tensor(20.0))
        self.register_buffer("std", torch.tensor(100.0))
        self._seen: list = []  # feature norms since the last optimizer step

    def logits(self, features):
        return cosines(features, self.weight) * self.s

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        norm = vector_norm(full_precision(features.detach()), dim=1).clamp(0.001, 100)
        if self.training and torch.is_grad_enabled():
            self._seen.append(norm)
        z = ((norm - self.mean) * (self.h / (self.std + 0.001))).clamp(-1, 1)
        cosine = cosines(features, self.weight)
        target = _turn(cosine.gather(1, labels[:, None]).squeeze(1), -self.m * z) - (self.m * z + self.m)
        return margin_cross_entropy(cosine, labels, target, self.s)

    @torch.no_grad()
    def advance(self):
        """Move the running mean and standard deviation: called once after each optimizer step."""
        norms = torch.cat(self._seen) if self._seen else torch.empty(0)
        if len(norms):
            self.mean.lerp_(norms.mean().to(self.mean.dtype), self.rate)
        if len(norms) > 1:  # one norm alone has no spread
            self.std.lerp_(norms.std().to(self.std.dtype), self.rate)
        self._seen.clear()


def _turn(cosine, angle):
    """cos(clip(θ + angle, 0, π)) from cos θ, for angles of either sign."""
    end = -angle.sign()  # the cosine of the end that θ + angle may run over: 0 if the angle is negative, else π
    return torch.where(cosine * end > angle.cos(), end, cosine * angle.cos() - sine(cosine) * angle.sin())
