"""The rules of a schedule beyond the types of its keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from lossbench.core.errors import PluginError, nearest
from lossbench.core.format import Annealing, Milestones, Schedule
from lossbench.core.labels import parse_label
from lossbench.core.values import shown
from lossbench.plugins import optimizers

MOST_STEPS = 10**8
# A key whose value may be wrong because of another one.
RELATED = {
    "epochs": ["steps"],
    "evaluations": ["steps"],
    "warmup": ["steps"],
    "per_class": ["batch"],
    "momentum": ["optimizer"],
}
Problem = tuple[list[str], str]  # the path of the key inside the schedule, and a sentence


def problems(schedule: Schedule, *, classes: Iterable[int], warm: int) -> Iterator[Problem]:
    """What is wrong with a schedule; `classes` are those of its datasets, `warm` the steps of a shared warm start."""
    if schedule.timm is not None:
        yield [], f"unknown key 'timm'; {nearest('timm', set(Schedule.model_fields) - {'timm'})}"
    if (schedule.epochs is None) == (schedule.steps == 0):
        yield (
            (["epochs"], "give 'steps' or 'epochs', not both")
            if schedule.steps
            else ([], "needs the key 'steps' or 'epochs'")
        )
    yield from _optimizer(schedule)
    decay = schedule.decay
    if isinstance(decay, Milestones) and any(after <= before for before, after in pairwise(decay.at)):
        yield ["decay", "at"], f"must be rising steps, got {decay.at}"
    if isinstance(decay, Annealing) and decay.power is not None and decay.shape != "poly":
        yield ["decay", "power"], f"belongs to 'poly', got shape '{decay.shape}'"
    if each := schedule.per_class:
        fewest = min(classes, default=schedule.batch)  # no dataset: reported elsewhere
        if schedule.batch % each:
            yield ["per_class"], f"must divide 'batch', {schedule.batch}, got {each}"
        elif schedule.batch // each > fewest:
            got = f"a batch of {schedule.batch} with {each} per class has {schedule.batch // each} classes"
            yield ["per_class"], f"{got}; the dataset has only {fewest}"
    if schedule.steps:
        yield from lengths(schedule, warm)


def lengths(schedule: Schedule, warm: int) -> Iterator[Problem]:
    """What is wrong with the length of a training whose number of steps is known."""
    if schedule.steps > MOST_STEPS:
        yield ["epochs"], f"must be at most {MOST_STEPS:,} steps, got {schedule.steps:,}"
    if schedule.evaluations > schedule.steps:
        yield ["evaluations"], f"must be at most 'steps', {schedule.steps}, got {schedule.evaluations}"
    if schedule.warmup > schedule.steps + warm:
        yield ["warmup"], f"must be at most the steps of training, {schedule.steps + warm}, got {schedule.warmup}"


def versioned(schedule: Schedule) -> Schedule:
    """The schedule with the version of the library that its optimizer comes from."""
    version = optimizers.timm_version(parse_label(schedule.optimizer)[0])
    return schedule if schedule.timm == version else schedule.model_copy(update={"timm": version})


def _shape(value: Any, default: object) -> str:
    """What is wrong with a value of an optimizer's option that is a list where one value belongs, or the reverse."""
    if isinstance(default, tuple) and not (isinstance(value, list | tuple) and len(value) == len(default)):
        return f"must be a list of {len(default)} values such as {list(default)}, got {shown(value)}"
    if isinstance(default, int | float | str) and isinstance(value, list | tuple):
        return f"must be one value, got {shown(value)}; to sweep it, make 'optimizer' a list"
    return ""


def _optimizer(schedule: Schedule) -> Iterator[Problem]:
    name, options = parse_label(schedule.optimizer)
    try:
        found = optimizers.find(name)
    except PluginError as error:
        yield ["optimizer"], str(error)
        return
    for option, value in options.items():
        if option in optimizers.SCHEDULE:
            yield ["optimizer"], f"'{option}' is a key of the schedule, not an option of '{name}'"
        elif option not in found.options:
            yield ["optimizer"], f"unknown option '{option}' of optimizer '{name}'; {nearest(option, found.options)}"
        elif problem := _shape(value, found.options[option]):
            yield ["optimizer"], f"option '{option}' of optimizer '{name}' {problem}"
    if "momentum" in schedule.model_fields_set:
        if not found.momentum:
            hint = 'remove it, or make it an option of an optimizer that has one: { name = "sgd", momentum = 0.9 }'
            yield ["momentum"], f"optimizer '{name}' has no momentum; {hint}"
        elif "momentum" in options:
            yield ["momentum"], f"is also an option of '{name}'; give it in one place"
