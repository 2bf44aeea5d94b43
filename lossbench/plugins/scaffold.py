"""`lossbench new KIND NAME`: a plugin file that works, passes `lossbench check` and is ready to be changed."""

from __future__ import annotations

import keyword
from pathlib import Path

from lossbench.core.errors import PluginError
from lossbench.plugins.registry import FOLDER, Kind, Registry

LOSS = '''\
"""{name}: softmax over cosines, the cosine to the true class lowered by a margin (describe yours here).

    L = −log softmax(s·z)_y,   z_y = cos θ_y − m,   z_j = cos θ_j  (j ≠ y)

Wang et al., "CosFace: Large Margin Cosine Loss for Deep Face Recognition", CVPR 2018 (cite your own source here).
"""

import torch.nn.functional as F
from torch import nn

from lossbench.margin import check_labels, full_precision, init_weight, replace_target

MARGIN_OFF = {{"m": 0.0}}  # option values without a margin: `lossbench check` tests what the margin does
RANGES = {{"m": (0.1, 0.5), "s": (4.0, 64.0)}}  # what a suite may tune: (low, high), or a list of choices


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, m: float = 0.35, s: float = 16.0) -> None:  # m, s: its options
        super().__init__()
        self.m, self.s = m, s
        self.weight = init_weight(classes, features)  # one row per class

    def logits(self, features):  # for prediction: without labels or margin
        return self.s * F.linear(F.normalize(features), F.normalize(self.weight))

    def forward(self, features, labels):  # for training
        check_labels(labels, len(self.weight))
        scores = full_precision(self.logits(features))
        target = scores.gather(1, labels[:, None])[:, 0] - self.s * self.m
        return F.cross_entropy(replace_target(scores, labels, target), labels)
'''

BACKBONE = '''\
"""{name}: two convolutions, the mean over the image, one FC layer (describe yours here in one line)."""

import torch
from torch import nn


class Backbone(nn.Module):
    # The suite gives in_shape = (channels, height, width) of the images and width, the length of the feature vector.
    # Keyword-only arguments are the backbone's options; each needs a type and a default.
    def __init__(self, in_shape: tuple[int, int, int], width: int, *, channels: int = 16) -> None:
        super().__init__()
        if channels < 1:
            raise ValueError(f"channels must be at least 1, got {{channels}}")  # shown as an error in the suite file
        layers = []
        for incoming, outgoing in ((in_shape[0], channels), (channels, 2 * channels)):
            layers += [nn.Conv2d(incoming, outgoing, 3, stride=2, padding=1), nn.BatchNorm2d(outgoing), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.fc = nn.Linear(2 * channels, width)  # the last layer has this name: reports state its memory

    def forward(self, images: torch.Tensor) -> torch.Tensor:  # B×channels×height×width, pixels (value − 127.5)/128
        return self.fc(self.body(images).mean(dim=(2, 3)))  # B×width
'''

DATASET = '''\
"""{name}: bright bars on noise, 8×8 gray, 4 classes (describe yours here in one line)."""

from pathlib import Path

import numpy as np

from lossbench.data import Dataset, Split

CLASSES = 4  # known without loading, so that a suite can be planned without the data


def load(root: Path, *, noise: float = 0.5) -> Dataset:  # keyword-only arguments are its options
    # Read your files from `root`, the data folder; for a missing one raise lossbench.core.errors.MissingDataError.
    # An option `task: Literal["classification", "retrieval"] = "classification"` is set to the experiment's task: for
    # "retrieval" return test images of classes that are not trained on.
    splits = []
    for seed, per_class in ((0, 100), (1, 25)):  # train, test
        labels = np.repeat(np.arange(CLASSES), per_class)  # integers from 0 to CLASSES − 1
        images = noise * np.random.default_rng(seed).random((len(labels), 8, 8, 1))  # N×height×width×channels
        images[np.arange(len(labels)), 2 * labels] += 1 - noise  # class k: row 2k is bright
        splits.append(Split.of((255 * np.clip(images, 0, 1)).astype(np.uint8), labels))  # pixels are uint8
    return Dataset(splits[0], splits[1], CLASSES)  # add sources=(path,): loaded again when that file changes
'''

METRIC = '''\
"""{name}: how far the test features are from the mean of the k nearest classes (describe yours here in one line)."""

import torch

UNIT, BETTER, TASKS = "", "lower", ("classification",)  # or "points", "degrees", …; or "higher"
NEEDS = "features"  # what it is computed from: "predictions", "features" or "model"


def measure(test, *, k: int = 1):  # keyword-only arguments are its options
    # test.labels (N), test.predicted (N), test.features (N×M), test.weights (C×M or None), and test.train, the same of
    # training images. Return a number (None: it does not exist for this network), or one value per test example.
    labels = torch.from_numpy(test.train.labels)
    means = torch.stack([test.train.features[labels == label].mean(0) for label in labels.unique()])
    distances = torch.cdist(test.features, means)  # N×C
    return distances.topk(k, largest=False).values.mean(1)
'''

TEMPLATES: dict[Kind, str] = {"loss": LOSS, "backbone": BACKBONE, "dataset": DATASET, "metric": METRIC}


def new(kind: Kind, name: str, folder: Path | str) -> Path:
    """Write a working plugin, such as `folder`/losses/`name`.py; PluginError if the name is invalid or taken."""
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name) or name.startswith("_"):
        raise PluginError(f"'{name}' cannot name a {kind}: use letters, digits and _, and begin with a letter")
    path = Path(folder) / FOLDER[kind] / f"{name}.py"
    if path.exists():
        raise PluginError(f"{path}: already exists; it was not changed")
    if name in Registry().names(kind):
        raise PluginError(f"'{name}' is the name of an existing {kind}; choose another")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATES[kind].format(name=name))
    except OSError as error:
        raise PluginError(f"{path}: cannot be written ({error.strerror})") from error
    return path
