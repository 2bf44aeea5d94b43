"""The optimizer and the learning rate, which depends on the step and the length of training alone."""

from __future__ import annotations

import copy
import importlib
import math
import sys
from typing import Any

import torch
from torch import nn

from lossbench.core.format import Annealing, Milestones, Schedule
from lossbench.core.labels import parse_label
from lossbench.plugins import optimizers

SCALE = "lr_scale"  # of a parameter group: what its learning rate is multiplied by


def optimizer_of(
    schedule: Schedule, backbone: nn.Module, loss: nn.Module, *, fused: bool = False
) -> torch.optim.Optimizer:
    """The optimizer of a backbone and a loss; `fused` does a step of SGD in one kernel, whose last bits differ.

    Not with dampening: a fused step has momentum for all parameters or for none, and `start_momentum` would differ.
    """
    name, options = parse_label(schedule.optimizer)
    arguments: dict[str, Any] = {"lr": schedule.lr, "weight_decay": schedule.weight_decay}
    if optimizers.find(name).momentum:
        arguments["momentum"] = schedule.momentum
    arguments |= options
    groups = _groups(schedule, backbone, loss)
    if name == optimizers.SGD:
        return torch.optim.SGD(groups, fused=(fused and not arguments.get("dampening")) or None, **arguments)
    optim = importlib.import_module("timm.optim")  # takes seconds
    plain = name.removeprefix(optimizers.LOOKAHEAD)
    # Not timm's factory: it drops options that its registry says an optimizer lacks, even if its class has them.
    optimizer: torch.optim.Optimizer = optim.get_optimizer_class(plain)(groups, **arguments)
    if plain != name:
        base, optimizer = optimizer, optim.Lookahead(optimizer)
        optimizer.state = base.state  # where both keep the state of a parameter
    return optimizer


def start_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Give zero momentum to the parameters of a fused SGD that have none, where others continue from a warm start.

    The first step is that of a parameter without momentum: v ← m·0 + g = g.
    """
    for group in optimizer.param_groups:
        if group.get("fused") and group.get("momentum"):
            for tensor in group["params"]:
                optimizer.state[tensor].setdefault("momentum_buffer", torch.zeros_like(tensor))


def _groups(schedule: Schedule, backbone: nn.Module, loss: nn.Module) -> list[Any]:
    """The parameters in groups of equal learning rate and weight decay; in one if all are treated alike."""
    if schedule.loss_lr == 1 and schedule.decay_norms:
        return [*backbone.parameters(), *loss.parameters()]
    groups: list[dict[str, Any]] = []
    for module, scale in ((backbone, 1.0), (loss, schedule.loss_lr)):
        parameters = list(module.parameters())
        exempt = [] if schedule.decay_norms else [tensor for tensor in parameters if tensor.ndim <= 1]
        decayed = [tensor for tensor in parameters if schedule.decay_norms or tensor.ndim > 1]
        for members, changed in ((decayed, {}), (exempt, {"weight_decay": 0.0})):
            if members:
                groups.append({"params": members, SCALE: scale, **changed})
    return groups


def learning_rate(schedule: Schedule, step: int, horizon: int) -> float:
    """The learning rate at a step; `step` and `horizon` count from the start of the warm start."""
    rate = schedule.lr
    if step < schedule.warmup:
        rate *= (step + 1) / schedule.warmup
    decay = schedule.decay
    if decay is None:
        return rate
    if isinstance(decay, Annealing):
        share = max(0, step - schedule.warmup) / max(1, horizon - schedule.warmup)
        return rate * (decay.end + (1 - decay.end) * _shape(decay, share))
    passed = sum(step >= at for at in decay.at) if isinstance(decay, Milestones) else step // decay.every
    return float(rate * decay.factor**passed)


def _shape(decay: Annealing, share: float) -> float:
    if decay.shape == "cosine":
        return (1 + math.cos(math.pi * share)) / 2
    return float((1 - share) ** (decay.power or 1.0))


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(SCALE, 1.0)


class Counters:
    """What an optimizer counts by parameter group, such as its steps; all groups count alike."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._groups = optimizer.param_groups
        self._before = dict(self._groups[0])

    def kept(self) -> dict[str, Any]:
        """The entries of a group that have changed or appeared since the optimizer was made."""
        changed = (name for name, value in self._groups[0].items() if self._before.get(name) is not value)
        return {name: copy.deepcopy(self._groups[0][name]) for name in changed if name not in ("params", "lr")}

    def restore(self, kept: dict[str, Any]) -> None:
        for group in self._groups:
            # Copied, as an optimizer may count in place; for interned names see `state`.
            group.update({sys.intern(name): copy.deepcopy(value) for name, value in kept.items()})
