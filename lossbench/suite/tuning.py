"""The [tune] table of a suite → the trials of its experiments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from lossbench.core.errors import LossbenchError, PluginError, SuiteError, nearest
from lossbench.core.labels import parse_label
from lossbench.core.model import Budget, DataAt, Experiment, Spec, Trials
from lossbench.plugins.ranges import Range, RangeError, Space, rising
from lossbench.plugins.registry import Registry
from lossbench.suite.format import MOST_CELLS, ChoicesText, Tune
from lossbench.suite.mistakes import Mistakes
from lossbench.suite.settings import SUFFIX
from lossbench.suite.trials import settings

Path = Sequence[Any]


class Names(Protocol):
    """Looks up the plugins and datasets that a suite names, and builds its errors."""

    registry: Registry

    count_classes: Callable[[Spec], int]

    mistakes: Mistakes

    def no_experiment(self, path: Path, name: str, known: Iterable[str]) -> SuiteError: ...

    def fail(self, path: Path, problem: object) -> SuiteError: ...

    def where(self, path: Path) -> str: ...


def with_trials(
    experiments: Sequence[Experiment],
    tune: Tune,
    names: Names,
    *,
    known: Sequence[str],
    origin: Callable[[Path], Path],
    whole: bool,
) -> tuple[tuple[Experiment, ...], Budget | None]:
    """The experiments, the tuned ones with their trials, and the budget for the report.

    `known` are the names of all experiments; `whole` is false if a profile may skip experiments or losses of [tune].
    """
    lr = None
    with names.mistakes.together():
        try:
            lr = Range(*rising(*tune.lr), logarithmic=True) if tune.lr else None
        except ValueError as error:
            names.mistakes.note(names.fail(origin(["lr"]), error))
        for index, name in enumerate(tune.experiments or ()):
            if name not in known:
                names.mistakes.note(names.no_experiment(origin(["experiments", index]), name, known))
        chosen = [each for each in experiments if tune.experiments is None or each.name in tune.experiments]
        whole = whole and set(tune.experiments or ()) <= set(known)
        stated = _stated(tune, chosen, names, origin, whole=whole)
    found: dict[str, Experiment] = {}
    told: dict[str, dict[str, str]] = {}
    for each in chosen:
        if each.name + SUFFIX in known:
            problem = f"'{each.name}' gets this name once it is tuned; rename this experiment"
            raise names.fail(["experiment", each.name + SUFFIX], problem)
        if tune.seeds > len(each.seeds):
            problem = f"experiment '{each.name}' has only {len(each.seeds)} seeds, got {tune.seeds}"
            raise names.fail(origin(["seeds"]), problem)
        grid = {"trials": tune.trials, "losses": len(each.losses), "widths": len(each.widths)}
        several = {"datasets": each.datasets, "backbones": each.backbones, "schedules": each.schedules}
        grid |= {name: len(choices) for name, choices in several.items() if len(choices) > 1} | {"seeds": tune.seeds}
        if (total := math.prod(grid.values())) > MOST_CELLS:
            product = " × ".join(f"{count:,} {name}" for name, count in grid.items())
            problem = f"experiment '{each.name}' would have {total:,} trials ({product}); the limit is {MOST_CELLS:,}"
            raise names.fail(origin(["trials"]), problem)
        by_label = {}
        for spec in each.losses:
            space = _space(spec, stated, names)
            told[spec.label] = {name: str(axis) for name, axis in space.items()}
            by_label[spec.label] = settings(spec, space, each.schedules[0].schedule.lr, lr, tune.trials)
        place = origin(["validation"])
        datasets = tuple(_held_out(each, data, tune.validation, place, names) for data in each.datasets)
        found[each.name] = replace(each, trials=Trials(by_label, datasets, each.seeds[: tune.seeds]))
    if not found:  # a profile skips them all
        return tuple(experiments), None
    if not lr and not any(told.values()):
        raise names.fail(origin([]), "nothing to tune: no loss declares RANGES; add 'lr' or 'ranges'")
    budget = Budget(
        trials=tune.trials,
        seeds=tune.seeds,
        validation=tune.validation,
        lr=str(lr) if lr else "",
        ranges=told,
        experiments={name: name + SUFFIX for name in found},
    )
    return tuple(found.get(each.name, each) for each in experiments), budget


def _stated(
    tune: Tune, tuned: Sequence[Experiment], names: Names, origin: Callable[[Path], Path], *, whole: bool
) -> dict[str, Space]:
    """The ranges in the suite file, by the name of the loss."""
    found: dict[str, Space] = {}
    present = {spec.name for each in tuned for spec in each.losses}
    for name, written in tune.ranges.items():
        place = origin(["ranges", name])
        try:
            plugin = names.registry.find("loss", name)
            if whole and name not in present:
                raise PluginError(f"no tuned experiment has the loss '{name}'; {nearest(name, present)}")
            found[name] = plugin.read_ranges({option: _as_written(value) for option, value in written.items()})
        except RangeError as error:
            names.mistakes.note(names.fail([*place, *([error.option] if error.option else [])], error))
        except PluginError as error:
            names.mistakes.note(names.fail(place, error))
    return found


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
