"""W-Softmax: every rival class weight leans towards the true one before it is compared with it.

    L = −log( e^{ŵ_y·x} / Σ_j e^{w'_j·x} ),   w'_j = (α ŵ_y + ŵ_j) / ‖α ŵ_y + ŵ_j‖,   ŵ = w / ‖w‖

Written without the B×C×M tensor of leaning weights, with z = x Ŵᵀ and the Gram matrix G_ij = ŵ_i·ŵ_j:

    w'_j·x = (z_j + α z_y) / √(1 + α² + 2α G_yj)          (j = y gives z_y by itself)

α = 0 is softmax with unit weights. Prediction uses the unbiased Ŵ. Where ŵ_j = −ŵ_y and α = 1 the leaning weight is
0/0; the radicand is kept at 1e-6 or more there, which gives w'_j·x = 0 and finite gradients.

The loss is not invariant to a common shift of all scores: lowering every z by t lowers each rival by
t (1 + α) / ‖α ŵ_y + ŵ_j‖ ≥ t, so it can fall with no gain in discrimination. `gradient` chooses what may learn:

    exact            ∂L/∂w of the formula above, as the paper's Algorithm 1 ends
    fixed_bias       ŵ_y inside the rivals is a constant
    fixed_negatives  the leaning rivals are constants; x and the true class's weight learn

Li & Wang, "Learning Discriminative Features via Weights-biased Softmax Loss".
"""

from typing import Literal

import torch.nn.functional as F
from torch import nn

from lossbench.margin import check_labels, full_precision, init_weight, replace_target

SMALLEST_RADICAND = 1e-6
MARGIN_OFF = {"alpha": 0.0}
MARGIN_OFF_EQUALS = "softmax[normalize=true]"
BY_DESIGN = {
    "gradient[gradient=fixed_bias]": "ŵ_y inside the rivals is a constant",
    "gradient[gradient=fixed_negatives]": "the leaning rivals are constants",
    "margin off[gradient=fixed_negatives]": "the rivals are constants, with α = 0 too",
}


class Loss(nn.Module):
    def __init__(
        self,
        features: int,
        classes: int,
        *,
        alpha: float = 1.0,
        gradient: Literal["exact", "fixed_bias", "fixed_negatives"] = "exact",
    ) -> None:
        super().__init__()
        if not 0 <= alpha < float("inf"):
            raise ValueError(f"alpha must be at least 0, got {alpha}")
        if gradient not in ("exact", "fixed_bias", "fixed_negatives"):
            raise ValueError(f"gradient must be exact, fixed_bias or fixed_negatives, got {gradient!r}")
        self.alpha, self.gradient = alpha, gradient
        self.weight = init_weight(classes, features)

    def logits(self, features):
        return F.linear(features, F.normalize(self.weight))

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        unit = F.normalize(self.weight)
        scores = full_precision(F.linear(features, unit))
        target = scores.gather(1, labels[:, None])
        constant = unit.detach()
        if self.gradient == "exact":
            biased = self._lean(scores, target, self._gram(unit, unit, labels))
        elif self.gradient == "fixed_bias":
            fixed_target = (features * constant[labels]).sum(1, keepdim=True)  # x learns, ŵ_y does not
            biased = self._lean(scores, fixed_target, self._gram(constant, unit, labels))
        else:
            fixed = full_precision(F.linear(features, constant))
            fixed_target = fixed.gather(1, labels[:, None])
            biased = self._lean(fixed, fixed_target, self._gram(constant, constant, labels))
        return F.cross_entropy(replace_target(biased, labels, target[:, 0]), labels)

    def _lean(self, scores, target, gram):
        """w'_j·x (B×C) from the scores z, the true class's score (B×1) and the Gram rows (B×C)."""
        radicand = (1 + self.alpha**2 + 2 * self.alpha * gram).clamp_min(SMALLEST_RADICAND)
        return (scores + self.alpha * target) * radicand.rsqrt()

    @staticmethod
    def _gram(true, rivals, labels):
        """Rows ŵ_y·ŵ_j (B×C); over classes first when there are fewer of them than examples."""
        if len(rivals) <= len(labels):
            return full_precision(true @ rivals.T)[labels]
        return full_precision(true[labels] @ rivals.T)
