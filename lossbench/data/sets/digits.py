"""Handwritten digits, 8×8: 1,201 to train, 596 to test, 10 classes; comes with scikit-learn, offline.

Alpaydin & Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998
(https://doi.org/10.24432/C50P49; CC BY 4.0).
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lossbench.data.dataset import Dataset, Split

CLASSES = 10
FILE = "datasets/data/digits.csv.gz"  # in scikit-learn: 64 pixels from 0 to 16 and the label per line


def load(root: Path) -> Dataset:
    """The set in a fixed stratified split: of each class, every third image is a test image."""
    table = _table()
    images = np.rint(table[:, :-1].reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    labels = table[:, -1].astype(np.int64)
    place_in_class = np.zeros(len(labels), dtype=np.int64)
    for label in range(CLASSES):
        members = np.flatnonzero(labels == label)
        place_in_class[members] = np.arange(len(members))
    is_test = place_in_class % 3 == 2
    return Dataset(Split(images[~is_test], labels[~is_test]), Split(images[is_test], labels[is_test]), CLASSES)


def _table() -> NDArray[np.float64]:
    """The file itself: scikit-learn's function for it takes more than a second to import."""
    found = find_spec("sklearn")
    assert found and found.submodule_search_locations
    with gzip.open(Path(found.submodule_search_locations[0], FILE), "rt") as lines:
        return np.loadtxt(lines, delimiter=",")
