"""Omniglot, handwritten characters of 50 alphabets, gray: 1,623 classes of 20 drawings.

Lake, Salakhutdinov & Tenenbaum, "Human-level concept learning through probabilistic program induction", Science, 2015
(MIT licence). In verification and retrieval a network learns the 964 background characters and is tested on the 659
evaluation characters, which are of other alphabets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from lossbench.data.dataset import Dataset, Split, missing
from lossbench.data.pairs import drawn_pairs
from lossbench.data.readers.images import Pictures, class_folders, labelled

CLASSES = 964


def load(
    root: Path,
    *,
    task: Literal["classification", "verification", "retrieval"] = "classification",
    part: Literal["background", "evaluation", "all"] = "background",
    pairs_per_fold: int = 600,
) -> Dataset:
    """Classification: the characters of `part`, every fourth drawing (five drawers of twenty) to test.

    Verification: all background drawings to train, ten folds of `pairs_per_fold` fixed pairs of evaluation characters.
    Retrieval: all evaluation drawings are tested.
    """
    places = {name: root / "omniglot" / f"images_{name}" for name in ("background", "evaluation")}
    wanted = list(places) if part == "all" or task != "classification" else [part]
    for name in wanted:
        if not places[name].is_dir():
            raise missing("omniglot", places[name])
    alphabets = {name: [a for a in sorted(places[name].iterdir()) if a.is_dir()] for name in wanted}
    characters = {name: [p for a in alphabets[name] for p in class_folders(a).values()] for name in wanted}
    sources = tuple(alphabet for name in wanted for alphabet in alphabets[name])
    if task != "classification":
        paths, labels = labelled(characters["background"])
        test_paths, test_labels = labelled(characters["evaluation"])
        pairs, folds = drawn_pairs(test_labels, pairs_per_fold) if task == "verification" else (None, None)
        train, test = (
            Split.of(Pictures(paths, gray=True), labels),
            Split.of(Pictures(test_paths, gray=True), test_labels),
        )
        return Dataset(train, test, len(characters["background"]), pairs, folds, sources=sources)
    every = [drawings for name in wanted for drawings in characters[name]]
    paths, labels = labelled(every)
    is_test = np.concatenate([np.arange(len(drawings)) % 4 == 3 for drawings in every])
    splits = [
        Split.of(Pictures([paths[i] for i in np.flatnonzero(mask)], gray=True), labels[mask])
        for mask in (~is_test, is_test)
    ]
    return Dataset(splits[0], splits[1], len(every), sources=sources)
