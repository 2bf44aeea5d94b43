"""Views of a dataset that copy nothing: chosen classes, stratified subsets, held-out images; augmented batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from lossbench.core.errors import DataError
from lossbench.core.streams import derive
from lossbench.data.dataset import Dataset, Split
from lossbench.data.pairs import drawn_pairs, unretrievable

VALIDATION_PAIRS = 200  # per fold


def chosen_classes(available: int, classes: int | list[int] | None) -> list[int]:
    """The labels that the option `classes` selects: the first k, or those listed."""
    chosen = list(range(available)) if classes is None else classes
    if isinstance(chosen, int):
        if not 2 <= chosen <= available:
            raise DataError(f"classes must be between 2 and {available}, got {chosen}")
        chosen = list(range(chosen))
    if len(chosen) < 2 or len(set(chosen)) < len(chosen) or not all(0 <= label < available for label in chosen):
        raise DataError(f"classes must list at least two different labels from 0 to {available - 1}, got {chosen}")
    return chosen


def only_classes(dataset: Dataset, classes: int | list[int]) -> Dataset:
    """Only the chosen classes, labelled 0…k−1 in the order given; unseen test classes stay unchanged."""
    chosen = chosen_classes(dataset.classes, classes)
    new_label = np.full(dataset.classes, -1, dtype=np.int64)
    new_label[chosen] = np.arange(len(chosen))

    def keep(split: Split) -> Split:
        return split.take(np.flatnonzero(np.isin(split.labels, chosen))).relabelled(new_label)

    test = dataset.test if dataset.unseen else keep(dataset.test)
    return replace(dataset, train=keep(dataset.train), test=test, classes=len(chosen))


def stratified(dataset: Dataset, size: int, seed: int) -> Split:
    """`size` training images with the class proportions of the dataset (largest remainders), drawn by `seed`."""
    split = dataset.train
    if not dataset.classes <= size <= len(split):
        raise DataError(f"train must be between {dataset.classes} (one per class) and {len(split)}, got {size}")
    return split.take(_drawn(split.labels, dataset.classes, size, derive(seed, "subset")))


def balanced(dataset: Dataset, per_class: int, seed: int) -> Split:
    """`per_class` training images of every class, drawn by `seed`."""
    split = dataset.train
    fewest = int(np.bincount(split.labels, minlength=dataset.classes).min())
    if not 1 <= per_class <= fewest:
        raise DataError(f"per_class must be between 1 and {fewest}, the size of the smallest class, got {per_class}")
    rng = np.random.default_rng(derive(seed, "subset"))
    members = (np.flatnonzero(split.labels == label) for label in range(dataset.classes))
    return split.take(np.sort(np.concatenate([rng.choice(own, per_class, replace=False) for own in members])))


def held_out(dataset: Dataset, share: float) -> Dataset:
    """Hold out a share of the training images, always the same, and test on it instead of the test set.

    Classification: that share of every class. Verification and retrieval: that share of the classes; for verification
    with pairs drawn from them.
    """
    if not 0 < share < 1:
        raise DataError(f"validation must be a share of the training images between 0 and 1, got {share:g}")
    split = dataset.train
    if not dataset.unseen:
        train, test = _parted(dataset, share, "validation")
        return replace(dataset, train=train, test=test)
    classes = learned_classes(dataset.classes, share)
    order = np.random.default_rng(derive(0, "validation")).permutation(dataset.classes)
    new_label = np.empty(dataset.classes, dtype=np.int64)
    new_label[order] = np.arange(dataset.classes)
    labels = new_label[split.labels]
    test = split.take(np.flatnonzero(labels >= classes)).relabelled(new_label)
    if dataset.pairs is not None:
        pairs, folds = drawn_pairs(test.labels, VALIDATION_PAIRS)
    elif why := unretrievable(test.labels):
        raise DataError(f"validation = {share:g} of {dataset.classes} classes leaves {why}")
    else:
        pairs, folds = None, None
    train = split.take(np.flatnonzero(labels < classes)).relabelled(new_label)
    return replace(dataset, train=train, test=test, classes=classes, pairs=pairs, folds=folds, tested=None)


def with_holdout(dataset: Dataset, share: float) -> Dataset:
    """Take a share of every class out of the training images, always the same, for metrics that fit to such images."""
    if not 0 < share < 1:
        raise DataError(f"holdout must be a share of the training images between 0 and 1, got {share:g}")
    if dataset.unseen:
        raise DataError("holdout is for classification: no metric of other tasks uses images that were held out")
    train, held_out = _parted(dataset, share, "holdout")
    return replace(dataset, train=train, held_out=held_out)


def _parted(dataset: Dataset, share: float, name: str) -> tuple[Split, Split]:
    """The training images without a share of every class, and that share; `name` is the option that asks for it."""
    split = dataset.train
    size = round(share * len(split))
    if not dataset.classes <= size <= len(split) - dataset.classes:
        raise DataError(f"{name} = {share:g} of {len(split)} images leaves a class without one")
    chosen = _drawn(split.labels, dataset.classes, size, derive(0, name))
    return split.take(np.setdiff1d(np.arange(len(split)), chosen)), split.take(chosen)


def learned_classes(classes: int, share: float) -> int:
    """The number of classes to learn when a share of them is held out to test."""
    return max(2, classes - round(share * classes))


def _drawn(labels: NDArray[np.int64], classes: int, size: int, stream: int) -> NDArray[np.int64]:
    """The sorted indices of `size` examples with the class proportions of `labels`."""
    counts = np.bincount(labels, minlength=classes)
    share = counts * size / len(labels)
    take = np.floor(share).astype(int)
    take[np.argsort(take - share, kind="stable")[: size - take.sum()]] += 1
    rng = np.random.default_rng(stream)
    picked = [rng.choice(np.flatnonzero(labels == label), take[label], replace=False) for label in range(len(counts))]
    return np.sort(np.concatenate(picked))


def augmented(images: NDArray[np.uint8], how: tuple[str, ...], rng: np.random.Generator) -> NDArray[np.uint8]:
    """A randomly changed training batch (B×H×W×C): `flip` (left–right, with probability ½), `crop` (at random, after
    padding by an eighth of the height with black).
    """
    count, height, width, _ = images.shape
    if "flip" in how:
        turned = rng.random(count) < 0.5
        images[turned] = images[turned, :, ::-1]
    if "crop" in how:
        pad = max(1, height // 8)
        padded = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        windows = sliding_window_view(padded, (height, width), axis=(1, 2))  # B × rows × columns × C × H × W
        down, right = rng.integers(0, 2 * pad + 1, (2, count))
        images = np.moveaxis(windows[np.arange(count), down, right], 1, -1)
    return images
