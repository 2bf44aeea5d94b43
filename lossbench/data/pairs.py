"""What is tested of unseen classes: LFW's pairs, fixed random pairs of other datasets, and queries of a retrieval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lossbench.core.errors import DataError
from lossbench.core.files import content

FOLDS = 10


def drawn_pairs(labels: NDArray[np.int64], per_fold: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs (P×3) and their folds (P): in each of ten folds `per_fold` pairs, half of them of one class.

    As in LFW no class is in two folds, so a threshold is never chosen on the classes it is tested on. The pairs depend
    only on the labels and the seed.
    """
    rng = np.random.default_rng(seed)
    present = np.unique(labels)
    if len(present) < 2 * FOLDS:
        raise DataError(
            f"verification needs at least {2 * FOLDS} unseen classes, two per fold; there are {len(present)}"
        )
    shuffled = rng.permutation(present)
    pairs, half = [], per_fold // 2
    for fold in range(FOLDS):
        members = [np.flatnonzero(labels == label) for label in shuffled[fold::FOLDS]]
        several = [images for images in members if len(images) > 1]
        if not several:
            raise DataError("verification needs unseen classes with at least two images each")
        for turn in range(half):
            first, second = rng.choice(several[turn % len(several)], 2, replace=False)
            pairs.append((first, second, 1))
        for _ in range(per_fold - half):
            one, other = rng.choice(len(members), 2, replace=False)
            pairs.append((rng.choice(members[one]), rng.choice(members[other]), 0))
    return np.asarray(pairs, dtype=np.int64), np.repeat(np.arange(FOLDS), per_fold)


def unretrievable(labels: NDArray[np.int64]) -> str:
    """Why images with these labels cannot be retrieved; empty if they can."""
    sizes = np.unique(labels, return_counts=True)[1]
    if len(sizes) > 1 and sizes.max() > 1:
        return ""
    most = sizes.max(initial=0)
    return f"{len(sizes)} unseen classes of at most {most} images; retrieval needs two, one of them with two images"


def read_pairs(path: Path) -> tuple[list[tuple[str, int, str, int]], NDArray[np.int64]]:
    """LFW's pairs.txt: (name a, number, name b, number) for each pair, and the fold of each.

    The first line says how many folds, and how many pairs of one person (three words) and of two (four words) each has.
    """
    try:
        header, *lines = content(path).decode().splitlines()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); it comes with LFW, as pairs.txt") from error
    words = [line.split() for line in lines if line.strip()]
    try:
        folds, same = (int(word) for word in header.split())
        pairs = [
            (row[0], int(row[1]), row[0], int(row[2])) if len(row) == 3 else (row[0], int(row[1]), row[2], int(row[3]))
            for row in words
        ]
    except (ValueError, IndexError) as error:
        raise DataError(f"{path}: is not a list of pairs as LFW publishes it ({error})") from error
    if len(pairs) != 2 * folds * same:
        raise DataError(f"{path}: promises {folds} folds of 2 × {same} pairs, but has {len(pairs)} pairs")
    return pairs, np.repeat(np.arange(folds), 2 * same)
