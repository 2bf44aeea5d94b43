"""SphereFace-R: A-Softmax's multiplied angle made simple, on scaled cosines and without annealing.

    L = −log softmax(z̃)_y
    v1:  z̃_y = s cos(min(m θ_y, π)),  z̃_j = s cos θ_j        the target's angle counts m times
    v2:  z̃_y = s cos θ_y,             z̃_j = s cos(θ_j / m)   the rivals' angles count 1/m times

m ≥ 1 is any real number; `s` fixed is the paper's hard feature normalisation. In v1 a target with m θ_y > π has no
gradient of its own, only through its rivals. `gradient = "detached"` is the authors' characteristic gradient
detachment: the margin changes the value, and the gradient is that of s cos θ. With ten classes, s in 4…30 is usual.

Liu, Wen, Raj, Singh & Weller, "SphereFace Revived: Unifying Hyperspherical Face Recognition", IEEE TPAMI 2022.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from lossbench.fused import cosines
from lossbench.margin import check_labels, init_weight, replace_target, sine

MARGIN_OFF = {"m": 1.0}
MARGIN_OFF_EQUALS = "normface[s=30.0]"
BY_DESIGN = {"gradient[gradient=detached]": "the authors' detachment: the gradient is that of plain cosines"}
RANGES = {"s": (4.0, 64.0), "m": (1.0, 2.0)}


class Loss(nn.Module):
    def __init__(
        self,
        features: int,
        classes: int,
        *,
        form: Literal["v1", "v2"] = "v1",
        s: float = 30.0,
        m: float = 1.5,
        gradient: Literal["exact", "detached"] = "exact",
    ) -> None:
        super().__init__()
        if form not in ("v1", "v2"):
            raise ValueError(f"form must be v1 or v2, got {form!r}")
        if not 0 < s < math.inf:
            raise ValueError(f"s must be above 0, got {s}")
        if not 1 <= m < math.inf:
            raise ValueError(f"m must be at least 1, got {m}")
        if gradient not in ("exact", "detached"):
            raise ValueError(f"gradient must be exact or detached, got {gradient!r}")
        self.form, self.s, self.m, self.gradient = form, s, m, gradient
        self.weight = init_weight(classes, features)

    def logits(self, features):
        return cosines(features, self.weight) * self.s

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        cosine = cosines(features, self.weight)
        target = cosine.gather(1, labels[:, None]).squeeze(1)
        if self.form == "v1":
            logits = replace_target(cosine, labels, (self.m * _angle(target)).clamp_max(math.pi).cos())
        else:
            logits = replace_target((_angle(cosine) / self.m).cos(), labels, target)
        if self.gradient == "detached":
            logits = cosine + (logits - cosine).detach()
        return F.cross_entropy(logits * self.s, labels)


def _angle(cosine):
    """θ from cos θ: the gradient is −1/sin θ as acos has it, but 0 instead of ∞ at cos θ = ±1."""
    return torch.atan2(sine(cosine), cosine)
