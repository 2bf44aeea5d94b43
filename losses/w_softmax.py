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

Value and gradient come from one `autograd.Function`: one product for the scores and the Gram rows together, and a
backward that never normalises W but folds the norms into B×C factors. With few classes (C ≤ B) the Gram matrix is taken
over classes, C×C. No B×C×M tensor, 2.0× the arithmetic of plain softmax at large C.

Li & Wang, "Learning Discriminative Features via Weights-biased Softmax Loss", 2019 (arXiv:1904.11138).
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from lossbench.margin import check_labels, full_precision, init_weight

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
        return _WSoftmax.apply(features, self.weight, labels, self.alpha, self.gradient)


class _WSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features, weight, labels, alpha, gradient):
        """The mean loss. B×C throughout: z the scores, G the Gram rows ŵ_y·ŵ_j, r = 1/√(1 + α² + 2αG)."""
        column = labels[:, None]
        few_classes = len(weight) <= len(features)
        if few_classes:
            z = full_precision(features @ weight.T)
            gram = full_precision(weight @ weight.T)  # C×C; its diagonal holds the squared norms
            inverse = gram.diagonal().clamp_min(1e-24).rsqrt()  # 1/‖w_j‖
            gram = (gram * inverse).mul_(inverse[:, None])
        else:
            inverse = torch.linalg.vector_norm(full_precision(weight), dim=1).clamp_min(1e-12).reciprocal()
            stacked = torch.cat([features, weight[labels].to(features.dtype)]) @ weight.T
            z, gram = full_precision(stacked).split(len(features))
            gram.mul_(inverse).mul_(inverse[column])
        z.mul_(inverse)
        radicand = torch.add(1 + alpha**2, gram, alpha=2 * alpha)
        ctx.bounded = _may_be_bounded(radicand, alpha)
        r = radicand.clamp_min_(SMALLEST_RADICAND).rsqrt_()
        r = r[labels] if few_classes else r
        target = z.gather(1, column)
        leaning = torch.add(z, target, alpha=alpha).mul_(r)
        log_probability = F.log_softmax(leaning, dim=1)
        ctx.save_for_backward(features, weight, column, inverse, gram, z, leaning, r, log_probability)
        ctx.alpha, ctx.gradient, ctx.few_classes = alpha, gradient, few_classes
        return -log_probability.gather(1, column).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        """With g = ∂L/∂(w'·x):  ∂L/∂z_j = g_j r_j, to which j = y adds α Σ_k g_k r_k;  ∂L/∂G_yj = −α g_j r_j² (w'_j·x).

        The entries j = y need no care of their own: r_yy (1 + α) = 1, and G_yy = 1 pulls ŵ_y along itself, which the
        normalisation of ŵ removes. Like G's, z's pull on ŵ_j loses its part along ŵ_j: that is `radial`.
        """
        features, weight, column, inverse, gram, z, leaning, r, log_probability = ctx.saved_tensors
        labels, alpha = column[:, 0], ctx.alpha
        g = log_probability.exp().scatter_(1, column, -1, reduce="add").mul_(upstream / len(features))
        d_z = g.mul_(r)
        d_gram = (d_z * leaning).mul_(r).mul_(-alpha)
        if ctx.bounded:  # where the radicand is kept at its bound, G has no say
            d_gram.masked_fill_(r * r * SMALLEST_RADICAND >= 0.999, 0)
        d_z_of_weights = d_z
        if (
            ctx.gradient != "exact"
        ):  # the true weight learns from its own score alone, not from the rivals that lean on it
            fixed = d_z if ctx.gradient == "fixed_bias" else torch.zeros_like(d_z)
            d_z_of_weights = fixed.scatter(1, column, d_z.gather(1, column) * (1 + alpha))
        d_z.scatter_add_(1, column, d_z.sum(1, keepdim=True).mul_(alpha))
        d_features = (d_z * inverse).to(weight.dtype) @ weight

        radial = (d_z_of_weights * z).sum(0)
        scaled = (d_z_of_weights * inverse).to(features.dtype)
        if ctx.gradient == "fixed_negatives":
            d_weight = scaled.T @ features
            d_weight.addcmul_(weight, (radial * inverse * inverse).to(weight.dtype)[:, None], value=-1)
        elif ctx.few_classes:
            pull = torch.zeros_like(gram).index_add_(0, labels, d_gram)  # ∂L/∂G_yj summed by class y
            pull = pull + pull.T if ctx.gradient == "exact" else pull.T.contiguous()
            pull.diagonal().sub_(radial.add_((pull * gram).sum(1)))
            pull.mul_(inverse).mul_(inverse[:, None])
            d_weight = torch.addmm(pull.to(weight.dtype) @ weight, scaled.T, features)
        else:
            kept = d_gram * gram
            radial.add_(kept.sum(0))
            d_gram = d_gram.mul_(inverse).mul_(inverse[column]).to(weight.dtype)
            d_weight = torch.cat([scaled, d_gram]).T @ torch.cat([features, weight[labels].to(features.dtype)])
            if ctx.gradient == "exact":
                radial.index_add_(0, labels, kept.sum(1))
                d_weight.index_add_(0, labels, d_gram @ weight)
            d_weight.addcmul_(weight, (radial * inverse * inverse).to(weight.dtype)[:, None], value=-1)
        return d_features.to(features.dtype), d_weight.to(weight.dtype), None, None, None


def _may_be_bounded(radicand, alpha):
    """Whether a radicand may lie below its bound: (1 − α)² is its least value, so only with α near 1."""
    near = (1 - alpha) ** 2 < 2 * SMALLEST_RADICAND
    return near and (radicand.device.type != "cpu" or bool(radicand.amin() < SMALLEST_RADICAND))  # no stall on a GPU
