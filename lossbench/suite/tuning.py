"""The [tune] table of a suite → the trials of its experiments."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lossbench.core.errors import LossbenchError, PluginError, SuiteError, nearest
from lossbench.core.format import Schedule
from lossbench.core.labels import parse_label
from lossbench.core.model import Budget, DataAt, Experiment, Setting, Spec, Trials
from lossbench.core.values import frozen
from lossbench.plugins.ranges import Choices, Range, RangeError, Space, read
from lossbench.suite.explain import validate
from lossbench.suite.format import MOST_CELLS, UNTUNED, ChoicesText, Tune
from lossbench.suite.names import Names, Path
from lossbench.suite.recipe import problems, versioned
from lossbench.suite.settings import SUFFIX
from lossbench.suite.trials import settings

RATES = ("lr", "weight_decay", "clip", "loss_lr")


def with_trials(
    experiments: Sequence[Experiment],
    tune: Tune,
    names: Names,
    *,
    known: Sequence[str],
    origin: Callable[[Path], Path],
    whole: bool,
    wrong: Collection[str] = (),
) -> tuple[tuple[Experiment, ...], Budget | None]:
    """The experiments, the tuned ones with their trials, and the budget for the report.

    `known` are the names of all experiments; `whole` is false if a profile may skip experiments or losses of [tune];
    `wrong` are keys of [tune] with mistakes, about which nothing can be said.
    """
    note = names.mistakes.note
    with names.mistakes.together():
        keys = _schedule(tune, names, origin)
        for index, name in enumerate(tune.experiments or ()):
            if name not in known:
                note(names.no_experiment(origin(["experiments", index]), name, known))
                whole = False  # a loss may be in what is missing
        chosen = [each for each in experiments if tune.experiments is None or each.name in tune.experiments]
        if "experiments" in wrong:
            chosen, whole = [], False
        stated = _stated(tune, chosen, names, origin, whole=whole)
        found = names.mistakes.every(
            lambda each: _tuned(each, tune, keys, stated, names, known=known, origin=origin), chosen
        )
    if not found:  # a profile skips them all
        return tuple(experiments), None
    told = {label: axes for _, spaces in found for label, axes in spaces.items()}
    if not keys and not any(told.values()) and not wrong:
        raise names.fail(origin([]), "nothing to tune: no loss declares RANGES; add 'lr', 'schedule' or 'ranges'")
    with_them = {each.name: each for each, _ in found}
    budget = Budget(
        trials=tune.trials,
        seeds=tune.seeds,
        validation=tune.validation,
        schedule={key: _in_words(key, axis) for key, axis in keys.items()},
        ranges=told,
        experiments={name: name + SUFFIX for name in with_them},
    )
    return tuple(with_them.get(each.name, each) for each in experiments), budget


def _tuned(
    each: Experiment,
    tune: Tune,
    keys: Space,
    stated: Mapping[str, Space],
    names: Names,
    *,
    known: Sequence[str],
    origin: Callable[[Path], Path],
) -> tuple[Experiment, dict[str, dict[str, str]]]:
    """An experiment with its trials, and the ranges of its losses as text."""
    with names.mistakes.together():
        for path, problem in _obstacles(each, tune, keys, known):
            place = path if path[:1] == ["experiment"] else origin(path)
            names.mistakes.note(names.fail(place, problem))
        place = origin(["validation"])
        datasets = tuple(
            names.mistakes.every(lambda data: _held_out(each, data, tune.validation, place, names), each.datasets)
        )
    classes = min(data.classes for data in (*each.datasets, *datasets))
    by_label, told = {}, {}
    for spec in each.losses:
        space = _space(spec, stated, names)
        told[spec.label] = {name: str(axis) for name, axis in space.items()}
        drawn = settings(spec, space, each.schedules[0].schedule, keys, tune.trials)
        by_label[spec.label] = tuple(_usable(each, classes, setting, names, origin) for setting in drawn)
    return replace(each, trials=Trials(by_label, datasets, each.seeds[: tune.seeds])), told


def _obstacles(each: Experiment, tune: Tune, keys: Space, known: Sequence[str]) -> Iterator[tuple[list[Any], str]]:
    """Why an experiment cannot be tuned like this: a path in [tune] or of an experiment, and a sentence."""
    if each.name + SUFFIX in known:
        problem = f"'{each.name}' gets this name once it is tuned; rename this experiment"
        yield ["experiment", each.name + SUFFIX], problem
    if tune.seeds > len(each.seeds):
        yield ["seeds"], f"experiment '{each.name}' has only {len(each.seeds)} seeds, got {tune.seeds}"
    for key in keys:
        if len({frozen(schedule.model_dump()[key]) for schedule, _ in each.schedules}) > 1:
            path = ["lr"] if key == "lr" and tune.lr else ["schedule", key]
            yield path, f"experiment '{each.name}' sweeps '{key}'; sweep it or tune it"
    grid = {"trials": tune.trials, "losses": len(each.losses), "widths": len(each.widths)}
    several = {"datasets": each.datasets, "backbones": each.backbones, "schedules": each.schedules}
    grid |= {name: len(choices) for name, choices in several.items() if len(choices) > 1} | {"seeds": tune.seeds}
    if (total := math.prod(grid.values())) > MOST_CELLS:
        product = " × ".join(f"{count:,} {name}" for name, count in grid.items())
        problem = f"experiment '{each.name}' would have {total:,} trials ({product}); the limit is {MOST_CELLS:,}"
        yield ["trials"], problem


def _schedule(tune: Tune, names: Names, origin: Callable[[Path], Path]) -> Space:
    """The keys of the schedule that are tuned, in the same ranges for every loss."""
    if tune.lr and "lr" in tune.schedule:
        problem = "the learning rate is also in 'schedule'; give its range in one place"
        names.mistakes.note(names.fail(origin(["lr"]), problem))
    parsers = {key: partial(_value, key) for key in Schedule.model_fields if key not in UNTUNED}
    known = {key: value for key, value in tune.schedule.items() if key in parsers}
    for key in tune.schedule.keys() - known:
        problem = "cannot be tuned: it is the same for every trial"
        if key not in UNTUNED:
            problem = f"unknown key '{key}'; {nearest(key, parsers)}"
        names.mistakes.note(names.fail(origin(["schedule", key]), problem))
    parse = partial(read, parsers=parsers)
    found = _read({"lr": tune.lr} if tune.lr else {}, parse, origin, names)
    found |= _read(known, parse, partial(_below, origin, ["schedule"]), names)
    return {key: _rate(axis) if key in RATES else axis for key, axis in found.items()}


def _value(key: str, value: Any) -> Any:
    """A value of a key of the schedule, as plain data; ValueError says what is wrong."""
    try:
        return validate(Schedule, {key: value}, lambda _: "").model_dump()[key]
    except SuiteError as error:
        raise ValueError(str(error).removeprefix(": ")) from error


def _in_words(key: str, axis: Range | Choices) -> str:
    if isinstance(axis, Range):
        return str(axis)
    return str(Choices(tuple(Schedule.model_validate({key: value}).in_words(key) for value in axis.values)))


def _rate(axis: Range | Choices) -> Range | Choices:
    """Rates are sampled on a logarithmic scale, in whatever range."""
    return replace(axis, logarithmic=True) if isinstance(axis, Range) and axis.low > 0 else axis


def _usable(each: Experiment, classes: int, setting: Setting, names: Names, origin: Callable[[Path], Path]) -> Setting:
    """A setting with the version of its optimizer, if it changes that; refused if its keys do not go together.

    `classes` are the fewest of its datasets, with images held out and without.
    """
    warm = each.warm.steps if each.warm else 0
    for schedule, _ in each.schedules:
        changed = schedule.changed({**setting.schedule, "timm": None})
        for key, problem in problems(changed, classes=[classes], warm=warm):
            values = ", ".join(f"{name} = {value}" for name, value in setting.schedule.items())
            tried = f"a trial of '{each.name}'{' with ' if values else ''}{values}"
            raise names.fail(origin(["schedule"]), f"{tried}: {'.'.join(key)}: {problem}")
    if "optimizer" not in setting.schedule:
        return setting
    version = versioned(each.schedules[0].schedule.changed(setting.schedule)).timm
    return setting._replace(schedule={**setting.schedule, "timm": version})


def _stated(
    tune: Tune, tuned: Sequence[Experiment], names: Names, origin: Callable[[Path], Path], *, whole: bool
) -> dict[str, Space]:
    """The ranges in the suite file, by the name of the loss."""
    found: dict[str, Space] = {}
    present = {spec.name for each in tuned for spec in each.losses}
    for name, written in tune.ranges.items():
        place = partial(_below, origin, ["ranges", name])
        try:
            plugin = names.registry.find("loss", name)
            if whole and present and name not in present:
                raise PluginError(f"no tuned experiment has the loss '{name}'; {nearest(name, present)}")
            found[name] = _read(written, plugin.read_ranges, place, names)
        except PluginError as error:
            names.mistakes.note(names.fail(place([]), error))
    return found


def _read(
    written: Mapping[str, Any], parse: Callable[[Any], Space], place: Callable[[Path], Path], names: Names
) -> dict[str, Range | Choices]:
    """The ranges of a table, each by itself: what is wrong with one does not hide the others."""
    found: dict[str, Range | Choices] = {}
    for key, value in written.items():
        try:
            found |= parse({key: _as_written(value)})
        except RangeError as error:
            names.mistakes.note(names.fail(place([error.option] if error.option else []), error))
    return found


def _below(origin: Callable[[Path], Path], table: Path, path: Path) -> Path:
    return origin([*table, *path])


def _as_written(value: Any) -> Any:
    """A range or choices in the form that a plugin's RANGES have."""
    return value.choices if isinstance(value, ChoicesText) else tuple(value)


def _space(spec: Spec, stated: Mapping[str, Space], names: Names) -> Space:
    """The options of a loss to tune: the suite's ranges override the plugin's; options in its label are fixed."""
    try:
        declared = names.registry.find("loss", spec.name).ranges
    except PluginError as error:
        raise SuiteError(f"{spec.where}: {error}") from error
    fixed = parse_label(spec.label)[1]
    return {name: axis for name, axis in {**declared, **stated.get(spec.name, {})}.items() if name not in fixed}


def _held_out(each: Experiment, data: DataAt, share: float, path: Path, names: Names) -> DataAt:
    """A dataset scored on part of its training images instead of the test set, under the label of its point."""
    dataset = data.dataset
    if dataset.options.get("validation") is not None:
        problem = f"experiment '{each.name}' already holds images out ('validation' of its dataset); remove that"
        raise names.fail(path, problem)
    if "validation" in names.registry.find("dataset", dataset.name).own:
        problem = f"dataset '{dataset.name}' has its own option 'validation', so no images can be held out"
        raise names.fail(path, problem)
    held_out = replace(dataset, options={**dataset.options, "validation": share}, where=names.where(path))
    try:
        return data._replace(classes=names.count_classes(held_out), dataset=held_out)
    except LossbenchError as error:
        raise names.fail(path, error) from error
