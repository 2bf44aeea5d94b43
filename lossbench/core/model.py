"""The frozen data model: suites with every name resolved, their cells, and the records of cells.

Plain data, and the only thing that crosses a process boundary.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

from lossbench.core import plain
from lossbench.core.errors import bounded
from lossbench.core.format import Claim, PublishedText, Schedule, Task, Timing
from lossbench.core.metric import Metric
from lossbench.core.point import Point
from lossbench.core.values import frozen

# Raised whenever lossbench's own training or evaluation code changes results, so that older records are not taken for
# current ones. A change of that code needs a decision about it, which tests/protocol.toml records.
PROTOCOL = 3

Status = Literal["done", "failed", "diverged", "oom", "timeout"]
# Why a cell is failed, oom or timeout: its code, which would fail again, or the environment (killed, out of memory or
# time, disk full), where a second try may succeed.
Cause = Literal["plugin", "environment"]
SECONDS = ("train", "step_median")
GEOMETRY = ("weight_angle", "weight_angle_least", "simplex_distance", "norm_train", "norm_test")
LEDGER = ("fc", "classifier", "loss", "model", "optimizer", "peak")
# The fields of a cell that are plain values.
PLAIN = (
    *("experiment", "kind", "task", "width", "classes", "seed", "threads", "device", "autocast", "channels_last"),
    *("trial", "key", "default_metrics"),
)
CellKind = Literal["train", "warm", "timing", "trial"]
SCORED = ("train", "trial")  # the kinds that train a loss to the end and test it


@dataclass(frozen=True)
class Spec:
    """A plugin with all its options.

    `label` is its short form in suites and reports, `source` the hash of its code and files (for a dataset: the digest
    of its arrays), `where` the key of the suite file that names it.
    """

    name: str
    options: Mapping[str, Any]
    label: str
    source: str
    where: str = field(default="", compare=False)

    def matches(self, other: Spec) -> bool:
        """The same plugin with the same option values, however they were written."""
        return (self.name, self.options) == (other.name, other.options)

    def meaning(self) -> Any:
        """What `matches` compares, as a hashable value."""
        return self.name, frozen(self.options)

    def identity(self) -> list[Any]:
        """The part of it that decides a result."""
        return [self.name, dict(self.options), self.source]


@dataclass(frozen=True)
class Warm:
    """The shared first phase of an experiment's cells; `lr` where it is not that of the cell's schedule."""

    loss: Spec
    steps: int
    lr: float | None = None

    def identity(self) -> list[Any]:
        return [self.loss.identity(), self.steps, *([] if self.lr is None else [self.lr])]


class Setting(NamedTuple):
    """A loss with its options, and the learning rate to train it with."""

    loss: Spec
    lr: float


LossAt = tuple[Point, str]  # a loss, by its label, at a point of the grid


@dataclass(frozen=True)
class Trials:
    """The trials of an experiment that is tuned, scored on held-out training images.

    `settings` has the settings of each loss by its label, ordered by trial number; the first is the default.
    `tasks` are those of the experiment, each with the same images held out.
    """

    settings: Mapping[str, tuple[Setting, ...]]
    tasks: tuple[tuple[int, Spec], ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Experiment:
    """One grid with every name resolved; `tasks` pairs each number of classes with its dataset."""

    name: str
    task: Task
    tasks: tuple[tuple[int, Spec], ...]
    backbone: Spec
    widths: tuple[int | Literal["min"], ...]
    losses: tuple[Spec, ...]
    seeds: tuple[int, ...]
    schedule: Schedule
    warm: Warm | None
    timing: Timing | None
    published: tuple[PublishedText, ...]
    threads: int
    device: str = "cpu"
    autocast: str | None = None
    channels_last: bool = False
    trials: Trials | None = None
    tunes: str = ""  # for a tuned experiment: the one whose trials chose its settings
    settings: Mapping[LossAt, Setting] | None = None  # for a tuned experiment; a loss without a setting is left out
    metrics: tuple[Spec, ...] = ()  # that `metrics`, the headline or a claim names
    default_metrics: bool = True  # all built-in metrics of the task are recorded, too
    keep: tuple[str, ...] = ()  # of `core.metric.NEEDS`: what finished cells keep

    @property
    def size(self) -> int:
        """The number of cells in its grid, without trials, warm starts and timing cells."""
        return len(self.tasks) * len(self.widths) * len(self.losses) * len(self.seeds)

    def trains_as(self, other: Experiment) -> bool:
        """Whether its cells are trained as those of `other`, apart from losses, seeds and machines."""
        free = ["losses", "seeds", "timing", "trials", "published", "threads", "device", "channels_last"]
        free += ["metrics", "default_metrics", "keep"]
        return replace(self, **{name: getattr(other, name) for name in free}) == other


@dataclass(frozen=True)
class Budget:
    """How the losses of a suite are tuned, as the report states it."""

    trials: int  # per loss
    seeds: int  # per trial
    validation: float  # share of the training images
    lr: str  # its range as text; empty: not tuned
    ranges: Mapping[str, Mapping[str, str]]  # as text, by the label of the loss and the option
    experiments: Mapping[str, str]  # name of the experiment → name of its tuned counterpart


@dataclass(frozen=True)
class SuiteInfo:
    """What a report needs to know about a suite besides its cells; plan.json keeps it in the run folder."""

    name: str
    title: str
    baseline: str
    margin: float
    claims: tuple[Claim, ...]
    published: Mapping[str, tuple[PublishedText, ...]]  # by experiment
    profile: str | None
    command: str  # that runs the suite again
    missing: Mapping[str, str] = field(default_factory=dict)  # experiments without data → why
    examples: Mapping[str, int] = field(default_factory=dict)  # training examples by the label of the dataset
    looks: Mapping[str, list[int]] = field(default_factory=dict)  # different numbers of seeds in earlier plans
    tuning: Budget | None = None
    note: str = ""  # the profile's note, shown first
    headline: str = "accuracy"  # the metric that comparisons, tuning, ranks and the margin are about
    metrics: tuple[Metric, ...] = ()  # all that the suite can name

    @property
    def headline_metric(self) -> Metric:
        return next(metric for metric in self.metrics if metric.name == self.headline)

    def to_json(self) -> dict[str, Any]:
        published = {
            name: [table.model_dump(exclude_defaults=True) for table in tables]
            for name, tables in self.published.items()
        }
        claims = [claim.model_dump(exclude_none=True) for claim in self.claims]
        tuning = self.tuning and vars(self.tuning)
        metrics = [metric.to_json() for metric in self.metrics]
        return {**vars(self), "claims": claims, "published": published, "tuning": tuning, "metrics": metrics}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SuiteInfo:
        published = {
            name: tuple(PublishedText.model_validate(table) for table in _tables(written))
            for name, written in data["published"].items()
        }
        claims = tuple(Claim.model_validate(claim) for claim in data["claims"])
        tuning = Budget(**data["tuning"]) if data.get("tuning") else None
        metrics = tuple(Metric.from_json(metric) for metric in data.get("metrics", ()))
        return cls(**{**data, "claims": claims, "published": published, "tuning": tuning, "metrics": metrics})


def _tables(written: Any) -> list[Any]:
    """The tables of published numbers of an experiment; older plans have one table, or only its values."""
    if isinstance(written, list):
        return written
    return [written if "values" in written else {"values": written}]


@dataclass(frozen=True)
class Suite:
    """A suite at one profile. `text` is the file itself, kept with every run; `auto` the profiles to choose from."""

    info: SuiteInfo
    experiments: tuple[Experiment, ...]
    text: str
    auto: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One training run (or one shared warm start, or one timing session), by everything that decides its result.

    `experiment`, `trial` and the labels say where a cell belongs; they do not decide its result and are not in its key,
    so two experiments that need the same cell train it once. Nor does what is measured or kept decide its training.
    """

    experiment: str
    kind: CellKind
    task: Task
    dataset: Spec
    backbone: Spec
    width: int
    classes: int
    losses: tuple[Spec, ...]  # one, except in a timing cell
    seed: int
    schedule: Schedule
    warm: Warm | None
    timing: Timing | None
    threads: int
    device: str = "cpu"
    autocast: str | None = None
    channels_last: bool = False
    trial: int | None = None  # for a trial: its number, from 1
    metrics: tuple[Spec, ...] = ()  # that the suite asks for
    default_metrics: bool = True  # the built-in metrics of the task are recorded, too
    keep: tuple[str, ...] = ()  # of `core.metric.NEEDS`
    key: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", self.computed_key())

    @property
    def loss(self) -> Spec:
        return self.losses[0]

    @property
    def plugins(self) -> list[tuple[Literal["loss", "backbone", "metric"], Spec]]:
        """The plugins that run in it; a dataset is known by its arrays instead."""
        measured: list[tuple[Literal["loss", "backbone", "metric"], Spec]] = [("metric", spec) for spec in self.metrics]
        return [("backbone", self.backbone), *(("loss", spec) for spec in self.losses), *measured]

    @property
    def label(self) -> str:
        """The loss as the suite writes it; for warm starts and timing cells, what they are."""
        return {"warm": f"warm start: {self.loss.label}", "timing": "timing"}.get(self.kind, self.loss.label)

    @property
    def title(self) -> str:
        """One line that distinguishes this cell from the others of its suite."""
        trial = "" if self.trial is None else f"trial={self.trial} "
        where = f"M={self.width} C={self.classes} {trial}seed={self.seed}"
        return plain.line(f"{self.experiment}  {self.label}  {where}")

    def summary(self) -> dict[str, Any]:
        """The public fields of a cell, as record.json and the tables have them."""
        return {
            "experiment": self.experiment,
            "task": self.task,
            "dataset": self.dataset.label,
            "backbone": self.backbone.label,
            "width": self.width,
            "classes": self.classes,
            "loss": self.loss.name if self.kind != "timing" else None,
            "options": dict(self.loss.options) if self.kind != "timing" else {},
            "seed": self.seed,
            "kind": self.kind,
            "trial": self.trial,
        }

    @property
    def point(self) -> Point:
        """Its point in the grid of its experiment."""
        return Point(self.summary())

    def warm_cell(self) -> Cell:
        """The cell whose checkpoint this one starts from."""
        assert self.warm
        lr = self.schedule.lr if self.warm.lr is None else self.warm.lr
        schedule = self.schedule.model_copy(update={"steps": self.warm.steps, "evaluations": 0, "lr": lr})
        warm = replace(self, kind="warm", losses=(self.warm.loss,), schedule=schedule, warm=None, timing=None, key="")
        return warm.unmeasured()

    def unmeasured(self) -> Cell:
        """The same without anything to measure or to keep, for a cell that tests no network."""
        return replace(self, metrics=(), default_metrics=True, keep=())

    def computed_key(self) -> str:
        """sha256 over the canonical form of everything that decides the result."""
        decides = {
            "protocol": PROTOCOL,
            "kind": self.kind,
            "task": self.task if self.kind in SCORED else None,  # warm starts and timing do not depend on it
            "dataset": self.dataset.identity(),
            "backbone": self.backbone.identity(),
            "width": self.width,
            "classes": self.classes,
            "losses": [spec.identity() for spec in self.losses],
            "seed": self.seed,
            "schedule": self.schedule.model_dump(),
            "warm": self.warm and self.warm.identity(),
            "timing": self.timing and self.timing.model_dump(),
            "threads": self.threads,
            "device": [self.device, self.autocast, self.channels_last],
        }
        canonical = json.dumps(decides, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:20]

    def to_json(self, *, where: bool = False) -> dict[str, Any]:
        """Plain data; `where` includes the key of the suite file that names each plugin, which no record needs."""

        def plain(spec: Spec) -> dict[str, Any]:
            fields = {"name": spec.name, "options": dict(spec.options), "label": spec.label, "source": spec.source}
            return fields | ({"where": spec.where} if where else {})

        def warmed(warm: Warm) -> dict[str, Any]:
            return {"loss": plain(warm.loss), "steps": warm.steps} | ({} if warm.lr is None else {"lr": warm.lr})

        return {name: getattr(self, name) for name in PLAIN} | {
            "dataset": plain(self.dataset),
            "backbone": plain(self.backbone),
            "losses": [plain(spec) for spec in self.losses],
            "schedule": self.schedule.model_dump(),
            "warm": self.warm and warmed(self.warm),
            "timing": self.timing and self.timing.model_dump(),
            "metrics": [plain(spec) for spec in self.metrics],
            "keep": list(self.keep),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cell:
        data = {"trial": None, "metrics": (), "default_metrics": True, "keep": (), **data}
        warm = data["warm"]
        if data["kind"] == "trial" and data["trial"] is None:  # older files: the label of the loss is `arcface trial 3`
            (loss,) = data["losses"]
            label, _, number = loss["label"].rpartition(" trial ")
            data = {**data, "trial": int(number), "losses": [{**loss, "label": label}]}
        return cls(
            **{name: data[name] for name in PLAIN},
            dataset=Spec(**data["dataset"]),
            backbone=Spec(**data["backbone"]),
            losses=tuple(Spec(**spec) for spec in data["losses"]),
            schedule=Schedule.model_validate(data["schedule"]),
            warm=warm and Warm(**{**warm, "loss": Spec(**warm["loss"])}),
            timing=data["timing"] and Timing.model_validate(data["timing"]),
            metrics=tuple(Spec(**spec) for spec in data["metrics"]),
            keep=tuple(data["keep"]),
        )


@dataclass(frozen=True)
class Record:
    """The result of a cell. Counts are stored, accuracies derived; wall times are stored separately from results."""

    cell: Cell
    status: Status
    error: str | None = None
    cause: Cause | None = None
    correct: int | None = None
    total: int | None = None
    seconds: Mapping[str, float | None] = field(default_factory=dict)  # the keys of SECONDS
    bytes: Mapping[str, int | None] = field(default_factory=dict)  # the keys of LEDGER
    angles: Mapping[str, list[float | None]] = field(default_factory=dict)  # train, test: degrees by class
    geometry: Mapping[str, float | None] = field(default_factory=dict)  # the keys of GEOMETRY
    verification: Mapping[str, Any] = field(default_factory=dict)  # of `verification.Verification`, as JSON
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # measured on the test set, by name
    measured: Mapping[str, str] = field(default_factory=dict)  # the identity of the code that measured each of them
    curve: tuple[Mapping[str, float], ...] = ()  # step, loss, and correct where the test set was scored
    rounds: Mapping[str, list[float]] = field(default_factory=dict)  # timing cells: seconds per step, by loss
    features: Mapping[str, Any] | None = None  # at width 2: some test features, their labels, the class weights
    timing: Mapping[str, Any] = field(default_factory=dict)  # timing cells: phases by loss, rounds that were disturbed
    # collapsed: predicts one class; resumed: its seconds are those of several processes; restarted: trained from the
    # beginning because its saved state was damaged; cold classifier: its warm start had no class weights for its loss.
    flags: tuple[str, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    digest: str | None = None  # sha256 of the trained parameters: equal digests, equal training

    def __post_init__(self) -> None:
        """Every record has every key, null if not measured; long error texts are shortened."""
        object.__setattr__(self, "error", self.error and bounded(self.error))
        object.__setattr__(self, "seconds", {**dict.fromkeys(SECONDS), **self.seconds})
        object.__setattr__(self, "bytes", {**dict.fromkeys(LEDGER), **self.bytes})
        object.__setattr__(self, "angles", {"train": [], "test": [], **self.angles})
        object.__setattr__(self, "geometry", {**dict.fromkeys(GEOMETRY), **self.geometry})

    @property
    def accuracy(self) -> float | None:
        """In percent."""
        return None if self.correct is None or not self.total else 100 * self.correct / self.total

    def to_json(self) -> dict[str, Any]:
        """The contents of record.json."""
        cell = self.cell
        named = {"key": cell.key, "status": self.status, "label": cell.label, "cell": cell.summary()}
        results = {name.name: getattr(self, name.name) for name in fields(self) if name.name != "cell"}
        lists = {"curve": list(self.curve), "flags": list(self.flags)}
        return named | results | lists | {"accuracy": self.accuracy, "plan": cell.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        data = {"cause": None, "metrics": {}, "measured": {}, **data}  # older records have none
        results = {name.name: data[name.name] for name in fields(cls) if name.name != "cell"}
        results |= {"curve": tuple(data["curve"]), "flags": tuple(data["flags"])}
        return cls(cell=Cell.from_json(data["plan"]), **results)


def result(record: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a record's JSON that depends on the cell alone: bit-identical for any -j, order or interruption.

    Seconds, peak memory and the environment (and so the checksum) vary.
    """
    met = ("seconds", "rounds", "timing", "environment", "checksum", "kept")
    kept = {name: value for name, value in record.items() if name not in met}
    kept["flags"] = [flag for flag in record["flags"] if flag not in ("resumed", "restarted")]
    return kept | {"bytes": {name: size for name, size in record["bytes"].items() if name != "peak"}}


def finite_or_none(value: float) -> float | None:
    """JSON has no NaN: an undefined number is null."""
    return value if math.isfinite(value) else None
