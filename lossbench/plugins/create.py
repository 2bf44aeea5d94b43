"""Losses and backbones by name, for training loops outside lossbench."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossbench.plugins.registry import Registry

if TYPE_CHECKING:
    from torch import nn

PATIENCE = 100  # training forward passes without advance() before the warning; gradient accumulation needs some


def create_loss(
    name: str, features: int, classes: int, *, plugins: Sequence[str | os.PathLike[str]] = (), **options: Any
) -> nn.Module:
    """A loss by name, for `features`-dimensional features (M) and `classes` classes (C).

    `loss(features, labels)` (B×M, B) is the training loss, `loss.logits(features)` (B×C) the scores without margin.
    Call `loss.begin(steps)` before training and `loss.advance()` after every optimizer step: schedules, class centres
    and running statistics need them. For other losses both do nothing.

    Losses are found in the built-in folder, in `losses/` of the working folder and of each of `plugins`, and in
    installed packages. `options` are the loss's own.
    """
    plugin = _registry(plugins).find("loss", name)
    loss: nn.Module = plugin.load()(features, classes, **plugin.parse_options(options))
    _Steps(name, loss)
    return loss


def create_backbone(
    name: str,
    in_shape: tuple[int, int, int],
    width: int,
    *,
    plugins: Sequence[str | os.PathLike[str]] = (),
    **options: Any,
) -> nn.Module:
    """A backbone by name: images (B, *in_shape) with in_shape = (channels, height, width) → features (B, `width`).

    Backbones are found as `create_loss` finds losses, in folders named `backbones/`.
    """
    plugin = _registry(plugins).find("backbone", name)
    backbone: nn.Module = plugin.load()(tuple(in_shape), width, **plugin.parse_options(options))
    return backbone


def _registry(plugins: Sequence[str | os.PathLike[str]]) -> Registry:
    return Registry([Path.cwd(), *(Path(folder) for folder in plugins)])


class _Steps:
    """Gives a loss `begin` and `advance`, and warns once if the ones it needs are not called."""

    def __init__(self, name: str, loss: nn.Module) -> None:
        self.name = name
        self.own_begin, self.own_advance = getattr(loss, "begin", None), getattr(loss, "advance", None)
        self.begun, self.reminded, self.forwards = False, False, 0
        loss.begin, loss.advance = self.begin, self.advance  # type: ignore[assignment]  # a module has no such field
        if self.own_advance:
            loss.register_forward_hook(self.count)

    def begin(self, steps: int) -> None:
        self.begun = True
        if self.own_begin:
            self.own_begin(steps)

    def advance(self) -> None:
        if self.own_begin and not self.begun:
            self.begun = True
            self._warn("call loss.begin(steps) before training: it sets the length of the loss's schedule")
        self.forwards = 0
        if self.own_advance:
            self.own_advance()

    def count(self, loss: nn.Module, inputs: Any, value: Any) -> None:
        if loss.training and getattr(value, "requires_grad", False):
            self.forwards += 1
            if self.forwards == PATIENCE and not self.reminded:
                self.reminded = True
                self._warn("call loss.advance() after every optimizer step: the loss updates its state there")

    def _warn(self, text: str) -> None:
        warnings.warn(f"loss '{self.name}': {text}", stacklevel=3)
