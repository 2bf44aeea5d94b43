"""Your own images in class folders, tested on classes that are not trained on: PATH/CLASS/*.jpg.

Or PATH/train/CLASS/… and PATH/test/CLASS/… with different classes.

As CUB-200-2011, Cars-196 and Stanford Online Products are used for metric learning: the first half of the classes, in
the order of their names, is trained on, the second half is tested.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lossbench.core.errors import DataError
from lossbench.data.dataset import Dataset, Split
from lossbench.data.pairs import drawn_pairs
from lossbench.data.readers.images import Pictures, class_folders, labelled
from lossbench.data.sets.folder import parts_of


def load(
    root: Path,
    *,
    path: str,
    task: Literal["verification", "retrieval"] = "retrieval",
    unseen: float = 0.5,
    pairs_per_fold: int = 600,
    crop: int | None = None,
) -> Dataset:
    """The tree at `path` (relative to the data folder unless absolute).

    Without folders `train` and `test` (or `val`), the last `unseen` share of the classes is tested; with them, no class
    may be in both. `crop` keeps the central square of that many pixels.
    """
    place, sources = parts_of(root, path)
    learned, *rest = (class_folders(part) for part in sources)
    if rest:
        (tested,) = rest
        if shared := sorted(tested.keys() & learned.keys()):
            raise DataError(f"{sources[1] / shared[0]}: this class is also in {sources[0]}; test classes are unseen")
    else:
        if not 0 < unseen < 1:
            raise DataError(f"unseen must be a share of the classes between 0 and 1, got {unseen:g}")
        names = list(learned)
        kept = len(names) - round(unseen * len(names))
        tested = {name: learned.pop(name) for name in names[kept:]}
    if min(len(learned), len(tested)) < 2:
        raise DataError(f"{place}: {len(learned)} classes to train on and {len(tested)} to test; both need two or more")
    train, test = (labelled(list(part.values())) for part in (learned, tested))
    pairs, folds = drawn_pairs(test[1], pairs_per_fold) if task == "verification" else (None, None)
    splits = [Split.of(Pictures(paths, crop=crop), labels) for paths, labels in (train, test)]
    return Dataset(splits[0], splits[1], len(learned), pairs, folds, sources=sources)
