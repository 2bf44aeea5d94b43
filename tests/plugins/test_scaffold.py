"""`lossbench new loss`: a draft that works at once, and names that are refused."""

from pathlib import Path

import pytest
import torch

from lossbench.core.errors import LossbenchError
from lossbench.plugins.check import check
from lossbench.plugins.registry import Plugin, Registry
from lossbench.plugins.scaffold import new_loss


def test_a_new_loss_fails_no_property(tmp_path):
    path = new_loss("my_loss", tmp_path)
    findings = check(Plugin("loss", "my_loss", path))
    assert [finding for finding in findings if finding.status == "fail"] == []
    assert "margin acts" in {finding.property for finding in findings if finding.status == "pass"}


def test_a_new_loss_is_found_beside_the_built_in_ones_and_trains(tmp_path):
    new_loss("my_loss", tmp_path)
    plugin = Registry([tmp_path]).find("loss", "my_loss")
    assert plugin.parse_options({"m": 0.1}) == {"m": 0.1, "s": 16.0}
    loss = plugin.load()(8, 3, m=0.1)
    loss(torch.randn(4, 8), torch.tensor([0, 1, 2, 0])).backward()
    assert loss.weight.grad.abs().sum() > 0


def test_a_new_loss_is_at_most_thirty_lines(tmp_path):
    lines = new_loss("my_loss", tmp_path).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("name", ["my-loss", "1st", "", "class", "_hidden", "a b", "../up", "ψ", "x.py"])
def test_a_name_that_no_loss_can_have_is_refused_with_a_sentence(tmp_path, name):
    with pytest.raises(LossbenchError, match="cannot name a loss"):
        new_loss(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_a_built_in_loss_is_refused(tmp_path):
    with pytest.raises(LossbenchError, match="'softmax' is the name of a loss that is there already"):
        new_loss("softmax", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_left_as_it_is(tmp_path):
    path = new_loss("my_loss", tmp_path)
    path.write_text("mine")
    with pytest.raises(LossbenchError, match="already there"):
        new_loss("my_loss", tmp_path)
    assert path.read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_told_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LossbenchError, match="cannot be written"):
        new_loss("my_loss", tmp_path / "file")


def test_a_missing_folder_is_made(tmp_path):
    assert new_loss("my_loss", Path(tmp_path) / "a" / "b").is_file()
