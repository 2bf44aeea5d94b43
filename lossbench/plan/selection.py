"""A selection from a suite: profile, filters, shard; and the cells that match. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lossbench.core.errors import SuiteError, nearest
from lossbench.core.labels import parse_label
from lossbench.core.model import SCORED, Cell, Experiment, Spec
from lossbench.core.point import known_values, matches, shown
from lossbench.plugins.registry import Registry
from lossbench.suite.names import resolve
from lossbench.suite.overrides import SetLike
from lossbench.suite.settings import SUFFIX


@dataclass(frozen=True)
class Selection:
    """Which part of a suite to run, and where its data and plugins are. An empty filter selects everything."""

    profile: str | None = None  # "none": no profile; None: the first of the suite's `auto` that can run here
    data: str | os.PathLike[str] | None = None
    plugins: Sequence[str | os.PathLike[str]] = ()
    experiments: Sequence[str] = ()  # names; tuned cells belong to the experiment that is tuned
    losses: Sequence[str] = ()  # labels; a bare name stands for all its variants
    datasets: Sequence[str] = ()  # labels or names
    backbones: Sequence[str] = ()  # labels or names
    widths: Sequence[int] = ()
    seeds: Sequence[int] = ()
    at: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # values of axes, such as {"steps": [300]}
    shard: str | None = None  # "I/N"
    fetch: bool = True  # download missing datasets
    set: SetLike = ()  # keys of the suite, {"schedule.steps": 100} or ["schedule.steps=100"]; they override the profile
    keep: Sequence[str] = ()  # what finished cells keep, besides what the suite says

    def has_experiment(self, name: str) -> bool:
        return not self.experiments or name in self.experiments or name.removesuffix(SUFFIX) in self.experiments

    def has_dataset(self, dataset: Spec) -> bool:
        return _named(dataset, self.datasets)

    def filters(self) -> str:
        """The filters as an error names them."""
        names = ("experiments", "losses", "datasets", "backbones", "widths", "seeds")
        given = {name: getattr(self, name) for name in names} | {f"--at {name}": vs for name, vs in self.at.items()}
        return "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in given.items() if values)

    def check(self, experiments: Sequence[Experiment]) -> None:
        """Every value that is selected is one of the suite, also where the data of an experiment is missing."""
        known: dict[str, dict[Any, None]] = {"seed": dict.fromkeys(seed for each in experiments for seed in each.seeds)}
        for name, value in (axis for each in experiments for point, *_ in each.grid for axis in point.items()):
            known.setdefault(name, {})[value] = None
        axes = [name for name in known if name not in ("seed", "experiment")]
        specs = [data.dataset for each in experiments for data in each.datasets]
        specs += [at.backbone for each in experiments for at in each.backbones]
        labels = {spec.label for spec in specs}  # with swept options and numbers of classes, which axes leave out
        own = {"dataset": self.datasets, "backbone": self.backbones, "width": self.widths, "seed": self.seeds}
        names = [each.name for each in experiments]
        wrong = [
            f"--experiment: this suite has no experiment '{name}'; {nearest(name, names)}"
            for name in self.experiments
            if name not in names
        ]
        wrong += [
            f"--{name}: no cell has the {name} {_quoted(value)}; {known_values(value, known[name])}"
            for name, values in own.items()
            for value in values
            if value not in labels and not any(matches(each, value) for each in known[name])
        ]
        for name, values in self.at.items():
            if name not in axes:
                wrong.append(f"--at: no experiment of this suite has the axis '{name}'; {nearest(name, axes)}")
                continue
            missing = (value for value in values if not any(matches(each, value) for each in known[name]))
            wrong += [f"--at: no cell has the {name} {_quoted(v)}; {known_values(v, known[name])}" for v in missing]
        if wrong:
            raise SuiteError(*wrong)

    def resolved(self, cells: Sequence[Cell], registry: Registry) -> Selection:
        """The selection with `losses` as the labels of these cells; losses that no cell has are refused."""
        known = {spec.label: spec for cell in cells if cell.kind != "trial" for spec in cell.losses}
        labels: list[str] = []
        for text in self.losses:
            try:
                name, options = parse_label(text)
            except ValueError as error:
                raise SuiteError(f"--loss: {error}") from error
            wanted = resolve(registry, "loss", name, options)
            found = [
                label
                for label, spec in known.items()
                if spec.name == name and all(spec.options[key] == wanted.options[key] for key in options)
            ]
            if not found:
                raise SuiteError(f"--loss: no cell of this suite has the loss '{text}'; {nearest(text, known)}")
            labels += found
        return replace(self, losses=labels)


def select(cells: Sequence[Cell], wanted: Selection) -> list[Cell]:
    """The cells that fit the filters, and the warm starts they need; `losses` are labels.

    Timing cells compare all losses at once, so they are kept only if no loss and no seed is selected.
    """

    def fits(cell: Cell) -> bool:
        if cell.kind == "warm" or (cell.kind == "timing" and (wanted.losses or wanted.seeds)):
            return False
        return (
            wanted.has_experiment(cell.experiment)
            and (not wanted.losses or cell.loss.label in wanted.losses)
            and _named(cell.dataset, wanted.datasets, cell.point["dataset"])
            and _named(cell.backbone, wanted.backbones, cell.point["backbone"])
            and (not wanted.widths or cell.width in wanted.widths)
            and (not wanted.seeds or cell.seed in wanted.seeds)
            and all(any(cell.point.lies({name: value}) for value in values) for name, values in wanted.at.items())
        )

    chosen = [cell for cell in cells if fits(cell)]
    needed = {cell.warm_cell().key for cell in chosen if cell.warm and cell.kind in SCORED}
    kept = {id(cell) for cell in chosen}
    return [cell for cell in cells if id(cell) in kept or (cell.kind == "warm" and cell.key in needed)]


def _quoted(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else shown(value)


def parse_shard(text: str) -> tuple[int, int]:
    """`2/8` → (2, 8); ValueError otherwise."""
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"'{text}' is not a shard I/N with 1 ≤ I ≤ N, such as 2/8")
    return int(part), int(parts)


def shard(cells: Sequence[Cell], part: int, parts: int) -> list[Cell]:
    """Shard number `part` (from 1) of `parts` of the cells (one per key), in their order.

    Every cell is in exactly one shard, regardless of the order of `cells`. A warm start and the cells that need it stay
    together, as do the losses compared at one seed; such groups go, largest first, to the shard with the fewest steps.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_group(cell), []).append(cell)
    cost = {name: sum(map(_steps, group)) for name, group in groups.items()}
    loads = [0] * parts
    mine: set[str] = set()
    for name in sorted(groups, key=lambda name: (-cost[name], name)):
        lightest = loads.index(min(loads))
        loads[lightest] += cost[name]
        if lightest == part - 1:
            mine |= {cell.key for cell in groups[name]}
    return [cell for cell in cells if cell.key in mine]


def _named(spec: Spec, wanted: Sequence[str], label: str = "") -> bool:
    return not wanted or any(name in wanted for name in (spec.name, spec.label, label))


def _group(cell: Cell) -> str:
    """What the cells of one group share: their warm start, or everything but the loss."""
    if cell.kind == "warm":
        return cell.key
    return cell.warm_cell().key if cell.warm else replace(cell, losses=(), key="").key


def _steps(cell: Cell) -> int:
    return cell.timing.rounds * cell.timing.steps * len(cell.losses) if cell.timing else cell.schedule.steps
