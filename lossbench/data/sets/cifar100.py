"""CIFAR-100, 32×32 colour: 50,000 to train, 10,000 to test, 100 classes.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", technical report, 2009.
"""

from __future__ import annotations

from pathlib import Path

from lossbench.data.dataset import Dataset
from lossbench.data.readers.cifar import load_cifar

CLASSES = 100


def load(root: Path) -> Dataset:
    """The binary version in `root`/cifar100/cifar-100-binary."""
    return load_cifar(root / "cifar100" / "cifar-100-binary", "cifar100", ["train.bin"], "test.bin", 2, CLASSES)
