"""One experiment of a suite: its tables, laid over each other, with every name resolved."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lossbench.core.errors import SuiteError, nearest
from lossbench.core.format import PublishedText
from lossbench.core.model import Experiment, Spec, Warm
from lossbench.core.values import first_repeated
from lossbench.suite import grid, metrics
from lossbench.suite.explain import FormatError, validate
from lossbench.suite.format import ExperimentText
from lossbench.suite.grid import Swept
from lossbench.suite.names import Names
from lossbench.suite.overrides import Layers, Origin, layered

# In place of a key that is wrong or missing, so that the others can be checked.
STAND_INS = {
    "name": "x",
    "dataset": "x",
    "backbone": "x",
    "losses": ["x"],
    "widths": [1],
    "seeds": 1,
    "schedule": {"steps": 1},
}


def read_experiment(layers: Layers, here: list[Any], names: Names, *, baseline: Spec | None, whole: bool) -> Experiment:
    """One experiment from its layers, each overriding the one before; errors name the layer at fault.

    `baseline` is None if it is wrong; `whole` is false if a profile may leave out losses or classes that published
    numbers belong to.
    """
    merged, origin = layered(layers, here)
    every = names.mistakes.every
    with names.mistakes.together():
        text, wrong = _readable(merged, origin, names)
        for key in ("seeds", "widths", "classes"):
            given = getattr(text, key)
            if isinstance(given, list) and (repeated := first_repeated(given)) is not None:
                names.mistakes.note(names.fail(origin([key]), f"{repeated!r} is listed twice"))
        swept = every(
            lambda at: grid.swept_plugin("loss", at[1], origin(["losses", at[0]]), names), enumerate(text.losses)
        )
        parts = {
            "dataset": grid.swept_plugins("dataset", text.dataset, origin, names),
            "backbone": grid.swept_plugins("backbone", text.backbone, origin, names),
            "schedule": every(
                lambda written: grid.swept_schedule(written, origin(["schedule"]), names), [text.schedule]
            ),
        }
        grid.check_size(text, swept, parts, origin([]), names)
        axis = grid.axis_names(parts)
        with names.mistakes.noting():
            losses = _losses(text, swept, baseline, origin, names)
            published = [] if "classes" in wrong else [*_published(text, losses, origin, names, whole=whole)]
        warm = None
        if text.warm_start:
            place = origin(["warm_start", "loss"])
            with names.mistakes.noting():
                warm = Warm(names.single("loss", text.warm_start.loss, place), text.warm_start.steps)
        datasets = every(lambda one: [*grid.datasets(one, text, axis, origin, names)], parts["dataset"])
        backbones = every(lambda one: [*grid.backbones(one, axis, names)], parts["backbone"])
        known = [data for one in datasets for data in one]
        schedules = every(lambda one: [*grid.schedules(one, axis, origin, known, warm, names)], parts["schedule"])
    found = Experiment(
        name=text.name,
        task=text.task,
        datasets=tuple(known),
        backbones=tuple(itertools.chain(*backbones)),
        widths=tuple(text.widths),
        losses=tuple(losses),
        seeds=tuple(text.seeds if isinstance(text.seeds, list) else range(text.seeds)),
        schedules=tuple(itertools.chain(*schedules)),
        warm=warm,
        timing=text.timing,
        published=tuple(published),
        threads=text.threads,
        device=text.device,
        autocast=text.autocast,
        channels_last=text.channels_last,
        metrics=metrics.listed(text, origin, names),
        default_metrics=text.metrics is None,
        keep=tuple(text.keep),
    )
    grid.check_distinct(found, origin, names)
    return found


def _readable(raw: Mapping[str, Any], origin: Origin, names: Names) -> tuple[ExperimentText, set[str]]:
    """An experiment without the keys that are wrong, and these keys."""
    try:
        return validate(ExperimentText, raw, lambda path: names.where(origin(path))), set()
    except FormatError as error:
        names.mistakes.note(error)
        wrong = {str(place[0]) for place in error.places}
        names.unnamed |= "name" in wrong
        good = {key: value for key, value in raw.items() if key not in wrong}
        text = ExperimentText.model_validate({**STAND_INS, **good})
        return text.model_copy(update={key: [] for key in ("dataset", "backbone", "losses") if key in wrong}), wrong


def _losses(
    text: ExperimentText, swept: Sequence[Swept], baseline: Spec | None, origin: Origin, names: Names
) -> list[Spec]:
    """The losses of an experiment, each once; the baseline is among them and has one label in all experiments."""
    with names.mistakes.together():
        groups = names.mistakes.every(
            lambda one: [names.resolve("loss", one.name, written, one.path) for written in one.combinations()], swept
        )
    if len(swept) < max(1, len(text.losses)):
        raise SuiteError
    losses = [*itertools.chain(*groups)]
    if baseline:
        losses = [replace(spec, label=baseline.label) if spec.matches(baseline) else spec for spec in losses]
    known: dict[Any, Spec] = {}
    for spec in losses:
        if (first := known.setdefault(spec.meaning(), spec)) is not spec:
            problem = f"'{spec.label}' is listed twice (also as '{first.label}')"
            names.mistakes.note(names.fail(origin(["losses"]), problem))
    labels = [spec.label for spec in losses]
    if baseline and baseline.label not in labels:
        hint = nearest(baseline.label, labels)
        raise names.fail(origin(["losses"]), f"the baseline '{baseline.label}' is not among the losses; {hint}")
    return losses


def _published(
    text: ExperimentText, losses: Sequence[Spec], origin: Origin, names: Names, *, whole: bool
) -> Iterator[PublishedText]:
    """The tables of published numbers, with the labels of the experiment's losses."""
    given = text.published
    tables: list[tuple[list[Any], PublishedText]]
    if isinstance(given, dict):
        tables = [([], PublishedText(values=given, protocol=None, source="", classes=None))] if given else []
    elif isinstance(given, PublishedText):
        tables = [(["values"], given)]
    else:
        tables = [([index, "values"], table) for index, table in enumerate(given)]
    for path, table in tables:
        if table.classes is not None and table.classes not in (text.classes or ()):
            if not whole:
                continue
            known = ", ".join(map(str, text.classes or ())) or "none"
            problem = f"{table.classes} is not among the experiment's 'classes'; known: {known}"
            names.mistakes.note(names.fail(origin(["published", *path[:-1], "classes"]), problem))
        place = origin(["published", *path])
        values: dict[str, float] = {}
        for written, value in table.values.items():
            with names.mistakes.noting():
                meant = names.loss(written, place)
                if whole or any(spec.matches(meant) for spec in losses):
                    values[names.one_of(written, losses, place)] = value
        yield table.model_copy(update={"values": values})
