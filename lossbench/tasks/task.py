"""The task interface: how to evaluate a trained network, and the main metrics of the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lossbench.data.dataset import Dataset, Split
from lossbench.metrics import Evaluation

if TYPE_CHECKING:
    from torch import Tensor


class Network(Protocol):
    """A trained network in evaluation mode, as a task sees it."""

    @property
    def weights(self) -> Tensor | None:
        """The class weights of its loss (C×M), where it has them."""

    def features(self, split: Split) -> Tensor:
        """The features of a split (N×M)."""

    def logits(self, features: Tensor) -> Tensor:
        """The logits of each row of features (N×C), without margin."""


@dataclass(frozen=True)
class Task:
    """`evaluate` scores a network on the test set of a dataset; `headline` are the names of the main metrics."""

    evaluate: Callable[[Network, Dataset], Evaluation]
    headline: tuple[str, ...]
