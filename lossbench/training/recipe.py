"""The optimizer and the learning rate, which depends on the step alone."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lossbench.core.format import Schedule


def optimizer_of(schedule: Schedule, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=schedule.lr, momentum=schedule.momentum, weight_decay=schedule.weight_decay)


def learning_rate(schedule: Schedule, step: int) -> float:
    """The learning rate at a step, counted from the start of the warm start: a refinement continues the decay."""
    decay = schedule.decay
    return schedule.lr * decay.factor ** (step // decay.every) if decay else schedule.lr


def set_learning_rate(optimizer: torch.optim.Optimizer, schedule: Schedule, step: int) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(schedule, step)
