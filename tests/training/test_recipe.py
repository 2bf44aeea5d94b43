"""The recipe: optimizers, learning rates, clipping and groups, exact whenever a cell is interrupted or warm started."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL

from lossbench.core.errors import PluginError
from lossbench.core.format import Schedule
from lossbench.core.model import Cell, result
from lossbench.data import data_folder, load_dataset
from lossbench.engines.preflight import probe
from lossbench.plan.cells import plan
from lossbench.plugins import optimizers
from lossbench.training import cell as training
from lossbench.training.checkpoints import Checkpointer
from lossbench.training.loop import train
from lossbench.training.recipe import learning_rate
from lossbench.training.state import build

DATA = data_folder()
# One optimizer for each way to keep a state: by parameter, by group (lamb, adan), factored, wrapped, hybrid.
FEW = ["adamw[betas=(0.8 0.9)]", "lion", "muon", "lamb", "lookahead_adan", "adafactor[min_dim_size_to_factor=4]"]
RECIPE = 'optimizer = "{}", decay = "cosine", warmup = 4, clip = 0.5, loss_lr = 10.0, decay_norms = false, lr = 0.002'
WARM = "\nwarm_start = { steps = 5 }\n"


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def small(recipe: str, steps: int = 12, more: str = "") -> str:
    return SMALL.replace("steps = 6, batch = 16", f"steps = {steps}, batch = 16, {recipe}") + more


def rates(schedule: Schedule, horizon: int) -> list[float]:
    return [learning_rate(schedule, step, horizon) for step in range(horizon)]


def test_the_learning_rate_follows_the_formula_of_each_decay():
    steps = np.arange(20)
    decays = {
        "constant": np.ones(20),
        "cosine": 0.5 * (1 + np.cos(np.pi * steps / 20)),
        "linear": 1 - steps / 20,
        "poly": (1 - steps / 20) ** 0.9,
    }
    for decay, shape in decays.items():
        assert rates(Schedule(steps=20, lr=0.5, decay=decay), 20) == pytest.approx(0.5 * shape)
    ended = Schedule.model_validate({"steps": 20, "lr": 0.5, "decay": {"shape": "poly", "power": 2.0, "end": 0.1}})
    assert rates(ended, 20) == pytest.approx(0.5 * (0.1 + 0.9 * (1 - steps / 20) ** 2))
    every = Schedule.model_validate({"steps": 20, "decay": {"factor": 0.5, "every": 8}, "lr": 1.0})
    assert rates(every, 20) == [1.0] * 8 + [0.5] * 8 + [0.25] * 4
    at = Schedule.model_validate({"steps": 20, "decay": {"factor": 0.1, "at": [5, 12]}, "lr": 1.0})
    assert rates(at, 20) == pytest.approx([1.0] * 5 + [0.1] * 7 + [0.01] * 8)


def test_a_warm_up_rises_linearly_and_the_annealing_begins_at_its_end():
    schedule = Schedule(steps=20, lr=0.8, decay="cosine", warmup=4)
    expected = [0.2, 0.4, 0.6, 0.8] + [0.4 * (1 + math.cos(math.pi * step / 16)) for step in range(16)]
    assert rates(schedule, 20) == pytest.approx(expected)
    assert rates(Schedule(steps=4, lr=0.8, decay="cosine", warmup=4), 4) == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_sgd_with_a_step_decay_has_the_learning_rate_of_ever():
    schedule = Schedule.model_validate({"steps": 99, "lr": 0.037, "decay": {"factor": 0.83, "every": 7}})
    assert rates(schedule, 99) == [0.037 * 0.83 ** (step // 7) for step in range(99)]  # to the bit


def test_groups_have_their_learning_rates_and_norms_and_biases_no_weight_decay(read_suite, registry, digits):
    cell = plan(read_suite(small("loss_lr = 10.0, decay_norms = false, weight_decay = 0.25, decay = 'linear'")))[0]
    state = build(cell, cell.loss, registry, digits.in_shape)
    train(state, training.Batches.of(cell, digits), cell, digits)
    last = 0.01 * (1 - 11 / 12)
    of = {id(tensor): group for group in state.optimizer.param_groups for tensor in group["params"]}
    for name, tensor in state.named_parameters():
        group = of[id(tensor)]
        assert group["lr"] == pytest.approx(last * (10 if name.startswith("loss.") else 1)), name
        assert group["weight_decay"] == (0.25 if tensor.ndim > 1 else 0), name
    assert len(state.optimizer.param_groups) == 4


def test_one_step_is_that_of_a_bare_loop_with_the_clipped_gradient_of_all_parameters(read_suite, registry, digits):
    cell = plan(read_suite(small('optimizer = "adamw", clip = 0.01, weight_decay = 0.1, lr = 0.5')))[0]
    ours, bare = (build(cell, cell.loss, registry, digits.in_shape) for _ in range(2))
    images, labels = training.Batches.of(cell, digits).at(0)
    ours.train()
    ours.update(images, labels)
    parameters = [*bare.backbone.parameters(), *bare.loss.parameters()]
    bare.train()
    bare.loss(bare.backbone(images), labels).backward()
    norm = torch.sqrt(sum((tensor.grad**2).sum() for tensor in parameters))
    assert norm > 0.1
    for tensor in parameters:
        tensor.grad *= 0.01 / norm
    torch.optim.AdamW(parameters, lr=0.5, weight_decay=0.1).step()
    for mine, theirs in zip([*ours.backbone.parameters(), *ours.loss.parameters()], parameters, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4)


def interrupted(cell: Cell, registry, tmp_path, monkeypatch, at: int, warm: bytes | None = None) -> training.Outcome:
    """The outcome of a cell that was ended before step `at`, and resumed by another process."""
    kept = Checkpointer(tmp_path / f"{cell.key}.pt", cell.key, every=0)
    step = training.Batches.at

    def ending(batches, number):
        if number == at:
            raise KeyboardInterrupt
        return step(batches, number)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(training.Batches, "at", ending)
        training.run(cell, registry, DATA, warm, kept)
    found = training.run(cell, registry, DATA, warm, kept)
    assert found.record.flags == ("resumed",)
    return found


def check_exact(optimizer: str, read_suite, registry, tmp_path, monkeypatch, digits) -> None:
    """Interrupted in either phase, a warm started cell has the bits of the same loss trained in one go."""
    cells = plan(read_suite(small(RECIPE.format(optimizer), more=WARM)))
    warm, cell = cells[0], next(cell for cell in cells if cell.kind == "train")
    assert warm.loss.matches(cell.loss)
    straight = replace(
        cell, warm=None, schedule=cell.schedule.model_copy(update={"steps": cell.schedule.steps + 5}), key=""
    )
    whole = training.run(straight, registry, DATA).record
    assert whole.status == "done"
    first = training.run(warm, registry, DATA)
    resumed = interrupted(warm, registry, tmp_path, monkeypatch, 3)
    assert resumed.record.digest == first.record.digest
    assert resumed.checkpoint == first.checkpoint  # to the byte
    refined = training.run(cell, registry, DATA, first.checkpoint).record
    again = interrupted(cell, registry, tmp_path, monkeypatch, 11, first.checkpoint).record
    assert whole.digest == refined.digest == again.digest
    assert result(refined.to_json()) == result(again.to_json())
    other = build(straight, straight.loss, registry, digits.in_shape)
    assert whole.digest != training.measure.parameter_digest(other.backbone, other.loss)  # it was trained


@pytest.mark.parametrize("optimizer", FEW)
def test_a_cell_is_exact_under_interruptions_and_warm_starts(
    optimizer, read_suite, registry, tmp_path, monkeypatch, digits
):
    check_exact(optimizer, read_suite, registry, tmp_path, monkeypatch, digits)


USABLE = sorted(name for name, each in optimizers.known().items() if not each.unusable)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [*USABLE, "lookahead_sgd", "lookahead_lamb"])
def test_every_optimizer_is_exact_under_interruptions_and_warm_starts(
    optimizer, read_suite, registry, tmp_path, monkeypatch, digits
):
    check_exact(optimizer, read_suite, registry, tmp_path, monkeypatch, digits)


def test_a_refinement_with_another_optimizer_starts_it_afresh(read_suite, registry, digits):
    warm = plan(read_suite(small("lr = 0.01", more=WARM)))[0]
    checkpoint = training.run(warm, registry, DATA).checkpoint
    for optimizer, kept in (("adamw", False), ("sgd[nesterov=true]", False), ("sgd", True)):
        cells = plan(read_suite(small(f'optimizer = "{optimizer}"', more=WARM)))
        cell = next(cell for cell in cells if cell.kind == "train")
        state = build(cell, cell.loss, registry, digits.in_shape)
        training._refine(state, checkpoint)
        assert bool(state.optimizer.state) is kept
        assert state.step == 5
        assert training.run(cell, registry, DATA, checkpoint).record.status == "done"


def test_timing_cells_and_forecasts_work_with_a_recipe(read_suite, registry):
    text = small(RECIPE.format("lamb") + ", per_class = 4", more="timing = { rounds = 3, steps = 1 }\n")
    cell = plan(read_suite(text))[-1]
    assert set(training.run_share(cell, registry, DATA, 0)["phases"]) == {"softmax", "w_softmax"}
    (cost,) = probe([cell], registry, DATA, begin=list)
    assert cost["step"] > 0


def test_a_cell_whose_classes_are_too_small_is_flagged(read_suite, registry):
    text = small("per_class = 4", steps=2).replace('dataset = "digits"', 'dataset = { name = "digits", train = 25 }')
    assert training.run(plan(read_suite(text))[0], registry, DATA).record.flags == ("small classes",)


def test_a_cell_planned_with_another_timm_is_refused(read_suite, registry):
    cell = plan(read_suite(small('optimizer = "lion"')))[0]
    other = replace(cell, schedule=cell.schedule.model_copy(update={"timm": "0.1"}))
    with pytest.raises(PluginError, match=r"planned with timm 0.1, but this is timm"):
        training.run(other, registry, DATA)
