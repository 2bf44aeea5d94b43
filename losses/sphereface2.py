"""SphereFace2: a binary decision for every class instead of one softmax over all.

    L = α/r log(1 + e^{−r (g(cos θ_y) − m) − b}) + (1 − α)/r Σ_{j ≠ y} log(1 + e^{r (g(cos θ_j) + m) + b})
    g(c) = 2 ((c + 1)/2)^t − 1

Mean over the batch; the additive form, SphereFace2-C. b is learned; it starts where the loss is least when all cosines
are 0, a closed form. The loss is about r times smaller than a softmax's of the same scale: `strength` multiplies it
(the released code has 50). Where the released code detaches g from the gradient, this is the exact gradient.

Wen, Liu, Weller, Raj & Singh, "SphereFace2: Binary Classification is All You Need for Deep Face Recognition", ICLR
2022.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from lossbench.fused import cosines
from lossbench.margin import check_labels, init_weight, replace_target

MARGIN_OFF = {"m": 0.0}
RANGES = {"r": (4.0, 64.0), "m": (0.0, 0.5), "alpha": (0.5, 0.9)}


class Loss(nn.Module):
    def __init__(
        self,
        features: int,
        classes: int,
        *,
        alpha: float = 0.7,
        r: float = 40.0,
        m: float = 0.4,
        t: float = 3.0,
        strength: float = 1.0,
    ) -> None:
        super().__init__()
        if not 0 < alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, got {alpha}")
        if not 1 <= t < math.inf:  # below 1, g has no finite slope at cos θ = −1
            raise ValueError(f"t must be at least 1, got {t}")
        for name, value, least in (("r", r, 1e-6), ("m", m, 0), ("strength", strength, 0)):
            if not least <= value < math.inf:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        self.alpha, self.r, self.m, self.t, self.strength = alpha, r, m, t, strength
        self.weight = init_weight(classes, features)
        self.bias = nn.Parameter(torch.tensor(_best_bias(classes, alpha, r, m, t)))

    def logits(self, features):
        return self._g(features) * self.r + self.bias

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        g = self._g(features)
        target = self.alpha * F.logsigmoid((g.gather(1, labels[:, None]).squeeze(1) - self.m) * self.r + self.bias)
        rivals = (1 - self.alpha) * F.logsigmoid((g + self.m) * -self.r - self.bias)
        return replace_target(rivals, labels, target).sum() * (-self.strength / (self.r * len(labels)))

    def _g(self, features):
        # Rounding may leave cos θ a little below −1, where a power that is no integer would be NaN.
        return 2 * ((cosines(features, self.weight) + 1) / 2).clamp_min(0).pow(self.t) - 1


def _best_bias(classes, alpha, r, m, t):
    """argmin_b of the loss at cos θ = 0: e^b solves a quadratic, whose root is taken without cancellation."""
    target, rival = r * (2 * 0.5**t - 1 - m), r * (2 * 0.5**t - 1 + m)
    z = alpha / ((1 - alpha) * max(1, classes - 1))
    root = math.sqrt((1 - z) ** 2 + 4 * z * math.exp(target - rival))
    return math.log(2 * z / (1 - z + root)) - rival if z < 1 else math.log((z - 1 + root) / 2) - target
