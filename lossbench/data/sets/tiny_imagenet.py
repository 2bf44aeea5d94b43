"""Tiny ImageNet, 64×64 colour: 200 classes of 500 pictures to train and 50 to test (or the part of it that is present).

Le & Yang, "Tiny ImageNet Visual Recognition Challenge", Stanford CS 231N, 2015. The test labels are not public: as
usual the validation pictures are the test set.
"""

from __future__ import annotations

from pathlib import Path

from lossbench.core.errors import DataError
from lossbench.core.files import content
from lossbench.data.dataset import Dataset, Split, missing
from lossbench.data.readers.images import Pictures, class_folders, labelled

CLASSES = 200


def load(root: Path, *, folder: str | None = None) -> Dataset:
    """`root`/`folder`, by default the tiny-imagenet-… folder with the most classes."""
    found = [root / folder] if folder else list(root.glob("tiny-imagenet-*/train"))
    if not found:
        raise missing("tiny_imagenet", root / "tiny-imagenet-200")
    place = found[0] if folder else max(found, key=lambda train: (len(list(train.iterdir())), train.name)).parent
    train = class_folders(place / "train")
    names = sorted(train)
    annotations = place / "val" / "val_annotations.txt"
    try:
        rows = [line.split("\t") for line in content(annotations).decode().splitlines() if line]
        test = {name: [annotations.parent / "images" / row[0] for row in rows if row[1] == name] for name in names}
    except (OSError, UnicodeDecodeError, IndexError) as error:
        raise DataError(
            f"{annotations}: cannot be read ({error}); it has the labels of the validation pictures"
        ) from error
    paths, labels = labelled([train[name] for name in names])
    test_paths, test_labels = labelled([test[name] for name in names])
    return Dataset(
        Split.of(Pictures(paths), labels),
        Split.of(Pictures(test_paths), test_labels),
        len(names),
        sources=(place / "train", annotations),
    )
