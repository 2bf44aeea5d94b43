"""Name → arrays. A dataset is two splits of uint8 images with int64 labels; nothing here imports torch.

load_dataset("digits").train.images      uint8, N×H×W×C
load_dataset("digits").train.labels      int64, N
load_dataset("digits", classes=5, train=100, seed=0)
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lossbench.errors import DataError
from lossbench.registry import SHARED_DATASET_OPTIONS, Registry
from lossbench.streams import derive


@dataclass(frozen=True)
class Split:
    """Images (uint8, N×H×W×C) and their labels (int64, N)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: NDArray[np.integer[Any]]) -> Split:
        return Split(self.images[index], self.labels[index])


@dataclass(frozen=True)
class Dataset:
    """Two splits; labels run from 0 to classes − 1."""

    train: Split
    test: Split
    classes: int

    @property
    def in_shape(self) -> tuple[int, int, int]:
        """(channels, height, width), as a backbone takes it."""
        _, height, width, channels = self.train.images.shape
        return channels, height, width


def data_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Where data sets lie: `given`, else $LOSSBENCH_DATA, else the user's cache folder."""
    if given:
        return Path(given)
    if named := os.environ.get("LOSSBENCH_DATA"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lossbench"


def load_dataset(
    name: str,
    *,
    seed: int = 0,
    data: str | os.PathLike[str] | None = None,
    registry: Registry | None = None,
    **options: Any,
) -> Dataset:
    """A dataset by name. `train` keeps a stratified subset (drawn by `seed`), `classes` the first k or those listed."""
    plugin = (registry or Registry()).find("dataset", name)
    values = plugin.parse_options(options)
    shared = {key: values.pop(key) for key in SHARED_DATASET_OPTIONS}
    dataset: Dataset = plugin.load()(data_folder(data), **values)
    if shared["classes"] is not None:
        dataset = _only_classes(dataset, shared["classes"])
    if shared["train"] is not None:
        dataset = replace(dataset, train=_stratified(dataset, shared["train"], seed))
    return dataset


def count_classes(name: str, options: dict[str, Any], registry: Registry, data: Path | None = None) -> int:
    """The number of classes, from the plugin's CLASSES where it is fixed, else by looking at the data."""
    plugin = registry.find("dataset", name)
    available = plugin.constants.get("CLASSES")
    if not isinstance(available, int):
        own = {key: value for key, value in options.items() if key not in SHARED_DATASET_OPTIONS}
        available = load_dataset(name, data=data, registry=registry, **own).classes
    return len(_chosen(available, options.get("classes")))


def _chosen(available: int, classes: int | list[int] | None) -> list[int]:
    chosen = list(range(available)) if classes is None else classes
    if isinstance(chosen, int):
        if not 2 <= chosen <= available:
            raise DataError(f"classes must be between 2 and {available}, got {chosen}")
        chosen = list(range(chosen))
    if len(chosen) < 2 or len(set(chosen)) < len(chosen) or not all(0 <= label < available for label in chosen):
        raise DataError(f"classes must list at least two different labels from 0 to {available - 1}, got {chosen}")
    return chosen


def _only_classes(dataset: Dataset, classes: int | list[int]) -> Dataset:
    """The chosen classes alone, labelled 0…k−1 in the order given."""
    chosen = _chosen(dataset.classes, classes)
    new_label = np.full(dataset.classes, -1, dtype=np.int64)
    new_label[chosen] = np.arange(len(chosen))

    def keep(split: Split) -> Split:
        kept = split.take(np.flatnonzero(np.isin(split.labels, chosen)))
        return Split(kept.images, new_label[kept.labels])

    return Dataset(keep(dataset.train), keep(dataset.test), len(chosen))


def _stratified(dataset: Dataset, size: int, seed: int) -> Split:
    """`size` training images, every class in its share (largest remainders), drawn by the seed's own stream."""
    split = dataset.train
    if not dataset.classes <= size <= len(split):
        raise DataError(f"train must be between {dataset.classes} (one a class) and {len(split)}, got {size}")
    counts = np.bincount(split.labels, minlength=dataset.classes)
    share = counts * size / len(split)
    take = np.floor(share).astype(int)
    take[np.argsort(take - share, kind="stable")[: size - take.sum()]] += 1
    rng = np.random.default_rng(derive(seed, "subset"))
    picked = [
        rng.choice(np.flatnonzero(split.labels == label), take[label], replace=False) for label in range(len(counts))
    ]
    return split.take(np.sort(np.concatenate(picked)))
