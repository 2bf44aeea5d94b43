"""CIFAR-10, 32×32 colour: 50,000 to train, 10,000 to test, 10 classes.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", technical report, 2009.
"""

from __future__ import annotations

from pathlib import Path

from lossbench.data.dataset import Dataset
from lossbench.data.readers.cifar import load_cifar

CLASSES = 10


def load(root: Path) -> Dataset:
    """The binary version in `root`/cifar10/cifar-10-batches-bin."""
    train = [f"data_batch_{number}.bin" for number in range(1, 6)]
    return load_cifar(root / "cifar10" / "cifar-10-batches-bin", "cifar10", train, "test_batch.bin", 1, CLASSES)
