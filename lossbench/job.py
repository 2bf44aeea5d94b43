"""A suite made ready: read, planned, with its plugins and data found. Nothing is trained here."""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossbench.data import count_classes, data_folder, load_dataset
from lossbench.errors import DataError, MissingDataError, SuiteError, nearest
from lossbench.labels import parse_label
from lossbench.plan import parse_shard, plan, select, shard, unique
from lossbench.registry import Registry
from lossbench.schema import Cell, Spec, Suite
from lossbench.suite import read, resolve
from lossbench.suite_files import locate
from lossbench.tune import expected, with_tuned

if TYPE_CHECKING:
    from lossbench.data.cache import Progress

DATA = "$LOSSBENCH_DATA"  # the data folder in what is kept


@dataclass(frozen=True)
class Job:
    """A suite made ready: what it means, where its plugins and data are, and its cells."""

    suite: Suite
    registry: Registry
    data: Path
    cells: list[Cell]  # all that the suite means
    chosen: list[Cell]  # those that the filters leave, one a key
    filters: Mapping[str, Sequence[Any]]  # as `select` takes them

    def not_run(self) -> list[str]:
        """A sentence for every experiment whose data is not here, with the folder as it is called here."""
        missing = self.suite.outline.missing.items()
        return [f"not run: {name}: {why.replace(DATA, str(self.data))}" for name, why in missing]

    def tuned(self, records: Mapping[str, Any]) -> Job:
        """This job and the tuned cells, as far as the records of its trials decide them."""
        if not self.suite.outline.tuning:
            return self
        suite = with_tuned(self.suite, self.cells, records)
        cells = plan(suite)
        return replace(self, suite=suite, cells=cells, chosen=unique(select(cells, **self.filters)))

    def following(self) -> list[Cell]:
        """The tuned cells that trials have yet to decide, as if every loss came out as it is written."""
        there = {cell.title for cell in self.cells}
        cells = select(plan(expected(self.suite)), **self.filters)
        return [cell for cell in cells if cell.kind == "train" and cell.title not in there]


def prepare(
    suite: str | os.PathLike[str],
    *,
    profile: str | None = None,
    data: str | os.PathLike[str] | None = None,
    plugins: Sequence[str | os.PathLike[str]] = (),
    losses: Sequence[str] = (),
    datasets: Sequence[str] = (),
    backbones: Sequence[str] = (),
    widths: Sequence[int] = (),
    seeds: Sequence[int] = (),
    shard: str | None = None,
    progress: Progress = lambda name, done, total: None,
) -> Job:
    """Read and plan a suite; nothing is trained. Filters choose cells by label or name, `shard` ("2/8") a part of them.

    Datasets that are read for the first time are prepared, which `progress` hears of.
    """
    path = locate(os.fspath(suite))
    registry = Registry([path.parent, *(Path(folder) for folder in plugins)])
    folder = data_folder(data)
    parsed = read(path, registry, _counting(registry, folder), profile)
    command = ["lossbench", "run", os.fspath(suite)]  # as the user would type it again
    command += ["--profile", profile] if profile else []
    command += [part for folder in plugins for part in ("--plugins", os.fspath(folder))]
    parsed = replace(parsed, outline=replace(parsed.outline, command=shlex.join(command)))
    parsed = with_data(parsed, registry, folder, progress)
    if shard and parsed.outline.tuning:
        raise SuiteError(f"--shard: {path} has [tune], and a tuned cell needs all trials of its loss; run it whole")
    cells = plan(parsed)
    wanted: dict[str, Any] = {"losses": losses, "datasets": datasets, "backbones": backbones, "widths": widths}
    wanted["seeds"] = seeds
    filters = {**wanted, "losses": _labels(losses, cells, registry)}
    chosen = select(cells, **filters)
    if not chosen:
        asked = "; ".join(f"{key} {', '.join(map(str, value))}" for key, value in wanted.items() if value)
        raise SuiteError(f"{path}: no cell fits {asked}; `lossbench plan {suite}` shows the cells there are")
    return Job(parsed, registry, folder, cells, _part(unique(chosen), shard), filters)


def shorter_profiles(suite: str | os.PathLike[str], job: Job) -> list[str]:
    """The profiles of a suite that train fewer steps than this job, the shortest first."""
    path = locate(os.fspath(suite))
    steps = {}
    for name in tomllib.loads(job.suite.text).get("profile", {}):
        cells = unique(plan(read(path, job.registry, _counting(job.registry, job.data), name)))
        steps[name] = sum(cell.schedule.steps for cell in cells if cell.kind != "timing")
    ours = sum(cell.schedule.steps for cell in job.chosen if cell.kind != "timing")
    return sorted((name for name in steps if steps[name] < ours), key=steps.__getitem__)


def with_data(
    suite: Suite, registry: Registry, folder: Path, progress: Progress = lambda name, done, total: None
) -> Suite:
    """The suite with the version of its data in every cell's key; experiments whose data is not here are set apart."""

    def pinned(dataset: Spec) -> Spec:
        try:
            found = load_dataset(dataset.name, data=folder, registry=registry, progress=progress, **dataset.options)
        except MissingDataError:
            raise
        except DataError as error:
            raise SuiteError(f"{dataset.where}: {error}") from error
        examples.setdefault(dataset.label, len(found.train))  # a trial has fewer under the same label
        return replace(dataset, source=found.version)  # the arrays themselves, however they were read

    here, missing = [], {}
    examples: dict[str, int] = {}
    for experiment in suite.experiments:
        try:
            tasks = tuple((classes, pinned(dataset)) for classes, dataset in experiment.tasks)
            trials = experiment.trials
            if trials:  # their images are held out of the same arrays
                held_out = tuple((classes, pinned(dataset)) for classes, dataset in trials.tasks)
                trials = replace(trials, tasks=held_out)
            here.append(replace(experiment, tasks=tasks, trials=trials))
        except MissingDataError as error:
            # It is kept and reported: the folder is called as anyone may find it, not as it is called here.
            missing[experiment.name] = str(error).replace(str(folder), DATA)
    if not here:
        raise DataError(next(iter(missing.values())).replace(DATA, str(folder)))
    return replace(suite, outline=replace(suite.outline, missing=missing, examples=examples), experiments=tuple(here))


def _counting(registry: Registry, folder: Path) -> Callable[[Spec], int]:
    return lambda spec: count_classes(spec.name, dict(spec.options), registry, folder)


def _part(cells: list[Cell], written: str | None) -> list[Cell]:
    if written is None:
        return cells
    try:
        part, parts = parse_shard(written)
    except ValueError as error:
        raise SuiteError(f"--shard: {error}") from error
    return shard(cells, part, parts)


def _labels(written: Sequence[str], cells: Sequence[Cell], registry: Registry) -> list[str]:
    """What `-l` means, as labels of the plan: a bare name stands for all its variants, options narrow it down."""
    known = {spec.label: spec for cell in cells if cell.kind != "trial" for spec in cell.losses}
    labels: list[str] = []
    for text in written:
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
    return labels
