"""CIFAR's binary archives: rows of label bytes and 3×32×32 pixel bytes. The pickled form is never read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lossbench.core.errors import DataError
from lossbench.data.dataset import Dataset, Split, missing

PIXELS = 3 * 32 * 32


def load_cifar(folder: Path, name: str, train: Sequence[str], test: str, label_bytes: int, classes: int) -> Dataset:
    """The binary batches in `folder`; the label is the last of `label_bytes` (CIFAR-100 has a coarse one before it)."""
    files = [folder / file for file in (*train, test)]
    for path in files:
        if not path.is_file():
            raise missing(name, path)
    splits = []
    for part in (files[:-1], files[-1:]):
        rows = []
        for path in part:
            content = np.fromfile(path, dtype=np.uint8)
            if not len(content) or len(content) % (PIXELS + label_bytes):
                raise DataError(f"{path}: is truncated, or not a batch of CIFAR's binary version")
            rows.append(content.reshape(-1, PIXELS + label_bytes))
        batch = np.concatenate(rows)
        labels, pixels = batch[:, label_bytes - 1], batch[:, label_bytes:].reshape(-1, 3, 32, 32)
        if labels.max() >= classes:
            raise DataError(f"{part[0]}: has the label {labels.max()}, but {name} has only {classes} classes")
        splits.append(Split.of(pixels.transpose(0, 2, 3, 1), labels))
    return Dataset(splits[0], splits[1], classes, sources=tuple(files))
