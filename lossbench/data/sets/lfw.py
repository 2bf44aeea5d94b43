"""Labeled Faces in the Wild, colour: 13,233 pictures of 5,749 people, with the official ten folds of pairs.

Huang, Ramesh, Berg & Learned-Miller, "Labeled Faces in the Wild", University of Massachusetts, report 07-49, 2007.
Without outside data, a network learns people who are in no tested fold: no person is in two folds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from lossbench.core.errors import DataError
from lossbench.data.dataset import Dataset
from lossbench.data.readers.faces import face_split, lfw_pairs, lfw_people, person_labels
from lossbench.data.readers.images import labelled

CLASSES = 423  # people with five pictures or more; fewer where folds are left out


def load(
    root: Path,
    *,
    task: Literal["classification", "verification", "retrieval"] = "classification",
    fold: int | list[int] = 0,
    least: int = 5,
    crop: int = 160,
    align: Literal["centre", "mtcnn"] = "centre",
) -> Dataset:
    """People with at least `least` pictures, centre crops of `crop` pixels at 160×160 (or `size`).

    Classification: every fifth picture of a person is a test picture. Verification: train on the people outside `fold`.
    One fold: its pairs are tested with the threshold of the other nine, the official protocol. A list of folds: train
    on none of them, test each with the threshold of the others in the list. Retrieval: all pictures of the people in
    the pairs of `fold`.
    """
    people = lfw_people(root)
    sources = (root / "lfw", root / "lfw" / "pairs.txt")
    enough = {name: pictures for name, pictures in people.items() if len(pictures) >= least}
    if least < 2 or len(enough) < 2:
        raise DataError(f"least must be at least 2 and leave two people, got {least}, which leaves {len(enough)}")
    if task == "classification":
        every = [(pictures, np.arange(len(pictures)) % 5 == min(4, least - 1)) for pictures in enough.values()]
        learned = [[picture for picture, test in zip(*one, strict=True) if not test] for one in every]
        tests = [[picture for picture, test in zip(*one, strict=True) if test] for one in every]
        splits = [face_split(*labelled(part), crop, align) for part in (learned, tests)]
        return Dataset(splits[0], splits[1], len(enough), sources=sources)
    tested = sorted({fold} if isinstance(fold, int) else set(fold))
    if not tested or not all(0 <= one <= 9 for one in tested):
        raise DataError(f"fold must be a number from 0 to 9 or a list of them, got {fold}")
    test_paths, pairs, folds, names = lfw_pairs(root, people, None if len(tested) == 1 else tested)
    left_out = set().union(*(names[one] for one in tested))
    learned = [pictures for name, pictures in enough.items() if name not in left_out]
    if len(learned) < 2:
        raise DataError(f"only {len(learned)} people with {least} pictures or more are outside the folds {tested}")
    train = face_split(*labelled(learned), crop, align)
    if task == "retrieval":
        unseen = [pictures for name, pictures in people.items() if name in left_out]
        return Dataset(train, face_split(*labelled(unseen), crop, align), len(learned), sources=sources)
    return Dataset(
        train,
        face_split(test_paths, person_labels(test_paths), crop, align),
        len(learned),
        pairs,
        folds,
        tuple(tested),
        sources=sources,
    )
