"""A trained network is evaluated in evaluation mode, by its task; what it gives there must be sound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL, write_loss
from kit.strokes import VERIFICATION, strokes_in

from lossbench.core.errors import PluginError
from lossbench.data import data_folder, load_dataset
from lossbench.plan.cells import plan
from lossbench.plugins.registry import Registry
from lossbench.training import cell as train
from lossbench.training.batches import Batches, as_input
from lossbench.training.evaluation import EVALUATION_BATCH, evaluate
from lossbench.training.loop import train as train_state
from lossbench.training.state import build

DATA = data_folder()


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="module")
def strokes(tmp_path_factory):
    return strokes_in(tmp_path_factory.mktemp("strokes"))


def test_a_verification_cell_counts_pairs_and_records_every_figure(strokes, read_suite):
    cell = plan(read_suite(VERIFICATION, plugins=strokes))[1]
    outcome = train.run(cell, strokes, DATA)
    record, found = outcome.record, outcome.record.verification
    assert record.total == len(outcome.correct) == 400
    assert record.correct == outcome.correct.sum() > 240  # chance is 200
    assert found["positives"] == found["negatives"] == 200
    assert found["auc"]["low"] < found["auc"]["value"] < found["auc"]["high"]
    assert [rate["far"] for rate in found["tar"]] == [0.1, 0.01, 0.001]
    assert 100 * np.mean(found["folds"]["accuracies"]) == pytest.approx(record.accuracy)
    assert record.angles["test"] == [] and len(record.angles["train"]) == 12
    assert record.curve[-1]["correct"] == record.correct
    assert record.metrics["accuracy"] == record.accuracy and "angle" not in record.metrics
    assert record.metrics["tar@0.01"] == 100 * found["tar"][1]["value"]


def test_verification_scores_are_cosines_of_features_in_evaluation_mode(strokes, read_suite):
    cell = plan(read_suite(VERIFICATION, plugins=strokes))[0]
    dataset = load_dataset("strokes", registry=strokes, task="verification")
    state = build(cell, cell.loss, strokes, dataset.in_shape)
    found = evaluate(state, dataset, "verification").details()
    with torch.no_grad():
        features = state.backbone.eval()(as_input(dataset.test.images.copy())).double()
    unit = features / features.norm(dim=1, keepdim=True)
    cosine = (unit[dataset.pairs[:, 0]] * unit[dataset.pairs[:, 1]]).sum(1).numpy()
    same = dataset.pairs[:, 2] == 1
    wins = np.mean([a > b for a in cosine[same] for b in cosine[~same]])  # the area under the ROC by its definition
    assert found["auc"]["value"] == pytest.approx(wins, abs=1e-4)


def test_verification_shares_its_warm_start_with_classification_of_the_same_images(strokes, read_suite):
    warm = VERIFICATION.replace("seeds = 1", 'seeds = 1\nwarm_start = { loss = "softmax", steps = 5 }')
    first = plan(read_suite(warm, plugins=strokes))
    assert first[0].kind == "warm"
    assert first[0].key == replace(first[1].warm_cell(), task="classification", key="").key


def test_data_that_changed_since_the_plan_is_refused(strokes, read_suite):
    cell = plan(read_suite(VERIFICATION, plugins=strokes))[0]
    other = replace(cell, dataset=replace(cell.dataset, source="0" * 16), key="")
    with pytest.raises(PluginError, match="data has changed"):
        train.run(other, strokes, DATA)


def test_a_network_of_width_two_keeps_features_that_can_be_drawn(read_suite, registry, digits):
    wide, flat = (plan(read_suite(SMALL.replace("widths = [8]", f"widths = [{width}]")))[0] for width in (8, 2))
    assert train.run(wide, registry, DATA).record.features is None
    kept = train.run(flat, registry, DATA).record.features
    assert len(kept["points"]) == len(kept["labels"]) == 500 and len(kept["weights"]) == 10
    state = build(flat, flat.loss, registry, digits.in_shape)
    train_state(state, Batches(digits.train, 16, 0), flat, digits)
    with torch.no_grad():
        whole = state.backbone.eval()(as_input(digits.test.images.copy())).numpy()
    found = {tuple(np.round(row, 3)) for row in whole.tolist()}
    assert sum(tuple(row) in found for row in kept["points"]) > 490  # but for the last digit


def test_scores_come_from_evaluation_mode_and_training_goes_on_in_training_mode(read_suite, registry, digits):
    schedule = "schedule = { steps = 6, batch = 16, evaluations = 2 }"
    cell = plan(read_suite(SMALL.replace("schedule = { steps = 6, batch = 16 }", schedule)))[0]
    state = build(cell, cell.loss, registry, digits.in_shape)
    modes = []
    state.backbone.register_forward_hook(lambda module, *_: modes.append((module.training, torch.is_grad_enabled())))
    train_state(state, Batches(digits.train, 16, 0), cell, digits)
    batches = -(-len(digits.test) // EVALUATION_BATCH)
    assert modes == ([(True, True)] * 3 + [(False, False)] * batches) * 2


LOGITS = "return F.linear(features, self.weight)"


def one_cell(folder, read_suite, name, logits):
    """The cell of a loss whose `logits` are replaced in evaluation mode."""
    path = write_loss(folder, name, "pass")
    path.write_text(path.read_text().replace(LOGITS, f"scores = F.linear(features, self.weight)\n        {logits}"))
    registry = Registry([folder])
    suite = read_suite(SMALL.replace('"w_softmax"]', f'"{name}"]'), plugins=registry)
    return next(cell for cell in plan(suite) if cell.loss.name == name), registry


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("scores[:, :9]", r"a tensor of shape \(128, 9\); it must be a tensor B×C, here \(128, 10\)"),
        ("scores[:, :, None]", r"a tensor of shape \(128, 10, 1\)"),
        ("scores.T", r"a tensor of shape \(10, 128\)"),
        ("scores.argmax(1)", r"a tensor of shape \(128,\)"),
        ("(scores, None)", "gives tuple"),
    ],
)
def test_wrong_shaped_logits_in_evaluation_are_an_error_of_the_cell(tmp_path, read_suite, given, said):
    cell, registry = one_cell(tmp_path, read_suite, "odd", f"return scores if self.training else {given}")
    with pytest.raises(PluginError, match=said):
        train.run(cell, registry, DATA)


@pytest.mark.parametrize("evaluations", [0, 3])
@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_logits_that_are_not_finite_in_evaluation_are_diverged_not_class_zero(tmp_path, read_suite, bad, evaluations):
    spoil = f"return scores if self.training else scores.index_fill(1, torch.tensor(3), float('{bad}'))"
    cell, registry = one_cell(tmp_path, read_suite, "odd", spoil)
    cell = replace(cell, schedule=cell.schedule.model_copy(update={"evaluations": evaluations}))
    record = train.run(cell, registry, DATA).record
    assert record.status == "diverged" and record.correct is None
    assert record.error == f"a logit in evaluation mode is not finite at step {1 if evaluations else 5}"


BACKBONE = '''"""A backbone for a test."""
from torch import nn


class Backbone(nn.Module):
    def __init__(self, in_shape, width):
        super().__init__()
        self.fc = nn.Linear(64, width)

    def forward(self, images):
        features = self.fc(images.flatten(1))
        return features if self.training else EVALUATED
'''


def cell_with_backbone(folder, read_suite, evaluated):
    (folder / "backbones").mkdir()
    (folder / "backbones" / "odd.py").write_text(BACKBONE.replace("EVALUATED", evaluated))
    registry = Registry([folder])
    text = SMALL.replace('{ name = "cnn", channels = 4, depths = [1] }', '"odd"')
    return plan(read_suite(text, plugins=registry))[0], registry


@pytest.mark.parametrize(
    ("evaluated", "said"),
    [
        ("features[:, :4]", r"torch.float32 of shape \(128, 4\); features must be floats of shape \(128, 8\)"),
        ("features[:1]", r"torch.float32 of shape \(1, 8\)"),
        ("features.long()", r"torch.int64 of shape \(128, 8\)"),
        ("(features, features)", "tuple"),
    ],
)
def test_wrong_features_in_evaluation_are_an_error_of_the_cell(tmp_path, read_suite, evaluated, said):
    cell, registry = cell_with_backbone(tmp_path, read_suite, evaluated)
    with pytest.raises(PluginError, match=f"in evaluation mode the backbone gives .*{said}"):
        train.run(cell, registry, DATA)


def test_features_that_are_not_finite_in_evaluation_are_diverged(tmp_path, read_suite):
    cell, registry = cell_with_backbone(tmp_path, read_suite, "features / 0")
    record = train.run(cell, registry, DATA).record
    assert (record.status, record.error) == ("diverged", "a feature in evaluation mode is not finite at step 5")
