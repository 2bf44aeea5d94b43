"""Suite → ordered cells. Pure: nothing is read, trained or written here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from lossbench.core.geometry import minimum_width
from lossbench.core.model import SCORED, Cell, Experiment, Setting, Spec, Suite


def plan(suite: Suite) -> list[Cell]:
    """Every cell that the suite means, in the order to run them.

    Seeds go outermost, so that an interrupted run holds complete pairs; a warm start stands before the first cell
    that needs it; trials follow what needs none, and timing cells, which run alone, come last. A cell that two
    experiments share appears once for each, under one key.
    """
    cells = [cell for experiment in suite.experiments for cell in _accuracy_cells(experiment)]
    cells += [cell for experiment in suite.experiments for cell in _trial_cells(experiment)]
    return cells + [cell for experiment in suite.experiments for cell in _timing_cells(experiment)]


def unique(cells: Iterable[Cell]) -> list[Cell]:
    """The cells to train: one a key, in order."""
    seen: dict[str, Cell] = {}
    for cell in cells:
        seen.setdefault(cell.key, cell)
    return list(seen.values())


def select(
    cells: Sequence[Cell],
    *,
    losses: Sequence[str] = (),
    datasets: Sequence[str] = (),
    backbones: Sequence[str] = (),
    widths: Sequence[int] = (),
    seeds: Sequence[int] = (),
) -> list[Cell]:
    """The cells that fit the filters (empty: no filter), and the warm starts they need.

    `losses` are labels, and mean the trials of these losses too; `datasets` and `backbones` are labels or bare names.

    Timing cells compare all losses at once, so they are kept only where no loss and no seed is singled out.
    """

    def named(spec_name: str, spec_label: str, wanted: Sequence[str]) -> bool:
        return not wanted or spec_name in wanted or spec_label in wanted

    def fits(cell: Cell) -> bool:
        return (
            cell.kind != "warm"
            and (cell.kind in SCORED or not (losses or seeds))
            and (cell.kind == "timing" or not losses or _label(cell) in losses)
            and named(cell.dataset.name, cell.dataset.label, datasets)
            and named(cell.backbone.name, cell.backbone.label, backbones)
            and (not widths or cell.width in widths)
            and (not seeds or cell.seed in seeds or cell.kind == "timing")
        )

    chosen = [cell for cell in cells if fits(cell)]
    needed = {cell.warm_cell().key for cell in chosen if cell.warm and cell.kind in SCORED}
    kept = {id(cell) for cell in chosen}
    return [cell for cell in cells if id(cell) in kept or (cell.kind == "warm" and cell.key in needed)]


def parse_shard(text: str) -> tuple[int, int]:
    """What `--shard 2/8` means; ValueError otherwise."""
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"'{text}' is not a shard I/N with 1 ≤ I ≤ N, such as 2/8")
    return int(part), int(parts)


def shard(cells: Sequence[Cell], part: int, parts: int) -> list[Cell]:
    """Part number `part` (from 1) of `parts` of the cells (one a key), in their order.

    Every cell is in just one part, whatever the order of `cells`. A warm start and all that need it stay together, and
    so do the losses that are compared at one seed; such groups go, largest first, to the part with the fewest steps.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_kin(cell), []).append(cell)
    cost = {name: sum(map(_steps, group)) for name, group in groups.items()}
    loads = [0] * parts
    mine: set[str] = set()
    for name in sorted(groups, key=lambda name: (-cost[name], name)):
        lightest = loads.index(min(loads))
        loads[lightest] += cost[name]
        if lightest == part - 1:
            mine |= {cell.key for cell in groups[name]}
    return [cell for cell in cells if cell.key in mine]


def _kin(cell: Cell) -> str:
    """A name that the cells of one group share: that of their warm start, or of all that decides them but the loss."""
    if cell.kind == "warm":
        return cell.key
    return cell.warm_cell().key if cell.warm else replace(cell, losses=(), key="").key


def _steps(cell: Cell) -> int:
    """Optimizer steps, the measure of a cell's work."""
    return cell.timing.rounds * cell.timing.steps * len(cell.losses) if cell.timing else cell.schedule.steps


def _label(cell: Cell) -> str:
    """The label of the loss that a cell is of, or that a trial tunes."""
    return cell.tried[0] if cell.kind == "trial" else cell.loss.label


def _accuracy_cells(experiment: Experiment) -> Iterator[Cell]:
    for seed in experiment.seeds:
        for point in _grid(experiment, seed):
            chosen = [_setting(experiment, point, loss) for loss in experiment.losses]
            found = [_with(point, setting) for setting in chosen if setting]
            if found and point.warm:
                yield point.warm_cell()
            yield from found


def _trial_cells(experiment: Experiment) -> Iterator[Cell]:
    """The trials of an experiment, trial by trial within a point, so that an interrupted run has tried all losses."""
    if not experiment.trials:
        return
    settings = experiment.trials.settings.values()
    for seed in experiment.trials.seeds:
        for point, (classes, held_out) in _grid_with(experiment, seed, experiment.trials.tasks):
            trial = replace(point, kind="trial", dataset=held_out, classes=classes, key="")
            trial = replace(trial, schedule=trial.schedule.model_copy(update={"evaluations": 0}), key="")
            if trial.warm:
                yield trial.warm_cell()
            for number in range(max(map(len, settings))):
                yield from (_with(trial, mine[number]) for mine in settings if number < len(mine))


def _setting(experiment: Experiment, point: Cell, loss: Spec) -> Setting | None:
    """What a loss is trained with at a point: as it is written, or in a tuned experiment as it was chosen."""
    if experiment.settings is None:
        return Setting(loss, experiment.schedule.lr)
    return experiment.settings.get((point.dataset.label, point.width, loss.label))


def _with(cell: Cell, setting: Setting) -> Cell:
    """The cell with another loss and learning rate; its warm start, which all losses share, keeps its own."""
    if setting.lr == cell.schedule.lr:
        return replace(cell, losses=(setting.loss,), key="")
    warm = cell.warm and replace(cell.warm, lr=cell.schedule.lr)
    schedule = cell.schedule.model_copy(update={"lr": setting.lr})
    return replace(cell, losses=(setting.loss,), schedule=schedule, warm=warm, key="")


def _timing_cells(experiment: Experiment) -> Iterator[Cell]:
    if experiment.timing:
        for point in _grid(experiment, experiment.seeds[0]):
            yield replace(point, kind="timing", losses=experiment.losses, warm=None, timing=experiment.timing, key="")


def _grid(experiment: Experiment, seed: int) -> Iterator[Cell]:
    """One cell (of the first loss) for each dataset and width, equal widths once."""
    return (point for point, _ in _grid_with(experiment, seed, experiment.tasks))


def _grid_with(
    experiment: Experiment, seed: int, others: Sequence[tuple[int, Spec]]
) -> Iterator[tuple[Cell, tuple[int, Spec]]]:
    """The grid, each point with what stands in `others` at its task's place."""
    for (classes, dataset), other in zip(experiment.tasks, others, strict=True):
        widths = (minimum_width(classes) if width == "min" else width for width in experiment.widths)
        for width in dict.fromkeys(widths):
            cell = Cell(
                experiment=experiment.name,
                kind="train",
                task=experiment.task,
                dataset=dataset,
                backbone=experiment.backbone,
                width=width,
                classes=classes,
                losses=experiment.losses[:1],
                seed=seed,
                schedule=experiment.schedule,
                warm=experiment.warm,
                timing=None,
                threads=experiment.threads,
                device=experiment.device,
                autocast=experiment.autocast,
                channels_last=experiment.channels_last,
            )
            yield cell, other
