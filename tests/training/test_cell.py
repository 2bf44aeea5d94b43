"""Training is a function of the cell: same seed, same start, same batches, same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL, write_loss

from lossbench.core.errors import PluginError
from lossbench.core.model import result
from lossbench.data import Split, data_folder, load_dataset
from lossbench.plan.cells import plan
from lossbench.plugins.registry import Registry
from lossbench.training import cell as train
from lossbench.training.batches import Batches, as_input
from lossbench.training.evaluation import EVALUATION_BATCH, score
from lossbench.training.state import build

DATA = data_folder()


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture
def cells(read_suite):
    return plan(read_suite(SMALL))


def test_one_seed_gives_every_loss_the_same_backbone(cells, registry, digits):
    first, second = (build(cell, cell.loss, registry, digits.in_shape) for cell in cells[:2])
    assert first.loss.__class__ is not second.loss.__class__
    for a, b in zip(first.backbone.parameters(), second.backbone.parameters(), strict=True):
        assert torch.equal(a, b)
    other_seed = build(cells[2], cells[2].loss, registry, digits.in_shape)
    assert not torch.equal(first.backbone.fc.weight, other_seed.backbone.fc.weight)


def test_one_seed_gives_every_loss_the_same_batches_whatever_a_loss_draws(digits):
    quiet, noisy = (Batches(digits.train, 16, seed=3) for _ in range(2))
    expected = [quiet.indices(step) for step in range(200)]
    for step in range(200):
        torch.rand(step % 7)
        np.random.rand(step % 5)
        assert np.array_equal(noisy.indices(step), expected[step])


def test_every_epoch_visits_every_image_once():
    split = Split(np.zeros((10, 1, 1, 1), np.uint8), np.zeros(10, np.int64))
    batches = Batches(split, 4, seed=0)
    stream = np.concatenate([batches.indices(step) for step in range(5)])
    assert sorted(stream[:10]) == sorted(stream[10:]) == list(range(10))
    assert not np.array_equal(stream[:10], stream[10:])


def test_a_batch_larger_than_the_set_still_is_full():
    split = Split(np.zeros((3, 1, 1, 1), np.uint8), np.zeros(3, np.int64))
    batches = Batches(split, 8, seed=0)
    assert sorted(np.concatenate([batches.indices(0), batches.indices(1), batches.indices(2)])) == sorted([0, 1, 2] * 8)


def test_a_batch_is_the_image_shifted_and_scaled():
    images = np.array([[[[0], [255]]]], dtype=np.uint8)  # one image of 1×2 pixels
    batch, labels = Batches(Split(images, np.array([4])), 1, 0).at(0)
    assert batch.shape == (1, 1, 1, 2)
    assert batch.flatten().tolist() == [-127.5 / 128, 127.5 / 128]
    assert labels.tolist() == [4]


def test_the_same_cell_twice_gives_the_same_bits(cells, registry):
    first, second = (train.run(cells[1], registry, DATA) for _ in range(2))
    assert first.record.digest == second.record.digest
    assert result(first.record.to_json()) == result(second.record.to_json())
    assert np.array_equal(first.correct, second.correct)


def test_the_record_states_counts_ledger_and_angles(cells, registry, digits):
    record = train.run(cells[0], registry, DATA).record
    assert record.total == len(digits.test)
    assert 0 <= record.correct <= record.total
    features = cells[0].width * (4 * 4 * 4 + 1) * 4  # 4 channels at 4×4 after one pooling, a bias, float32
    assert record.bytes["fc"] == features
    assert record.bytes["classifier"] == (10 * 8 + 10) * 4
    assert record.bytes["optimizer"] > 0
    assert len(record.angles["train"]) == len(record.angles["test"]) == 10
    assert record.curve[-1]["step"] == cells[0].schedule.steps


def test_evaluations_put_test_scores_on_the_curve_without_changing_the_result(cells, registry):
    plain = train.run(cells[0], registry, DATA).record
    schedule = cells[0].schedule.model_copy(update={"evaluations": 3})
    scored = train.run(replace(cells[0], schedule=schedule, key=""), registry, DATA).record
    assert [point["step"] for point in scored.curve if "correct" in point] == [2, 4, 6]
    assert scored.curve[-1]["correct"] == plain.correct
    assert scored.digest == plain.digest


def test_the_learning_rate_falls_as_the_schedule_says(read_suite, registry, digits, monkeypatch):
    text = SMALL.replace("batch = 16", "batch = 16, lr = 0.8, decay = { factor = 0.5, every = 2 }")
    cell = plan(read_suite(text))[0]
    trainee = build(cell, cell.loss, registry, digits.in_shape)
    seen = []
    step = trainee.optimizer.step
    monkeypatch.setattr(
        trainee.optimizer, "step", lambda: (seen.append(trainee.optimizer.param_groups[0]["lr"]), step())
    )
    train.train(trainee, Batches(digits.train, 16, 0), cell, digits)
    assert seen == [0.8, 0.8, 0.4, 0.4, 0.2, 0.2]


@pytest.mark.parametrize("loss", ["softmax", "center", "l_softmax", "w_softmax"])
def test_refining_a_shared_warm_start_equals_training_both_phases_in_one_go(read_suite, registry, digits, loss):
    text = SMALL.replace('"w_softmax"]', '"center", "l_softmax", "w_softmax"]') + "warm_start = { steps = 5 }\n"
    cells = plan(read_suite(text))
    warm, cell = cells[0], next(cell for cell in cells if cell.loss.label == loss and cell.kind == "train")
    refined = train.run(cell, registry, DATA, train.run(warm, registry, DATA).checkpoint)

    in_one_go = build(warm, warm.loss, registry, digits.in_shape)
    batches = Batches(digits.train, cell.schedule.batch, cell.seed)
    train.train(in_one_go, batches, warm, digits)
    handed_over = build(cell, cell.loss, registry, digits.in_shape)
    handed_over.refine(in_one_go.checkpoint())
    train.train(handed_over, batches, cell, digits)
    assert np.array_equal(refined.correct, score(handed_over, digits, "classification").correct)
    assert handed_over.step == 5 + 6


def test_a_warm_start_hands_over_class_weights_and_momentum(read_suite, registry, digits):
    cells = plan(read_suite(SMALL + "warm_start = { steps = 5 }\n"))
    warm = build(cells[0], cells[0].loss, registry, digits.in_shape)
    train.train(warm, Batches(digits.train, 16, 0), cells[0], digits)
    fresh = build(cells[2], cells[2].loss, registry, digits.in_shape)
    fresh.refine(warm.checkpoint())
    assert torch.equal(fresh.loss.weight, warm.loss.weight)
    momentum = fresh.optimizer.state[fresh.loss.weight]["momentum_buffer"]
    assert torch.equal(momentum, warm.optimizer.state[warm.loss.weight]["momentum_buffer"])


def test_a_loss_that_turns_nan_is_diverged_at_its_step(tmp_path, read_suite):
    write_loss(tmp_path, "bad", "value = value * (float('nan') if self.calls == 4 else 1.0)")
    registry = Registry([tmp_path])
    cells = plan(read_suite(SMALL.replace('"w_softmax"]', '"bad"]'), plugins=registry))
    record = train.run(cells[1], registry, DATA).record
    assert record.status == "diverged"
    assert "step 3" in record.error  # steps count from 0
    assert record.correct is None


def test_a_plugin_that_changed_since_the_plan_is_not_run(tmp_path, read_suite):
    path = write_loss(tmp_path, "mine", "pass")
    cells = plan(read_suite(SMALL.replace('"w_softmax"]', '"mine"]'), plugins=Registry([tmp_path])))
    path.write_text(path.read_text() + "# changed\n")
    with pytest.raises(PluginError, match="has changed since this run was planned"):
        train.run(cells[1], Registry([tmp_path]), DATA)


def test_timing_visits_every_loss_in_every_round(read_suite, registry):
    cell = plan(read_suite(SMALL + "timing = { rounds = 4, steps = 2 }\n"))[-1]
    record = train.run(cell, registry, DATA).record
    assert set(record.rounds) == {"softmax", "w_softmax"}
    assert all(len(rounds) == 4 and min(rounds) > 0 for rounds in record.rounds.values())


def test_angles_are_zero_on_the_weight_and_right_angles_beside_it():
    from lossbench.training.measure import mean_angles

    weight = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    features = torch.tensor([[5.0, 0.0], [0.0, 7.0], [1.0, 0.0]])
    assert mean_angles(features, torch.tensor([0, 0, 1]), weight) == [pytest.approx(45.0), pytest.approx(90.0), None]
    assert mean_angles(-features, torch.tensor([0, 1, 2]), weight) == pytest.approx([180.0, 180.0, 135.0])


def test_angles_are_measured_where_the_features_are():
    """Tensors that only pretend to be on a GPU stop at the first number that is asked for, not at a mix of devices."""
    from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

    from lossbench.training.measure import mean_angles

    with FakeTensorMode():
        features, weight = torch.empty(6, 3, device="cuda"), torch.empty(4, 3, device="cuda")
        labels = torch.empty(6, dtype=torch.long, device="cuda")
        with pytest.raises(DynamicOutputShapeException, match="bincount"):
            mean_angles(features, labels, weight)


def test_a_refinement_goes_on_with_the_decayed_learning_rate(read_suite, registry, digits):
    text = SMALL.replace("batch = 16", "batch = 16, lr = 0.8, decay = { factor = 0.5, every = 4 }")
    cells = plan(read_suite(text + "warm_start = { steps = 5 }\n"))
    warm = build(cells[0], cells[0].loss, registry, digits.in_shape)
    batches = Batches(digits.train, 16, 0)
    train.train(warm, batches, cells[0], digits)
    refined = build(cells[1], cells[1].loss, registry, digits.in_shape)
    refined.refine(warm.checkpoint())
    one_step = replace(cells[1], schedule=cells[1].schedule.model_copy(update={"steps": 1}), key="")
    train.train(refined, batches, one_step, digits)
    assert refined.optimizer.param_groups[0]["lr"] == 0.4  # step 5 of the whole training


def test_parameters_that_turn_nan_at_the_last_step_are_diverged_too(tmp_path, read_suite):
    write_loss(tmp_path, "bad", "self.weight.register_hook(lambda g: g * float('nan')) if self.calls == 6 else None")
    registry = Registry([tmp_path])
    cells = plan(read_suite(SMALL.replace('"w_softmax"]', '"bad"]'), plugins=registry))
    record = train.run(cells[1], registry, DATA).record
    assert (record.status, record.error) == ("diverged", "a parameter is not finite at step 5")


def test_a_loss_is_told_the_length_and_advanced_once_a_step(read_suite, registry, digits, monkeypatch):
    cell = plan(read_suite(SMALL.replace('"w_softmax"]', '"l_softmax"]')))[1]
    trainee = build(cell, cell.loss, registry, digits.in_shape)
    train.train(trainee, Batches(digits.train, 16, 0), cell, digits)
    assert trainee.loss.annealing.t == 6
    assert trainee.loss.annealing.pace == 20000 / 6


def test_scores_come_from_evaluation_mode_and_training_goes_on_in_training_mode(read_suite, registry, digits):
    schedule = "schedule = { steps = 6, batch = 16, evaluations = 2 }"
    cell = plan(read_suite(SMALL.replace("schedule = { steps = 6, batch = 16 }", schedule)))[0]
    trainee = build(cell, cell.loss, registry, digits.in_shape)
    modes = []
    trainee.backbone.register_forward_hook(lambda module, *_: modes.append((module.training, torch.is_grad_enabled())))
    train.train(trainee, Batches(digits.train, 16, 0), cell, digits)
    batches = -(-len(digits.test) // EVALUATION_BATCH)
    assert modes == ([(True, True)] * 3 + [(False, False)] * batches) * 2


@pytest.fixture(scope="module")
def strokes(tmp_path_factory):
    """A verification set of our own: the direction of a stroke is its class; 12 to learn, 24 others to verify."""
    folder = tmp_path_factory.mktemp("strokes")
    (folder / "datasets").mkdir()
    (folder / "datasets" / "strokes.py").write_text(
        '''"""Strokes."""
from pathlib import Path
from typing import Literal
import numpy as np
from lossbench.data.dataset import Dataset, Split
from lossbench.data.pairs import drawn_pairs

def drawn(angles, each, seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[-8:8, -8:8] + 0.5
    angle = np.repeat(angles, each)[:, None, None]
    ink = np.abs(np.cos(angle) * y - np.sin(angle) * x) < 1.5
    images = (255 * ink * rng.uniform(0.5, 1, ink.shape)).astype(np.uint8)[..., None]
    return images, np.repeat(np.arange(len(angles)), each)

def load(root: Path, *, task: Literal["classification", "verification"] = "classification") -> Dataset:
    train = Split.of(*drawn(np.pi * np.arange(12) / 12, 10, 0))
    test = Split.of(*drawn(np.pi * (np.arange(24) + 0.5) / 24, 10, 1))
    if task == "classification":
        return Dataset(train, train, 12)
    pairs, folds = drawn_pairs(test.labels, 40)
    return Dataset(train, test, 12, pairs, folds)
'''
    )
    return Registry([folder])


VERIFICATION = """
name = "strokes"
[[experiment]]
name = "strokes"
task = "verification"
dataset = "strokes"
backbone = { name = "cnn", channels = 8, depths = [1, 1] }
widths = [16]
losses = ["softmax", "cosface[s=8.0,m=0.1]"]
seeds = 1
schedule = { steps = 60, batch = 24, lr = 0.05, evaluations = 2 }
"""


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


def test_verification_scores_are_cosines_of_features_in_evaluation_mode(strokes, read_suite):
    cell = plan(read_suite(VERIFICATION, plugins=strokes))[0]
    dataset = load_dataset("strokes", registry=strokes, task="verification")
    trainee = build(cell, cell.loss, strokes, dataset.in_shape)
    found = score(trainee, dataset, "verification")
    with torch.no_grad():
        features = trainee.backbone.eval()(as_input(dataset.test.images.copy())).double()
    unit = features / features.norm(dim=1, keepdim=True)
    cosine = (unit[dataset.pairs[:, 0]] * unit[dataset.pairs[:, 1]]).sum(1).numpy()
    same = dataset.pairs[:, 2] == 1
    wins = np.mean([a > b for a in cosine[same] for b in cosine[~same]])  # the area under the ROC by its definition
    assert found.verification["auc"]["value"] == pytest.approx(wins, abs=1e-4)


def test_verification_shares_its_warm_start_with_classification_of_the_same_images(strokes, read_suite):
    warm = VERIFICATION.replace("seeds = 1", 'seeds = 1\nwarm_start = { loss = "softmax", steps = 5 }')
    first = plan(read_suite(warm, plugins=strokes))
    assert first[0].kind == "warm"
    assert first[0].key == replace(first[1].warm_cell(), task="classification", key="").key


def test_the_geometry_of_class_weights_is_measured_against_the_simplex():
    from kit.simplex import simplex

    from lossbench.training.measure import weight_geometry

    turned, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 9)))
    perfect = weight_geometry(torch.from_numpy(3 * turned @ simplex(10)).T)
    assert perfect["simplex_distance"] == pytest.approx(0, abs=1e-7)
    assert [perfect["weight_angle"], perfect["weight_angle_least"]] == pytest.approx(
        [np.degrees(np.arccos(-1 / 9))] * 2
    )
    crossed = weight_geometry(torch.eye(3))
    assert crossed["simplex_distance"] == pytest.approx(0.5)
    assert crossed["weight_angle"] == pytest.approx(90)
    two = weight_geometry(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]))
    assert two["weight_angle_least"] == pytest.approx(45)


def test_feature_norms_are_recorded(cells, registry, digits):
    record = train.run(cells[0], registry, DATA).record
    trainee = build(cells[0], cells[0].loss, registry, digits.in_shape)
    train.train(trainee, Batches(digits.train, 16, 0), cells[0], digits)
    with torch.no_grad():
        features = trainee.backbone.eval()(as_input(digits.test.images.copy()))
    assert record.geometry["norm_test"] == pytest.approx(float(features.norm(dim=1).mean()), rel=1e-5)


def test_augmented_batches_are_a_function_of_seed_and_step(digits):
    first, again = (Batches(digits.train, 16, 3, ("flip", "crop")) for _ in range(2))
    plain = Batches(digits.train, 16, 3)
    assert torch.equal(first.at(5)[0], again.at(5)[0])
    assert torch.equal(first.at(5)[1], plain.at(5)[1])
    assert not torch.equal(first.at(5)[0], plain.at(5)[0])
    assert not torch.equal(first.at(5)[0], Batches(digits.train, 16, 4, ("flip", "crop")).at(5)[0])


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
    trainee = build(flat, flat.loss, registry, digits.in_shape)
    train.train(trainee, Batches(digits.train, 16, 0), flat, digits)
    with torch.no_grad():
        whole = trainee.backbone.eval()(as_input(digits.test.images.copy())).numpy()
    found = {tuple(np.round(row, 3)) for row in whole.tolist()}
    assert sum(tuple(row) in found for row in kept["points"]) > 490  # but for the last digit


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
