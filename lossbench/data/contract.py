"""Validates what a dataset plugin returns before training. Nothing is cast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lossbench.core.errors import DataError, LossbenchError
from lossbench.data.dataset import UNSEEN, Dataset, Images, Split
from lossbench.data.pairs import unretrievable
from lossbench.data.readers.images import Pictures

IMAGES = "images must be uint8 of shape N×H×W×C"
LABELS = "labels must be a 1-D array of integers, one per image"
PAIRS = "pairs must be integers of shape P×3: two test images and 1 (same class) or 0 (different)"
FOLDS = "folds must be a 1-D array of integers, one per pair"


def counted(returned: Any, origin: Path) -> int:
    """The number of classes of what the plugin file `origin` returned; no image is read."""
    if not isinstance(returned, Dataset):
        raise _refused(origin, f"{_form(returned)}; it must be a lossbench.data.Dataset")
    classes = returned.classes
    if isinstance(classes, bool) or not isinstance(classes, int | np.integer) or classes < 2:
        raise _refused(origin, f"classes = {classes!r}; it must be a whole number, 2 or more")
    return int(classes)


def checked(returned: Any, origin: Path, task: str | None) -> Dataset:
    """Check what the plugin file `origin` returned for a `task` (None: the plugin has no such option).

    Labels, pairs and folds of any integer type become int64.
    """
    classes = counted(returned, origin)
    dataset: Dataset = returned
    try:
        unseen = task in UNSEEN or (dataset.pairs is not None and task != "classification")
        train = _split("train", dataset.train, origin, classes)
        test = _split("test", dataset.test, origin, None if unseen else classes)
        _check_every_class(train.labels, classes)
        if task == "verification" and dataset.pairs is None:
            raise ValueError("no pairs, but the task is verification; give Dataset its pairs and folds")
        if task == "retrieval" and (why := unretrievable(test.labels)):
            raise ValueError(why)
        pairs, folds, tested = _pairs(dataset, len(test))
        sources: Any = dataset.sources
        if not isinstance(sources, list | tuple) or not all(isinstance(path, Path) for path in sources):
            raise ValueError(f"sources = {sources!r}; it must be a tuple of pathlib.Path")
    except ValueError as error:
        raise _refused(origin, str(error)) from error
    dataset = replace(dataset, train=train, test=test, classes=classes, unseen=unseen)
    return replace(dataset, pairs=pairs, folds=folds, tested=tested)


@dataclass(frozen=True)
class Watched:
    """Images that a plugin makes on demand, each block checked."""

    images: Images
    shape: tuple[int, int, int, int]
    origin: Path

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        promised, done = self.shape[0], 0
        for block in self._made():
            if not _is_array(block) or block.dtype != np.uint8 or block.shape[1:] != self.shape[1:] or block.ndim != 4:
                wanted = f"uint8 of shape {_times(('n', *self.shape[1:]))}"
                raise DataError(f"{self.origin}: blocks() yielded {_form(block)}; every block must be {wanted}")
            done += len(block)
            if done > promised:
                raise DataError(f"{self.origin}: promised {promised} images but gave {done} or more")
            yield block
        if done < promised:
            raise DataError(f"{self.origin}: promised {promised} images but gave {done}")

    def _made(self) -> Iterator[Any]:
        """The plugin's blocks; what it raises becomes a DataError."""
        try:
            yield from self.images.blocks()
        except LossbenchError:
            raise
        except Exception as error:
            raise DataError(f"{self.origin}: blocks() fails ({type(error).__name__}: {error})") from error


def _split(part: str, split: Any, origin: Path, classes: int | None) -> Split:
    """Check one split; its labels must be below `classes`, if given."""
    if not isinstance(split, Split):
        raise ValueError(f"{_form(split)} as {part}; it must be Split.of(images, labels)")
    labels = split.labels
    if not _is_array(labels) or labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"{part} labels that are {_form(labels)}; {LABELS}")
    if not len(labels):
        raise ValueError(f"an empty {part} split; it needs at least one image")
    if split.rows is not None and _is_array(split.whole):
        split = Split(split.images, labels)
    shape = _shape(part, split.whole)
    if split.rows is not None or shape[0] != len(labels):
        raise ValueError(f"{shape[0]} {part} images with {len(labels)} labels; {LABELS}")
    low, high = int(labels.min()), int(labels.max())
    most = np.iinfo(np.int64).max if classes is None else classes - 1
    if low < 0 or high > most:
        allowed = "0 or more" if classes is None else f"0…{most} (classes = {classes})"
        raise ValueError(f"{part} labels from {low} to {high}; they must be {allowed}")
    made = isinstance(split.whole, np.ndarray | Pictures)  # these are uint8 of one shape
    images = split.whole if made else cast("NDArray[np.uint8]", Watched(cast("Images", split.whole), shape, origin))
    return Split(images, labels.astype(np.int64, copy=False))


def _shape(part: str, images: Any) -> tuple[int, int, int, int]:
    """The shape N×H×W×C of images."""
    if _is_array(images):
        shape = images.shape
        if images.dtype != np.uint8:
            hint = "; scale to 0…255, round and convert with .astype(np.uint8)" if images.dtype.kind == "f" else ""
            raise ValueError(f"{part} images that are {_form(images)}; {IMAGES}{hint}")
    elif callable(getattr(images, "blocks", None)):
        try:
            shape = images.shape
        except LossbenchError:
            raise
        except Exception as error:
            raise ValueError(f"{part} images whose shape fails ({type(error).__name__}: {error}); {IMAGES}") from error
    else:
        raise ValueError(f"{part} images that are {_form(images)}; {IMAGES}")
    whole = isinstance(shape, tuple) and all(isinstance(side, int | np.integer) for side in shape)
    if not whole or len(shape) != 4 or min(shape) < 1:
        hint = "; add the channel axis with images[..., None]" if whole and len(shape) == 3 else ""
        told = f"of shape {_times(shape)}" if whole else f"with shape = {shape!r}"
        raise ValueError(f"{part} images {told}; {IMAGES}{hint}")
    count, height, width, channels = shape
    return int(count), int(height), int(width), int(channels)


def _check_every_class(labels: NDArray[np.int64], classes: int) -> None:
    present = np.unique(labels)
    if len(present) < classes:
        absent = next((place for place, label in enumerate(present) if place != label), len(present))
        raise ValueError(f"no training image of class {absent}; every class 0…{classes - 1} needs at least one")


def _pairs(
    dataset: Dataset, images: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None, tuple[int, ...] | None]:
    """Check pairs, folds and tested folds: each tested fold needs others to take its threshold from."""
    pairs: Any = dataset.pairs
    folds: Any = dataset.folds
    tested: Any = dataset.tested
    if pairs is None:
        if folds is not None or tested is not None:
            raise ValueError("folds without pairs; give both or neither")
        return None, None, None
    if not _is_array(pairs) or pairs.dtype.kind not in "iu" or pairs.ndim != 2 or pairs.shape[1] != 3 or not len(pairs):
        raise ValueError(f"pairs that are {_form(pairs)}; {PAIRS}")
    if not _is_array(folds) or folds.dtype.kind not in "iu" or folds.shape != pairs.shape[:1]:
        raise ValueError(f"folds that are {_form(folds)} for {len(pairs)} pairs; {FOLDS}")
    named, same = pairs[:, :2], pairs[:, 2]
    if named.min() < 0 or named.max() >= images:
        raise ValueError(f"pairs of test images {named.min()}…{named.max()}; there are {images}, 0…{images - 1}")
    if odd := sorted(set(np.unique(same).tolist()) - {0, 1}):
        raise ValueError(f"{odd[0]} in the third column of pairs; it must be 1 (same class) or 0 (different)")
    known, place = np.unique(folds, return_inverse=True)
    chosen = list(known) if tested is None else list(tested)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(known.tolist()):
        raise ValueError(f"tested = {tested!r}; it must name folds of {_listed(known)}, each once")
    counts = np.stack([np.bincount(place, same == kind, len(known)) for kind in (0, 1)])  # kind × fold
    is_tested = np.isin(known, chosen)
    for kind, word in enumerate(("different", "same")):
        others = counts[kind].sum() - counts[kind]
        if alone := known[is_tested & (others == 0)].tolist():
            raise ValueError(f"no pair of class '{word}' outside fold {alone[0]}, whose threshold needs them")
        if not counts[kind][is_tested].sum():
            raise ValueError(f"no pair of class '{word}' in the tested folds; both kinds are needed")
    whole = None if tested is None else tuple(int(fold) for fold in tested)
    return pairs.astype(np.int64, copy=False), folds.astype(np.int64, copy=False), whole


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)


def _form(value: Any) -> str:
    """The dtype and shape of an array, the type of anything else."""
    if _is_array(value):
        return f"{value.dtype} of shape {_times(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _times(shape: Any) -> str:
    return "×".join(map(str, shape)) or "()"


def _listed(values: NDArray[Any]) -> str:
    shown = ", ".join(map(str, values[:12].tolist()))
    return shown + (", …" if len(values) > 12 else "")


def _refused(origin: Path, got: str) -> DataError:
    return DataError(f"{origin}: load returned {got}")
