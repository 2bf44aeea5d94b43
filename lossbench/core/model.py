"""The frozen data model: suites with every name resolved, their cells, and the records of cells.

Plain data, and the only thing that crosses a process boundary.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from lossbench.core import plain
from lossbench.core.errors import StoreError, bounded
from lossbench.core.format import Claim, PublishedText, Schedule, Task, Timing
from lossbench.core.geometry import minimum_width
from lossbench.core.labels import without
from lossbench.core.metric import Metric
from lossbench.core.point import Point, shown, told
from lossbench.core.values import frozen

# Raised whenever lossbench's own training or evaluation code changes results, so that older records are not taken for
# current ones. A change of that code needs a decision about it, which tests/protocol.toml records.
PROTOCOL = 3
COMPILED = 2  # the same for `compile = true` alone: raised whenever other code is made of the same backbone

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
    of its arrays), `where` the key of the suite file that names it, `size` the training examples of a dataset.
    """

    name: str
    options: Mapping[str, Any]
    label: str
    source: str
    where: str = field(default="", compare=False)
    size: int | None = field(default=None, compare=False)

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
    """The shared first phase of an experiment's cells; `schedule` has the keys that differ from the cell's schedule."""

    loss: Spec
    steps: int
    schedule: Mapping[str, Any] = field(default_factory=dict)

    def identity(self) -> list[Any]:
        own = self.schedule["lr"] if self.schedule.keys() == {"lr"} else dict(self.schedule)
        return [self.loss.identity(), self.steps, *([own] if self.schedule else [])]


class Setting(NamedTuple):
    """A loss with its options, and the keys of the schedule that are changed for it."""

    loss: Spec
    schedule: Mapping[str, Any]


LossAt = tuple[Point, str]  # a loss, by its label, at a point of the grid


class DataAt(NamedTuple):
    """A dataset of a grid: its number of classes, and the values of `dataset` and of its swept options."""

    classes: int
    dataset: Spec
    axes: Mapping[str, Any]


class BackboneAt(NamedTuple):
    """A backbone of a grid, and the values of `backbone` and of its swept options."""

    backbone: Spec
    axes: Mapping[str, Any]


class ScheduleAt(NamedTuple):
    """A schedule of a grid, and the values of its swept keys."""

    schedule: Schedule
    axes: Mapping[str, Any]


class Node(NamedTuple):
    """A point of a grid, and what is trained there; `data` is the place of its dataset in the experiment."""

    point: Point
    data: int
    backbone: Spec
    width: int
    schedule: Schedule


@dataclass(frozen=True)
class Trials:
    """The trials of an experiment that is tuned, scored on held-out training images.

    `settings` has the settings of each loss by its label, ordered by trial number; the first is the default.
    `datasets` are those of the experiment, each with the same images held out.
    """

    settings: Mapping[str, tuple[Setting, ...]]
    datasets: tuple[DataAt, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Experiment:
    """One grid with every name resolved: datasets × backbones × widths × schedules × losses × seeds."""

    name: str
    task: Task
    datasets: tuple[DataAt, ...]
    backbones: tuple[BackboneAt, ...]
    widths: tuple[int | Literal["min"], ...]
    losses: tuple[Spec, ...]
    seeds: tuple[int, ...]
    schedules: tuple[ScheduleAt, ...]
    warm: Warm | None
    timing: Timing | None
    published: tuple[PublishedText, ...]
    threads: int
    device: str = "cpu"
    autocast: str | None = None
    channels_last: bool = False
    compile: bool = False
    trials: Trials | None = None
    tunes: str = ""  # for a tuned experiment: the one whose trials chose its settings
    settings: Mapping[LossAt, Setting] | None = None  # for a tuned experiment; a loss without a setting is left out
    metrics: tuple[Spec, ...] = ()  # that `metrics`, the headline or a claim names
    default_metrics: bool = True  # all built-in metrics of the task are recorded, too
    keep: tuple[str, ...] = ()  # of `core.metric.NEEDS`: what finished cells keep

    @property
    def size(self) -> int:
        """The number of cells in its grid, without trials, warm starts and timing cells."""
        points = len(self.datasets) * len(self.backbones) * len(self.widths) * len(self.schedules)
        return points * len(self.losses) * len(self.seeds)

    @cached_property
    def grid(self) -> tuple[Node, ...]:
        """Its points in order, equal ones once; the width "min" is the minimum for the number of classes."""
        nodes: dict[Point, Node] = {}
        for number, data in enumerate(self.datasets):
            widths = (minimum_width(data.classes) if width == "min" else width for width in self.widths)
            for width, backbone, schedule in itertools.product(dict.fromkeys(widths), self.backbones, self.schedules):
                fixed = {"classes": data.classes, "width": width}
                swept = {**data.axes, **backbone.axes, **schedule.axes}
                main = {name: swept.pop(name) for name in ("dataset", "backbone")}
                point = Point({"experiment": self.name, **main, **fixed, **swept})
                nodes.setdefault(point, Node(point, number, backbone.backbone, width, schedule.schedule))
        return tuple(nodes.values())

    @cached_property
    def axes(self) -> list[str]:
        """The axes of its grid."""
        return list(dict.fromkeys(name for point, *_ in self.grid for name in point if name != "experiment"))

    def trains_as(self, other: Experiment) -> bool:
        """Whether its cells are trained as those of `other`, apart from losses, seeds and machines."""
        free = ["losses", "seeds", "timing", "trials", "published", "threads", "device", "channels_last", "compile"]
        free += ["metrics", "default_metrics", "keep"]
        return replace(self, **{name: getattr(other, name) for name in free}) == other


@dataclass(frozen=True)
class Budget:
    """How the losses of a suite are tuned, as the report states it."""

    trials: int  # per loss
    seeds: int  # per trial
    validation: float  # share of the training images
    schedule: Mapping[str, str]  # the ranges of its keys that are tuned, as text
    ranges: Mapping[str, Mapping[str, str]]  # as text, by the label of the loss and the option
    experiments: Mapping[str, str]  # name of the experiment → name of its tuned counterpart

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Budget:
        data = dict(data)
        if "lr" in data:  # older plans: no other key of the schedule could be tuned
            lr = data.pop("lr")
            data["schedule"] = {"lr": lr} if lr else {}
        return cls(**data)

    @classmethod
    def joined(cls, budgets: Sequence[Budget]) -> Budget | None:
        """The budget of several runs of one suite, which must be equal but for the experiments and losses."""
        if not budgets:
            return None
        first = budgets[0]
        for name in ("trials", "seeds", "validation", "schedule"):
            if odd := next((other for other in budgets if getattr(other, name) != getattr(first, name)), None):
                both = f"{getattr(first, name)}, {getattr(odd, name)}"
                raise StoreError(f"these runs differ in 'tune.{name}' ({both}); report them one by one")
        experiments, ranges = (
            {key: value for budget in reversed(budgets) for key, value in getattr(budget, name).items()}
            for name in ("experiments", "ranges")
        )
        return replace(first, experiments=experiments, ranges=ranges)


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
    note: str = ""  # of the profile, else of the suite; shown first
    overrides: list[str] = field(default_factory=list)  # key=value, as given with --set
    headline: str = "accuracy"  # the metric that comparisons, tuning, ranks and the margin are about
    metrics: tuple[Metric, ...] = ()  # all that the suite can name

    @property
    def headline_metric(self) -> Metric:
        return next(metric for metric in self.metrics if metric.name == self.headline)

    @classmethod
    def joined(cls, infos: Sequence[SuiteInfo], runs: Sequence[str]) -> SuiteInfo:
        """The info of several runs of one suite: that of the first, with the experiments that only the others have.

        `runs` are their folders.
        """
        first = infos[0]
        commands = [first.command]  # shards of a run have the same
        if len({info.command for info in infos}) > 1:
            commands = [f"{info.command} --out {shlex.quote(run)}" for info, run in zip(infos, runs, strict=True)]

        def united(name: str) -> dict[str, Any]:
            """A mapping with the keys of all runs; of a key that several have, the value of the first."""
            return {key: value for info in reversed(infos) for key, value in getattr(info, name).items()}

        return replace(
            first,
            claims=_united_claims(infos),
            published=united("published"),
            missing=united("missing"),
            examples=united("examples"),
            looks=united("looks"),
            profile=" + ".join(dict.fromkeys(info.profile for info in infos if info.profile)) or None,
            command="\n".join(commands),
            tuning=Budget.joined([info.tuning for info in infos if info.tuning]),
            note=" ".join(dict.fromkeys(info.note for info in infos if info.note)),
            overrides=list(dict.fromkeys(text for info in infos for text in info.overrides)),
            metrics=tuple({metric.name: metric for info in infos for metric in info.metrics}.values()),
        )

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
        claims = tuple(_claim(claim) for claim in data["claims"])
        tuning = Budget.from_json(data["tuning"]) if data.get("tuning") else None
        metrics = tuple(Metric.from_json(metric) for metric in data.get("metrics", ()))
        return cls(**{**data, "claims": claims, "published": published, "tuning": tuning, "metrics": metrics})


def _united_claims(infos: Sequence[SuiteInfo]) -> tuple[Claim, ...]:
    """The claims of several runs: those of the first run that has the experiment, and cases that only others have."""
    home = {name: info for info in reversed(infos) for name in info.published}
    groups: dict[str, list[Claim]] = {}
    for info in infos:
        for claim in info.claims:
            same = groups.setdefault(claim.model_dump_json(exclude={"text", "case", "where"}), [])
            new = claim.experiment in info.published and all(claim.case != other.case for other in same)
            if new or home.get(claim.experiment, infos[0]) is info:
                same.append(claim)
    stated = list(dict.fromkeys(claim.said for info in infos for claim in info.claims))
    claims = [claim for same in groups.values() for claim in distinguished(same)]
    return tuple(sorted(claims, key=lambda claim: stated.index(claim.said)))


def distinguished(same: Sequence[Claim]) -> list[Claim]:
    """Cases of one claim: where there are several, their texts end with the values in which they differ."""
    names = dict.fromkeys(name for claim in same for name in claim.case)
    differing = [name for name in names if len({claim.case.get(name) for claim in same}) > 1]

    def named(claim: Claim) -> Claim:
        where = ", ".join(told(name, claim.case[name]) for name in differing if claim.case.get(name) is not None)
        text = claim.text.removesuffix(f" ({claim.where})")
        return claim.model_copy(update={"text": f"{text} ({where})" if where else text, "where": where})

    return [named(claim) for claim in same]


def _claim(written: Mapping[str, Any]) -> Claim:
    """A claim of a plan; older plans do not say that it follows an axis, which was the width or the classes."""
    found = Claim.model_validate(written)
    return found if found.along not in ("width", "classes") else found.model_copy(update={"follows_axis": True})


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
    compile: bool = False
    axes: Mapping[str, Any] = field(default_factory=dict, compare=False)  # its point, without the experiment
    shows: tuple[str, ...] = field(default=(), compare=False)  # the axes that its title names besides C and M
    trial: int | None = None  # for a trial: its number, from 1
    horizon: int | None = None  # for a warm start whose learning rate depends on it: the steps of both phases
    metrics: tuple[Spec, ...] = ()  # that the suite asks for
    default_metrics: bool = True  # the built-in metrics of the task are recorded, too
    keep: tuple[str, ...] = ()  # of `core.metric.NEEDS`
    key: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.axes:  # older plans and records, whose datasets were labelled with the number of classes
            axes = {"dataset": without(self.dataset.label, "classes"), "backbone": self.backbone.label}
            object.__setattr__(self, "axes", {**axes, "classes": self.classes, "width": self.width})
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
        swept = "".join(f"{name}={shown(self.axes[name])} " for name in self.shows if name in self.axes)
        where = f"{swept}M={self.width} C={self.classes} {trial}seed={self.seed}"
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
            "point": dict(self.axes),
            "loss": self.loss.name if self.kind != "timing" else None,
            "options": dict(self.loss.options) if self.kind != "timing" else {},
            "seed": self.seed,
            "kind": self.kind,
            "trial": self.trial,
        }

    @cached_property
    def point(self) -> Point:
        """Its point in the grid of its experiment."""
        return Point({"experiment": self.experiment, **self.axes})

    def warm_cell(self) -> Cell:
        """The cell whose checkpoint this one starts from."""
        assert self.warm
        shared = self.schedule.changed(self.warm.schedule)
        warm = replace(
            self,
            kind="warm",
            losses=(self.warm.loss,),
            schedule=shared.model_copy(update={"steps": self.warm.steps, "epochs": None, "evaluations": 0}),
            warm=None,
            timing=None,
            horizon=self.warm.steps + shared.steps if shared.anneals else None,
            key="",
        )
        return warm.unmeasured()

    def unmeasured(self) -> Cell:
        """The same without anything to measure or to keep, for a cell that tests no network."""
        return replace(self, metrics=(), default_metrics=True, keep=())

    @property
    def total_steps(self) -> int:
        """Steps from the start of the warm start to the end of training: the horizon of the learning rate."""
        return self.horizon or self.schedule.steps + (self.warm.steps if self.warm else 0)

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
            "schedule": self.schedule.identity(),
            "warm": self.warm and self.warm.identity(),
            "timing": self.timing and self.timing.model_dump(),
            "threads": self.threads,
            "device": [self.device, self.autocast, self.channels_last, *([f"compile {COMPILED}"] * self.compile)],
            **({} if self.horizon is None else {"horizon": self.horizon}),
        }
        canonical = json.dumps(decides, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:20]

    def to_json(self, *, where: bool = False) -> dict[str, Any]:
        """Plain data; `where` includes the key of the suite file that names each plugin, which no record needs."""

        def plain(spec: Spec) -> dict[str, Any]:
            fields = {"name": spec.name, "options": dict(spec.options), "label": spec.label, "source": spec.source}
            return fields | ({"where": spec.where} if where else {})

        def warmed(warm: Warm) -> dict[str, Any]:
            changed = {"schedule": dict(warm.schedule)} if warm.schedule else {}
            return {"loss": plain(warm.loss), "steps": warm.steps} | changed

        rare = {} if self.horizon is None else {"horizon": self.horizon}
        rare |= {"compile": True} if self.compile else {}
        return {
            **{name: getattr(self, name) for name in PLAIN},
            **rare,
            "axes": dict(self.axes),
            "shows": list(self.shows),
            "dataset": plain(self.dataset),
            "backbone": plain(self.backbone),
            "losses": [plain(spec) for spec in self.losses],
            "schedule": self.schedule.identity(),
            "warm": self.warm and warmed(self.warm),
            "timing": self.timing and self.timing.model_dump(),
            "metrics": [plain(spec) for spec in self.metrics],
            "keep": list(self.keep),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cell:
        data = {"trial": None, "axes": {}, "shows": (), "metrics": (), "default_metrics": True, "keep": (), **data}
        warm = dict(data["warm"] or {})
        if "lr" in warm:  # older files: no other key of the schedule could differ
            warm["schedule"] = {"lr": warm.pop("lr")}
        if data["kind"] == "trial" and data["trial"] is None:  # older files: the label of the loss is `arcface trial 3`
            (loss,) = data["losses"]
            label, _, number = loss["label"].rpartition(" trial ")
            data = {**data, "trial": int(number), "losses": [{**loss, "label": label}]}
        return cls(
            **{name: data[name] for name in PLAIN},
            axes=data["axes"],
            shows=tuple(data["shows"]),
            dataset=Spec(**data["dataset"]),
            backbone=Spec(**data["backbone"]),
            losses=tuple(Spec(**spec) for spec in data["losses"]),
            schedule=Schedule.model_validate(data["schedule"]),
            warm=Warm(**{**warm, "loss": Spec(**warm["loss"])}) if warm else None,
            timing=data["timing"] and Timing.model_validate(data["timing"]),
            metrics=tuple(Spec(**spec) for spec in data["metrics"]),
            keep=tuple(data["keep"]),
            horizon=data.get("horizon"),
            compile=data.get("compile", False),
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
    counts: Mapping[str, int] = field(default_factory=dict)  # what the task tested and left out; empty: every example
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # measured on the test set, by name
    measured: Mapping[str, str] = field(default_factory=dict)  # the identity of the code that measured each of them
    curve: tuple[Mapping[str, float], ...] = ()  # step, loss, and correct where the test set was scored
    rounds: Mapping[str, list[float]] = field(default_factory=dict)  # timing cells: seconds per step, by loss
    features: Mapping[str, Any] | None = None  # at width 2: some test features, their labels, the class weights
    # Timing cells: phases by loss, the process of each round, how many rounds were disturbed and how many repeated.
    timing: Mapping[str, Any] = field(default_factory=dict)
    # collapsed: predicts one class; resumed: its seconds are those of several processes; restarted: trained from the
    # beginning because its saved state was damaged; cold classifier: its warm start had no class weights for its loss;
    # small classes: balanced batches repeat examples of a class that has fewer than `per_class`.
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
        data = {"cause": None, "counts": {}, "metrics": {}, "measured": {}, **data}  # older records have none
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
