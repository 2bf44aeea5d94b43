"""Fashion-MNIST, pictures of clothes, 28×28 gray: 60,000 to train, 10,000 to test, 10 classes.

Xiao, Rasul & Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
arXiv:1708.07747, 2017 (MIT licence).
"""

from __future__ import annotations

from pathlib import Path

from lossbench.data.dataset import Dataset
from lossbench.data.readers.idx import load_idx

CLASSES = 10


def load(root: Path) -> Dataset:
    """The four IDX files in `root`/fashion_mnist, plain or gzipped."""
    return load_idx(root / "fashion_mnist", "fashion_mnist", CLASSES)
