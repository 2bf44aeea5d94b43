"""One cell: build, train, score. Everything random comes from the cell's seed by a named stream."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import statistics
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lossbench.core.errors import PluginError
from lossbench.core.files import write_atomically
from lossbench.core.format import Schedule
from lossbench.core.model import Cell, Record
from lossbench.core.streams import derive
from lossbench.data import Dataset, Split, load_dataset
from lossbench.plugins.registry import Registry
from lossbench.training import measure
from lossbench.training.batches import Batches
from lossbench.training.evaluation import NotFiniteError, class_weights, drawable, features_of, score
from lossbench.training.state import Trainee, build, check_unchanged
from lossbench.training.timing import time_losses

CURVE_POINTS = 40  # of the training loss; the mean over the steps between two points
COLD = "cold classifier"  # the flag of a cell whose warm start had no class weights that fit its loss
ANGLE_SAMPLE = 10_000  # training images whose angles are measured
STATE_FORMAT = b"lossbench-state-1"  # of the file of a cell in flight; another number when what it holds changes


class DivergedError(ArithmeticError):
    """The training loss, a parameter, or what the network gives in evaluation became NaN or infinite."""

    def __init__(self, step: int, curve: list[dict[str, float]], what: str = "the training loss") -> None:
        super().__init__(f"{what} is not finite at step {step}")
        self.step, self.curve = step, curve


@dataclass(frozen=True)
class Outcome:
    """What a cell leaves: its record, one bit per test example, and, for a warm start, a checkpoint (a .pt file)."""

    record: Record
    correct: NDArray[np.bool_] | None = None
    checkpoint: bytes | None = None


class DamagedError(ValueError):
    """A kept state that must not be used; its text says why."""


@dataclass(frozen=True)
class Partial:
    """Where the cell `key` keeps its state every so many seconds, so that it can go on after an interruption.

    The file is one line (format, key, sha256 of the key and of what follows) and a .pt file.
    """

    path: Path
    key: str
    every: float = 60.0

    def read(self) -> dict[str, Any] | None:
        """The state that an earlier process left, None when there is none; DamagedError if it is not as it was left."""
        if not self.path.exists():
            return None
        if not self.path.is_file():
            raise DamagedError("it is not a file")
        try:
            header, _, content = self.path.read_bytes().partition(b"\n")
            if not header.startswith(STATE_FORMAT + b" "):
                raise DamagedError("it is not in the format of this version")
            if header != self._header(content):
                raise DamagedError("it belongs to another cell, or was altered")
            state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
        except DamagedError:
            raise
        except Exception as error:  # the disk, or one of torch's many ways to fail
            raise DamagedError(f"it cannot be read: {error}") from error
        return state

    def _header(self, content: bytes) -> bytes:
        digest = hashlib.sha256(self.key.encode() + b"\n" + content).hexdigest()
        return b" ".join([STATE_FORMAT, self.key.encode(), digest.encode()])

    def write(self, state: dict[str, Any]) -> None:
        """Replace the file by one rename. A disk that is full costs the checkpoint, not the cell."""
        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, self._header(content) + b"\n" + content)
        except OSError as error:
            print(f"no checkpoint was kept: {error}")


@dataclass
class Course:
    """How far a training has come: steps done, the learning curve, the losses since its last point."""

    done: int = 0
    curve: list[dict[str, float]] = field(default_factory=list)
    window: list[Tensor] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    flags: tuple[str, ...] = ()  # resumed, or restarted: a kept state was damaged

    def state(self) -> dict[str, Any]:
        return {"done": self.done, "curve": self.curve, "window": [value.cpu() for value in self.window]}


def run(
    cell: Cell, registry: Registry, data: Path, warm_start: bytes | None = None, partial: Partial | None = None
) -> Outcome:
    """Train and score one cell of any kind; `warm_start` is the checkpoint that it refines."""
    check_unchanged(cell, registry)  # before a plugin runs: it may change the working folder
    torch.set_num_threads(cell.threads)
    torch.use_deterministic_algorithms(True)
    # A debugging aid that would cost every allocation; torch gives the module no types.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # as said
    dataset = _dataset(cell, registry, data)
    memory = measure.PeakMemory(cell.device)
    if cell.kind == "timing":
        environment = measure.environment(cell.threads, cell.device)
        timed = time_losses(cell, registry, dataset)
        return Outcome(replace(timed, bytes={"peak": memory.added()}, environment=environment))
    trainee = build(cell, cell.loss, registry, dataset.in_shape)
    environment = measure.environment(cell.threads, cell.device)
    cold = None
    if warm_start is not None:
        cold = trainee.refine(torch.load(io.BytesIO(warm_start), weights_only=True, map_location=cell.device))
    if cold:
        print(f"warm start: no class weights were handed over: {cold}")
    batches = Batches(dataset.train, cell.schedule.batch, cell.seed, dataset.augment, cell.device)
    started = time.perf_counter()
    try:
        course = train(trainee, batches, cell, dataset, partial)
        if not trainee.is_finite():  # the last step's gradient, which no loss has seen
            raise DivergedError(trainee.step - 1, course.curve, "a parameter")
    except DivergedError as error:
        return _diverged(cell, error, environment)
    measure.synchronise(cell.device)
    record = Record(
        cell,
        "done",
        seconds={"train": time.perf_counter() - started, "step_median": statistics.median(course.step_seconds)},
        curve=tuple(course.curve),
        bytes=measure.ledger(trainee.backbone, trainee.loss, trainee.optimizer, trainee.class_weights),
        environment=environment,
        digest=measure.parameter_digest(trainee.backbone, trainee.loss),
        flags=(*course.flags, *([COLD] if cold else [])),
    )
    if cell.kind == "warm":
        checkpoint = io.BytesIO()
        torch.save(trainee.checkpoint(), checkpoint)
        record = replace(record, bytes={**record.bytes, "peak": memory.added()})
        return Outcome(record, checkpoint=checkpoint.getvalue())
    try:
        found = score(trainee, dataset, cell.task)
        _, on_train = features_of(trainee, _sample(dataset.train, ANGLE_SAMPLE, cell.seed))
    except NotFiniteError as error:
        return _diverged(cell, DivergedError(trainee.step - 1, course.curve, str(error)), environment)
    weight = class_weights(trainee)
    geometry = {} if weight is None else measure.weight_geometry(weight)
    record = replace(
        record,
        correct=int(found.correct.sum()),
        total=len(found.correct),
        angles={"train": on_train.angles, "test": found.seen.angles},
        geometry={**geometry, "norm_train": on_train.norm, "norm_test": found.seen.norm},
        verification=found.verification,
        bytes={**record.bytes, "peak": memory.added()},
        features=drawable(found.features, dataset.test.labels, weight, cell.seed) if cell.width == 2 else None,
        flags=(*record.flags, *(("collapsed",) if found.predicted == 1 else ())),
    )
    return Outcome(record, correct=found.correct)


def _diverged(cell: Cell, error: DivergedError, environment: dict[str, Any]) -> Outcome:
    return Outcome(Record(cell, "diverged", error=str(error), curve=tuple(error.curve), environment=environment))


def train(trainee: Trainee, batches: Batches, cell: Cell, dataset: Dataset, partial: Partial | None = None) -> Course:
    """`schedule.steps` optimizer steps, from wherever an earlier process left them."""
    schedule, course = cell.schedule, Course()
    trainee.train()
    if begin := getattr(trainee.loss, "begin", None):
        begin(schedule.steps)
    first = trainee.step
    if partial:
        course = _resumed(partial, trainee, schedule.steps)
    saved = time.monotonic()
    points = _points(schedule.steps, CURVE_POINTS)
    evaluated = _points(schedule.steps, schedule.evaluations)
    for done in range(course.done + 1, schedule.steps + 1):
        started = time.perf_counter()
        images, labels = batches.at(trainee.step)
        _set_learning_rate(trainee.optimizer, schedule, trainee.step)
        # The losses and backbones that draw (dropout, random margins) draw from the step's own stream.
        seed = derive(cell.seed, "step", trainee.step)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would look at every device there might be
        if cell.device != "cpu":
            torch.cuda.manual_seed(seed)
        course.window.append(trainee.update(images, labels))
        course.step_seconds.append(time.perf_counter() - started)
        course.done = done
        if done in points or done in evaluated:
            _close_window(course, trainee, first + done)
            if done in evaluated:
                try:
                    course.curve[-1]["correct"] = int(score(trainee, dataset, cell.task).correct.sum())
                except NotFiniteError as error:
                    raise DivergedError(trainee.step - 1, course.curve, str(error)) from error
                trainee.train()
        if partial and done < schedule.steps and time.monotonic() - saved > partial.every:
            partial.write({"trainee": trainee.checkpoint(), "course": course.state()})
            saved = time.monotonic()
    return course


def _resumed(partial: Partial, trainee: Trainee, steps: int) -> Course:
    """The course of an earlier process, with the trainee as it was then; else, or if that is damaged, a new one."""
    try:
        kept = partial.read()
        if kept is None:
            return Course()
        _check(kept, trainee, steps)
    except DamagedError as error:
        print(f"the kept state {partial.path.name} is not used: {error}; the cell begins anew", flush=True)
        with contextlib.suppress(OSError):
            partial.path.unlink()
        return Course(flags=("restarted",))
    trainee.restore(kept["trainee"])
    return Course(**kept["course"], flags=("resumed",))


def _check(kept: dict[str, Any], trainee: Trainee, steps: int) -> None:
    """Refuse a state that this trainee cannot go on from, before any of it is used."""
    try:
        done, step = kept["course"]["done"], kept["trainee"]["step"]
        same = kept["course"].keys() == Course().state().keys() and trainee.fits(kept["trainee"])
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedError("it is not the state of a cell") from error
    if not same:
        raise DamagedError("its tensors are not those of this cell")
    if not 0 < done < steps or step != trainee.step + done:
        raise DamagedError(f"it is at step {step} after {done} of {steps} steps")


def _close_window(course: Course, trainee: Trainee, step: int) -> None:
    """A point of the learning curve: the mean loss since the last one, which must be finite."""
    values = torch.stack([value.cpu() for value in course.window]).double()  # those of a resumed cell came from a file
    if not torch.isfinite(values).all():
        bad = int(torch.isfinite(values).logical_not().int().argmax())
        raise DivergedError(trainee.step - len(course.window) + bad, course.curve)
    course.curve.append({"step": step, "loss": float(values.mean())})
    course.window.clear()


def _dataset(cell: Cell, registry: Registry, data: Path) -> Dataset:
    dataset = load_dataset(cell.dataset.name, seed=cell.seed, data=data, registry=registry, **cell.dataset.options)
    if cell.dataset.source != dataset.version:
        raise PluginError(
            f"{cell.dataset.label}: its data has changed since this run was planned; run the command again"
        )
    return dataset


def _set_learning_rate(optimizer: torch.optim.Optimizer, schedule: Schedule, step: int) -> None:
    if schedule.decay:  # at every step: a refinement begins in the middle of the decay
        for group in optimizer.param_groups:
            group["lr"] = schedule.lr * schedule.decay.factor ** (step // schedule.decay.every)


def _points(steps: int, count: int) -> set[int]:
    """`count` steps, evenly spread, the last one among them."""
    return {math.ceil(steps * point / count) for point in range(1, count + 1)} if count else set()


def _sample(split: Split, size: int, seed: int) -> Split:
    if len(split) <= size:
        return split
    rng = np.random.default_rng(derive(seed, "angles"))
    return split.take(np.sort(rng.choice(len(split), size, replace=False)))
