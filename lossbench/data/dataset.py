"""A dataset: two splits of uint8 images with int64 labels, and pairs if it can be used for verification.

A plugin's `load` may return images that are made on demand (`Images`: files to decode, characters to draw). The cache
turns them into arrays block by block, so that a dataset may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from lossbench.core.errors import MissingDataError

UNSEEN = ("verification", "retrieval")  # the tasks whose test classes are not trained on


class Images(Protocol):
    """Images made on demand, always the same and in the same order."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, height, width, channels), known before any image is made."""

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        """All images in order, in blocks of any length n: uint8, n×H×W×C."""


@dataclass(frozen=True)
class Split:
    """Images (uint8, N×H×W×C) and their labels (int64, N).

    A subset keeps the whole array, which may be a file larger than memory, and its row numbers: `gather` reads only
    the images of a batch.
    """

    whole: NDArray[np.uint8]
    labels: NDArray[np.int64]
    rows: NDArray[np.int64] | None = None  # into `whole`; None: all of them

    @classmethod
    def of(cls, images: Images | NDArray[np.uint8], labels: NDArray[np.integer[Any]]) -> Split:
        """For a plugin's `load`: an array, or images made on demand. `contract` checks them; nothing is converted."""
        return cls(cast("NDArray[np.uint8]", images), cast("NDArray[np.int64]", labels))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def images(self) -> NDArray[np.uint8]:
        """All images: a view of the whole array, or a copy of a subset."""
        return self.whole if self.rows is None else self.gather(np.arange(len(self)))

    def gather(self, index: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
        """Copies of the images at `index`."""
        found: NDArray[np.uint8] = self.whole[index if self.rows is None else self.rows[index]]
        return np.asarray(found)  # a memory map's rows are ordinary arrays

    def take(self, index: NDArray[np.integer[Any]]) -> Split:
        """The subset at `index`; no image is read."""
        rows = index.astype(np.int64) if self.rows is None else self.rows[index]
        return Split(self.whole, self.labels[index], rows)

    def relabelled(self, new_label: NDArray[np.int64]) -> Split:
        """The same images, label y becoming new_label[y]."""
        return Split(self.whole, new_label[self.labels], self.rows)


@dataclass(frozen=True)
class Dataset:
    """Two splits; labels run from 0 to classes − 1. In verification and retrieval test labels name unseen classes."""

    train: Split
    test: Split
    classes: int
    pairs: NDArray[np.int64] | None = None  # P×3 over test.images: image a, image b, same?
    folds: NDArray[np.int64] | None = None  # P: the fold of each pair
    tested: tuple[int, ...] | None = None  # the folds to test; None: all
    held_out: Split | None = None  # training images that nothing trains or tests on: metrics may fit to them
    unseen: bool = False  # the test classes are not those that are trained on; set from the plugin's option `task`
    augment: tuple[str, ...] = ()  # of training batches
    sources: tuple[Path, ...] = ()  # files or folders it was read from: if they change, it is prepared again
    version: str = ""  # a digest of all arrays, set by the cache

    @cached_property
    def in_shape(self) -> tuple[int, int, int]:
        """(channels, height, width), as a backbone takes it."""
        _, height, width, channels = self.train.whole.shape
        return channels, height, width


def missing(name: str, path: Path) -> MissingDataError:
    """The error for a file or folder of a dataset that can be downloaded."""
    return MissingDataError(f"{name} is not available: {path} is missing; get it with `lossbench data get {name}`")
