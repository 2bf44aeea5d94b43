"""Your own images in class folders: PATH/CLASS/*.jpg, or PATH/train/CLASS/… and PATH/test/CLASS/….

The classes are the folders, in the order of their names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lossbench.core.errors import DataError
from lossbench.core.files import is_folder
from lossbench.data.dataset import Dataset, Split
from lossbench.data.readers.images import Pictures, class_folders, labelled


def load(root: Path, *, path: str, every: int = 5, crop: int | None = None) -> Dataset:
    """The tree at `path` (relative to the data folder unless absolute).

    Without folders `train` and `test` (or `val`), every `every`-th picture of a class is a test picture. `crop` keeps
    the central square of that many pixels.
    """
    place, sources = parts_of(root, path)
    train, *rest = (class_folders(part) for part in sources)
    if rest:
        (test,) = rest
        if unknown := sorted(test.keys() - train.keys()):
            raise DataError(f"{sources[1] / unknown[0]}: this class has no pictures in {sources[0]}")
    else:
        if every < 2:
            raise DataError(f"every must be at least 2, got {every}: each class keeps pictures to train on")
        test = {name: paths[every - 1 :: every] for name, paths in train.items()}
        train = {name: [p for i, p in enumerate(paths) if i % every != every - 1] for name, paths in train.items()}
    names = list(train)
    if len(names) < 2:
        raise DataError(f"{place}: has only one class folder with pictures; at least two are needed")
    paths, labels = labelled(list(train.values()))
    test_paths, test_labels = labelled([test.get(name, []) for name in names])
    if not test_paths:
        raise DataError(f"{place}: no class has the {every} pictures that would make one of them a test picture")
    return Dataset(
        Split.of(Pictures(paths, crop=crop), labels),
        Split.of(Pictures(test_paths, crop=crop), np.asarray(test_labels)),
        len(names),
        sources=sources,
    )


def parts_of(root: Path, path: str) -> tuple[Path, tuple[Path, ...]]:
    """The tree at `path`, and its folders `train` and `test` (or `val`); the tree itself if it has not both."""
    place = root / path
    if not is_folder(place):
        raise DataError(f"folder: no such directory: {place} (a relative path is resolved against the data folder)")
    test = next((place / name for name in ("test", "val") if (place / name).is_dir()), place / "test")
    parts = (place / "train", test)
    return place, parts if all(part.is_dir() for part in parts) else (place,)
