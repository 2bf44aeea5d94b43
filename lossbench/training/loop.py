"""The training loop: steps, the learning curve, test scores during training, and the state for resuming."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lossbench.core.model import Cell
from lossbench.core.streams import derive
from lossbench.data import Dataset
from lossbench.training.batches import Batches
from lossbench.training.checkpoints import Checkpointer, DamagedError
from lossbench.training.evaluation import NotFiniteError, evaluate
from lossbench.training.recipe import learning_rate, set_learning_rate
from lossbench.training.state import TrainState

CURVE_POINTS = 40  # of the training loss; the mean over the steps between two points


class DivergedError(ArithmeticError):
    """The training loss, a parameter, or an output of the network in evaluation became NaN or infinite."""

    def __init__(self, step: int, curve: list[dict[str, float]], what: str = "the training loss") -> None:
        super().__init__(f"{what} is not finite at step {step}")
        self.step, self.curve = step, curve


@dataclass
class Progress:
    """Progress of a training: steps done, the learning curve, the losses since its last point."""

    done: int = 0
    curve: list[dict[str, float]] = field(default_factory=list)
    window: list[Tensor] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    flags: tuple[str, ...] = ()  # resumed, or restarted: a kept state was damaged

    def kept(self) -> dict[str, Any]:
        """The part of it that is saved for resuming."""
        return {"done": self.done, "curve": self.curve, "window": [value.cpu() for value in self.window]}

    def close_window(self, state: TrainState, step: int) -> None:
        """A point of the learning curve: the mean loss since the last one, which must be finite."""
        values = torch.stack([value.cpu() for value in self.window]).double()  # those of a resumed cell are on the CPU
        if not torch.isfinite(values).all():
            bad = int(torch.isfinite(values).logical_not().int().argmax())
            raise DivergedError(state.step - len(self.window) + bad, self.curve)
        self.curve.append({"step": step, "loss": float(values.mean())})
        self.window.clear()


def train(
    state: TrainState, batches: Batches, cell: Cell, dataset: Dataset, checkpointer: Checkpointer | None = None
) -> Progress:
    """Run `schedule.steps` optimizer steps, continuing from the state that an earlier process saved."""
    schedule = cell.schedule
    state.train()
    if begin := getattr(state.loss, "begin", None):
        begin(schedule.steps)
    first = state.step
    progress = _resumed(checkpointer, state, schedule.steps) if checkpointer else Progress()
    saved = time.monotonic()
    points = _spread(schedule.steps, CURVE_POINTS)
    evaluated = _spread(schedule.steps, schedule.evaluations)
    for done in range(progress.done + 1, schedule.steps + 1):
        started = time.perf_counter()
        images, labels = batches.at(state.step)
        set_learning_rate(state.optimizer, learning_rate(schedule, state.step, cell.total_steps))
        _seed_step(cell, state.step)
        progress.window.append(state.update(images, labels))
        progress.step_seconds.append(time.perf_counter() - started)
        progress.done = done
        if done in points or done in evaluated:
            progress.close_window(state, first + done)
        if done in evaluated:
            progress.curve[-1]["correct"] = _correct(state, dataset, cell, progress)
        if checkpointer and done < schedule.steps and time.monotonic() - saved > checkpointer.every:
            checkpointer.write({"state": state.checkpoint(), "progress": progress.kept()})
            saved = time.monotonic()
    if not state.is_finite():  # the last step's gradient, which no loss has seen
        raise DivergedError(state.step - 1, progress.curve, "a parameter")
    return progress


def _seed_step(cell: Cell, step: int) -> None:
    """Seed the global generators for one step: dropout and random margins depend on seed and step only."""
    seed = derive(cell.seed, "step", step)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would look at every device there might be
    if cell.device != "cpu":
        torch.cuda.manual_seed(seed)


def _correct(state: TrainState, dataset: Dataset, cell: Cell, progress: Progress) -> int:
    """The number of correct test examples at this step; the state returns to training mode afterwards."""
    try:
        found = evaluate(state, dataset, cell.task)
    except NotFiniteError as error:
        raise DivergedError(state.step - 1, progress.curve, str(error)) from error
    state.train()
    assert found.correct is not None
    return int(found.correct.sum())


def _resumed(checkpointer: Checkpointer, state: TrainState, steps: int) -> Progress:
    """The progress that an earlier process saved, with the state restored; a new one if it is missing or damaged."""
    try:
        kept = checkpointer.read()
        if kept is None:
            return Progress()
        _check(kept, state, steps)
    except DamagedError as error:
        print(
            f"the saved state {checkpointer.path.name} is not used: {error}; the cell starts from the beginning",
            flush=True,
        )
        with contextlib.suppress(OSError):
            checkpointer.path.unlink()
        return Progress(flags=("restarted",))
    state.restore(kept["state"])
    return Progress(**kept["progress"], flags=("resumed",))


def _check(kept: dict[str, Any], state: TrainState, steps: int) -> None:
    """Refuse a saved state from which this cell cannot resume, before any of it is used."""
    try:
        done, step = kept["progress"]["done"], kept["state"]["step"]
        same = kept["progress"].keys() == Progress().kept().keys() and state.fits(kept["state"])
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedError("it is not the state of a cell") from error
    if not same:
        raise DamagedError("its tensors are not those of this cell")
    if not 0 < done < steps or step != state.step + done:
        raise DamagedError(f"it is at step {step} after {done} of {steps} steps")


def _spread(steps: int, count: int) -> set[int]:
    """`count` steps, evenly spread, the last one among them."""
    return {math.ceil(steps * point / count) for point in range(1, count + 1)} if count else set()
