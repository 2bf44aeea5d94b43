"""Training is a function of the cell: same seed, same start, same batches, same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL, write_loss

from lossbench.core.errors import PluginError
from lossbench.core.model import result
from lossbench.data import data_folder, load_dataset
from lossbench.plan.cells import plan
from lossbench.plugins.registry import Registry
from lossbench.training import cell as train
from lossbench.training import measure
from lossbench.training.batches import Batches, as_input
from lossbench.training.evaluation import evaluate
from lossbench.training.loop import train as train_state
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


def test_the_same_cell_twice_gives_the_same_bits(cells, registry):
    first, second = (train.run(cells[1], registry, DATA) for _ in range(2))
    assert first.record.digest == second.record.digest
    assert result(first.record.to_json()) == result(second.record.to_json())
    assert np.array_equal(first.correct, second.correct)


def test_a_variable_that_chooses_other_kernels_is_another_environment(cells, registry, monkeypatch):
    for name in measure.KERNELS:
        monkeypatch.delenv(name, raising=False)
    plain = train.run(cells[0], registry, DATA).record.environment
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    other = train.run(cells[0], registry, DATA).record.environment
    assert "variables" not in plain
    assert other["variables"] == "ONEDNN_MAX_CPU_ISA=AVX2 NVIDIA_TF32_OVERRIDE=1"
    assert plain["fingerprint"] != other["fingerprint"]


def test_the_record_states_counts_ledger_angles_and_metrics(cells, registry, digits):
    record = train.run(cells[0], registry, DATA).record
    assert record.total == len(digits.test)
    assert 0 <= record.correct <= record.total
    features = cells[0].width * (4 * 4 * 4 + 1) * 4  # 4 channels at 4×4 after one pooling, a bias, float32
    assert record.bytes["fc"] == features
    assert record.bytes["classifier"] == (10 * 8 + 10) * 4
    assert record.bytes["optimizer"] > 0
    assert len(record.angles["train"]) == len(record.angles["test"]) == 10
    assert record.curve[-1]["step"] == cells[0].schedule.steps
    assert record.metrics["accuracy"] == record.accuracy
    assert record.metrics["angle"] == pytest.approx(np.mean(record.angles["test"]))
    assert record.metrics["weight_angle"] == record.geometry["weight_angle"]
    state = build(cells[0], cells[0].loss, registry, digits.in_shape)
    train_state(state, Batches(digits.train, 16, 0), cells[0], digits)
    with torch.no_grad():
        features = state.backbone.eval()(as_input(digits.test.images.copy()))
    assert record.geometry["norm_test"] == record.metrics["feature_norm"]
    assert record.geometry["norm_test"] == pytest.approx(float(features.norm(dim=1).mean()), rel=1e-5)
    logits, labels = state.loss.eval().logits(features), torch.from_numpy(digits.test.labels)
    nll = torch.nn.functional.cross_entropy(logits.double(), labels).item()
    assert record.metrics["nll"] == pytest.approx(nll, rel=1e-5)
    assert record.metrics["ece"] > 0 and record.metrics["ece_scaled"] is None  # nothing is held out


def test_temperature_scaling_is_fitted_on_images_that_are_not_trained_on(read_suite, registry):
    text = SMALL.replace('dataset = "digits"', 'dataset = { name = "digits", holdout = 0.5 }')
    seen = []
    measured = train.measure_defaults
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "measure_defaults", lambda cell, test: (seen.append(test), measured(cell, test))[1])
        record = train.run(plan(read_suite(text))[0], registry, DATA).record
    parts = load_dataset("digits", holdout=0.5)
    assert np.array_equal(seen[0].held_out.labels, parts.held_out.labels) and seen[0].held_out.outputs is not None
    assert np.array_equal(seen[0].train.labels, parts.train.labels)
    assert 0 <= record.metrics["ece_scaled"] < 100


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
    state = build(cell, cell.loss, registry, digits.in_shape)
    seen = []
    step = state.optimizer.step
    monkeypatch.setattr(state.optimizer, "step", lambda: (seen.append(state.optimizer.param_groups[0]["lr"]), step()))
    train_state(state, Batches(digits.train, 16, 0), cell, digits)
    assert seen == [0.8, 0.8, 0.4, 0.4, 0.2, 0.2]


@pytest.mark.parametrize("loss", ["softmax", "center", "l_softmax", "w_softmax"])
def test_refining_a_shared_warm_start_equals_training_both_phases_in_one_go(read_suite, registry, digits, loss):
    text = SMALL.replace('"w_softmax"]', '"center", "l_softmax", "w_softmax"]') + "warm_start = { steps = 5 }\n"
    cells = plan(read_suite(text))
    warm, cell = cells[0], next(cell for cell in cells if cell.loss.label == loss and cell.kind == "train")
    refined = train.run(cell, registry, DATA, train.run(warm, registry, DATA).checkpoint)

    in_one_go = build(warm, warm.loss, registry, digits.in_shape)
    batches = Batches(digits.train, cell.schedule.batch, cell.seed)
    train_state(in_one_go, batches, warm, digits)
    handed_over = build(cell, cell.loss, registry, digits.in_shape)
    handed_over.refine(in_one_go.checkpoint())
    train_state(handed_over, batches, cell, digits)
    assert np.array_equal(refined.correct, evaluate(handed_over, digits, "classification").correct)
    assert handed_over.step == 5 + 6


def test_a_warm_start_hands_over_class_weights_and_momentum(read_suite, registry, digits):
    cells = plan(read_suite(SMALL + "warm_start = { steps = 5 }\n"))
    warm = build(cells[0], cells[0].loss, registry, digits.in_shape)
    train_state(warm, Batches(digits.train, 16, 0), cells[0], digits)
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


def test_a_refinement_goes_on_with_the_decayed_learning_rate(read_suite, registry, digits):
    text = SMALL.replace("batch = 16", "batch = 16, lr = 0.8, decay = { factor = 0.5, every = 4 }")
    cells = plan(read_suite(text + "warm_start = { steps = 5 }\n"))
    warm = build(cells[0], cells[0].loss, registry, digits.in_shape)
    batches = Batches(digits.train, 16, 0)
    train_state(warm, batches, cells[0], digits)
    refined = build(cells[1], cells[1].loss, registry, digits.in_shape)
    refined.refine(warm.checkpoint())
    one_step = replace(cells[1], schedule=cells[1].schedule.model_copy(update={"steps": 1}), key="")
    train_state(refined, batches, one_step, digits)
    assert refined.optimizer.param_groups[0]["lr"] == 0.4  # step 5 of the whole training


def test_parameters_that_turn_nan_at_the_last_step_are_diverged_too(tmp_path, read_suite):
    write_loss(tmp_path, "bad", "self.weight.register_hook(lambda g: g * float('nan')) if self.calls == 6 else None")
    registry = Registry([tmp_path])
    cells = plan(read_suite(SMALL.replace('"w_softmax"]', '"bad"]'), plugins=registry))
    record = train.run(cells[1], registry, DATA).record
    assert (record.status, record.error) == ("diverged", "a parameter is not finite at step 5")


def test_a_loss_is_told_the_length_and_advanced_once_a_step(read_suite, registry, digits, monkeypatch):
    cell = plan(read_suite(SMALL.replace('"w_softmax"]', '"l_softmax"]')))[1]
    state = build(cell, cell.loss, registry, digits.in_shape)
    train_state(state, Batches(digits.train, 16, 0), cell, digits)
    assert state.loss.annealing.t == 6
    assert state.loss.annealing.pace == 20000 / 6
