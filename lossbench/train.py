"""One cell: build, train, score. Everything random comes from the cell's seed by a named stream."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lossbench import measure, verification
from lossbench.data import Dataset, Split, load_dataset
from lossbench.data.view import augmented
from lossbench.errors import PluginError
from lossbench.registry import Kind, Registry
from lossbench.schema import Cell, Record, Spec, finite_or_none
from lossbench.streams import derive
from lossbench.text import Schedule, Task

EVALUATION_BATCH = 512
CURVE_POINTS = 40  # of the training loss; the mean over the steps between two points
ANGLE_SAMPLE = 10_000  # training images whose angles are measured


class DivergedError(ArithmeticError):
    """The training loss became NaN or infinite."""

    def __init__(self, step: int, curve: list[dict[str, float]], what: str = "the training loss") -> None:
        super().__init__(f"{what} is not finite at step {step}")
        self.step, self.curve = step, curve


@dataclass(frozen=True)
class Outcome:
    """What a cell leaves: its record, one bit per test example, and, for a warm start, a checkpoint."""

    record: Record
    correct: NDArray[np.bool_] | None = None
    checkpoint: dict[str, Any] | None = None


@dataclass
class Trainee:
    """A backbone with a loss on top, and the optimizer that moves both; `step` counts from the very beginning."""

    backbone: nn.Module
    loss: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    advance: Callable[[], None] | None = field(init=False)

    def __post_init__(self) -> None:
        self.advance = getattr(self.loss, "advance", None)

    def update(self, images: Tensor, labels: Tensor) -> Tensor:
        """One optimizer step on one batch; the training loss, detached."""
        value: Tensor = self.loss(self.backbone(images), labels)
        self.optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
        self.optimizer.step()
        if self.advance:
            self.advance()
        self.step += 1
        return value.detach()


def run(cell: Cell, registry: Registry, data: Path, warm_checkpoint: Path | None = None) -> Outcome:
    """Train and score one cell of any kind."""
    environment = measure.environment(cell.threads)
    torch.set_num_threads(cell.threads)
    torch.use_deterministic_algorithms(True)
    # A debugging aid that would cost every allocation; torch gives the module no types.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    dataset = _dataset(cell, registry, data)
    memory = measure.PeakMemory()
    if cell.kind == "timing":
        return Outcome(replace(_time(cell, registry, dataset), bytes={"peak": memory.added()}, environment=environment))
    trainee = build(cell, cell.loss, registry, dataset)
    if warm_checkpoint is not None:
        resume_from(trainee, torch.load(warm_checkpoint, weights_only=True))
    batches = Batches(dataset.train, cell.schedule.batch, cell.seed, dataset.augment)
    started = time.perf_counter()
    try:
        curve, step_seconds = train(trainee, batches, cell, dataset)
        if not all(parameter.isfinite().all() for _, parameter in _named_parameters(trainee)):
            raise DivergedError(
                trainee.step - 1, curve, "a parameter"
            )  # the last step's gradient, which no loss has seen
    except DivergedError as error:
        return Outcome(Record(cell, "diverged", error=str(error), curve=tuple(error.curve), environment=environment))
    record = Record(
        cell,
        "done",
        seconds={"train": time.perf_counter() - started, "step_median": statistics.median(step_seconds)},
        curve=tuple(curve),
        bytes=measure.ledger(trainee.backbone, trainee.loss, trainee.optimizer),
        environment=environment,
        digest=measure.parameter_digest(trainee.backbone, trainee.loss),
    )
    if cell.kind == "warm":
        record = replace(record, bytes={**record.bytes, "peak": memory.added()})
        return Outcome(record, checkpoint=checkpoint_of(trainee))
    found = score(trainee, dataset, cell.task)
    _, on_train = features_of(trainee, _sample(dataset.train, ANGLE_SAMPLE, cell.seed))
    record = replace(
        record,
        correct=int(found.correct.sum()),
        total=len(found.correct),
        angles={"train": on_train.angles, "test": found.seen.angles},
        geometry={**_weights(trainee), "norm_train": on_train.norm, "norm_test": found.seen.norm},
        verification=found.verification,
        bytes={**record.bytes, "peak": memory.added()},
    )
    return Outcome(record, correct=found.correct)


def build(cell: Cell, loss_spec: Spec, registry: Registry, dataset: Dataset) -> Trainee:
    """A fresh backbone and loss: the backbone's initial weights depend on the seed alone, never on the loss."""
    seed_everything(derive(cell.seed, "init", "backbone"))
    backbone = _plugin(registry, "backbone", cell.backbone)(dataset.in_shape, cell.width, **cell.backbone.options)
    seed_everything(derive(cell.seed, "init", "loss"))
    loss = _plugin(registry, "loss", loss_spec)(cell.width, cell.classes, **loss_spec.options)
    parameters = [*backbone.parameters(), *loss.parameters()]
    schedule = cell.schedule
    optimizer = torch.optim.SGD(
        parameters, lr=schedule.lr, momentum=schedule.momentum, weight_decay=schedule.weight_decay
    )
    return Trainee(backbone, loss, optimizer)


def train(
    trainee: Trainee, batches: Batches, cell: Cell, dataset: Dataset
) -> tuple[list[dict[str, float]], list[float]]:
    """`schedule.steps` optimizer steps; the learning curve and the seconds of every step."""
    schedule = cell.schedule
    trainee.backbone.train()
    trainee.loss.train()
    if begin := getattr(trainee.loss, "begin", None):
        begin(schedule.steps)
    first = trainee.step
    window: list[Tensor] = []
    curve: list[dict[str, float]] = []
    seconds: list[float] = []
    points = _points(schedule.steps, CURVE_POINTS)
    evaluated = _points(schedule.steps, schedule.evaluations)
    for done in range(1, schedule.steps + 1):
        started = time.perf_counter()
        images, labels = batches.at(trainee.step)
        _set_learning_rate(trainee.optimizer, schedule, trainee.step)
        # The losses and backbones that draw (dropout, random margins) draw from the step's own stream.
        torch.default_generator.manual_seed(derive(cell.seed, "step", trainee.step))
        window.append(trainee.update(images, labels))
        seconds.append(time.perf_counter() - started)
        if done in points or done in evaluated:
            values = torch.stack(window).double()
            if not torch.isfinite(values).all():
                step = trainee.step - len(window) + int(torch.isfinite(values).logical_not().int().argmax())
                raise DivergedError(step, curve)
            curve.append({"step": first + done, "loss": float(values.mean())})
            window.clear()
            if done in evaluated:
                curve[-1]["correct"] = int(score(trainee, dataset, cell.task).correct.sum())
                trainee.backbone.train()
                trainee.loss.train()
    return curve, seconds


@dataclass(frozen=True)
class Seen:
    """What the features of a split look like: angles to the own class weight by class, and their mean length."""

    angles: list[float | None]
    norm: float | None


@dataclass(frozen=True)
class Score:
    """One bit a test example (or tested pair), the look of the test features, and the figures of a verification."""

    correct: NDArray[np.bool_]
    seen: Seen
    verification: dict[str, Any] = field(default_factory=dict)


def score(trainee: Trainee, dataset: Dataset, task: Task) -> Score:
    """Classification: margin-free prediction of every test image. Verification: the cosine of every pair."""
    features, seen = features_of(trainee, dataset.test)
    if task == "classification":
        predict: Callable[[Tensor], Tensor] = trainee.loss.logits  # type: ignore[assignment]  # a plugin's method
        parts = (features[start : start + EVALUATION_BATCH] for start in range(0, len(features), EVALUATION_BATCH))
        with torch.no_grad():
            predicted = [predict(part).argmax(1) for part in parts]
        return Score(torch.cat(predicted).numpy() == dataset.test.labels, seen)
    assert dataset.pairs is not None and dataset.folds is not None
    scores, same = verification.cosine_scores(features.numpy(), dataset.pairs), dataset.pairs[:, 2].astype(bool)
    found = verification.verify(scores, same, dataset.folds, dataset.tested)
    # Unseen classes have no weight that their features could stand near.
    return Score(found.folds.correct, Seen([], seen.norm), found.to_json())


@torch.no_grad()
def features_of(trainee: Trainee, split: Split) -> tuple[Tensor, Seen]:
    """The features (N×M) of a split, in evaluation mode, and how they look."""
    trainee.backbone.eval()
    trainee.loss.eval()
    parts = []
    for start in range(0, len(split), EVALUATION_BATCH):
        images, _ = to_batch(split, np.arange(start, min(start + EVALUATION_BATCH, len(split))))
        parts.append(trainee.backbone(images))
    features = torch.cat(parts)
    angles: list[float | None] = []
    weight = getattr(trainee.loss, "weight", None)
    labels = torch.from_numpy(split.labels)
    if isinstance(weight, Tensor) and weight.shape[1:] == features.shape[1:] and labels.max() < len(weight):
        angles = measure.mean_angles(features, labels, weight)
    return features, Seen(angles, finite_or_none(float(features.norm(dim=1).double().mean())))


class Batches:
    """The infinite stream of batches of one seed: epochs of shuffled images, each batch full.

    Batch t is a function of (seed, t): a resumed or refined training sees what an uninterrupted one would.
    """

    def __init__(self, split: Split, batch: int, seed: int, augment: tuple[str, ...] = ()) -> None:
        self.split, self.batch, self.seed, self.augment = split, batch, seed, augment
        self._orders: dict[int, NDArray[np.int64]] = {}

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        index = self.indices(step)
        if not self.augment:
            return to_batch(self.split, index)
        images = augmented(
            self.split.gather(index), self.augment, np.random.default_rng(derive(self.seed, "augment", step))
        )
        return as_input(images), torch.from_numpy(self.split.labels[index])

    def indices(self, step: int) -> NDArray[np.int64]:
        size = len(self.split)
        epoch, start = divmod(step * self.batch, size)
        if start + self.batch <= size:
            return self._order(epoch)[start : start + self.batch]
        place = np.arange(start, start + self.batch)
        return np.concatenate(
            [self._order(epoch + turn)[place[place // size == turn] % size] for turn in range(place[-1] // size + 1)]
        )

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if epoch not in self._orders:
            self._orders = {old: order for old, order in self._orders.items() if old == epoch - 1}
            rng = np.random.default_rng(derive(self.seed, "order", epoch))
            self._orders[epoch] = rng.permutation(len(self.split))
        return self._orders[epoch]


def to_batch(split: Split, index: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """The images at `index` as a backbone takes them, and their labels."""
    return as_input(split.gather(index)), torch.from_numpy(split.labels[index])


def as_input(images: NDArray[np.uint8]) -> Tensor:
    """Images (B×H×W×C, uint8) as a backbone takes them: (v − 127.5) / 128 in float32, (B, channels, height, width)."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().sub_(127.5).div_(128)


def checkpoint_of(trainee: Trainee) -> dict[str, Any]:
    """Plain tensors by name: the backbone, the loss, and the optimizer's state of each parameter."""
    return {
        "backbone": trainee.backbone.state_dict(),
        "loss": trainee.loss.state_dict(),
        "optimizer": {name: trainee.optimizer.state[tensor] for name, tensor in _named_parameters(trainee)},
        "step": trainee.step,
    }


def resume_from(trainee: Trainee, checkpoint: dict[str, Any]) -> None:
    """Go on from a shared warm start: the backbone whole, and of the loss what both losses have (the class weights)."""
    trainee.backbone.load_state_dict(checkpoint["backbone"])
    own = trainee.loss.state_dict()
    common = {
        name: value
        for name, value in checkpoint["loss"].items()
        if isinstance(value, Tensor) and isinstance(own.get(name), Tensor) and own[name].shape == value.shape
    }
    trainee.loss.load_state_dict({**own, **common})
    for name, tensor in _named_parameters(trainee):
        part, _, inner = name.partition(".")
        if name in checkpoint["optimizer"] and (part == "backbone" or inner in common):
            trainee.optimizer.state[tensor] = dict(checkpoint["optimizer"][name])
    trainee.step = checkpoint["step"]


def seed_everything(seed: int) -> None:
    """The three global generators that a plugin's constructor may draw from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _named_parameters(trainee: Trainee) -> Iterator[tuple[str, Tensor]]:
    for part, module in (("backbone", trainee.backbone), ("loss", trainee.loss)):
        for name, parameter in module.named_parameters():
            yield f"{part}.{name}", parameter


def _plugin(registry: Registry, kind: Kind, spec: Spec) -> Callable[..., nn.Module]:
    plugin = registry.find(kind, spec.name)
    if plugin.source_hash != spec.source:
        raise PluginError(f"{plugin.path}: has changed since this run was planned; run the same command again")
    entry: Callable[..., nn.Module] = plugin.load()
    return entry


def _dataset(cell: Cell, registry: Registry, data: Path) -> Dataset:
    dataset = load_dataset(cell.dataset.name, seed=cell.seed, data=data, registry=registry, **cell.dataset.options)
    if not cell.dataset.source.endswith(dataset.version):
        raise PluginError(
            f"{cell.dataset.label}: its data has changed since this run was planned; run the command again"
        )
    return dataset


def _weights(trainee: Trainee) -> dict[str, float | None]:
    weight = getattr(trainee.loss, "weight", None)
    if isinstance(weight, Tensor) and weight.ndim == 2:
        return measure.weight_geometry(weight.detach())
    return {}


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


def _time(cell: Cell, registry: Registry, dataset: Dataset) -> Record:
    """Seconds a step for every loss, side by side: rounds that visit all losses in shuffled order on equal batches."""
    assert cell.timing
    batches = Batches(dataset.train, cell.schedule.batch, cell.seed, dataset.augment)
    trainees = {spec.label: build(cell, spec, registry, dataset) for spec in cell.losses}
    for trainee in trainees.values():
        trainee.backbone.train()
        trainee.loss.train()
    rounds: dict[str, list[float]] = {label: [] for label in trainees}
    order = random.Random(derive(cell.seed, "timing"))
    for round_number in range(cell.timing.rounds + 1):
        ready = [batches.at(round_number * cell.timing.steps + step) for step in range(cell.timing.steps)]
        for label in order.sample(list(trainees), len(trainees)):
            started = time.perf_counter()
            for images, labels in ready:
                trainees[label].update(images, labels)
            elapsed = (time.perf_counter() - started) / cell.timing.steps
            if round_number:  # the first round warms up caches, allocator and kernels
                rounds[label].append(elapsed)
    seconds = sum(map(sum, rounds.values())) * cell.timing.steps
    return Record(cell, "done", rounds=rounds, seconds={"train": seconds})
