"""What a key covers: whatever changes the result of a cell changes its key, and nothing else does."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SMALL, write_loss

from lossbench import api
from lossbench.core import apart
from lossbench.plugins.footprint import footprint_of, release
from lossbench.plugins.registry import Registry

PLUGIN = '''"""A loss."""
from torch import nn
HEAD
class Loss(nn.Module):
    def __init__(self, f, c, *, file: str = ""): ...
'''


class Planned:
    """A suite with the losses softmax and mine in a folder of its own, and the keys that a new process plans."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "lib" / "site-packages"
        self.site.mkdir(parents=True)
        self.suite('"softmax", "mine"')

    def suite(self, losses: str) -> None:
        text = SMALL.replace('"softmax", "w_softmax"', losses).replace("seeds = 2", "seeds = 1")
        (self.folder / "suite.toml").write_text(text)

    def plugin(self, head: str) -> None:
        path = self.folder / "losses" / "mine.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(PLUGIN.replace("HEAD", head))

    def library(self, name: str, version: str, text: str = "") -> None:
        """A package as pip installs it."""
        for old in self.site.glob(f"{name}-*"):
            (old / "METADATA").unlink()
            old.rmdir()
        (self.site / name).mkdir(exist_ok=True)
        (self.site / name / "__init__.py").write_text(text)
        metadata = self.site / f"{name}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def keys(self) -> dict[str, str]:
        """By the name of the loss. This process never plans the suite: what it forks has read none of its files."""

        def plan(send: Callable[[object], None]) -> None:
            os.chdir(self.folder)
            sys.path[:0] = [str(self.site), str(self.folder / "code")]
            importlib.invalidate_caches()
            release.cache_clear()  # the versions of libraries that other tests have asked for
            send({cell.loss.name: cell.key for cell in api.prepare("suite.toml").chosen})

        (found,) = apart.messages(plan, 60)
        return found

    def changed_by(self, edit: Callable[[], object]) -> set[str]:
        """The losses whose cells an edit makes train again."""
        before = self.keys()
        edit()
        after = self.keys()
        return {name for name in after if after[name] != before.get(name)}


@pytest.fixture
def planned(tmp_path) -> Planned:
    return Planned(tmp_path)


def test_a_helper_module_of_the_plugins_own_package_is_part_of_the_key(planned):
    package = planned.folder / "code" / "ours" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "scale.py").write_text("from ..deep import S\n")
    (package.parent / "deep.py").write_text("S = 1\n")
    (package.parent / "unused.py").write_text("X = 1\n")
    planned.plugin("from ours.inner import scale")
    assert planned.changed_by(lambda: (package.parent / "deep.py").write_text("S = 2\n")) == {"mine"}
    assert planned.changed_by(lambda: (package / "__init__.py").write_text("import torch\n")) == {"mine"}
    assert planned.changed_by(lambda: (package.parent / "unused.py").write_text("X = 2\n")) == set()


def test_a_module_beside_the_plugin_is_part_of_the_key(planned):
    planned.plugin("import sys, os; sys.path.insert(0, os.path.dirname(__file__)); import _shared")
    helper = planned.folder / "losses" / "_shared.py"
    helper.write_text("S = 1\n")
    assert planned.changed_by(lambda: helper.write_text("S = 2\n")) == {"mine"}


def test_another_version_of_an_imported_library_is_another_key(planned):
    planned.library("fancy", "1.0")
    planned.plugin("import fancy.losses")
    assert planned.changed_by(lambda: planned.library("fancy", "1.1")) == {"mine"}
    planned.library("unrelated", "1.0")
    assert planned.changed_by(lambda: planned.library("unrelated", "2.0")) == set()


def test_another_version_of_torch_is_another_key_for_every_cell(planned):
    planned.suite('"softmax", "w_softmax"')
    metadata = planned.site / "torch-9.9.9.dist-info"

    def upgrade() -> None:
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9.9\n")

    assert planned.changed_by(upgrade) == {"softmax", "w_softmax"}


def test_a_file_that_an_option_names_is_part_of_the_key(planned):
    planned.plugin("")
    (planned.folder / "start.pt").write_bytes(b"one")
    planned.suite('"softmax", { name = "mine", file = "start.pt" }')
    assert planned.changed_by(lambda: (planned.folder / "start.pt").write_bytes(b"two")) == {"mine"}


def test_a_file_that_the_plugin_names_is_part_of_the_key(planned):
    planned.plugin('from pathlib import Path\nCENTRES = Path(__file__).with_name("centres.npz")')
    file = planned.folder / "losses" / "centres.npz"
    file.write_bytes(b"one")
    assert planned.changed_by(lambda: file.write_bytes(b"two")) == {"mine"}


def test_a_dataset_is_read_again_when_a_file_that_it_names_has_changed(planned):
    import numpy as np

    (planned.folder / "datasets").mkdir()
    (planned.folder / "datasets" / "theirs.py").write_text(
        '"""Theirs."""\nimport numpy as np\nfrom pathlib import Path\nfrom lossbench.data import Dataset, Split\n\n'
        "def load(root):\n"
        '    with np.load(Path(__file__).with_name("theirs.npz")) as file:\n'
        "        split = Split.of(file['images'], file['labels'])\n"
        "    return Dataset(split, split, 2)\n"
    )
    (planned.folder / "suite.toml").write_text(
        SMALL.replace('dataset = "digits"', 'dataset = "theirs"').replace("seeds = 2", "seeds = 1")
    )

    def save(value: int) -> None:
        images = np.full((8, 8, 8, 1), value, np.uint8)
        np.savez(planned.folder / "datasets" / "theirs.npz", images=images, labels=np.arange(8) % 2)

    save(1)
    assert planned.changed_by(lambda: save(2)) == {"softmax", "w_softmax"}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("from lossbench import margin", {"lossbench.margin"}),
        ("from lossbench.margin import init_weight", {"lossbench.margin"}),
        ("import lossbench.margin as kit", {"lossbench.margin"}),
        ("import importlib; importlib.import_module('lossbench.margin')", {"lossbench.margin"}),
    ],
)
def test_however_a_loss_imports_the_kit_its_source_counts(tmp_path, statement, expected):
    path = write_loss(tmp_path, "mine", "pass")
    path.write_text(path.read_text().replace("import torch\n", f"import torch\n{statement}\n", 1))
    assert set(footprint_of(path).sources) == {"", *expected}


def test_a_loss_that_builds_others_by_name_depends_on_all_built_in_plugins(tmp_path):
    path = write_loss(tmp_path, "mine", "pass")
    path.write_text("from lossbench import create_loss\n" + path.read_text())
    names = set(footprint_of(path).sources)
    assert {"lossbench losses.softmax", "lossbench backbones.cnn"} <= names


def test_a_footprint_is_the_same_wherever_a_copy_lies(tmp_path):
    here, there = (
        write_loss(folder, "mine", "pass") for folder in (tmp_path / "a", tmp_path / "b") if not folder.mkdir()
    )
    assert footprint_of(here).digest() == footprint_of(there).digest()


def test_an_edited_helper_is_seen_within_one_process(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path / "code")
    (tmp_path / "code").mkdir()
    helper = tmp_path / "code" / "helper_of_mine.py"
    helper.write_text("S = 1\n")
    path = write_loss(tmp_path, "mine", "pass")
    path.write_text("import helper_of_mine\n" + path.read_text())
    before = Registry([tmp_path]).find("loss", "mine").source_hash
    helper.write_text("S = 20\n")
    assert Registry([tmp_path]).find("loss", "mine").source_hash != before
    helper.with_name("more_of_mine.py").write_text("S = 3\n")
    helper.write_text("import more_of_mine\n")
    assert set(footprint_of(path).sources) == {"", "helper_of_mine", "more_of_mine"}


def test_strange_strings_in_a_plugin_name_no_file(tmp_path):
    path = write_loss(tmp_path, "mine", "pass")
    odd = ["x" * 900, "a\\0b", "~nobody-of-this-name/x", "", "/", "..", "\\ud800", "a" * 300 + ".npz"]
    path.write_text(path.read_text() + "".join(f'ODD{number} = "{text}"\n' for number, text in enumerate(odd)))
    assert footprint_of(path).files == ()
