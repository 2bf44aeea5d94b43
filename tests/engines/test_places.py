"""Plugins that change the working folder, and folders that cannot be written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import SMALL, write_loss
from kit.runs import records, write_suite

from lossbench import api
from lossbench.core.errors import LossbenchError
from lossbench.core.model import Record
from lossbench.plan.cells import plan
from lossbench.store.records import Store

ONE = SMALL.replace("seeds = 2", "seeds = 1")
MINE = ONE.replace('"w_softmax"]', '"mine"]')

BACKBONE = '''"""A backbone that goes elsewhere."""
import os
from torch import nn


class Backbone(nn.Module):
    def __init__(self, in_shape, width):
        super().__init__()
        os.chdir("/")
        self.fc = nn.Linear(in_shape[0] * in_shape[1] * in_shape[2], width)

    def forward(self, images):
        return self.fc(images.flatten(1))
'''

DATASET = '''"""A dataset that goes elsewhere."""
import os
import numpy as np
from lossbench.data import Dataset, Split


def load(root):
    os.chdir("/")
    images = np.random.default_rng(0).integers(256, size=(120, 8, 8, 1), dtype=np.uint8)
    split = Split.of(images, np.arange(120) % 10)
    return Dataset(split, split, 10)
'''


@pytest.mark.slow
def test_plugins_that_change_the_working_folder_change_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_loss(tmp_path, "mine", "os.chdir('/')", constructor="os.chdir(os.path.dirname(os.getcwd()))")
    for kind, name, text in (("backbones", "wanders", BACKBONE), ("datasets", "roams", DATASET)):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{name}.py").write_text(text)
    text = MINE.replace('dataset = "digits"', 'dataset = "roams"') + "warm_start = { steps = 2 }\n"
    backbone = '{ name = "cnn", channels = 4, depths = [1] }'
    write_suite(tmp_path, text.replace(backbone, '"wanders"') + "timing = { rounds = 3, steps = 1, processes = 2 }\n")
    done = api.run("suite.toml", out="here/run", data="data", reports="here/reports")
    assert not done.unfinished and done.folder == Path("here/run")
    assert {record["status"] for record in records(tmp_path / "here/run").values()} == {"done"}
    assert len(records(tmp_path / "here/run")) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("backbones", "data", "datasets", "here", "losses", "suite.toml")
    ]
    # People read the paths that they typed, and a report holds no path of the machine.
    assert json.loads((tmp_path / "here/reports/report.json").read_text())["runs"] == ["here/run"]
    for name in ("summary.md", "report.json", "report.html"):
        assert str(tmp_path) not in (tmp_path / "here/reports" / name).read_text()


def test_a_store_stays_where_it_was_when_the_working_folder_changes(tmp_path, read_suite, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suite = read_suite(SMALL)
    store = Store("run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    cell = plan(suite)[0]
    store.prepare(suite, [cell])
    store.write(Record(cell, "failed", "no"))
    assert store.read(cell.key)["status"] == "failed" and store.plan()[1] == [cell]
    with store.claim(cell.key) as ours:
        assert ours
    assert store.set_aside(cell.key).parent == Path("run/set_aside")
    assert store.root == Path("run")
    assert list((tmp_path / "elsewhere").iterdir()) == []


BAD_PLACES = {
    "a file": lambda folder: (folder / "reports").write_text("mine"),
    "below a file": lambda folder: (folder / "reports").write_text("mine"),
    "in /proc": lambda folder: None,
    "a link to nowhere": lambda folder: (folder / "reports").symlink_to(folder / "nowhere"),
    "holds a folder called summary.md": lambda folder: (folder / "reports/summary.md").mkdir(parents=True),
}


@pytest.mark.parametrize("place", BAD_PLACES)
def test_a_report_folder_that_cannot_be_written_is_refused_before_anything_trains(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    write_suite(tmp_path, ONE)
    BAD_PLACES[place](tmp_path)
    named = {"below a file": "reports/mine", "in /proc": "/proc/reports"}.get(place, "reports")
    with pytest.raises(LossbenchError) as refused:
        api.run("suite.toml", reports=named)
    assert str(refused.value).startswith(f"{named}: cannot write the report there (")
    assert not (tmp_path / "runs").exists()
    if place == "a file":
        assert not api.run("suite.toml", reports=None).unfinished  # without a report it does not matter


def test_a_bad_report_folder_is_one_sentence(tmp_path, lossbench):
    write_suite(tmp_path, ONE)
    (tmp_path / "reports").write_text("mine")
    refused = lossbench("run", "suite.toml")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
    assert refused.stderr.startswith("lossbench: reports: cannot write the report there (")


def test_trying_the_report_folder_leaves_nothing_there(tmp_path):
    suite = write_suite(tmp_path, ONE.replace('"w_softmax"]', '"nonesuch"]'))
    with pytest.raises(LossbenchError, match="nonesuch"):
        api.run(suite, out=tmp_path / "run", reports=tmp_path / "new" / "reports")
    assert not (tmp_path / "new").exists()
