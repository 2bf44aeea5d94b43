"""A suite made ready to run: read, with its plugins and data found, and planned. Nothing is trained here."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossbench.core import compiler, gpus
from lossbench.core.errors import DataError, MissingDataError, SuiteError
from lossbench.core.model import Cell, DataAt, Experiment, Spec, Suite
from lossbench.data import data_folder, load_dataset
from lossbench.data.download.supply import Download, Supply
from lossbench.plan import choose
from lossbench.plan.cells import plan, training_steps, unique
from lossbench.plan.selection import Selection, parse_shard, select, shard
from lossbench.plugins.registry import Registry
from lossbench.suite.overrides import parse_set
from lossbench.suite.reading import check_profile, read_profiles, to_run
from lossbench.suite.recipe import lengths
from lossbench.suite.settings import notices, scored, tuned, tuned_experiments
from lossbench.suite.source import Source, SuiteLike, open_suite

if TYPE_CHECKING:
    from lossbench.data.cache import Progress

DATA = "$LOSSBENCH_DATA"  # the data folder in texts that are kept
Profiles = Mapping[str | None, Suite]  # None: without a profile


@dataclass(frozen=True)
class Job:
    """A suite made ready: its plugins, data and cells."""

    suite: Suite
    registry: Registry
    data: Path
    cells: list[Cell]  # the whole suite
    chosen: list[Cell]  # those that the selection leaves, one per key
    selection: Selection
    profiles: Profiles
    choice: choose.Choice | None = None  # from the suite's `auto`; None: the profile was given
    downloads: Sequence[Download] = ()  # what a run fetches first; until then these experiments have no data

    notices: Sequence[str] = ()  # what the user is told before anything trains

    def not_run(self) -> list[str]:
        """One sentence per experiment whose data is unavailable."""
        missing = self.suite.info.missing.items()
        return [f"not run: {name}: {why.replace(DATA, str(self.data))}" for name, why in missing]

    def opening(self, expected: str = "") -> str:
        """The first line of a run: the chosen profile and why, how long it will take, and the note."""
        return _opening(self.suite, self.choice, self.downloads, expected)

    def measurable(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells whose data is available, so that a few of their steps can be timed."""
        unfetched = {name for download in self.downloads for name in download.experiments}
        return [cell for cell in cells if cell.experiment not in unfetched]

    def tuned(self, records: Mapping[str, Any]) -> Job:
        """This job with the tuned cells that the records of its trials decide."""
        if not self.suite.info.tuning:
            return self
        scores = scored(self.cells, records, self.suite.info.headline_metric)
        cells = plan(self.suite, tuned_experiments(self.suite.experiments, self.cells, scores))
        return replace(self, cells=cells, chosen=unique(select(cells, self.selection)))

    def tuning_notices(self, records: Mapping[str, Any]) -> list[str]:
        """What trials have not decided, one sentence each."""
        return list(notices(self.cells, scored(self.cells, records, self.suite.info.headline_metric)))

    def following(self) -> list[Cell]:
        """The tuned cells that trials have yet to decide, as if every loss kept its defaults."""
        experiments = tuple(tuned(experiment) for experiment in self.suite.experiments if experiment.trials)
        if not experiments:
            return []
        known = {cell.title for cell in self.cells}
        cells = select(plan(replace(self.suite, experiments=experiments)), self.selection)
        return [cell for cell in cells if cell.kind == "train" and cell.title not in known]

    def shorter_profiles(self) -> list[str]:
        """The profiles that train fewer steps than this job, shortest first; unknown for a suite with overrides.

        Those with epochs are left out: only the data of the chosen profile has been read.
        """
        if self.suite.info.overrides:
            return []
        plans = {name: unique(plan(suite)) for name, suite in self.profiles.items() if name}
        known = {name: cells for name, cells in plans.items() if all(cell.schedule.steps for cell in cells)}
        steps = {name: training_steps(cells) for name, cells in known.items()}
        ours = training_steps(self.chosen)
        return sorted((name for name in steps if steps[name] < ours), key=steps.__getitem__)


def prepare(
    suite: SuiteLike,
    selection: Selection | None = None,
    *,
    gpu: bool | None = None,
    get: Callable[[Download, Path], None] | None = None,
    on_choice: Callable[[choose.Choice | None, str], None] = lambda choice, opening: None,
    progress: Progress = lambda name, done, total: None,
) -> Job:
    """Read and plan a suite; nothing is trained.

    Missing datasets whose publishers answer are fetched by `get`; without `get` they are only announced. `gpu` says
    whether cells will have a GPU (default: whether this machine has one). `on_choice` is called with the chosen
    profile and, before anything is fetched, with the downloads. `progress` follows datasets that are read for the
    first time.
    """
    selection = selection or Selection()
    source = open_suite(suite)
    registry = Registry([source.folder, *(Path(folder) for folder in selection.plugins)])
    supply = Supply(registry, data_folder(selection.data), fetch=selection.fetch)
    while True:
        profiles = _profiles(source, selection, supply)
        choice, parsed = _at_profile(profiles, source, selection, supply, gpu)
        selection.check(parsed.experiments)
        lacking = _lacking(parsed, supply, selection)
        downloads = supply.downloads(lacking)
        on_choice(choice, _opening(parsed, choice, downloads) if downloads else "")
        if not downloads or get is None:
            break
        supply.have(downloads, get)  # may fail, which leaves another profile; may tell how many classes there are
    kept = (tuple(dict.fromkeys((*each.keep, *selection.keep))) for each in parsed.experiments)
    experiments = (replace(each, keep=keep) for each, keep in zip(parsed.experiments, kept, strict=True))
    parsed = replace(parsed, experiments=tuple(experiments))
    parsed = with_data(
        parsed,
        registry,
        supply.folder,
        progress,
        reasons={experiment: supply.why(names) for experiment, names in lacking.items()},
        coming={experiment for download in downloads for experiment in download.experiments},
    )
    parsed, notices = with_compiler(parsed)
    cells = plan(parsed)
    resolved = selection.resolved(cells, registry)
    chosen = select(cells, resolved)
    if not chosen:
        hint = f"`lossbench plan {source.argument}` lists the cells"
        raise SuiteError(f"{source.name}: no cell matches {selection.filters()}; {hint}")
    chosen = _shard(unique(chosen), selection.shard, parsed, source)
    return Job(parsed, registry, supply.folder, cells, chosen, resolved, profiles, choice, downloads, notices)


def _profiles(source: Source, selection: Selection, supply: Supply) -> Profiles:
    return read_profiles(
        source.text,
        source.name,
        supply.registry,
        lambda spec: supply.count_classes(spec.name, spec.options),
        argument=source.argument,
        plugins=[os.fspath(folder) for folder in selection.plugins],
        profile=selection.profile,
        overrides=parse_set(selection.set),
    )


def _at_profile(
    profiles: Profiles, source: Source, selection: Selection, supply: Supply, gpu: bool | None
) -> tuple[choose.Choice | None, Suite]:
    """The suite at the profile that was given, or else at the first one of its `auto` that can run here."""
    names = profiles[None].auto
    if selection.profile is not None or not names:
        [profile] = to_run(selection.profile, names)
        check_profile(profile, source.name, profiles)
        return None, profiles[profile]
    if selection.shard:
        raise SuiteError(f"--shard: all shards must run one profile; name it: --profile {'|'.join(names)}")
    candidates = [
        choose.Needs(
            name,
            any(experiment.device == "cuda" for experiment in profiles[name].experiments),
            _lacking(profiles[name], supply, selection),
        )
        for name in names
    ]
    wanted = [name for needs in candidates for missing in needs.lacking.values() for name in missing]
    if gpu is None:
        gpu = any(needs.gpu for needs in candidates) and bool(gpus.visible())
    here = choose.Situation(gpu, _shown(supply.folder), supply.fetch, supply.obtainable(wanted), supply.failed)
    choice, obstacles = choose.choose(candidates, here)
    if choice is None:
        raise DataError(f"{source.name}: no profile of its auto = {list(names)} can run here: {obstacles}")
    return choice, profiles[choice.profile]


def _lacking(suite: Suite, supply: Supply, selection: Selection) -> dict[str, tuple[str, ...]]:
    """For each selected experiment that needs files: the datasets that are missing."""
    found: dict[str, tuple[str, ...]] = {}
    for experiment in suite.experiments:
        datasets = [data.dataset for data in experiment.datasets]
        if not selection.has_experiment(experiment.name) or not any(map(selection.has_dataset, datasets)):
            continue
        lacks = [supply.lacking(dataset.name, dataset.options) for dataset in datasets]
        if any(missing is not None for missing in lacks):
            found[experiment.name] = tuple(dict.fromkeys(name for missing in lacks for name in missing or ()))
    return found


def _opening(suite: Suite, choice: choose.Choice | None, downloads: Sequence[Download] = (), expected: str = "") -> str:
    info = suite.info
    said = [f"profile {info.profile}: {choice.why}."] if choice else []
    if downloads:
        names = ", ".join(download.source.name for download in downloads)
        size = sum(download.bytes for download in downloads)
        said.append(f"To fetch: {names} ({size / 2**20:.0f} MiB in total).")
    if expected:
        said.append(f"{expected[0].upper()}{expected[1:]}.")
    if info.note:
        said.append(info.note if choice or not info.profile else f"profile {info.profile}: {info.note}")
    return " ".join(said)


def _shown(folder: Path) -> str:
    """A folder as its user would write it."""
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home
        return str(folder)
    return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) and folder != home else str(folder)


def with_data(
    suite: Suite,
    registry: Registry,
    folder: Path,
    progress: Progress = lambda name, done, total: None,
    *,
    reasons: Mapping[str, str] | None = None,
    coming: Collection[str] = (),
) -> Suite:
    """The suite with the digest of its data in every cell's key; experiments without data are listed as missing.

    `reasons` says why the data of an experiment could not be fetched. Experiments whose data is `coming` stay in the
    plan; the keys of their cells change once it has arrived.
    """
    examples: dict[str, int] = {}

    def pinned(datasets: tuple[DataAt, ...]) -> tuple[DataAt, ...]:
        return tuple(data._replace(dataset=found(data.dataset)) for data in datasets)

    def found(dataset: Spec) -> Spec:
        try:
            loaded = load_dataset(dataset.name, data=folder, registry=registry, progress=progress, **dataset.options)
        except MissingDataError:
            raise
        except DataError as error:
            raise SuiteError(f"{dataset.where}: {error}") from error
        size = len(loaded.train)
        examples.setdefault(dataset.label, size)  # a trial has fewer under the same label
        return replace(dataset, source=loaded.version, size=size)

    here, missing = [], {}
    for experiment in suite.experiments:
        try:
            datasets, trials = pinned(experiment.datasets), experiment.trials
            if trials:
                trials = replace(trials, datasets=pinned(trials.datasets))
            here.append(replace(experiment, datasets=datasets, trials=trials))
            _check_lengths(here[-1])
        except MissingDataError as error:
            if experiment.name in coming:
                here.append(experiment)
                continue
            tried = (reasons or {}).get(experiment.name)
            why = f"{error}; it could not be fetched now: {tried}" if tried else str(error)
            missing[experiment.name] = why.replace(str(folder), DATA)  # reports are read on other machines
    if not here:
        raise DataError(next(iter(missing.values())).replace(DATA, str(folder)))
    return replace(suite, info=replace(suite.info, missing=missing, examples=examples), experiments=tuple(here))


def with_compiler(suite: Suite) -> tuple[Suite, list[str]]:
    """The suite as this machine can train it: eagerly if it has no C++ compiler, and a notice that says so."""
    if compiler.found() or not any(experiment.compile for experiment in suite.experiments):
        return suite, []
    experiments = tuple(replace(experiment, compile=False) for experiment in suite.experiments)
    return replace(suite, experiments=experiments), [f"compile = true: {compiler.missing()}, cells train eagerly"]


def _check_lengths(experiment: Experiment) -> None:
    """Refuse epochs that come to too many or too few steps."""
    warm, trials = experiment.warm.steps if experiment.warm else 0, experiment.trials
    schedules = [schedule for schedule, _ in experiment.schedules if schedule.epochs]
    if trials:
        changes = [setting.schedule for mine in trials.settings.values() for setting in mine]
        schedules += [schedule.changed(change) for schedule in schedules for change in changes if "batch" in change]
    for data in (*experiment.datasets, *(trials.datasets if trials else ())):
        for schedule in schedules:
            for key, problem in lengths(schedule.over(data.dataset.size), warm):
                raise SuiteError(f"experiment.{experiment.name}.schedule.{'.'.join(key)}: {problem}")


def _shard(cells: list[Cell], written: str | None, suite: Suite, source: Source) -> list[Cell]:
    if written is None:
        return cells
    if suite.info.tuning:
        raise SuiteError(f"--shard: {source.name} has [tune], and tuned cells need all trials of their loss")
    try:
        part, parts = parse_shard(written)
    except ValueError as error:
        raise SuiteError(f"--shard: {error}") from error
    return shard(cells, part, parts)
