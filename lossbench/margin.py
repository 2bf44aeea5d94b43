"""What several losses share: small functions and one schedule, for plugin files to import.

check_labels(labels, classes)       refuse bad labels with a sentence instead of a device assert
init_weight(classes, features)      class weights with Xavier initialisation
full_precision(scores)              float32 at least, for what goes into a softmax
psi_and_slope(cosine, m)            the angular margin of L-Softmax and A-Softmax, without acos
replace_target(logits, labels, t)   the logits with the target column replaced
Annealing(…)                        λ that falls as training goes on
sine(cosine)                        sin θ from cos θ, with a finite gradient at cos θ = ±1
arc_margin(cosine, m)               ArcFace's cos(θ + m), without acos; arc_margin_and_slope gives its derivative, too
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def check_labels(labels: Tensor, classes: int) -> None:
    """Raise ValueError unless `labels` (B) are int64 in [0, classes).

    Values are looked at on the CPU only: on a GPU the look would stall the stream at every step.
    """
    if labels.dtype != torch.int64 or labels.ndim != 1:
        raise ValueError(f"labels must be a vector of int64, got {labels.dtype} of shape {tuple(labels.shape)}")
    if labels.device.type == "cpu" and labels.numel():
        low, high = (int(bound) for bound in torch.aminmax(labels))
        if low < 0 or high >= classes:
            raise ValueError(f"labels must lie in 0…{classes - 1}, got {low if low < 0 else high}")


def init_weight(classes: int, features: int) -> nn.Parameter:
    """Class weights (C×M), Xavier-uniform: one row a class."""
    weight = torch.empty(classes, features)
    nn.init.xavier_uniform_(weight)
    return nn.Parameter(weight)


def full_precision(scores: Tensor) -> Tensor:
    """Scores for a softmax: float32 at least. Products may be taken in bfloat16, exponentials may not."""
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def psi_and_slope(c: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """ψ(θ) = (−1)^k cos(mθ) − 2k with k = ⌊mθ/π⌋, from c = cos θ, for m = 1…4, and its derivative by c.

    cos(mθ) is the Chebyshev polynomial T_m(c), and which of its arcs θ lies on is told by signs, so there is no acos
    and the slope is finite at c = ±1. ψ is continuous and falls from 1 to 1 − 2m on [0, π].
    """
    if m == 1:
        return c, torch.ones_like(c)
    s0, square = _sign(c), c * c
    if m == 2:
        return 2 * s0 * square - 1, 4 * s0 * c
    if m == 3:
        s1 = _sign(square - 0.25)
        return s1 * (4 * square - 3) * c + s0 * (1 + s1) - 2, s1 * (12 * square - 3)
    if m == 4:
        s3 = s0 * _sign(2 * square - 1)
        return s3 * (8 * square * (square - 1) + 1) + 2 * s0 + s3 - 3, s3 * (32 * square - 16) * c
    raise ValueError(f"m must be 1, 2, 3 or 4, got {m}")


def _sign(value: Tensor) -> Tensor:
    """+1 where value ≥ 0, else −1: torch.sign's 0 would drop a term exactly at an arc's end."""
    return (value >= 0).to(value.dtype).mul_(2).sub_(1)


def replace_target(logits: Tensor, labels: Tensor, target: Tensor) -> Tensor:
    """A copy of `logits` (B×C) whose entry at each row's label is `target` (B)."""
    return logits.scatter(1, labels[:, None], target[:, None].to(logits.dtype))


class Annealing(nn.Module):
    """λ_t = max(floor, base·(1 + γ·pace·t)^−power), t the optimizer steps taken so far.

    The published curves fall over some `horizon` of steps. A cell that is told its own length by `begin` runs through
    the same curve at its own pace = horizon / length; without `begin`, or with horizon 0, pace is 1. Both t and pace
    are state: they travel in the state_dict.
    """

    def __init__(self, base: float, gamma: float, power: float, floor: float, horizon: int) -> None:
        super().__init__()
        for name, value in (("base", base), ("gamma", gamma), ("power", power), ("floor", floor), ("horizon", horizon)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be at least 0, got {value}")
        self.base, self.gamma, self.power, self.floor, self.horizon = base, gamma, power, floor, horizon
        self.t, self.pace = 0, 1.0

    def begin(self, steps: int) -> None:
        if self.horizon:
            self.pace = self.horizon / steps

    def advance(self) -> None:
        self.t += 1

    @property
    def value(self) -> float:
        falling: float = self.base * (1 + self.gamma * self.pace * self.t) ** -self.power
        return max(self.floor, falling)

    def get_extra_state(self) -> dict[str, float]:
        return {"t": self.t, "pace": self.pace}

    def set_extra_state(self, state: Any) -> None:
        self.t, self.pace = int(state["t"]), float(state["pace"])


SMALLEST_SINE = 1e-12  # below it sin θ is a constant: the gradient of √(1 − c²) has no bound there


def sine(cosine: Tensor) -> Tensor:
    """sin θ = √(1 − c²) of an angle in [0, π]; where c = ±1 (or beyond, by rounding) it is 1e-12 with gradient 0."""
    return (1 - cosine * cosine).clamp_min(SMALLEST_SINE**2).sqrt()


def arc_margin(cosine: Tensor, m: float | Tensor) -> Tensor:
    """cos(θ + m) from c = cos θ; past θ = π − m, where it would rise again, c − m sin m. Falls on all of [0, π].

    `m` in radians, 0…π/2: one number, or a tensor of c's shape. No acos, so the gradient is finite at c = ±1.
    """
    moved: Tensor = _ArcMargin.apply(cosine, m)
    return moved


class _ArcMargin(torch.autograd.Function):
    """One node instead of ten: on a batch's few target cosines, it is the number of steps that costs time."""

    @staticmethod
    def forward(ctx: Any, c: Tensor, m: float | Tensor) -> Tensor:
        moved, slope = arc_margin_and_slope(c, m)
        ctx.save_for_backward(c, slope)
        ctx.m = m
        return moved

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        c, slope = ctx.saved_tensors
        if not ctx.needs_input_grad[1]:
            return gradient * slope, None
        cos_m, sin_m = ctx.m.cos(), ctx.m.sin()
        slope_of_m = torch.where(c > -cos_m, c * sin_m + sine(c) * cos_m, sin_m + ctx.m * cos_m)
        return gradient * slope, -gradient * slope_of_m


def arc_margin_and_slope(c: Tensor, m: float | Tensor) -> tuple[Tensor, Tensor]:
    """`arc_margin` of plain numbers and its derivative by c: for `margin_softmax`, which wants both at once."""
    cos_m, sin_m = (m.cos(), m.sin()) if isinstance(m, Tensor) else (math.cos(m), math.sin(m))
    sin, before_turn = sine(c), c > -cos_m
    cotangent = c / F.threshold(sin, SMALLEST_SINE, math.inf)  # 0 where c = ±1, instead of ∞
    moved = torch.where(before_turn, c * cos_m - sin * sin_m, c - m * sin_m)
    return moved, torch.where(before_turn, cotangent * sin_m + cos_m, 1.0)
