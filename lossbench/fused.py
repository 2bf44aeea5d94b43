"""Softmax losses with a margin, value and gradient in one autograd step.

What autograd would do in thirty small steps, each a pass over B×C or C×M numbers, these do in few: the lengths of the
weights are divided out of the scores instead of normalising W, the margin touches the B targets alone, and the backward
is written by hand. Everything is O(B·C + C·M) in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.linalg import vector_norm

from lossbench.margin import SHORTEST, full_precision

# cos θ_y (B) → the margin's value f(cos θ_y) in its place, and the derivative f'.
Margin = Callable[[Tensor], tuple[Tensor, Tensor | float]]


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
