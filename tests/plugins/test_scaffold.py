"""`lossbench new`: plugins that work at once, and names that are refused."""

from pathlib import Path

import pytest
import torch
from kit.commands import invoke

from lossbench import load_records, run
from lossbench.core.errors import LossbenchError
from lossbench.plugins.check import check
from lossbench.plugins.registry import Plugin, Registry
from lossbench.plugins.scaffold import TEMPLATES, new


def test_a_new_loss_fails_no_property(tmp_path):
    path = new("loss", "my_loss", tmp_path)
    findings = check(Plugin("loss", "my_loss", path))
    assert [finding for finding in findings if finding.status == "fail"] == []
    assert "margin acts" in {finding.property for finding in findings if finding.status == "pass"}


def test_a_new_loss_is_found_beside_the_built_in_ones_and_trains(tmp_path):
    new("loss", "my_loss", tmp_path)
    plugin = Registry([tmp_path]).find("loss", "my_loss")
    assert plugin.parse_options({"m": 0.1}) == {"m": 0.1, "s": 16.0}
    loss = plugin.load()(8, 3, m=0.1)
    loss(torch.randn(4, 8), torch.tensor([0, 1, 2, 0])).backward()
    assert loss.weight.grad.abs().sum() > 0


SUITE = """
name = "new"
baseline = "my_loss"
[[experiment]]
name = "new"
dataset = { name = "my_dataset", noise = 0.2 }
backbone = { name = "my_backbone", channels = 4 }
widths = [8]
losses = ["my_loss"]
seeds = 1
schedule = { steps = 60, batch = 32 }
"""


def test_a_new_loss_backbone_and_dataset_pass_their_checks_and_train_in_a_suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [new(kind, f"my_{kind}", ".") for kind in ("loss", "backbone", "dataset")]
    checked = invoke("check", *paths)
    assert checked.returncode == 0, checked.stdout
    (tmp_path / "new.toml").write_text(SUITE)
    result = run("new.toml", reports=None, data=tmp_path / "data")
    assert list(result.statuses.values()) == ["done"]
    assert load_records("runs/new").accuracy[0] > 60  # chance is 25


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_new_plugin_is_at_most_thirty_lines(tmp_path, kind):
    lines = new(kind, "mine", tmp_path).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("name", ["my-loss", "1st", "", "class", "_hidden", "a b", "../up", "ψ", "x.py"])
def test_a_name_that_no_loss_can_have_is_refused_with_a_sentence(tmp_path, name):
    with pytest.raises(LossbenchError, match="cannot name a loss"):
        new("loss", name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_a_built_in_loss_is_refused(tmp_path):
    with pytest.raises(LossbenchError, match="'softmax' is the name of an existing loss"):
        new("loss", "softmax", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_left_as_it_is(tmp_path):
    path = new("loss", "my_loss", tmp_path)
    path.write_text("mine")
    with pytest.raises(LossbenchError, match="already exists"):
        new("loss", "my_loss", tmp_path)
    assert path.read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_told_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LossbenchError, match="cannot be written"):
        new("loss", "my_loss", tmp_path / "file")


def test_a_missing_folder_is_made(tmp_path):
    assert new("loss", "my_loss", Path(tmp_path) / "a" / "b").is_file()
