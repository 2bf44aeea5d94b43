"""CASIA-WebFace, colour: 494,414 pictures of 10,575 people to train on; verified on LFW's ten folds of pairs.

Yi, Lei, Liao & Li, "Learning Face Representation from Scratch", arXiv:1411.7923, 2014. People who are also in LFW are
excluded: by a list of folders whose names agree with LFW's, published with the FaceDatasets project (two of its
seventeen are only namesakes; excluding them does no harm), or by a list of your own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lossbench.core.errors import DataError, MissingDataError
from lossbench.data.dataset import Dataset
from lossbench.data.readers.faces import face_split, lfw_pairs, lfw_people, person_labels
from lossbench.data.readers.images import class_folders, labelled

CLASSES = 10558  # of 10,575 folders, 17 are in LFW

IN_LFW = [
    *("0000513", "0004539", "0004763", "0005009", "0005082", "0005172", "0166921", "0208962", "0430107", "0662519"),
    *("0955471", "1056413", "1091782", "1193098", "1303492", "2425974", "3478560"),
]


def load(
    root: Path,
    *,
    task: Literal["classification", "verification", "retrieval"] = "verification",
    exclude: list[str] | None = None,
    least: int = 2,
    crop: int = 160,
    align: Literal["centre", "mtcnn"] = "centre",
) -> Dataset:
    """`root`/casia_webface/PERSON/*.jpg, people with at least `least` pictures; `exclude` replaces the shipped list.

    Verification: train on all of them, test on LFW's 6,000 pairs. Retrieval: test on all pictures of LFW.
    Classification: every fifth is a test picture.
    """
    folder = root / "casia_webface"
    if not folder.is_dir():
        raise MissingDataError(
            f"casia_webface is not available: put its folders, one per person, into {folder}; its publishers require "
            "an agreement, so it cannot be downloaded"
        )
    left_out = set(IN_LFW if exclude is None else exclude)
    everyone = class_folders(folder)
    learned = [pictures for name, pictures in everyone.items() if name not in left_out and len(pictures) >= least]
    if least < 2 or len(learned) < 2:
        raise DataError(f"least must be at least 2 and leave two people, got {least}, which leaves {len(learned)}")
    if task == "classification":
        train = [[p for i, p in enumerate(pictures) if i % 5 != min(4, least - 1)] for pictures in learned]
        test = [pictures[min(4, least - 1) :: 5] for pictures in learned]
        splits = [face_split(*labelled(part), crop, align) for part in (train, test)]
        return Dataset(splits[0], splits[1], len(learned), sources=(folder,))
    people = lfw_people(root)
    if task == "retrieval":
        splits = [face_split(*labelled(part), crop, align) for part in (learned, list(people.values()))]
        return Dataset(splits[0], splits[1], len(learned), sources=(folder, root / "lfw"))
    test_paths, pairs, folds, _ = lfw_pairs(root, people)
    return Dataset(
        face_split(*labelled(learned), crop, align),
        face_split(test_paths, person_labels(test_paths), crop, align),
        len(learned),
        pairs,
        folds,
        sources=(folder, root / "lfw", root / "lfw" / "pairs.txt"),
    )
