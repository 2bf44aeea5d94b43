"""What a trained network is worth: its predictions, how it tells pairs apart, where its features stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lossbench.core.errors import PluginError
from lossbench.core.format import Task
from lossbench.core.model import finite_or_none
from lossbench.core.streams import derive
from lossbench.data import Dataset, Split
from lossbench.plugins import class_weights as weights
from lossbench.tasks import verification
from lossbench.training import measure
from lossbench.training.batches import as_input
from lossbench.training.state import Trainee

EVALUATION_BATCH = 128  # what it makes stays in a CPU's cache: with 512 features take nearly twice as long
DRAWN = 500  # test features that a record of width 2 keeps


class NotFiniteError(ArithmeticError):
    """Features or logits are NaN or infinite in evaluation: argmax would take them for a class all the same."""


@dataclass(frozen=True)
class Seen:
    """What the features of a split look like: angles to the own class weight by class, and their mean length."""

    angles: list[float | None]
    norm: float | None


@dataclass(frozen=True)
class Score:
    """One bit a test example (or tested pair), the look of the test features, and the figures of a verification.

    `predicted` is the number of different classes that were predicted: one means that the network has collapsed.
    """

    correct: NDArray[np.bool_]
    seen: Seen
    features: Tensor  # N×M, of the test images
    predicted: int | None = None
    verification: dict[str, Any] = field(default_factory=dict)


def score(trainee: Trainee, dataset: Dataset, task: Task) -> Score:
    """Classification: margin-free prediction of every test image. Verification: the cosine of every pair."""
    features, seen = features_of(trainee, dataset.test)
    if task == "classification":
        parts = (features[start : start + EVALUATION_BATCH] for start in range(0, len(features), EVALUATION_BATCH))
        predicted = torch.cat([_predicted(trainee, part) for part in parts]).cpu().numpy()
        return Score(predicted == dataset.test.labels, seen, features, len(np.unique(predicted)))
    assert dataset.pairs is not None and dataset.folds is not None
    scores = verification.cosine_scores(features.cpu().numpy(), dataset.pairs)
    found = verification.verify(scores, dataset.pairs[:, 2].astype(bool), dataset.folds, dataset.tested)
    # Unseen classes have no weight that their features could stand near.
    return Score(found.folds.correct, Seen([], seen.norm), features, verification=found.to_json())


@torch.no_grad()
def _predicted(trainee: Trainee, features: Tensor) -> Tensor:
    """The class with the largest logit for each row of features; logits that are not B×C are an error."""
    predict: Callable[[Tensor], Tensor] = trainee.loss.logits  # type: ignore[assignment]  # a plugin's method
    logits = predict(features)
    shape = (len(features), trainee.classes)
    if not isinstance(logits, Tensor) or logits.shape != shape:
        given = f"a tensor of shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise PluginError(
            f"in evaluation mode logits() of the loss gives {given}; it must be a tensor B×C, here {shape}"
        )
    return _finite(logits, "a logit").argmax(1)


def _finite(values: Tensor, what: str) -> Tensor:
    if not torch.isfinite(values).all():
        raise NotFiniteError(f"{what} in evaluation mode")
    return values


@torch.no_grad()
def features_of(trainee: Trainee, split: Split) -> tuple[Tensor, Seen]:
    """The features (N×M) of a split, in evaluation mode, and how they look."""
    trainee.eval()
    parts = []
    for start in range(0, len(split), EVALUATION_BATCH):
        index = np.arange(start, min(start + EVALUATION_BATCH, len(split)))
        parts.append(trainee.features(as_input(split.gather(index), trainee.device)))
    features = _finite(torch.cat(parts), "a feature")
    angles: list[float | None] = []
    weight = class_weights(trainee)
    labels = torch.from_numpy(split.labels).to(trainee.device)
    if weight is not None and labels.max() < len(weight):
        angles = measure.mean_angles(features, labels, weight)
    return features, Seen(angles, finite_or_none(float(features.norm(dim=1).double().mean())))


def class_weights(trainee: Trainee) -> Tensor | None:
    """The loss's class weights (C×M), where it has them."""
    return weights.rows(trainee.loss, trainee.class_weights, trainee.classes, trainee.width)


def drawable(features: Tensor, labels: NDArray[np.int64], weight: Tensor | None, seed: int) -> dict[str, Any]:
    """Features of length 2 that a picture can show: some of them with their labels, and the class weights."""
    index = np.arange(len(labels))
    if len(index) > DRAWN:
        index = np.sort(np.random.default_rng(derive(seed, "drawn")).choice(index, DRAWN, replace=False))
    shown = [[round(value, 3) for value in row] for row in features[torch.from_numpy(index)].double().tolist()]
    weights = [] if weight is None else [[round(value, 4) for value in row] for row in weight.double().tolist()]
    return {"points": shown, "labels": labels[index].tolist(), "weights": weights}
