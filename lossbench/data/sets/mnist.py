"""MNIST handwritten digits, 28×28 gray: 60,000 to train, 10,000 to test, 10 classes.

LeCun, Bottou, Bengio & Haffner, "Gradient-based learning applied to document recognition", Proc. IEEE, 1998.
"""

from __future__ import annotations

from pathlib import Path

from lossbench.data.dataset import Dataset
from lossbench.data.readers.idx import load_idx

CLASSES = 10


def load(root: Path) -> Dataset:
    """The four IDX files in `root`/mnist, plain or gzipped."""
    return load_idx(root / "mnist", "mnist", CLASSES)
