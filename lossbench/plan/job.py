"""A suite made ready: read, planned, with its plugins and data found. Nothing is trained here."""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossbench.core import gpus
from lossbench.core.errors import DataError, MissingDataError, SuiteError, nearest
from lossbench.core.labels import parse_label
from lossbench.core.model import Cell, Spec, Suite
from lossbench.data import data_folder, load_dataset
from lossbench.data.download.supply import Download, Supply
from lossbench.plan import choose
from lossbench.plan.cells import parse_shard, plan, select, shard, unique
from lossbench.plugins.registry import Registry
from lossbench.suite.locate import locate
from lossbench.suite.reading import NO_PROFILE, read, resolve
from lossbench.suite.settings import expected, with_tuned

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
    choice: choose.Choice | None = None  # of the suite's `auto`; None: the profile was given
    downloads: Sequence[Download] = ()  # what a run will fetch first; until then these experiments have no data

    def not_run(self) -> list[str]:
        """A sentence for every experiment whose data is not here, with the folder as it is called here."""
        missing = self.suite.outline.missing.items()
        return [f"not run: {name}: {why.replace(DATA, str(self.data))}" for name, why in missing]

    def opening(self, expected: str = "") -> str:
        """What a run says first: the profile that was chosen, why, how long it takes, and the profile's note."""
        return opening(self.suite, self.choice, self.downloads, expected)

    def measurable(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells whose data is here, so that a few steps of them can be measured."""
        waiting = {name for download in self.downloads for name in download.experiments}
        return [cell for cell in cells if cell.experiment not in waiting]

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
    fetch: bool = True,
    gpu: bool | None = None,
    get: Callable[[Download, Path], None] | None = None,
    on_choice: Callable[[choose.Choice | None, str], None] = lambda choice, opening: None,
    progress: Progress = lambda name, done, total: None,
) -> Job:
    """Read and plan a suite; nothing is trained. Filters choose cells by label or name, `shard` ("2/8") a part of them.

    Without `profile`, one of the suite's `auto` is chosen if it has that list (`choose` says how; `gpu`: whether cells
    will have a GPU, by default whether this machine has one); "none" is the suite without a profile. Missing datasets
    whose publishers answer are fetched by `get`; without `get` they are only planned for, without `fetch` left missing.
    `on_choice` hears which profile was chosen and, before anything is fetched, what will be. Datasets that are read for
    the first time are prepared, which `progress` hears of.
    """
    path = locate(os.fspath(suite))
    registry = Registry([path.parent, *(Path(folder) for folder in plugins)])
    folder = data_folder(data)
    supply = Supply(registry, folder, fetch=fetch)
    given = None if profile == NO_PROFILE else profile
    parsed = read(path, registry, _counting(supply), given)
    chooses = profile is None and bool(parsed.auto)
    if chooses and shard:
        raise SuiteError(f"--shard: all parts must be of one profile; say which: --profile {'|'.join(parsed.auto)}")
    while True:
        choice = None
        if chooses:
            choice, parsed = _chosen(path, parsed.auto, supply, datasets, gpu)
        lacking = _lacking(parsed, supply, datasets)
        downloads = supply.downloads(lacking)
        on_choice(choice, opening(parsed, choice, downloads) if downloads else "")
        if not downloads or get is None:
            break
        supply.have(downloads, get)  # what fails is not tried again, and may leave another profile to choose
        if not chooses:
            parsed = read(path, registry, _counting(supply), given)  # the data may say how many classes there are
    taken = parsed.outline.profile or (NO_PROFILE if parsed.auto else None)
    command = ["lossbench", "run", os.fspath(suite)]  # as the user would type it again
    command += ["--profile", taken] if taken else []
    command += [part for folder in plugins for part in ("--plugins", os.fspath(folder))]
    parsed = replace(parsed, outline=replace(parsed.outline, command=shlex.join(command)))
    reasons = {experiment: supply.why(names) for experiment, names in lacking.items()}
    coming = {experiment for download in downloads for experiment in download.experiments}
    parsed = with_data(parsed, registry, folder, progress, reasons=reasons, coming=coming)
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
    return Job(parsed, registry, folder, cells, _part(unique(chosen), shard), filters, choice, downloads)


def opening(suite: Suite, choice: choose.Choice | None, downloads: Sequence[Download] = (), expected: str = "") -> str:
    """What a run says first: the profile that was chosen, why, how long it takes, and the profile's note."""
    outline = suite.outline
    said = [f"profile {outline.profile}: {choice.why}."] if choice else []
    if downloads:
        names = ", ".join(download.source.name for download in downloads)
        size = sum(download.bytes for download in downloads)
        said.append(f"To fetch: {names} ({size / 2**20:.0f} MiB in all).")
    if expected:
        said.append(f"{expected[0].upper()}{expected[1:]}.")
    if outline.note:
        said.append(outline.note if choice else f"profile {outline.profile}: {outline.note}")
    return " ".join(said)


def _chosen(
    path: Path, names: Sequence[str], supply: Supply, datasets: Sequence[str], gpu: bool | None
) -> tuple[choose.Choice, Suite]:
    """The first profile of `auto` that can run here, and the suite at it."""
    suites = {name: read(path, supply.registry, _counting(supply), name) for name in names}
    candidates = [
        choose.Needs(
            name,
            any(experiment.device == "cuda" for experiment in suite.experiments),
            _lacking(suite, supply, datasets),
        )
        for name, suite in suites.items()
    ]
    wanted = [name for needs in candidates for missing in needs.lacking.values() for name in missing]
    if gpu is None:
        gpu = any(needs.gpu for needs in candidates) and bool(gpus.visible())
    here = choose.Situation(gpu, _shown(supply.folder), supply.fetch, supply.obtainable(wanted), supply.failed)
    choice, obstacles = choose.choose(candidates, here)
    if choice is None:
        raise DataError(f"{path}: no profile of its auto = {list(names)} can run here: {obstacles}")
    return choice, suites[choice.profile]


def _lacking(suite: Suite, supply: Supply, datasets: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """For each experiment that needs files and that the filter leaves: the datasets it needs that are not here."""
    found: dict[str, tuple[str, ...]] = {}
    for experiment in suite.experiments:
        meant = [dataset for _, dataset in experiment.tasks]
        if datasets and not any(dataset.name in datasets or dataset.label in datasets for dataset in meant):
            continue
        lacks = [supply.lacking(dataset.name, dataset.options) for dataset in meant]
        if any(missing is not None for missing in lacks):
            found[experiment.name] = tuple(dict.fromkeys(name for missing in lacks for name in missing or ()))
    return found


def _shown(folder: Path) -> str:
    """A folder as its user would write it."""
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home
        return str(folder)
    return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) and folder != home else str(folder)


def shorter_profiles(suite: str | os.PathLike[str], job: Job) -> list[str]:
    """The profiles of a suite that train fewer steps than this job, the shortest first."""
    path = locate(os.fspath(suite))
    steps = {}
    supply = Supply(job.registry, job.data, fetch=False)
    for name in tomllib.loads(job.suite.text).get("profile", {}):
        cells = unique(plan(read(path, job.registry, _counting(supply), name)))
        steps[name] = sum(cell.schedule.steps for cell in cells if cell.kind != "timing")
    ours = sum(cell.schedule.steps for cell in job.chosen if cell.kind != "timing")
    return sorted((name for name in steps if steps[name] < ours), key=steps.__getitem__)


def with_data(
    suite: Suite,
    registry: Registry,
    folder: Path,
    progress: Progress = lambda name, done, total: None,
    *,
    reasons: Mapping[str, str] | None = None,
    coming: Collection[str] = (),
) -> Suite:
    """The suite with the version of its data in every cell's key; experiments whose data is not here are set apart.

    `reasons` says of experiments why their data could not be fetched. Experiments whose data is `coming` stay in the
    plan; the keys of their cells will be others once it is here.
    """

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
            if experiment.name in coming:
                here.append(experiment)
                continue
            tried = (reasons or {}).get(experiment.name)
            why = f"{error}; it could not be fetched now: {tried}" if tried else str(error)
            # It is kept and reported: the folder is called as anyone may find it, not as it is called here.
            missing[experiment.name] = why.replace(str(folder), DATA)
    if not here:
        raise DataError(next(iter(missing.values())).replace(DATA, str(folder)))
    return replace(suite, outline=replace(suite.outline, missing=missing, examples=examples), experiments=tuple(here))


def _counting(supply: Supply) -> Callable[[Spec], int]:
    return lambda spec: supply.count_classes(spec.name, spec.options)


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
