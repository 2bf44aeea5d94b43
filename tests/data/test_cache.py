"""A dataset is prepared once, whole or not at all, and opened from disk ever after."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import alive
from PIL import Image

import lossbench
from lossbench.core.errors import DataError
from lossbench.data import cache
from lossbench.data import subsets as view
from lossbench.data.dataset import Dataset, Split
from lossbench.plugins.registry import Registry

PLUGIN = '''"""Numbered images for a test."""
from pathlib import Path
import numpy as np
from lossbench.data.dataset import Dataset, Split

class Counted:
    def __init__(self, count, start): self.count, self.start = count, start
    @property
    def shape(self): return self.count, 4, 4, 1
    def blocks(self):
        {before}
        for number in range(self.start, self.start + self.count):
            yield np.full((1, 4, 4, 1), number % 256, np.uint8)

def load(root: Path, *, count: int = 30) -> Dataset:
    with (root / "calls").open("a") as calls:
        calls.write("x")
    train = Split.of(Counted(count, 0), np.arange(count) % 3)
    return Dataset(train, Split.of(Counted(6, 100), np.arange(6) % 3), 3, sources=(root / "source.txt",))
'''


@pytest.fixture
def counted(tmp_path):
    """Load a dataset that counts its own calls."""
    (tmp_path / "datasets").mkdir()
    (tmp_path / "source.txt").write_text("first")

    def load(before="pass", **options):
        (tmp_path / "datasets" / "counted.py").write_text(PLUGIN.format(before=before))
        found = lossbench.load_dataset("counted", data=tmp_path, registry=Registry([tmp_path]), **options)
        return found, len((tmp_path / "calls").read_text())

    return load


def test_the_plugin_loads_once_and_the_arrays_are_mapped_from_disk(counted):
    first, calls = counted()
    second, calls_again = counted()
    assert calls == calls_again == 1
    assert isinstance(second.train.whole, np.memmap) and not second.train.whole.flags.writeable
    assert np.array_equal(first.train.images, second.train.images)
    assert first.train.images[:, 0, 0, 0].tolist() == list(range(30))
    assert first.version == second.version


def test_options_that_decide_the_arrays_have_their_own_and_subsets_share_one(counted):
    whole, _ = counted()
    assert counted(train=6)[1] == 1
    assert counted(classes=2)[1] == 1
    other, calls = counted(count=12)
    assert calls == 2 and other.version != whole.version
    assert counted(size=2)[1] == 3


def test_a_changed_source_or_plugin_is_prepared_again_in_the_old_ones_place(counted, tmp_path):
    before, _ = counted()
    (tmp_path / "source.txt").write_text("second, longer")
    assert counted()[1] == 2
    after, calls = counted(before="self.start += 1")
    assert calls == 3 and after.version != before.version
    assert len(list((tmp_path / "prepared").iterdir())) == 1
    assert before.train.images[0, 0, 0, 0] == 0  # an open map of the old one stays readable


def test_what_was_prepared_stays_good_when_the_source_is_gone(counted, tmp_path):
    counted()
    (tmp_path / "source.txt").unlink()
    assert counted()[1] == 1


@pytest.mark.parametrize("harm", ["truncate", "remove", "meta"])
def test_a_damaged_cache_is_made_again(counted, tmp_path, harm):
    whole, _ = counted()
    folder = next((tmp_path / "prepared").iterdir())
    if harm == "truncate":
        images = folder / "train_images.npy"
        os.truncate(images, images.stat().st_size - 1)
    elif harm == "remove":
        (folder / "test_labels.npy").unlink()
    else:
        (folder / "meta.json").write_text("{")
    again, calls = counted()
    assert calls == 2 and again.version == whole.version


def test_an_error_halfway_leaves_nothing(counted, tmp_path):
    with pytest.raises(DataError, match="gave 0"):
        counted(before="return")
    assert list((tmp_path / "prepared").iterdir()) == []


def test_a_kill_halfway_leaves_nothing_that_looks_whole(tmp_path, counted):
    (tmp_path / "datasets" / "counted.py").write_text(PLUGIN.format(before="import time; time.sleep(60)"))
    code = (
        "import lossbench; from lossbench.plugins.registry import Registry;"
        f"lossbench.load_dataset('counted', data={str(tmp_path)!r}, registry=Registry([{str(tmp_path)!r}]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("prepared/.*/train_images.npy")) and time.monotonic() < deadline:
        time.sleep(0.02)
    working = [int(path.parent.name.split("-")[-2]) for path in tmp_path.glob("prepared/.*/train_images.npy")]
    process.kill()
    process.wait()
    while any(map(alive, working)) and time.monotonic() < deadline:  # the plugin's own process ends with it
        time.sleep(0.02)
    assert not [path for path in (tmp_path / "prepared").iterdir() if not path.name.startswith(".")]
    found, _ = counted()
    assert len(found.train) == 30
    assert len(list((tmp_path / "prepared").iterdir())) == 1  # what the killed process left is gone


def test_what_a_process_left_is_deleted_even_before_its_parent_has_reaped_it(tmp_path, counted):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # a zombie: ended, and still listed
    (tmp_path / "prepared" / f".counted-0-0-{socket.gethostname()}-{ended.pid}-0").mkdir(parents=True)
    counted()
    ended.wait()
    assert len(list((tmp_path / "prepared").iterdir())) == 1


def test_a_folder_that_holds_its_own_prepared_data_is_not_prepared_again(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        for number in range(5):
            Image.new("RGB", (4, 4)).save(tmp_path / name / f"{number}.png")
    heard = []
    for _ in range(3):
        lossbench.load_dataset("folder", data=tmp_path, path=".", progress=lambda *news: heard.append(news))
    assert heard == [("folder", 8, 10), ("folder", 10, 10)]
    Image.new("RGB", (4, 4)).save(tmp_path / "a" / "more.png")
    assert len(lossbench.load_dataset("folder", data=tmp_path, path=".").train) == 9


def test_prepared_data_lies_beside_the_data_or_where_that_cannot_be_written_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "shared")
    (tmp_path / "shared").mkdir()
    plugin = Registry().find("dataset", "mnist")
    assert cache.place(plugin, {}, tmp_path / "own").parent == tmp_path / "own" / "prepared"
    assert cache.place(plugin, {}, tmp_path / "shared").parent == tmp_path / "cache" / "lossbench" / "prepared"


@pytest.mark.slow
def test_a_set_larger_than_the_memory_it_may_use_is_prepared_and_read(tmp_path):
    """A process that may hold 1.2 GiB prepares and gathers from a set of 1.5 GiB."""
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "large.py").write_text(
        '''"""Large."""
from pathlib import Path
import numpy as np
from lossbench.data.dataset import Dataset, Split

class Blank:
    shape = (1500, 1024, 1024, 1)
    def blocks(self):
        for start in range(0, 1500, 10):
            yield np.full((10, 1024, 1024, 1), start // 10, np.uint8)

def load(root: Path) -> Dataset:
    small = Split(np.zeros((2, 1024, 1024, 1), np.uint8), np.array([0, 1]))
    return Dataset(Split.of(Blank(), np.arange(1500) % 2), small, 2)
'''
    )
    code = f"""
import resource, lossbench, numpy as np
from lossbench.plugins.registry import Registry
found = lossbench.load_dataset("large", data={str(tmp_path)!r}, registry=Registry([{str(tmp_path)!r}]), train=1000)
picked = found.train.gather(np.arange(0, 1000, 100))
rows = found.train.rows[::100]
assert (picked[:, 0, 0, 0] == rows // 10).all()
anonymous = [line for line in open("/proc/self/status") if line.startswith("RssAnon")][0].split()[1]
print(int(anonymous) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 600  # MiB of its own; the mapped file's pages belong to the system
    shutil.rmtree(tmp_path / "prepared")


def test_opening_reads_no_images(counted, tmp_path):
    """meta.json and labels only: the images could be gone from the disk's cache without being missed."""
    counted()
    folder = next((tmp_path / "prepared").iterdir())
    meta = json.loads((folder / "meta.json").read_text())
    assert set(meta) == {"classes", "tested", "unseen", "version", "sources"}
    assert cache.classes_of(folder) == 3


def test_progress_hears_of_every_image_once(counted):
    heard = []
    counted(progress=lambda name, done, total: heard.append((name, done, total)))
    assert heard[-1] == ("counted", 36, 36)
    assert [done for _, done, _ in heard] == list(range(1, 37))


def dataset(count=8, side=8):
    images = np.arange(count * side * side, dtype=np.uint32).astype(np.uint8).reshape(count, side, side, 1)
    split = Split(images, np.arange(count) % 2)
    return Dataset(split, split, 2)


def test_a_flip_turns_about_half_of_a_batch_left_to_right():
    images = np.random.default_rng(0).integers(0, 256, (400, 4, 6, 3), dtype=np.uint8)
    turned = view.augmented(images.copy(), ("flip",), np.random.default_rng(1))
    mirrored = (turned == images[:, :, ::-1]).all((1, 2, 3))
    kept = (turned == images).all((1, 2, 3))
    assert (mirrored ^ kept).all() and 150 < mirrored.sum() < 250


def test_a_padded_crop_is_some_shift_of_the_image_with_black_at_the_edge():
    images = np.random.default_rng(0).integers(1, 256, (50, 16, 16, 2), dtype=np.uint8)
    cut = view.augmented(images.copy(), ("crop",), np.random.default_rng(1))
    assert cut.shape == images.shape
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)))
    shifts = set()
    for number in range(50):
        fits = [
            (down, right)
            for down in range(5)
            for right in range(5)
            if np.array_equal(cut[number], padded[number, down : down + 16, right : right + 16])
        ]
        assert len(fits) == 1
        shifts.add(fits[0])
    assert len(shifts) > 15


def test_a_subset_of_a_subset_means_the_right_images():
    split = dataset().train
    twice = split.take(np.array([6, 2, 4])).take(np.array([2, 0]))
    assert np.array_equal(twice.images, split.whole[[4, 6]])
    assert np.array_equal(twice.gather(np.array([1])), split.whole[[6]])
    assert twice.labels.tolist() == [0, 0]


def test_the_same_plugin_in_another_folder_reads_the_files_beside_it(tmp_path):
    """Also when the first folder is gone: its prepared form must not stand for the second one's files."""
    arrays = []
    for place, value in (("first", 1), ("second", 2)):
        folder = tmp_path / place / "datasets"
        folder.mkdir(parents=True)
        (folder / "beside.py").write_text(
            '"""Beside."""\nimport numpy as np\nfrom pathlib import Path\nfrom lossbench.data import Dataset, Split\n\n'
            "def load(root):\n"
            '    images = np.load(Path(__file__).with_name("beside.npy"))\n'
            "    split = Split.of(images, np.arange(8) % 2)\n"
            "    return Dataset(split, split, 2)\n"
        )
        np.save(folder / "beside.npy", np.full((8, 8, 8, 1), value, np.uint8))
        found = lossbench.load_dataset("beside", data=tmp_path / "data", registry=Registry([folder.parent]))
        arrays.append(found.train.images.max())
        shutil.rmtree(folder)
    assert arrays == [1, 2]
