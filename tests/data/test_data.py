"""Datasets are arrays of the promised shape, and their subsets are fair and repeatable."""

from __future__ import annotations

import numpy as np
import pytest

import lossbench
from lossbench.core.errors import LossbenchError
from lossbench.data import count_classes, data_folder


def test_digits_have_the_public_form():
    digits = lossbench.load_dataset("digits")
    assert digits.classes == 10
    assert digits.train.images.dtype == np.uint8
    assert digits.train.images.shape[1:] == (8, 8, 1)
    assert digits.train.labels.dtype == np.int64
    assert len(digits.train) + len(digits.test) == 1797
    assert digits.train.images.max() == 255


def test_train_and_test_share_no_image_beyond_the_doubles_of_the_source():
    digits = lossbench.load_dataset("digits")
    train = {image.tobytes() for image in digits.train.images}
    assert sum(image.tobytes() in train for image in digits.test.images) == 0


def test_a_subset_is_stratified_and_drawn_by_its_seed():
    full = lossbench.load_dataset("digits")
    subset = lossbench.load_dataset("digits", train=100, seed=1)
    share = np.bincount(full.train.labels) / len(full.train) * 100
    assert len(subset.train) == 100
    assert np.abs(np.bincount(subset.train.labels) - share).max() < 1
    assert len(subset.test) == len(full.test)
    same = lossbench.load_dataset("digits", train=100, seed=1)
    other = lossbench.load_dataset("digits", train=100, seed=2)
    assert (same.train.images == subset.train.images).all()
    assert not np.array_equal(other.train.images, subset.train.images)


def test_so_many_of_each_class_are_drawn_by_the_seed():
    few = lossbench.load_dataset("digits", per_class=7, classes=4, seed=1)
    assert np.bincount(few.train.labels).tolist() == [7, 7, 7, 7]
    same, other = (lossbench.load_dataset("digits", per_class=7, classes=4, seed=seed) for seed in (1, 2))
    assert (same.train.images == few.train.images).all()
    assert not np.array_equal(other.train.images, few.train.images)


def test_a_held_out_part_is_always_the_same_and_never_meets_the_test_set():
    full = lossbench.load_dataset("digits")
    first, second = (lossbench.load_dataset("digits", validation=0.25, train=200, seed=seed) for seed in (1, 2))
    assert (first.test.images == second.test.images).all()  # so that trials are compared on the same images
    assert len(first.test) == round(0.25 * len(full.train))
    share = np.bincount(full.train.labels) * 0.25
    assert np.abs(np.bincount(first.test.labels) - share).max() < 1
    held = {image.tobytes() for image in first.test.images}
    assert not held & {image.tobytes() for image in full.test.images}
    rest = lossbench.load_dataset("digits", validation=0.25)
    assert len(rest.train) + len(rest.test) == len(full.train)
    assert not held & {image.tobytes() for image in rest.train.images}


def test_held_out_images_are_neither_trained_nor_tested_on():
    full = lossbench.load_dataset("digits")
    first, second = (lossbench.load_dataset("digits", holdout=0.25, train=200, seed=seed) for seed in (1, 2))
    assert full.held_out is None and (first.held_out.images == second.held_out.images).all()
    assert np.abs(np.bincount(first.held_out.labels) - 0.25 * np.bincount(full.train.labels)).max() < 1
    assert len(first.train) == 200 and (first.test.images == full.test.images).all()
    rest = lossbench.load_dataset("digits", holdout=0.25)
    assert sorted(map(bytes, [*rest.train.images, *rest.held_out.images])) == sorted(map(bytes, full.train.images))
    both = lossbench.load_dataset("digits", holdout=0.25, validation=0.25)
    assert len(both.held_out) == round(0.25 * (len(full.train) - len(both.test)))
    assert len(both.train) + len(both.held_out) + len(both.test) == len(full.train)


def test_nothing_is_held_out_of_a_verification():
    with pytest.raises(LossbenchError, match="holdout is for classification"):
        lossbench.load_dataset("glyphs", task="verification", classes=120, size=12, holdout=0.1)


def test_classes_are_held_out_where_pairs_are_told_apart(registry):
    options = {"task": "verification", "classes": 120, "size": 12}
    full = lossbench.load_dataset("glyphs", **options)
    part = lossbench.load_dataset("glyphs", validation=0.25, **options)
    assert (part.classes, len(np.unique(part.test.labels))) == (90, 30)
    assert set(part.train.labels) == set(range(90)) and part.test.labels.min() == 90
    assert len(part.train) + len(part.test) == len(full.train)
    same = part.pairs[:, 2] == 1
    labels = part.test.labels[part.pairs[:, :2]]
    assert ((labels[:, 0] == labels[:, 1]) == same).all() and same.mean() == 0.5
    plugin = registry.find("dataset", "glyphs")
    assert count_classes("glyphs", plugin.parse_options({"validation": 0.25, **options}), registry) == 90


def test_the_first_k_classes_or_a_list_are_relabelled_from_zero(registry):
    three = lossbench.load_dataset("digits", classes=3)
    assert (three.classes, set(three.train.labels), set(three.test.labels)) == (3, {0, 1, 2}, {0, 1, 2})
    listed = lossbench.load_dataset("digits", classes=[7, 2])
    full = lossbench.load_dataset("digits")
    assert (listed.train.labels == 0).sum() == (full.train.labels == 7).sum()
    assert count_classes("digits", {"classes": [7, 2]}, registry) == 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"train": 5}, "between 10"),
        ({"train": 5000}, "and 1201"),
        ({"classes": 11}, "between 2 and 10"),
        ({"per_class": 0}, "between 1 and"),
        ({"per_class": 5000}, "the size of the smallest class"),
        ({"per_class": 5, "train": 50}, "either train or per_class"),
        ({"validation": 1.0}, "between 0 and 1"),
        ({"validation": 0.001}, "leaves a class without one"),
        ({"holdout": 0.0}, "holdout must be a share of the training images between 0 and 1, got 0"),
        ({"holdout": 0.999}, "holdout = 0.999 of 1201 images leaves a class without one"),
        ({"classes": [1, 1]}, "different labels"),
        ({"classes": [1, 12]}, "0 to 9"),
        ({"trian": 5}, "did you mean 'train'"),
    ],
)
def test_impossible_subsets_are_refused_in_a_sentence(options, problem):
    with pytest.raises(LossbenchError, match=problem):
        lossbench.load_dataset("digits", **options)


def test_the_data_folder_is_the_given_one_then_the_environments(monkeypatch, tmp_path):
    monkeypatch.setenv("LOSSBENCH_DATA", str(tmp_path))
    assert data_folder("here").name == "here"
    assert data_folder() == tmp_path
    monkeypatch.delenv("LOSSBENCH_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache" / "lossbench"
