"""What a dataset plugin returns is what the contract allows, or is refused in one sentence before anything trains."""

from __future__ import annotations

import numpy as np
import pytest

import lossbench
from lossbench import data
from lossbench.core.errors import DataError
from lossbench.data import cache, count_classes
from lossbench.plugins.registry import Registry

PLUGIN = '''"""A dataset for a test."""
from pathlib import Path
import numpy as np
from lossbench.data.dataset import Dataset, Split

class Made:
    def __init__(self, *blocks, shape=(12, 8, 8, 1)): self.made, self.shape = blocks, shape
    def blocks(self): return iter(self.made)

def load(root: Path{options}):
    images = np.arange(12 * 64, dtype=np.uint32).astype(np.uint8).reshape(12, 8, 8, 1)
    labels = np.arange(12) % 3
    pairs = np.array([[0, 3, 1], [0, 1, 0], [4, 7, 1], [5, 6, 0]])
    folds = np.array([0, 0, 1, 1])
    classes, tested, sources = 3, None, ()
    test = Split.of(images, labels)
    {change}
    train = Split.of(images, labels)
    return Dataset(train, test, classes, sources=sources)
'''
PAIRED = "return Dataset(Split.of(images, labels), test, classes, pairs, folds, tested)"
TASK = ', *, task: str = "verification"'


@pytest.fixture
def returned(tmp_path, monkeypatch):
    """What `load_dataset` makes of a plugin with one line changed; in this process, which saves a start per case."""
    monkeypatch.setattr(data, "_done", lambda plugin, registry, job, progress: data.done_apart(plugin, job, progress))

    def load(change="pass", options="", **given):
        (tmp_path / "datasets").mkdir(exist_ok=True)
        (tmp_path / "datasets" / "mine.py").write_text(PLUGIN.format(change=change, options=options))
        return lossbench.load_dataset("mine", data=tmp_path, registry=Registry([tmp_path]), **given)

    return load


REFUSED = {
    "float images": ("images = images - 1.78", ["train images", "float64 of shape 12×8×8×1", "uint8", "N×H×W×C"]),
    "float32 images": ("images = images.astype(np.float32)", ["float32 of shape 12×8×8×1", ".astype(np.uint8)"]),
    "wider integers": ("images = images.astype(np.int64)", ["int64 of shape 12×8×8×1", "uint8"]),
    "bool images": ("images = images > 9", ["bool of shape"]),
    "object images": ("images = images.astype(object)", ["object of shape"]),
    "float test images": ("test = Split.of(images / 255, labels)", ["test images", "float64"]),
    "no channel axis": ("images = images[..., 0]", ["12×8×8", "images[..., None]"]),
    "flat images": ("images = images.reshape(12, 64)", ["12×64", "N×H×W×C"]),
    "images without pixels": ("images = images[:, :0]", ["12×0×8×1"]),
    "a list of images": ("images = list(images)", ["train images that are a list"]),
    "float labels": ("labels = labels + 0.7", ["train labels", "float64 of shape 12", "integers"]),
    "whole float labels": ("labels = labels.astype(float)", ["float64 of shape 12"]),
    "bool labels": ("labels = labels > 0", ["bool of shape 12"]),
    "labels that are not numbers": ("labels = np.full(12, np.nan)", ["float64 of shape 12"]),
    "text labels": ("labels = labels.astype(str)", ["train labels"]),
    "object labels": ("labels = labels.astype(object)", ["object of shape 12"]),
    "a list of labels": ("labels = labels.tolist()", ["train labels that are a list"]),
    "one-hot labels": ("labels = np.eye(3, dtype=int)[labels]", ["int64 of shape 12×3", "1-D"]),
    "negative labels": ("labels = labels - 1", ["train labels from -1 to 1", "0…2"]),
    "labels from one": ("labels = labels + 1", ["train labels from 1 to 3", "0…2 (classes = 3)"]),
    "a class without training images": ("classes = 4", ["no training image of class 3"]),
    "test labels beyond the classes": ("test = Split.of(images, labels + 1)", ["test labels from 1 to 3", "0…2"]),
    "fewer labels than images": ("labels = labels[:9]", ["12 train images with 9 labels"]),
    "no training images": ("images, labels = images[:0], labels[:0]", ["an empty train split"]),
    "no test images": ("test = Split.of(images[:0], labels[:0])", ["an empty test split"]),
    "one class": ("labels, classes = labels * 0, 1", ["classes = 1", "2 or more"]),
    "half a class": ("classes = 3.0", ["classes = 3.0", "whole number"]),
    "not a dataset": ("return images, labels", ["a tuple", "lossbench.data.Dataset"]),
    "nothing": ("return None", ["returned None", "lossbench.data.Dataset"]),
    "no split": ("test = (images, labels)", ["a tuple as test", "Split.of(images, labels)"]),
    "sources that are text": ("sources = ('file.txt',)", ["sources", "pathlib.Path"]),
    "splits of different shapes": ("test = Split.of(images[:, :4], labels)", ["(8, 8, 1)", "(4, 8, 1)"]),
    "an error": ("images[99]", ["mine.py:17", "IndexError"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_contract_does_not_allow_is_refused_with_file_and_form(case, returned, tmp_path):
    change, expected = REFUSED[case]
    with pytest.raises(DataError) as refused:
        returned(change)
    sentence = str(refused.value)
    assert "\n" not in sentence
    for part in (["mine"], expected):
        assert all(word in sentence for word in part), sentence
    assert not list(tmp_path.glob("prepared/[!.]*"))


REFUSED_BLOCKS = {
    "float blocks": ("np.zeros((12, 8, 8, 1))", ["float64 of shape 12×8×8×1", "uint8 of shape n×8×8×1"]),
    "wider integers": ("np.zeros((12, 8, 8, 1), int)", ["int64"]),
    "another shape": ("np.zeros((12, 8, 8, 3), np.uint8)", ["uint8 of shape 12×8×8×3"]),
    "an image without its axis": ("images[0]", ["uint8 of shape 8×8×1"]),
    "a list": ("list(images)", ["yielded a list"]),
    "too few images": ("images[:5]", ["promised 12 images but gave 5"]),
    "too many images": ("images, images", ["promised 12 images but gave 24"]),
    "a shape of three": ("images, shape=(12, 8, 8)", ["12×8×8", "N×H×W×C"]),
    "a shape that is none": ("images, shape=None", ["shape = None"]),
}


@pytest.mark.parametrize("case", REFUSED_BLOCKS)
@pytest.mark.parametrize("size", [None, 4])
def test_blocks_that_are_not_what_was_promised_are_refused(case, size, returned, tmp_path):
    made, expected = REFUSED_BLOCKS[case]
    with pytest.raises(DataError) as refused:
        returned(f"test = Split.of(Made({made}), labels)", size=size)
    assert str(tmp_path / "datasets" / "mine.py") in str(refused.value)
    for part in expected:
        assert part in str(refused.value), refused.value
    assert not list(tmp_path.glob("prepared/*"))


REFUSED_PAIRS = {
    "float pairs": ("pairs = pairs * 1.0", ["float64 of shape 4×3", "P×3"]),
    "two columns": ("pairs = pairs[:, :2]", ["int64 of shape 4×2"]),
    "no pairs": ("pairs, folds = pairs[:0], folds[:0]", ["int64 of shape 0×3"]),
    "an image that is not there": ("pairs[0, 1] = 12", ["0…12", "there are 12, 0…11"]),
    "a negative index": ("pairs[0, 1] = -1", ["-1…7"]),
    "a third kind": ("pairs[0, 2] = 2", ["2 in the third column"]),
    "fewer folds than pairs": ("folds = folds[:3]", ["int64 of shape 3", "4 pairs"]),
    "no folds": ("folds = None", ["folds that are None"]),
    "float folds": ("folds = folds / 2", ["float64 of shape 4"]),
    "a fold that is not there": ("tested = (0, 7)", ["tested = (0, 7)", "0, 1"]),
    "no tested fold": ("tested = ()", ["tested = ()"]),
    "a single fold": ("folds = folds * 0", ["outside fold 0"]),
    "no pair of one class": ("pairs[:, 2] = 0", ["no pair of class 'same'"]),
    "no pairs at all": ("return Dataset(Split.of(images, labels), test, 3)", ["no pairs", "verification"]),
}


@pytest.mark.parametrize("case", REFUSED_PAIRS)
def test_pairs_that_cannot_be_verified_are_refused_before_training(case, returned):
    change, expected = REFUSED_PAIRS[case]
    with pytest.raises(DataError) as refused:
        returned(f"{change}; {PAIRED}", options=TASK)
    for part in expected:
        assert part in str(refused.value), refused.value


def test_every_form_that_the_contract_allows_is_kept_to_the_bit(returned):
    plain = returned()
    assert plain.train.labels.dtype == np.int64
    for change in (
        "labels = labels.astype(np.uint8); test = Split.of(images, labels.astype('>u4'))",
        "images = Made(images[:5], images[5:])",
        "images = np.asfortranarray(images)",
        "classes = np.int64(3)",
        "images, labels = np.concatenate([images, images]), np.tile(labels, 2); split = Split.of(images, labels)"
        "; return Dataset(split.take(np.arange(12)), test, 3)",
    ):
        found = returned(change)
        assert found.version == plain.version, change
        assert np.array_equal(found.train.images, plain.train.images)
        assert np.array_equal(found.train.labels, plain.train.labels)
    paired = returned(f"test = Split.of(images, labels.astype(np.uint16) + 99); {PAIRED}", options=TASK)
    assert paired.pairs.dtype == paired.folds.dtype == np.int64 and paired.test.labels.max() == 101


def test_images_of_two_channels_are_kept_but_not_resized(returned):
    change = "images = np.repeat(images, 2, 3); test = Split.of(images, labels)"
    assert returned(change).in_shape == (2, 8, 8)
    with pytest.raises(DataError, match="1 or 3 channels, these have 2"):
        returned(change, size=4)


def test_a_cache_that_lenient_code_prepared_is_not_trusted(returned, tmp_path, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(cache, "FORMAT", 1)
        returned()
        (before,) = tmp_path.glob("prepared/mine-*")
    returned()
    (after,) = tmp_path.glob("prepared/mine-*")
    assert before.name != after.name


def test_counting_classes_refuses_what_is_not_a_dataset(returned, tmp_path):
    returned()
    (tmp_path / "datasets" / "mine.py").write_text(PLUGIN.format(change="return images", options=""))
    with pytest.raises(DataError, match=r"mine\.py: load returned uint8 of shape 12×8×8×1; it must be"):
        count_classes("mine", {}, Registry([tmp_path]), tmp_path)


def test_the_command_line_refuses_a_float_dataset_with_exit_code_2(lossbench, tmp_path):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "mine.py").write_text(PLUGIN.format(change="images = images / 255 - 1.78", options=""))
    (tmp_path / "suite.toml").write_text(
        'name = "s"\n[[experiment]]\nname = "e"\ndataset = "mine"\nbackbone = "mlp"\nwidths = [4]\n'
        'losses = ["softmax"]\nseeds = 1\nschedule = { steps = 2 }\n'
    )
    done = lossbench("run", "suite.toml", "--data", tmp_path / "data")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert "suite.toml: experiment.e.dataset: " in done.stderr and "mine.py: load returned" in done.stderr
    assert "float64 of shape 12×8×8×1" in done.stderr
    assert not (tmp_path / "runs").exists()
