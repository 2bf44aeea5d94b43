"""One experiment of a suite: its tables, laid over each other, with every name resolved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lossbench.core.errors import nearest
from lossbench.core.format import PublishedText
from lossbench.core.model import Experiment, Spec, Warm
from lossbench.core.values import first_repeated
from lossbench.plugins.registry import Kind
from lossbench.suite import grid, metrics
from lossbench.suite.explain import FormatError, validate
from lossbench.suite.format import ExperimentText
from lossbench.suite.grid import Swept
from lossbench.suite.names import Names, Partial
from lossbench.suite.overrides import Layers, Origin, layered, spread

KINDS: dict[str, Kind] = {"losses": "loss", "dataset": "dataset", "backbone": "backbone"}  # keys that name plugins
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


def read_experiment(layers: Layers, here: list[Any], names: Names, *, baseline: Spec | None, whole: bool) -> Partial:
    """One experiment from its layers, each overriding the one before; mistakes are noted with the layer at fault.

    `baseline` is None if it is wrong; `whole` is false if a profile may leave out losses or classes that published
    numbers belong to.
    """
    merged, origin = layered(layers, here)
    text, wrong = _readable(merged, origin, names)
    reading = partial(names.mistakes.noting_in, wrong)
    for key in ("seeds", "widths", "classes"):
        with reading(key):
            given = getattr(text, key)
            if isinstance(given, list) and (repeated := first_repeated(given)) is not None:
                raise names.fail(origin([key]), f"{repeated!r} is listed twice")
    with reading("timing"):
        if text.timing and text.timing.processes > text.timing.rounds:
            place = origin(["timing", "processes"], ["timing", "rounds"])
            raise names.fail(place, f"must be at most 'rounds', {text.timing.rounds}, got {text.timing.processes}")
    swept: dict[str, list[Swept]] = {key: [] for key in (*KINDS, "schedule")}
    for key, kind in KINDS.items():
        with reading(key):
            found = grid.swept_plugins(kind, getattr(text, key), key, origin, names)
            grid.check_spread(kind, found, spread(layers, key), names)
            swept[key] = found
    with reading("schedule"):
        swept["schedule"] = [grid.swept_schedule(text.schedule, origin, names)]
    warm: Warm | None = None
    with reading("warm_start"):
        warm = _warm(text, origin, names)
    with reading("metrics"):
        asked = metrics.listed(text, origin, names, task=None if "task" in wrong else text.task)
    with reading("size"):
        grid.check_size(text, swept, origin([]), names)
    if "size" in wrong:  # it cannot be expanded
        return Partial(wrong=frozenset(wrong))
    axis = grid.axis_names({key: part for key, part in swept.items() if key != "losses"})
    with reading("losses"):
        losses = [_named_as(baseline, spec) for one in swept["losses"] for spec in grid.specs("loss", one, names)]
    present = None if "losses" in wrong else losses
    with reading("losses"):
        _check_losses(losses, baseline if present else None, origin, names)
    with reading("published"):
        published = [*_published(text, present, origin, names, whole=whole and "classes" not in wrong)]
    with reading("dataset"):
        datasets = [at for one in swept["dataset"] for at in grid.datasets(one, text, axis, origin, names)]
    with reading("backbone"):
        backbones = [at for one in swept["backbone"] for at in grid.backbones(one, axis, names)]
    with reading("schedule"):
        classes = [data.classes for data in datasets]
        length = None if "warm_start" in wrong else warm.steps if warm else 0
        schedules = [
            at for one in swept["schedule"] for at in grid.schedules(one, axis, origin, classes, length, names)
        ]
    experiment = Experiment(
        name=text.name,
        task=text.task,
        datasets=tuple(datasets),
        backbones=tuple(backbones),
        widths=tuple(text.widths),
        losses=tuple(losses),
        seeds=tuple(text.seeds if isinstance(text.seeds, list) else range(text.seeds)),
        schedules=tuple(schedules),
        warm=warm,
        timing=text.timing,
        published=tuple(published),
        threads=text.threads,
        device=text.device,
        autocast=text.autocast,
        channels_last=text.channels_last,
        compile=text.compile,
        metrics=asked,
        default_metrics=text.metrics is None,
        keep=tuple(text.keep),
    )
    for key, twice in grid.repeated(experiment) if "classes" not in wrong else ():
        names.mistakes.note(names.fail(origin([key]), f"{twice} is listed twice"))
        wrong.add(key)
    return Partial(experiment, frozenset(wrong))


def _readable(raw: Mapping[str, Any], origin: Origin, names: Names) -> tuple[ExperimentText, set[str]]:
    """An experiment without the keys that are wrong, and these keys."""
    try:
        return validate(ExperimentText, raw, lambda path: names.where(origin(path))), set()
    except FormatError as error:
        names.mistakes.note(error)
        wrong = error.keys(ExperimentText.model_fields, raw)
        names.unnamed |= "name" in wrong
        good = {key: value for key, value in raw.items() if key not in wrong}
        text = ExperimentText.model_validate({**STAND_INS, **good})
        return text.model_copy(update={key: [] for key in KINDS if key in wrong}), wrong


def _warm(text: ExperimentText, origin: Origin, names: Names) -> Warm | None:
    if text.warm_start is None:
        return None
    return Warm(names.single("loss", text.warm_start.loss, origin(["warm_start", "loss"])), text.warm_start.steps)


def _named_as(baseline: Spec | None, loss: Spec) -> Spec:
    """The baseline has one label in all experiments."""
    return replace(loss, label=baseline.label) if baseline and loss.matches(baseline) else loss


def _check_losses(losses: Sequence[Spec], baseline: Spec | None, origin: Origin, names: Names) -> None:
    """Each loss is listed once, and the baseline is among them; None: that is not known."""
    known: dict[Any, Spec] = {}
    for spec in losses:
        if (first := known.setdefault(spec.meaning(), spec)) is not spec:
            other = "" if spec.label == first.label else f" (also as '{first.label}')"
            problem = f"'{spec.label}' is listed twice{other}"
            names.mistakes.note(names.fail(origin(["losses"]), problem))
    labels = [spec.label for spec in losses]
    if baseline and baseline.label not in labels:
        hint = nearest(baseline.label, labels)
        raise names.fail(origin(["losses"]), f"the baseline '{baseline.label}' is not among the losses; {hint}")


def _published(
    text: ExperimentText, losses: Sequence[Spec] | None, origin: Origin, names: Names, *, whole: bool
) -> Iterator[PublishedText]:
    """The tables of published numbers, with the labels of the experiment's losses, as far as these are known."""
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
                if losses is not None and (whole or any(spec.matches(meant) for spec in losses)):
                    values[names.one_of(written, losses, place)] = value
        yield table.model_copy(update={"values": values})
