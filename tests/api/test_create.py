"""Losses and backbones by name, in a training loop outside lossbench."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from conftest import write_loss

import lossbench
from lossbench.core.errors import PluginError
from lossbench.plugins import create

PATIENCE = 10
FEATURES, LABELS = torch.randn(8, 4), torch.arange(8) % 3


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(create, "PATIENCE", PATIENCE)


def train(loss, steps: int, *, begin: bool = True, advance: bool = True) -> list[str]:
    """The warnings of a training loop that calls these hooks."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if begin:
            loss.begin(steps)
        for _ in range(steps):
            loss(FEATURES, LABELS).backward()
            if advance:
                loss.advance()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("name", ["softmax", "arcface", "center", "a_softmax"])
def test_every_created_loss_can_begin_and_advance(name):
    assert train(lossbench.create_loss(name, 4, 3), 3) == []


def test_begin_and_advance_reach_the_loss():
    loss = lossbench.create_loss("a_softmax", 4, 3)
    train(loss, 3)
    assert (loss.annealing.t, loss.annealing.pace) == (3, loss.annealing.horizon / 3)


def test_forgetting_advance_is_warned_about_once_where_the_loss_needs_it():
    (sentence,) = train(lossbench.create_loss("center", 4, 3), 2 * PATIENCE, advance=False)
    assert sentence.startswith("loss 'center': call loss.advance() after every optimizer step")
    assert train(lossbench.create_loss("softmax", 4, 3), 2 * PATIENCE, advance=False) == []


def test_scoring_and_accumulated_gradients_are_no_reason_to_warn():
    loss = lossbench.create_loss("center", 4, 3)
    for _ in range(3):
        assert train(loss, PATIENCE // 2, advance=False) == []
        loss.advance()
    loss.eval()
    assert train(loss, PATIENCE, advance=False) == []
    with torch.no_grad():
        for _ in range(PATIENCE):
            loss.train()(FEATURES, LABELS)


def test_forgetting_begin_is_warned_about_once_where_the_loss_needs_it():
    (sentence,) = train(lossbench.create_loss("a_softmax", 4, 3), 5, begin=False)
    assert sentence.startswith("loss 'a_softmax': call loss.begin(steps) before training")
    assert train(lossbench.create_loss("center", 4, 3), 5, begin=False) == []


def test_a_created_loss_can_be_copied_and_pickled():
    loss = lossbench.create_loss("softmax", 4, 3)
    for twin in (copy.deepcopy(loss), copy.deepcopy(lossbench.create_loss("a_softmax", 4, 3))):
        train(twin, 2)
    annealed = copy.deepcopy(lossbench.create_loss("a_softmax", 4, 3))
    annealed.advance.__self__.begun = True
    annealed.advance()
    assert annealed.annealing.t == 1  # its own, not that of the original
    assert pickle.dumps(loss.state_dict())


def test_plugins_are_found_in_the_working_folder_and_in_the_folders_that_are_given(tmp_path, monkeypatch):
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        write_loss(tmp_path / place, f"from_{place}", "pass")
    (tmp_path / "there/backbones").mkdir()
    (tmp_path / "there/backbones/flat.py").write_text(
        '"""A linear backbone."""\nfrom torch import nn\n\n\nclass Backbone(nn.Module):\n'
        "    def __init__(self, in_shape, width):\n        super().__init__()\n"
        "        self.fc = nn.Linear(in_shape[0] * in_shape[1] * in_shape[2], width)\n\n"
        "    def forward(self, images):\n        return self.fc(images.flatten(1))\n"
    )
    monkeypatch.chdir(tmp_path / "here")
    assert lossbench.create_loss("from_here", 4, 3, level=2.0)(FEATURES, LABELS).shape == ()
    with pytest.raises(PluginError, match="unknown loss 'from_there'"):
        lossbench.create_loss("from_there", 4, 3)
    assert lossbench.create_loss("from_there", 4, 3, plugins=[tmp_path / "there"])(FEATURES, LABELS).shape == ()
    backbone = lossbench.create_backbone("flat", (1, 2, 2), 5, plugins=["../there"])
    assert backbone(torch.zeros(3, 1, 2, 2)).shape == (3, 5)
