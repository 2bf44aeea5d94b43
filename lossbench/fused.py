"""Softmax losses with a margin, value and gradient in one autograd step.

What autograd would do in thirty small steps, each a pass over B×C or C×M numbers, these do in few: the lengths of the
weights are divided out of the scores instead of normalising W, the margin touches the B targets alone, and the backward
is written by hand. Everything is O(B·C + C·M) in memory.

    cosines(features, weight)                    cos θ of every feature with every class
    margin_cross_entropy(c, labels, t, s)        cross entropy of s·cosines with the target's column replaced
    margin_softmax(x, weight, labels, f, s)      both in one, for a margin f that depends on the target's cosine alone
    angular_softmax(x, weight, labels, f, unit)  the same with the features' lengths kept in the scores
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.linalg import vector_norm

from lossbench.margin import full_precision

SHORTEST = 1e-12  # a vector no longer than this has no direction

# cos θ_y (B) → the margin's value f(cos θ_y) in its place, and the derivative f'.
Margin = Callable[[Tensor], tuple[Tensor, Tensor | float]]


def cosines(features: Tensor, weight: Tensor) -> Tensor:
    """cos θ_ij (B×C, float32 at least) between the rows of `features` (B×M) and those of `weight` (C×M).

    With K weights a class (K×C×M), the cosine with the nearest of them; if several are, they share the gradient.

    A row without a direction (length ≤ 1e-12) has cosine 0 with everything and gets no gradient: x/‖x‖ would be 0/0,
    and x/max(‖x‖, ε) would send back a gradient of 1/ε.
    """
    cosine: Tensor = _Cosines.apply(features, weight)
    return cosine


class _Cosines(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        cosine, *rest = _cosines(x, weight)
        ctx.save_for_backward(x, weight, cosine, *rest)
        return cosine

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return _cosines_backward(gradient, *ctx.saved_tensors)


def _cosines(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """c = x·w / ‖x‖‖w‖ with the lengths divided out of the product, so that no copy of W is normalised.

    Also what the gradient needs: 1/‖x‖, 1/‖w‖ and, with K weights a class, each one's share in the maximum (B×K×C).
    """
    w = weight.flatten(0, -2)
    x_inverse, w_inverse = _inverse_length(x)[:, None], _inverse_length(w)
    cosine = full_precision(F.linear(x, w)).mul_(w_inverse)
    share = None
    if weight.ndim == 3:
        every = cosine.view(len(x), *weight.shape[:2])
        cosine = every.amax(1)
        share = every.eq_(cosine[:, None])  # 1 for the nearest, else 0, in place: cheaper than a mask
        if share.is_cuda or share.sum() > cosine.numel():  # a tie, rare; on a GPU asking would cost more than dividing
            share.div_(share.sum(1, keepdim=True))
    return cosine.mul_(x_inverse), x_inverse, w_inverse, share


def _cosines_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    cosine: Tensor,
    x_inverse: Tensor,
    w_inverse: Tensor,
    share: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """∂x_i = Σ_j h_ij w_j − x_i Σ_j g_ij c_ij / ‖x_i‖² with h_ij = g_ij / ‖x_i‖‖w_j‖, g the gradient of c; ∂w alike."""
    w = weight.flatten(0, -2)
    per_length, product = gradient * x_inverse, gradient * cosine
    along_x = product.sum(1, keepdim=True) * x_inverse**2
    if share is not None:
        per_length, product = ((share * part[:, None]).flatten(1) for part in (per_length, product))
    along_w = (product.sum(0) * w_inverse**2)[:, None]
    per_length.mul_(w_inverse)
    to_x = (per_length.to(w.dtype) @ w).addcmul_(x, along_x.to(w.dtype), value=-1)
    to_w = (per_length.to(x.dtype).T @ x).addcmul_(w, along_w.to(x.dtype), value=-1)
    return to_x, to_w.view_as(weight)


def _inverse_length(rows: Tensor) -> Tensor:
    """1/‖row‖, or 0 for a row that has no direction."""
    return F.threshold(vector_norm(full_precision(rows), dim=1), SHORTEST, math.inf).reciprocal()


def margin_cross_entropy(cosine: Tensor, labels: Tensor, target: Tensor, s: float) -> Tensor:
    """F.cross_entropy(s * replace_target(cosine, labels, target), labels), as one step that keeps one B×C tensor."""
    loss: Tensor = _MarginCrossEntropy.apply(cosine, labels, target, s)
    return loss


class _MarginCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cosine: Tensor, labels: Tensor, target: Tensor, s: float) -> Tensor:
        loss, log_probability = _softmax_loss(cosine, labels, target, s)
        ctx.save_for_backward(log_probability, labels)
        ctx.s = s
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor, None]:
        log_probability, labels = ctx.saved_tensors
        to_cosine, to_target = _softmax_loss_backward(gradient * ctx.s, log_probability, labels)
        return to_cosine.scatter_(1, labels[:, None], 0), None, to_target, None


def _softmax_loss(cosine: Tensor, labels: Tensor, target: Tensor, s: float) -> tuple[Tensor, Tensor]:
    """The loss and the logarithms of the probabilities (B×C)."""
    logits = (cosine * s).scatter_(1, labels[:, None], (target * s)[:, None])
    log_probability = logits.log_softmax(1)
    return F.nll_loss(log_probability, labels), log_probability


def _softmax_loss_backward(gradient: Tensor, log_probability: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """p_j / B for every logit (its value at the label is meaningless), and (p_y − 1) / B for the target's."""
    part = gradient / len(labels)
    to_logits = log_probability.exp().mul_(part)
    return to_logits, to_logits.gather(1, labels[:, None]).squeeze(1) - part


def margin_softmax(features: Tensor, weight: Tensor, labels: Tensor, margin: Margin, s: float) -> Tensor:
    """Cross entropy of s·cosines, the target's moved by a fixed margin; the whole loss as one differentiable step.

    The same as `cosines` → gather → margin → `margin_cross_entropy`, in about four fifths of the time when the batch is
    small. `margin` maps the target cosines (B) to (the moved ones, their derivative).
    """
    loss: Tensor = _MarginSoftmax.apply(features, weight, labels, margin, s)
    return loss


class _MarginSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, margin: Margin, s: float) -> Tensor:
        cosine, *rest = _cosines(x, weight)
        moved, ctx.slope = margin(cosine.gather(1, labels[:, None]).squeeze(1))
        loss, log_probability = _softmax_loss(cosine, labels, moved, s)
        ctx.save_for_backward(log_probability, labels, x, weight, cosine, *rest)
        ctx.s = s
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        log_probability, labels, *rest = ctx.saved_tensors
        to_cosine, to_target = _softmax_loss_backward(gradient * ctx.s, log_probability, labels)
        to_cosine.scatter_(1, labels[:, None], (to_target * ctx.slope)[:, None])
        return *_cosines_backward(to_cosine, *rest), None, None, None


def angular_softmax(features: Tensor, weight: Tensor, labels: Tensor, margin: Margin, *, unit: bool) -> Tensor:
    """Mean cross entropy of the scores x·w_j whose target is ‖x‖‖w_y‖ f(cos θ_y); with `unit`, of x·w_j/‖w_j‖."""
    loss: Tensor = _AngularSoftmax.apply(features, weight, labels, margin, unit)
    return loss


class _AngularSoftmax(torch.autograd.Function):
    """With s = ‖x‖‖w_y‖ (‖x‖ if unit) and c = z_y/s, the target t = s f(c) has ∂t/∂z_y = f' and ∂t/∂s = f − c f'."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, margin: Margin, unit: bool) -> Tensor:
        column = labels[:, None]
        z = full_precision(F.linear(x, weight))
        few_classes = len(weight) <= len(x)
        rows = weight if unit or few_classes else weight[labels]  # without `unit`, the true classes' lengths suffice
        x_length, w_length = (vector_norm(full_precision(part), dim=1).clamp_min_(SHORTEST) for part in (x, rows))
        if unit:
            z.div_(w_length)
        scale = x_length if unit else x_length * (w_length[labels] if few_classes else w_length)
        cosine = (z.gather(1, column)[:, 0] / scale).clamp_(-1, 1)
        value, slope = margin(cosine)
        plain = z.clone() if unit else None  # the pull along ŵ_j needs z_y as it was
        z.scatter_(1, column, (scale * value)[:, None])
        log_probability = F.log_softmax(z, dim=1)
        stretch = (value - cosine * slope) * scale  # s ∂t/∂s
        ctx.save_for_backward(x, weight, column, x_length, w_length, log_probability, plain, stretch, slope)
        ctx.unit, ctx.few_classes = unit, few_classes
        return -log_probability.gather(1, column).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, column, x_length, w_length, log_probability, plain, stretch, slope = ctx.saved_tensors
        labels, step = column[:, 0], upstream / len(x)
        d_z = log_probability.exp().mul_(step)
        d_target = d_z.gather(1, column)[:, 0] - step
        d_z.scatter_(1, column, (d_target * slope)[:, None])
        along = d_target * stretch
        if ctx.unit:
            radial = (d_z * plain).sum(0)
            d_z.div_(w_length)
        as_x, as_w = d_z.to(x.dtype), d_z.to(weight.dtype)
        d_x = (as_w @ weight).addcmul_(x, (along / x_length.square())[:, None].to(x.dtype))
        d_weight = as_x.T @ x
        if ctx.unit or ctx.few_classes:
            pull = radial.neg_() if ctx.unit else torch.zeros_like(w_length).index_add_(0, labels, along)
            d_weight.addcmul_(weight, (pull / w_length.square())[:, None].to(weight.dtype))
        else:
            pull = (along / w_length.square())[:, None].to(weight.dtype)
            d_weight.index_add_(0, labels, weight[labels] * pull)
        return d_x, d_weight, None, None, None
