"""What a trained network is worth: its predictions, how it tells pairs apart, where its features stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lossbench import measure, verification
from lossbench.batches import as_input
from lossbench.data import Dataset, Split
from lossbench.schema import finite_or_none
from lossbench.streams import derive
from lossbench.text import Task
from lossbench.trainee import Trainee

EVALUATION_BATCH = 128  # what it makes stays in a CPU's cache: with 512 features take nearly twice as long
DRAWN = 500  # test features that a record of width 2 keeps


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
        predict: Callable[[Tensor], Tensor] = trainee.loss.logits  # type: ignore[assignment]  # a plugin's method
        parts = (features[start : start + EVALUATION_BATCH] for start in range(0, len(features), EVALUATION_BATCH))
        with torch.no_grad():
            predicted = torch.cat([predict(part).argmax(1) for part in parts]).cpu().numpy()
        return Score(predicted == dataset.test.labels, seen, features, len(np.unique(predicted)))
    assert dataset.pairs is not None and dataset.folds is not None
    scores = verification.cosine_scores(features.cpu().numpy(), dataset.pairs)
    found = verification.verify(scores, dataset.pairs[:, 2].astype(bool), dataset.folds, dataset.tested)
    # Unseen classes have no weight that their features could stand near.
    return Score(found.folds.correct, Seen([], seen.norm), features, verification=found.to_json())


@torch.no_grad()
def features_of(trainee: Trainee, split: Split) -> tuple[Tensor, Seen]:
    """The features (N×M) of a split, in evaluation mode, and how they look."""
    trainee.eval()
    parts = []
    for start in range(0, len(split), EVALUATION_BATCH):
        index = np.arange(start, min(start + EVALUATION_BATCH, len(split)))
        parts.append(trainee.features(as_input(split.gather(index), trainee.device)))
    features = torch.cat(parts)
    angles: list[float | None] = []
    weight = class_weights(trainee)
    labels = torch.from_numpy(split.labels).to(trainee.device)
    if weight is not None and weight.shape[1:] == features.shape[1:] and labels.max() < len(weight):
        angles = measure.mean_angles(features, labels, weight)
    return features, Seen(angles, finite_or_none(float(features.norm(dim=1).double().mean())))


def class_weights(trainee: Trainee) -> Tensor | None:
    """The loss's class weights (C×M), where it has them."""
    weight = getattr(trainee.loss, "weight", None)
    return weight.detach() if isinstance(weight, Tensor) and weight.ndim == 2 else None


def drawable(features: Tensor, labels: NDArray[np.int64], weight: Tensor | None, seed: int) -> dict[str, Any]:
    """Features of length 2 that a picture can show: some of them with their labels, and the class weights."""
    index = np.arange(len(labels))
    if len(index) > DRAWN:
        index = np.sort(np.random.default_rng(derive(seed, "drawn")).choice(index, DRAWN, replace=False))
    shown = [[round(value, 3) for value in row] for row in features[torch.from_numpy(index)].double().tolist()]
    weights = [] if weight is None else [[round(value, 4) for value in row] for row in weight.double().tolist()]
    return {"points": shown, "labels": labels[index].tolist(), "weights": weights}
