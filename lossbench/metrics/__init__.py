"""One file per metric; `lossbench.plugins.metrics` says what a file declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from lossbench.metrics._outputs import Outputs
    from lossbench.metrics._search import Identified, Retrieved


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Evaluation:
    """Outputs of a trained network for a split, in evaluation mode; a metric gets those of the test set."""

    labels: NDArray[np.int64]  # (N,)
    features: Tensor  # N×M, on the device of the network
    weights: Tensor | None  # C×M, the class weights of the loss, where it has them
    known: bool = True  # the labels are those of the classes that it was trained on
    correct: NDArray[np.bool_] | None = None  # of the test set: one bit per example, tested pair, or query
    predicted: NDArray[np.int64] | None = None  # of a classification: the class of each test example
    scores: NDArray[np.float64] | None = None  # of a verification: the cosine of each tested pair
    same: NDArray[np.bool_] | None = None  # whether the two images of each tested pair are of one class
    outputs: Outputs | None = None  # of a classification: its logits without margin, and what they say of each example
    unseen: NDArray[np.bool_] | None = None  # of a verification: the images of tested classes (N,); None: all
    retrieved: Retrieved | None = None  # of a retrieval: the results of its queries
    counts: Mapping[str, int] = field(default_factory=dict)  # how many of what the task tested, and left out
    train: Evaluation | None = None  # of training images, at most `training.evaluation.SAMPLE`
    held_out: Evaluation | None = None  # of training images that were not trained on, where a dataset holds some out
    network: Any = None  # for NEEDS = "model": `features(split)`, and `state` with its `backbone` and `loss`
    images: Any = None  # for NEEDS = "model": the test images, a `lossbench.data.Split`

    @property
    def logits(self) -> Tensor | None:
        """All logits (N×C), computed when a metric asks for them; those of many classes may not fit into memory."""
        return None if self.outputs is None else self.outputs.logits(slice(None))

    @cached_property
    def queries(self) -> Retrieved:
        """The results of a retrieval; from the features, where they are all that was kept."""
        from lossbench.metrics._search import retrieve

        return self.retrieved or retrieve(self.features, self.labels)

    @cached_property
    def searches(self) -> Identified | None:
        """The results of identification on the images of a verification; None where it is not possible."""
        from lossbench.metrics._search import identify

        chosen = slice(None) if self.unseen is None else self.unseen
        return identify(self.features.cpu().numpy()[chosen], self.labels[chosen])

    @cached_property
    def angles(self) -> list[float | None]:
        """Degrees between the features of each class and its weight; empty where they have no weights to compare."""
        from lossbench.metrics._angles import by_class

        if self.weights is None or not self.known:
            return []
        return by_class(self.features, self.labels, self.weights)

    def details(self) -> dict[str, Any]:
        """The part of a record called `verification`, besides the metrics."""
        return {}
