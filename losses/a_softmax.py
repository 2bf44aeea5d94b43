"""A-Softmax (SphereFace): L-Softmax's margin with unit class weights, so that only angles decide.

    L = −log softmax(z̃)_y,   z̃_j = ‖x‖ cos θ_j  (j ≠ y),   z̃_y = ‖x‖ (λ cos θ_y + ψ(θ_y)) / (1 + λ)
    ψ(θ) = (−1)^k cos(mθ) − 2k,  k = ⌊mθ/π⌋,   λ_t = max(floor, base (1 + γ t)^−power)

The default λ curve is the authors'; its time runs over `horizon` steps and is scaled to the cell (0: taken as it is).

Liu, Wen, Yu, Li, Raj & Song, "SphereFace: Deep Hypersphere Embedding for Face Recognition", CVPR 2017.
"""

import torch.nn.functional as F
from torch import nn
from torch.linalg import vector_norm

from lossbench.margin import Annealing, check_labels, full_precision, init_weight, psi, replace_target

MARGIN_OFF = {"m": 1}
MARGIN_OFF_EQUALS = "softmax[normalize=true]"


class Loss(nn.Module):
    def __init__(
        self,
        features: int,
        classes: int,
        *,
        m: int = 4,
        base: float = 1000.0,
        gamma: float = 0.12,
        power: float = 1.0,
        floor: float = 5.0,
        horizon: int = 20000,
    ) -> None:
        super().__init__()
        if m not in (1, 2, 3, 4):
            raise ValueError(f"m must be 1, 2, 3 or 4, got {m}")
        self.m = m
        self.weight = init_weight(classes, features)
        self.annealing = Annealing(base, gamma, power, floor, horizon)

    def logits(self, features):
        return F.linear(features, F.normalize(self.weight))

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        logits = full_precision(self.logits(features))
        target = logits.gather(1, labels[:, None])[:, 0]
        norm = vector_norm(full_precision(features), dim=1)
        cosine = (target / norm.clamp_min(1e-12)).clamp(-1, 1)
        lam = self.annealing.value
        target = (lam * target + norm * psi(cosine, self.m)) / (1 + lam)
        return F.cross_entropy(replace_target(logits, labels, target), labels)

    def begin(self, steps):
        self.annealing.begin(steps)

    def advance(self):
        self.annealing.advance()
