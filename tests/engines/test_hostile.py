"""Plugins and places that do unexpected things: other working folders, endless errors, names that are no Unicode."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import SMALL, command, write_loss
from test_engine import records, write_suite

from lossbench.core import errors
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
from lossbench.data.sets import digits


def load(root):
    os.chdir("/")
    return digits.load(root)
'''


def test_plugins_that_change_the_working_folder_change_nothing_else(tmp_path, lossbench):
    write_loss(tmp_path, "mine", "os.chdir('/')", constructor="os.chdir(os.path.dirname(os.getcwd()))")
    for kind, name, text in (("backbones", "wanders", BACKBONE), ("datasets", "roams", DATASET)):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{name}.py").write_text(text)
    text = MINE.replace('dataset = "digits"', 'dataset = "roams"') + "warm_start = { steps = 2 }\n"
    backbone = '{ name = "cnn", channels = 4, depths = [1] }'
    write_suite(tmp_path, text.replace(backbone, '"wanders"') + "timing = { rounds = 3, steps = 1 }\n")
    ran = lossbench("run", "suite.toml", "--out", "here/run", "--data", "data", "--reports", "here/reports")
    assert ran.returncode == 0, ran.stderr
    assert {record["status"] for record in records(tmp_path / "here/run").values()} == {"done"}
    assert len(records(tmp_path / "here/run")) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("backbones", "data", "datasets", "here", "losses", "suite.toml")
    ]
    # People read the paths that they typed, and a report holds no path of the machine.
    assert ran.stdout.splitlines()[-1] == "records  here/run"
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
def test_a_report_folder_that_cannot_be_written_is_refused_before_anything_trains(tmp_path, lossbench, place):
    write_suite(tmp_path, ONE)
    BAD_PLACES[place](tmp_path)
    named = {"below a file": "reports/mine", "in /proc": "/proc/reports"}.get(place, "reports")
    ran = lossbench("run", "suite.toml", "--reports", named)
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith(f"lossbench: {named}: no report can be written there (")
    assert not (tmp_path / "runs").exists()
    assert lossbench("run", "suite.toml", "--reports", named, "--no-report").returncode == 0


def test_trying_the_report_folder_leaves_nothing_there(tmp_path, lossbench):
    write_loss(tmp_path, "mine", "pass", constructor="raise ValueError('never')")
    write_suite(tmp_path, MINE)
    assert lossbench("run", "suite.toml", "--reports", "new/reports").returncode == 2
    assert not (tmp_path / "new").exists()


def test_errors_without_end_and_errors_that_are_no_unicode_are_kept_within_bounds(tmp_path, lossbench):
    write_loss(tmp_path, "long", "if len(labels) > 2: raise RuntimeError('x' * 10**7)")
    write_loss(tmp_path, "many", "if len(labels) > 2: raise RuntimeError('\\n'.join(map(str, range(10**6))))")
    write_loss(tmp_path, "odd", "if len(labels) > 2: print('bad \\udcff'); raise RuntimeError('bad \\udcff name')")
    suite = write_suite(tmp_path, ONE.replace('"w_softmax"]', '"long", "many", "odd"]'))
    ran = lossbench("run", suite)
    assert ran.returncode == 1 and len(ran.stderr) < 10_000
    assert "odd  M=8 C=10 seed=0: RuntimeError: bad \\udcff name" in ran.stderr
    kept = {record["label"]: record["error"] for record in records(tmp_path / "runs/small").values()}
    assert len(records(tmp_path / "runs/small")) == 4
    assert all(len(kept[name]) <= errors.MOST_ERROR for name in ("long", "many", "odd"))
    assert kept["long"].startswith("Traceback") and "RuntimeError: xxx" in kept["long"] and "characters" in kept["long"]
    assert "RuntimeError: 0\n1\n" in kept["many"] and kept["many"].rstrip().endswith("999999")
    again = lossbench("run", suite)
    assert "4 already done, 0 to train" in again.stderr  # the records are sound
    assert lossbench("report", "small").returncode == 0
    assert lossbench("status", "small").returncode == 1


def test_what_is_bounded_once_stays_as_it_is():
    for text in ("short", "x" * 10**6, "\n".join(map(str, range(10**5))), "bad \udcff", "y\n" * 10**5 + "z" * 10**5):
        kept = errors.bounded(text)
        assert len(kept) <= errors.MOST_ERROR and errors.bounded(kept) == kept
        kept.encode()
    assert errors.bounded("short\n") == "short\n"


def test_a_folder_whose_name_is_no_unicode_can_be_run_and_reported(tmp_path):
    folder = tmp_path / os.fsdecode(b"od\xffd")
    folder.mkdir()
    write_loss(folder, "mine", "if len(labels) > 2: raise RuntimeError(__file__)")
    write_suite(folder, MINE)
    arguments = ["run", folder / "suite.toml", "--out", folder / "run", "--reports", folder / "reports"]
    ran = subprocess.run(command(*arguments), cwd=tmp_path, capture_output=True, check=False)
    assert ran.returncode == 1, ran.stderr
    assert b"Traceback" not in ran.stderr
    assert len(records(folder / "run")) == 2
    assert "\\udcff" in (folder / "reports/summary.md").read_text()  # the command that runs it again
