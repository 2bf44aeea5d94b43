"""Handwritten digits, 8×8: 1,201 to train, 596 to test, 10 classes; comes with scikit-learn, offline.

Alpaydin & Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998
(https://doi.org/10.24432/C50P49; CC BY 4.0).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lossbench.data.dataset import Dataset, Split

CLASSES = 10


def load(root: Path) -> Dataset:
    """The set in a fixed stratified split: of each class, every third image is a test image."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = np.rint(pixels.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    labels = labels.astype(np.int64)
    place_in_class = np.zeros(len(labels), dtype=np.int64)
    for label in range(CLASSES):
        members = np.flatnonzero(labels == label)
        place_in_class[members] = np.arange(len(members))
    is_test = place_in_class % 3 == 2
    return Dataset(Split(images[~is_test], labels[~is_test]), Split(images[is_test], labels[is_test]), CLASSES)
