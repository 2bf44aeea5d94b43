"""`lossbench check` of a metric: what it declares, what it returns for a made-up network, and that it only reads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lossbench.core.format import Schedule, Task
from lossbench.core.labels import label
from lossbench.core.model import Cell, Record, Spec
from lossbench.data.dataset import Dataset, Split
from lossbench.metrics import Evaluation
from lossbench.plugins.check import Trying, check_apart, raised
from lossbench.plugins.check.acting import suggested
from lossbench.plugins.check.finding import Finding
from lossbench.plugins.metrics import MetricFile, declared
from lossbench.plugins.registry import REQUIRED, Plugin, Registry
from lossbench.training.artefacts import restricted
from lossbench.training.evaluation import evaluate, with_training_images
from lossbench.training.measuring import Measurements
from lossbench.training.state import TrainState, seed_everything

CLASSES, WIDTH, PER_CLASS = 5, 6, 12


def check_metric(plugin: Plugin, registry: Registry) -> list[Finding]:
    """The findings about a metric, in a separate process."""
    return check_apart(plugin, registry, findings=_findings)


def made_up(task: Task) -> Evaluation:
    """The evaluation of a small network that is not trained, with everything that a metric may ask for."""
    seed_everything(0)
    backbone, loss = nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH)), Registry().find("loss", "softmax").load()
    state = TrainState(backbone, loss(WIDTH, CLASSES), torch.optim.SGD(backbone.parameters()), step=1)
    state = replace(state, width=WIDTH, classes=CLASSES)
    dataset = _dataset()
    test = evaluate(state, dataset, task)
    return with_training_images(test, state, dataset, 0)


def _dataset() -> Dataset:
    """Images of noise that is brighter in the row of its class; every two test images are a pair."""
    rng = np.random.default_rng(0)
    splits = []
    for _ in range(2):
        labels = np.repeat(np.arange(CLASSES), PER_CLASS)
        images = rng.integers(0, 128, (len(labels), 8, 8, 1))
        images[np.arange(len(labels)), labels] += rng.integers(0, 128, (len(labels), 8, 1))
        splits.append(Split.of(images.astype(np.uint8), labels))
    a, b = np.triu_indices(len(labels), 1)
    pairs = np.stack([a, b, labels[a] == labels[b]], axis=1).astype(np.int64)
    return Dataset(splits[0], splits[1], CLASSES, pairs=pairs, folds=np.arange(len(pairs)) % 3)


def _record(task: Task) -> dict[str, Any]:
    spec = Spec("made_up", {}, "made_up", "")
    schedule = Schedule.model_validate({"steps": 2})
    cell = Cell("check", "train", task, spec, spec, WIDTH, CLASSES, (spec,), 0, schedule, None, None, 1)
    curve = ({"step": 1, "loss": 1.6}, {"step": 2, "loss": 1.2, "correct": 40})
    memory = {"fc": 1560, "classifier": 120, "loss": 0, "model": 1560, "optimizer": 1680, "peak": 10**6}
    seconds = {"train": 1.0, "step_median": 0.5}
    return Record(cell, "done", correct=40, total=60, curve=curve, bytes=memory, seconds=seconds).to_json()


def _findings(plugin: Plugin, registry: Registry, trying: Trying) -> Iterator[Finding]:
    def judged(name: str, passed: str, test: Callable[[], str | None]) -> Finding:
        trying(name)
        try:
            fault = test()
        except (Exception, SystemExit) as error:
            fault = raised(error)
        return Finding(name, "fail", fault) if fault else Finding(name, "pass", passed)

    declares = judged("declarations", "UNIT, BETTER and TASKS are declared", lambda: _declared(plugin))
    yield declares
    if declares.status == "fail":
        return
    yield judged("docstring", "the first line of the docstring says what it measures", lambda: _docstring(plugin))
    loads = judged("loads", "the file is valid Python and defines measure", lambda: plugin.load() and None)
    yield loads
    metrics = [metric for metric in declared(plugin) if not _required(metric)]
    if loads.status == "fail" or not metrics:
        if not metrics:
            option = _required(declared(plugin)[0])
            yield Finding("runs", "skip", f"option '{option}' has no default, so only a suite can measure it")
        return
    cases = [_Case(metric, task) for metric in metrics for task in metric.tasks]
    runs = judged("runs", "it returns a number, or one value per test example", lambda: _first(cases, _Case.value))
    yield runs
    if runs.status == "fail":
        return
    yield judged("deterministic", "the same network gives the same value", lambda: _first(cases, _Case.deterministic))
    yield judged("inputs untouched", "it changes nothing that it is given", lambda: _first(cases, _Case.untouched))
    if not metrics[0].needs_class_weights:
        does = "it can do without class weights"
        yield judged("no class weights", does, lambda: _first(cases, _Case.without_class_weights))
    if plugin.own:
        acts = "every option changes the value"
        yield judged("options act", acts, lambda: _idle(plugin, cases))
    for case in cases:
        found = case.measured({})
        (value,), examples = found.metrics.values(), next(iter(found.examples.values()), None)
        said = "does not exist" if value is None else f"{value:.6g} {case.metric.unit}".rstrip()
        said += f", the mean of {len(examples)} values" if examples is not None else ""
        yield Finding("value", "fact", f"{case.metric.name} of an untrained network in a {case.task}: {said}")


class _Case:
    """One metric in one task."""

    def __init__(self, metric: MetricFile, task: str) -> None:
        self.metric, self.task = metric, task

    def given(self) -> Any:
        if self.metric.source == "record":
            return _record(self.task)  # type: ignore[arg-type]  # one of TASKS
        return restricted(made_up(self.task), self.metric.needs)  # type: ignore[arg-type]  # one of TASKS

    def measured(self, options: Mapping[str, Any], given: Any = None) -> Measurements:
        given = self.given() if given is None else given
        metric = replace(self.metric, options={**self.metric.options, **options})
        seed_everything(0)
        found = Measurements()
        total = len(given.correct) if isinstance(given, Evaluation) and given.correct is not None else None
        found.add(metric.name, "", metric.measure(given), total)
        return found

    def value(self) -> str | None:
        self.measured({})
        return None

    def deterministic(self) -> str | None:
        first, second = (_digest([self.measured({}).metrics, self.measured({}).examples]) for _ in range(2))
        return None if first == second else "two calls give different values: seed every random generator"

    def untouched(self) -> str | None:
        given = self.given()
        before = _digest(given)
        self.measured({}, given)
        return None if _digest(given) == before else "it changes the arrays that it is given: copy them first"

    def without_class_weights(self) -> str | None:
        given = self.given()
        if not isinstance(given, Evaluation):
            return None
        train = given.train and replace(given.train, weights=None)
        try:
            self.measured({}, replace(given, weights=None, train=train))
        except (Exception, SystemExit) as error:
            hint = "return None then, or declare NEEDS_CLASS_WEIGHTS = True"
            return f"{raised(error)} for a loss without class weights: {hint}"
        return None


def _first(cases: list[_Case], test: Callable[[_Case], str | None]) -> str | None:
    for case in cases:
        if fault := test(case):
            return fault if len(cases) == 1 else f"{case.metric.name} in a {case.task}: {fault}"
    return None


def _declared(plugin: Plugin) -> str | None:
    found = declared(plugin)
    if not isinstance(plugin.constants["UNIT"], str):
        return f"UNIT must be a text, got {plugin.constants['UNIT']!r}"
    return None if found and found[0].tasks else "TASKS is empty: it would never be measured"


def _docstring(plugin: Plugin) -> str | None:
    return None if plugin.doc else "there is no docstring: say what it measures"


def _required(metric: MetricFile) -> str | None:
    options = metric.plugin.own.values()
    return next((o.name for o in options if o.default is REQUIRED and o.name not in metric.options), None)


def _idle(plugin: Plugin, cases: list[_Case]) -> str | None:
    """Options that change nothing."""
    idle = []
    for name, option in plugin.own.items():
        default = next((c.metric.options[name] for c in cases if name in c.metric.options), option.default)
        values = [value for value in suggested(option.annotation, default) if value != default]
        if not any(_acts(case, {name: value}) for value in values for case in cases):
            tried = ", ".join(label("", {name: value})[1:-1] for value in values[:4])
            idle.append(f"option {name} changes nothing (tried {tried})")
    return "; ".join(idle) or None


def _acts(case: _Case, options: Mapping[str, Any]) -> bool:
    try:
        changed = case.measured(options)
    except Exception:  # it may refuse a value by any error
        return False
    return _digest(changed.metrics) != _digest(case.measured({}).metrics)


def _digest(value: Any) -> str:
    """A hash of all numbers in an evaluation or record."""
    if isinstance(value, Evaluation):
        named = ((field.name, getattr(value, field.name)) for field in fields(value))
        kept = {name: part for name, part in named if isinstance(part, np.ndarray | Tensor | Evaluation)}
        return _digest(kept)
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    if isinstance(value, Mapping):
        return repr([(name, _digest(part)) for name, part in value.items()])
    return repr([_digest(part) for part in value]) if isinstance(value, list | tuple) else repr(value)
