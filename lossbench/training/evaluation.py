"""A trained network in evaluation mode: features and predictions, evaluated by its task and the metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lossbench.core import format as text
from lossbench.core.errors import PluginError
from lossbench.core.streams import derive
from lossbench.data import Dataset, Split
from lossbench.metrics import Evaluation
from lossbench.plugins import class_weights
from lossbench.tasks import TASKS, classification
from lossbench.training.batches import as_input
from lossbench.training.state import TrainState

EVALUATION_BATCH = 128  # what it makes stays in a CPU's cache: with 512 features take nearly twice as long
SAMPLE = 10_000  # training images, and held-out ones, that metrics see
DRAWN = 500  # test features that a record of width 2 keeps


class NotFiniteError(ArithmeticError):
    """Features or logits are NaN or infinite in evaluation; argmax would still return a class."""


def evaluate(state: TrainState, dataset: Dataset, task: text.Task) -> Evaluation:
    """Evaluate the test set with the task."""
    network = _Network(state)
    return replace(TASKS[task].evaluate(network, dataset), network=network, images=dataset.test)


def with_training_images(test: Evaluation, state: TrainState, dataset: Dataset, seed: int) -> Evaluation:
    """The same with a sample of training images, and one of images held out of training, for metrics that use them."""
    split = _sample(dataset.train, derive(seed, "angles"))
    train = Evaluation(split.labels, features_of(state, split), test.weights)
    if dataset.held_out is None:
        return replace(test, train=train)
    held_out = _sample(dataset.held_out, derive(seed, "held out"))
    return replace(test, train=train, held_out=classification.classified(_Network(state), held_out))


def _sample(split: Split, stream: int) -> Split:
    if len(split) <= SAMPLE:
        return split
    return split.take(np.sort(np.random.default_rng(stream).choice(len(split), SAMPLE, replace=False)))


@dataclass(frozen=True)
class _Network:
    """A training state as a task sees it."""

    state: TrainState

    @property
    def weights(self) -> Tensor | None:
        state = self.state
        return class_weights.rows(state.loss, state.class_weights, state.classes, state.width)

    def features(self, split: Split) -> Tensor:
        return features_of(self.state, split)

    def logits(self, features: Tensor) -> Tensor:
        starts = range(0, len(features), EVALUATION_BATCH)
        return torch.cat([_logits(self.state, features[start : start + EVALUATION_BATCH]) for start in starts])


@torch.no_grad()
def features_of(state: TrainState, split: Split) -> Tensor:
    """The features (N×M) of a split, in evaluation mode."""
    state.eval()
    parts = []
    for start in range(0, len(split), EVALUATION_BATCH):
        index = np.arange(start, min(start + EVALUATION_BATCH, len(split)))
        parts.append(state.features(as_input(split.gather(index), state.device)))
    return _finite(torch.cat(parts), "a feature")


@torch.no_grad()
def _logits(state: TrainState, features: Tensor) -> Tensor:
    """The logits of each row of features; those that are not B×C are an error."""
    predict: Callable[[Tensor], Tensor] = state.loss.logits  # type: ignore[assignment]  # a plugin's method
    logits = predict(features)
    shape = (len(features), state.classes)
    if not isinstance(logits, Tensor) or logits.shape != shape:
        given = f"a tensor of shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise PluginError(
            f"in evaluation mode logits() of the loss gives {given}; it must be a tensor B×C, here {shape}"
        )
    return _finite(logits, "a logit")


def _finite(values: Tensor, what: str) -> Tensor:
    if not torch.isfinite(values).all():
        raise NotFiniteError(f"{what} in evaluation mode")
    return values


def drawable(test: Evaluation, seed: int) -> dict[str, Any]:
    """Features of length 2 for a figure: a sample of them with their labels, and the class weights, if any."""
    index = np.arange(len(test.labels))
    if len(index) > DRAWN:
        index = np.sort(np.random.default_rng(derive(seed, "drawn")).choice(index, DRAWN, replace=False))
    weights = [] if test.weights is None else _rounded(test.weights, 4)
    points = _rounded(test.features[torch.from_numpy(index)], 3)
    return {"points": points, "labels": test.labels[index].tolist(), "weights": weights}


def _rounded(rows: Tensor, digits: int) -> list[list[float]]:
    return [[round(value, digits) for value in row] for row in rows.double().tolist()]
