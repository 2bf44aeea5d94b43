"""What several losses share: small functions and one schedule, for plugin files to import.

check_labels(labels, classes)       refuse bad labels with a sentence instead of a device assert
init_weight(classes, features)      class weights with Xavier initialisation
full_precision(scores)              float32 at least, for what goes into a softmax
psi(cosine, m)                      the angular margin of L-Softmax and A-Softmax, without acos
replace_target(logits, labels, t)   the logits with the target column replaced
Annealing(…)                        λ that falls as training goes on
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


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


def psi(cosine: Tensor, m: int) -> Tensor:
    """ψ(θ) = (−1)^k cos(mθ) − 2k with k = ⌊mθ/π⌋, from c = cos θ, for m = 1…4.

    cos(mθ) is the Chebyshev polynomial T_m(c), and which of its arcs θ lies on is told by signs, so there is no acos
    and the gradient is finite at c = ±1. ψ is continuous and falls from 1 to 1 − 2m on [0, π].
    """
    c = cosine
    if m == 1:
        return c
    s0 = _sign(c)
    if m == 2:
        return 2 * s0 * c * c - 1
    if m == 3:
        s1 = _sign(c.abs() - 0.5)
        return s1 * (4 * c * c - 3) * c + s0 * (1 + s1) - 2
    if m == 4:
        square = c * c
        s3 = s0 * _sign(2 * square - 1)
        return s3 * (8 * square * (square - 1) + 1) + 2 * s0 + s3 - 3
    raise ValueError(f"m must be 1, 2, 3 or 4, got {m}")


def _sign(value: Tensor) -> Tensor:
    """+1 where value ≥ 0, else −1: torch.sign's 0 would drop a term exactly at an arc's end."""
    return torch.where(value.detach() < 0, -1.0, 1.0).to(value.dtype)


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
