"""Suite → ordered cells. Pure: nothing is read, trained or written here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from lossbench.core.model import Cell, DataAt, Experiment, Setting, Spec, Suite
from lossbench.core.point import COLUMNS, varied


def plan(suite: Suite, tuned: Sequence[Experiment] = ()) -> list[Cell]:
    """Every cell of the suite and of its `tuned` experiments, in the order to run them.

    Seeds go outermost, so an interrupted run holds complete pairs. A warm start comes before the first cell that needs
    it; trials follow the cells that need none; timing cells, which run alone, come last. A cell that two experiments
    share appears once for each, under one key.
    """
    experiments = (*suite.experiments, *tuned)
    cells = [cell for experiment in experiments for cell in _accuracy_cells(experiment)]
    cells += [cell for experiment in experiments for cell in _trial_cells(experiment, suite.info.headline)]
    return cells + [cell for experiment in experiments for cell in _timing_cells(experiment)]


def unique(cells: Iterable[Cell]) -> list[Cell]:
    """The cells to train: one per key, in order, with all that any of them measures and keeps."""
    seen: dict[str, Cell] = {}
    for cell in cells:
        first = seen.setdefault(cell.key, cell)
        if (first.metrics, first.default_metrics, first.keep) != (cell.metrics, cell.default_metrics, cell.keep):
            metrics = {spec.label: spec for spec in (*first.metrics, *cell.metrics)}
            seen[cell.key] = replace(
                first,
                metrics=tuple(metrics.values()),
                default_metrics=first.default_metrics or cell.default_metrics,
                keep=tuple(dict.fromkeys((*first.keep, *cell.keep))),
            )
    return list(seen.values())


def needed(cells: Iterable[Cell], missing: Collection[str]) -> list[Cell]:
    """The cells whose keys are `missing`; of the warm starts only those that another one of these cells refines."""
    found = [cell for cell in cells if cell.key in missing]
    refined = {cell.warm_cell().key for cell in found if cell.warm}
    return [cell for cell in found if cell.kind != "warm" or cell.key in refined]


def training_steps(cells: Iterable[Cell]) -> int:
    """Optimizer steps of these cells, without timing cells."""
    return sum(cell.schedule.steps for cell in cells if cell.kind != "timing")


def _accuracy_cells(experiment: Experiment) -> Iterator[Cell]:
    for seed in experiment.seeds:
        for cell in _grid(experiment, seed, experiment.datasets):
            chosen = [_setting(experiment, cell, loss) for loss in experiment.losses]
            found = [_with(cell, setting) for setting in chosen if setting]
            if found and cell.warm:
                yield cell.warm_cell()
            yield from found


def _trial_cells(experiment: Experiment, headline: str) -> Iterator[Cell]:
    """The trials of an experiment, trial by trial within a point, so that an interrupted run has tried all losses.

    Only their headline metric matters.
    """
    if not experiment.trials:
        return
    settings = experiment.trials.settings.values()
    metrics = tuple(spec for spec in experiment.metrics if spec.label == headline)
    for seed in experiment.trials.seeds:
        for point in _grid(experiment, seed, experiment.trials.datasets):
            schedule = point.schedule.model_copy(update={"evaluations": 0})
            cell = replace(point, kind="trial", schedule=schedule, metrics=metrics, key="")
            if cell.warm:
                yield cell.warm_cell()
            for number in range(1, max(map(len, settings)) + 1):
                trial = replace(cell, trial=number)
                yield from (_with(trial, mine[number - 1]) for mine in settings if number <= len(mine))


def _setting(experiment: Experiment, cell: Cell, loss: Spec) -> Setting | None:
    """The settings of a loss at a point: its defaults or, in a tuned experiment, those that the trials chose."""
    if experiment.settings is None:
        return Setting(loss, {})
    return experiment.settings.get((cell.point.of(experiment.tunes), loss.label))


def _with(cell: Cell, setting: Setting) -> Cell:
    """The cell with another loss and schedule; its warm start, which all losses share, keeps its own schedule."""
    if not setting.schedule:
        return replace(cell, losses=(setting.loss,), key="")
    schedule = cell.schedule.changed(setting.schedule).over(cell.dataset.size)
    own, ours = cell.schedule.recipe(), schedule.model_dump()
    differs = {name: value for name, value in own.items() if value != ours[name]}
    warm = cell.warm and replace(cell.warm, schedule=differs)
    return replace(cell, losses=(setting.loss,), schedule=schedule, warm=warm, key="")


def _timing_cells(experiment: Experiment) -> Iterator[Cell]:
    if experiment.timing:
        for cell in _grid(experiment, experiment.seeds[0], experiment.datasets):
            timing = replace(cell, kind="timing", losses=experiment.losses, warm=None, timing=experiment.timing, key="")
            yield timing.unmeasured()


def _grid(experiment: Experiment, seed: int, datasets: Sequence[DataAt]) -> Iterator[Cell]:
    """One cell (of the first loss) per point. `datasets` are the experiment's own, or those of its trials."""
    distinct = varied(node.point for node in experiment.grid)
    shows = tuple(
        name
        for name in experiment.axes
        if name not in ("classes", "width") and (name in distinct or name not in COLUMNS)
    )
    for point, data, backbone, width, schedule in experiment.grid:
        yield Cell(
            experiment=experiment.name,
            kind="train",
            task=experiment.task,
            dataset=datasets[data].dataset,
            backbone=backbone,
            width=width,
            classes=datasets[data].classes,
            losses=experiment.losses[:1],
            seed=seed,
            schedule=schedule.over(datasets[data].dataset.size),
            warm=experiment.warm,
            timing=None,
            threads=experiment.threads,
            device=experiment.device,
            autocast=experiment.autocast,
            channels_last=experiment.channels_last,
            compile=experiment.compile,
            metrics=experiment.metrics,
            default_metrics=experiment.default_metrics,
            keep=experiment.keep,
            axes=point.without("experiment"),
            shows=shows,
        )
