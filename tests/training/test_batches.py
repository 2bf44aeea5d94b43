"""Batches are a function of the seed and the step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lossbench.data import Split, load_dataset
from lossbench.training.batches import Batches


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def test_one_seed_gives_every_loss_the_same_batches_whatever_a_loss_draws(digits):
    quiet, noisy = (Batches(digits.train, 16, seed=3) for _ in range(2))
    expected = [quiet.indices(step) for step in range(200)]
    for step in range(200):
        torch.rand(step % 7)
        np.random.rand(step % 5)
        assert np.array_equal(noisy.indices(step), expected[step])


def test_every_epoch_visits_every_image_once():
    split = Split(np.zeros((10, 1, 1, 1), np.uint8), np.zeros(10, np.int64))
    batches = Batches(split, 4, seed=0)
    stream = np.concatenate([batches.indices(step) for step in range(5)])
    assert sorted(stream[:10]) == sorted(stream[10:]) == list(range(10))
    assert not np.array_equal(stream[:10], stream[10:])


def test_a_batch_larger_than_the_set_still_is_full():
    split = Split(np.zeros((3, 1, 1, 1), np.uint8), np.zeros(3, np.int64))
    batches = Batches(split, 8, seed=0)
    assert sorted(np.concatenate([batches.indices(0), batches.indices(1), batches.indices(2)])) == sorted([0, 1, 2] * 8)


def test_a_batch_is_the_image_shifted_and_scaled():
    images = np.array([[[[0], [255]]]], dtype=np.uint8)  # one image of 1×2 pixels
    batch, labels = Batches(Split(images, np.array([4])), 1, 0).at(0)
    assert batch.shape == (1, 1, 1, 2)
    assert batch.flatten().tolist() == [-127.5 / 128, 127.5 / 128]
    assert labels.tolist() == [4]


def test_augmented_batches_are_a_function_of_seed_and_step(digits):
    first, again = (Batches(digits.train, 16, 3, ("flip", "crop")) for _ in range(2))
    plain = Batches(digits.train, 16, 3)
    assert torch.equal(first.at(5)[0], again.at(5)[0])
    assert torch.equal(first.at(5)[1], plain.at(5)[1])
    assert not torch.equal(first.at(5)[0], plain.at(5)[0])
    assert not torch.equal(first.at(5)[0], Batches(digits.train, 16, 4, ("flip", "crop")).at(5)[0])


def test_balanced_batches_have_as_many_examples_of_each_of_their_classes(digits):
    batches = Batches(digits.train, 16, seed=3, per_class=4)
    drawn = [batches.indices(step) for step in range(60)]
    for index in drawn:
        assert len(set(index.tolist())) == 16
        assert sorted(np.bincount(digits.train.labels[index])[np.unique(digits.train.labels[index])]) == [4] * 4
    counts = np.bincount(digits.train.labels[np.concatenate(drawn)], minlength=10) / 4
    assert counts.sum() == 240
    assert counts.min() > 12  # 24 are expected of each class
    again = Batches(digits.train, 16, seed=3, per_class=4)
    assert np.array_equal(again.indices(41), drawn[41])  # a function of the step, in any order
    assert not np.array_equal(Batches(digits.train, 16, seed=4, per_class=4).indices(41), drawn[41])


def test_a_class_with_too_few_examples_repeats_them_and_the_cell_says_so():
    labels = np.array([0, 0, 0, 0, 1, 2, 2, 2])
    split = Split(np.zeros((8, 2, 2, 1), np.uint8), labels)
    batches = Batches(split, 9, seed=0, per_class=3)
    assert batches.small_classes == 1
    index = batches.indices(0)
    assert np.bincount(labels[index]).tolist() == [3, 3, 3]
    assert sorted(index[labels[index] == 1]) == [4, 4, 4]
    assert len(set(index.tolist())) == 7
    assert Batches(split, 3, seed=0, per_class=1).small_classes == 0
    with pytest.raises(ValueError, match="has 4 classes; the training examples have only 3"):
        Batches(split, 4, seed=0, per_class=1)
