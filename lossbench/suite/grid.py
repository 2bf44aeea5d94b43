"""The grid of an experiment: datasets × backbones × schedules; every list in one of them is an axis."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lossbench.core.errors import LossbenchError, PluginError, nearest
from lossbench.core.format import NamedText, Schedule
from lossbench.core.labels import axis_value, label
from lossbench.core.model import BackboneAt, DataAt, Experiment, ScheduleAt, Spec
from lossbench.core.point import COLUMNS, told
from lossbench.core.values import first_repeated, frozen
from lossbench.plugins.registry import Kind
from lossbench.suite.explain import FormatError, validate
from lossbench.suite.format import MOST_CELLS, ExperimentText, Plugin
from lossbench.suite.names import Names, Path
from lossbench.suite.overrides import Origin, assignment
from lossbench.suite.recipe import RELATED, problems, versioned
from lossbench.suite.source import toml_value

AxisNames = Mapping[tuple[str, str], str]  # (part of the experiment, option or key) → name of the axis


@dataclass(frozen=True)
class Swept:
    """A plugin (or the schedule, without a name) with the values of each option; `swept` are those given as lists."""

    name: str
    axes: Mapping[str, Sequence[Any]]
    swept: tuple[str, ...]
    path: Path  # where the suite writes it

    @property
    def size(self) -> int:
        return math.prod(map(len, self.axes.values()))

    def combinations(self) -> Iterator[dict[str, Any]]:
        """One value for every option."""
        return (dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values()))


def axis_names(parts: Mapping[str, Sequence[Swept]]) -> AxisNames:
    """An axis is named by its key, dotted (`dataset.size`) where two parts sweep it or every experiment has it."""
    swept = {(part, key) for part, ones in parts.items() for one in ones for key in one.swept}
    count = Counter(key for _, key in swept)
    return {at: ".".join(at) if count[at[1]] > 1 or at[1] in COLUMNS else at[1] for at in swept}


def swept_plugins(
    kind: Kind, written: Plugin | Sequence[Plugin], key: str, origin: Origin, names: Names
) -> list[Swept]:
    """The datasets, backbones or losses of an experiment: one, or a list of them."""
    if isinstance(written, str | NamedText):
        return names.mistakes.every(lambda item: swept_plugin(kind, item, origin([key]), names), [written])
    return names.mistakes.every(lambda at: swept_plugin(kind, at[1], origin([key, at[0]]), names), enumerate(written))


def swept_plugin(kind: Kind, item: Plugin, path: Path, names: Names) -> Swept:
    """A plugin and the values of each of its options; a list sweeps several; `{ sweep = [...] }` always does."""
    name, written = names.named(item, path)
    swept: dict[str, list[Any]] = {}
    for option, value in written.items():
        if isinstance(value, dict) and value.keys() == {"sweep"} and isinstance(value["sweep"], list):
            swept[option] = value["sweep"]
        elif isinstance(value, list) and not names.takes(kind, name, option, value):
            swept[option] = value
    with names.mistakes.together():
        for option, listed in swept.items():
            _check_values(listed, [*path, option], names)
    return Swept(name, {option: swept.get(option, [value]) for option, value in written.items()}, tuple(swept), path)


def check_spread(kind: Kind, items: Sequence[Swept], options: Mapping[str, Path], names: Names) -> None:
    """`options` that are set on a list, with their places, are options of each of its items."""
    if any(one.name not in names.registry.names(kind) for one in items):
        return  # reported later
    plugins = {one.name: names.registry.find(kind, one.name) for one in items}
    lacking = {
        option: [name for name, one in plugins.items() if option not in one.options and not one.open_ended]
        for option in options
    }
    whole = toml_value([_written(one, [option for option in options if one.name in lacking[option]]) for one in items])
    with names.mistakes.together():
        for option, without in lacking.items():
            place = options[option]
            hint = f"write the whole list: {assignment(place[:-1], whole)}"
            if len(without) == len(plugins):
                problem = f"none of {', '.join(plugins)} has an option '{option}'"
                known = [key for plugin in plugins.values() for key in plugin.options]
                hint = hint if option in plugins else nearest(option, known)
                names.mistakes.note(names.fail(place, f"{problem}; {hint}"))
            elif without:
                problem = f"'{option}' is set for every item of the list, and {kind} '{without[0]}' has no such option"
                names.mistakes.note(names.fail(place, f"{problem}; {hint}"))


def _written(one: Swept, left_out: Sequence[str]) -> Any:
    """A plugin as a suite writes it, without some of its options."""
    options = {key: list(values) if key in one.swept else values[0] for key, values in one.axes.items()}
    kept = {key: value for key, value in options.items() if key not in left_out}
    return {"name": one.name, **kept} if {*one.swept} & {*kept} else label(one.name, kept)


def swept_schedule(written: Mapping[str, Any], origin: Origin, names: Names) -> Swept:
    """The schedule with the values of each key; a list sweeps several."""
    known = Schedule.model_fields  # another key is a mistake, and not an axis
    lists = tuple(key for key, value in written.items() if isinstance(value, list) and key in known)
    with names.mistakes.together():
        for key in lists:
            _check_values(written[key], origin(["schedule", key]), names)
    axes = {key: value if key in lists else [value] for key, value in written.items()}
    return Swept("", axes, lists, origin(["schedule"]))


def _check_values(values: Sequence[Any], path: Path, names: Names) -> None:
    if not values:
        names.mistakes.note(names.fail(path, "is an empty list; give at least one value to sweep"))
    compared = [(isinstance(value, bool), frozen(value)) for value in values]  # true is not 1
    if (twice := first_repeated(compared)) is not None:
        names.mistakes.note(names.fail(path, f"{axis_value(values[compared.index(twice)])} is listed twice"))


def datasets(one: Swept, text: ExperimentText, axis: AxisNames, origin: Origin, names: Names) -> Iterator[DataAt]:
    """Each combination of a dataset's options, at each number in the experiment's `classes`."""
    note = names.mistakes.note
    if text.classes is not None and "classes" in one.axes:
        fixed = label(one.name, {key: values[0] for key, values in one.axes.items() if key not in one.swept})
        note(names.fail(origin(["classes"]), f"'{fixed}' already selects classes; set them in one place"))
    task = names.mistakes.attempt(_task_option, one, text.task, origin, names)
    one = replace(one, axes={**one.axes, **(task or {})})
    for spec in specs("dataset", one, names):
        axes = _axes("dataset", one, spec, axis)
        try:
            available = names.count_classes(spec)
        except LossbenchError as error:
            note(names.fail(one.path, error))
            continue
        if text.classes is None:
            yield DataAt(available, spec, axes)
        for index, k in enumerate(text.classes or ()):
            if k > available:
                note(names.fail(origin(["classes", index]), f"'{spec.label}' has only {available} classes, got {k}"))
                continue
            written = {key: spec.options[key] for key in one.axes} | {"classes": k}
            if chosen := names.mistakes.attempt(
                names.resolve, "dataset", one.name, written, origin(["classes", index])
            ):
                yield DataAt(k, chosen, axes)


def _task_option(one: Swept, task: str, origin: Origin, names: Names) -> dict[str, list[Any]]:
    """The dataset's option for the experiment's task, unless it is the default; not every dataset has one."""
    try:
        option = names.registry.find("dataset", one.name).own.get("task")
    except PluginError as error:
        raise names.fail(one.path, error) from error
    if "task" in one.axes:
        raise names.fail([*one.path, "task"], "'task' is a key of the experiment, not of its dataset")
    if not _supports(one.name, task, names):
        able = ", ".join(name for name in names.registry.names("dataset") if _supports(name, task, names))
        raise names.fail(origin(["task"]), f"dataset '{one.name}' does not support {task}; these do: {able}")
    return {} if option is None or option.default == task else {"task": [task]}


def _supports(dataset: str, task: str, names: Names) -> bool:
    """Whether the option `task` of a dataset has that value; a dataset without the option is for classification."""
    has_option = "task" in names.registry.find("dataset", dataset).own
    return names.takes("dataset", dataset, "task", task) if has_option else task == "classification"


def backbones(one: Swept, axis: AxisNames, names: Names) -> Iterator[BackboneAt]:
    """Each combination of a backbone's options."""
    return (BackboneAt(spec, _axes("backbone", one, spec, axis)) for spec in specs("backbone", one, names))


def specs(kind: Kind, one: Swept, names: Names) -> list[Spec]:
    """Each combination of a plugin's options; those with mistakes are left out."""
    return names.mistakes.every(lambda written: names.resolve(kind, one.name, written, one.path), one.combinations())


def _axes(kind: Kind, one: Swept, spec: Spec, axis: AxisNames) -> dict[str, Any]:
    """The axes of one combination: its label without swept options, and the values of these."""
    base = label(one.name, {key: spec.options[key] for key in one.axes if key not in one.swept})
    return {kind: base, **{axis[kind, key]: axis_value(spec.options[key]) for key in one.swept}}


def schedules(
    one: Swept, axis: AxisNames, origin: Origin, classes: Sequence[int], warm: int | None, names: Names
) -> Iterator[ScheduleAt]:
    """Each combination of the schedule's keys; `warm` are the steps of a shared warm start, None if it is wrong."""
    for written in one.combinations():
        index = {key: _place(written[key], one.axes[key]) for key in one.swept}

        def where(path: Path, index: Mapping[str, int] = index) -> str:
            key, *rest = path or [None]
            return names.where(origin(["schedule", key, index.get(key), *rest]))

        schedule = names.mistakes.attempt(_schedule, written, where, origin, classes, warm, names)
        if schedule is not None:
            yield ScheduleAt(schedule, {axis["schedule", key]: axis_value(written[key]) for key in one.swept})


def _place(value: Any, values: Sequence[Any]) -> int:
    """The place of this very value: 1 is equal to true."""
    return next(place for place, each in enumerate(values) if each is value)


def _schedule(
    written: Mapping[str, Any],
    where: Callable[[Path], str],
    origin: Origin,
    classes: Sequence[int],
    warm: int | None,
    names: Names,
) -> Schedule:
    unknown = {"warmup"} if warm is None else set()  # keys about which nothing can be said
    with names.mistakes.together():
        try:
            schedule = validate(Schedule, written, where)
        except FormatError as error:
            names.mistakes.note(error)
            unknown |= error.keys(Schedule.model_fields, written)
            schedule = Schedule.model_validate({key: value for key, value in written.items() if key not in unknown})
        for path, problem in problems(schedule, classes=classes, warm=warm or 0):
            others = RELATED.get(path[0], ()) if path else ("steps", "epochs")
            if not unknown & {*path[:1], *others}:
                place = origin(["schedule", *path], *(["schedule", key] for key in others if path))
                names.mistakes.note(names.fail(place, problem))
    return versioned(schedule)


def check_size(text: ExperimentText, swept: Mapping[str, Sequence[Swept]], path: Path, names: Names) -> None:
    """Refuse a grid with too many cells before it is expanded; `swept` are its losses and the parts of its grid."""
    sizes = {key: [one.size for one in part] for key, part in swept.items()}
    seeds = text.seeds if isinstance(text.seeds, int) else len(text.seeds)
    losses = sizes.pop("losses")
    grid = {"losses": sum(losses) or 1, "widths": len(text.widths), "classes": len(text.classes or [0]), "seeds": seeds}
    grid |= {f"{key}s": count for key, part in sizes.items() if (count := sum(part)) > 1}
    if (total := math.prod(grid.values())) > MOST_CELLS:
        product = " × ".join(f"{count:,} {name}" for name, count in grid.items())
        most = max(range(len(losses)), key=losses.__getitem__, default=None)
        axes = () if most is None else swept["losses"][most].axes.values()
        lengths = " × ".join(str(len(axis)) for axis in axes if len(axis) > 1)
        sweep = f", losses[{most}] alone sweeps {lengths}" if lengths else ""
        raise names.fail(path, f"has {total:,} cells ({product}{sweep}); the limit is {MOST_CELLS:,}")


def repeated(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """What is listed twice: its key in the experiment, and its axes in words."""
    listed: dict[str, list[Mapping[str, Any]]] = {
        "dataset": [{**data.axes, "classes": data.classes} for data in experiment.datasets],
        "backbone": [backbone.axes for backbone in experiment.backbones],
        "schedule": [schedule.axes for schedule in experiment.schedules],
    }
    for key, choices in listed.items():
        if (twice := first_repeated([tuple(axes.items()) for axes in choices])) is not None:
            yield key, ", ".join(told(*axis) for axis in twice)
