"""What `import lossbench` offers. Heavy modules are imported where they are needed."""

from __future__ import annotations

import contextlib
import os
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lossbench.data import count_classes, data_folder, load_dataset
from lossbench.errors import DataError, LossbenchError, MissingDataError, RunError, StoreError, SuiteError, nearest
from lossbench.labels import parse_label
from lossbench.plan import parse_shard, plan, select, shard, unique
from lossbench.registry import Registry
from lossbench.schema import Cell, Spec, Suite
from lossbench.store import Store, load_records
from lossbench.suite import read, resolve
from lossbench.suite_files import locate
from lossbench.tune import expected, waiting, with_tuned, without_setting

if TYPE_CHECKING:
    import pandas
    from torch import nn

    from lossbench.data.cache import Progress
    from lossbench.engines.local import Event, Server
    from lossbench.forecast import Forecast
    from lossbench.report import Report

__all__ = ["create_backbone", "create_loss", "load_dataset", "load_records", "run"]

FORECAST_STEPS = 50_000  # from here on a run says first how long it will take
HOUR = 3600

RETRIED = ("failed", "oom", "timeout")  # a diverged cell is a result: it would diverge again


def create_loss(name: str, features: int, classes: int, **options: Any) -> nn.Module:
    """A loss by name, for `features`-dimensional features (M) and `classes` classes (C).

    `loss(features, labels)` (B×M, B) is the training loss, `loss.logits(features)` (B×C) the margin-free scores. After
    every optimizer step call `loss.advance()` where the loss has it (λ schedules, centres).
    """
    plugin = Registry().find("loss", name)
    loss: nn.Module = plugin.load()(features, classes, **plugin.parse_options(options))
    return loss


def create_backbone(name: str, in_shape: tuple[int, int, int], width: int, **options: Any) -> nn.Module:
    """A backbone by name: images (B, *in_shape) with in_shape = (channels, height, width) → features (B, `width`)."""
    plugin = Registry().find("backbone", name)
    backbone: nn.Module = plugin.load()(tuple(in_shape), width, **plugin.parse_options(options))
    return backbone


@dataclass(frozen=True)
class Job:
    """A suite made ready: what it means, where its plugins and data are, and its cells."""

    suite: Suite
    registry: Registry
    data: Path
    cells: list[Cell]  # all that the suite means
    chosen: list[Cell]  # those that the filters leave, one a key
    filters: Mapping[str, Sequence[Any]]  # as `select` takes them

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


@dataclass(frozen=True)
class RunResult:
    """How a run ended: the run folder, the statuses of its cells, its report."""

    folder: Path
    statuses: dict[str, str]
    unfinished: list[tuple[Cell, str]]  # cells without a `done` record, with their status
    missing: Mapping[str, str]  # experiments that were not run, as their data is not here
    report: Report | None

    @property
    def records(self) -> pandas.DataFrame:
        return load_records(self.folder)


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


def predict(job: Job, cells: list[Cell], jobs: int | None = None, server: Server | None = None) -> Forecast:
    """How long these cells will take, from a few real steps of every kind among them."""
    from lossbench.engines import local
    from lossbench.forecast import forecast, kinds

    with local.serving(cells, job.registry) if server is None else contextlib.nullcontext(server) as serving:
        costs = local.probe(serving, kinds(cells), job.registry, job.data)
    return forecast(cells, costs, jobs or available_cores())


def shorter_profiles(suite: str | os.PathLike[str], job: Job) -> list[str]:
    """The profiles of a suite that train fewer steps than this job, the shortest first."""
    path = locate(os.fspath(suite))
    steps = {}
    for name in tomllib.loads(job.suite.text).get("profile", {}):
        cells = unique(plan(read(path, job.registry, _counting(job.registry, job.data), name)))
        steps[name] = sum(cell.schedule.steps for cell in cells if cell.kind != "timing")
    ours = sum(cell.schedule.steps for cell in job.chosen if cell.kind != "timing")
    return sorted((name for name in steps if steps[name] < ours), key=steps.__getitem__)


def run(
    suite: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    reports: str | os.PathLike[str] | None = "reports",
    jobs: int | None = None,
    timeout: float | None = None,
    memory: int | None = None,
    checkpoint: float = 60,
    force: bool = False,
    retry_failed: bool = False,
    fail_fast: bool = False,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    cpus_per_cell: float | None = None,
    gpus_per_cell: float = 0,
    on_event: Callable[[Event], None] = lambda event: None,
    on_start: Callable[[Job, list[Cell]], None] = lambda job, todo: None,
    notify: Callable[[str], None] = lambda text: None,
    on_prepare: Progress = lambda name, done, total: None,
    **selection: Any,
) -> RunResult:
    """Train what is missing of a suite in `out` (default runs/<name>) and write its report to `reports` (None: none).

    `selection` is what `prepare` takes: profile, data, plugins, and the filters losses, datasets, backbones, widths,
    seeds, and shard (a part of a suite writes no report). `timeout` is in seconds a cell, `memory` in bytes; cells keep
    their state every `checkpoint` seconds. With `engine` "ray" cells run on the Ray cluster at `address` (default:
    $RAY_ADDRESS, else one that is started here), each with so many CPUs (default: its threads) and GPUs.
    """
    _check_engine(engine, address)
    job = prepare(suite, progress=on_prepare, **selection)
    for name, why in job.suite.outline.missing.items():
        notify(f"not run: {name}: {why}")
    store = Store(out or Path("runs") / job.suite.outline.name)
    records, damaged = store.scan()
    for name, why in damaged.items():
        with store.claim(name) as ours:  # another run may be making it anew right now
            if ours and store.read(name) is None:
                notify(f"{store.cells / name}: {why}; set aside as {store.set_aside(name)}")

    def execute(job: Job, todo: list[Cell]) -> None:
        redo = frozenset(cell.key for cell in todo if cell.key in records)
        asked = {"cpus": cpus_per_cell, "gpus": gpus_per_cell, "memory": memory, "jobs": jobs}
        how = {"on_event": on_event, "timeout": timeout, "memory": memory, "checkpoint": checkpoint}
        with _engine(engine, job, todo, address, notify, asked) as started:
            if sum(cell.schedule.steps for cell in todo if cell.kind != "timing") > FORECAST_STEPS:
                expects = predict(job, [*todo, *job.following()], started.size, started.server)
                notify(_opening(suite, job, expects))
            store.prepare(job.suite, job.cells)
            store.sweep_staging()
            on_start(job, todo)
            started.execute(todo, store, redo=redo, fail_fast=fail_fast, data_given=bool(selection.get("data")), **how)

    first = job if force else job.tuned(records)  # forced trials may choose otherwise than those that are there
    todo = _to_do(first.chosen, records, force=force, retry_failed=retry_failed)
    if todo:
        execute(first, todo)
    else:
        store.prepare(first.suite, first.cells)
        on_start(first, todo)
    records, _ = store.scan()
    job = job.tuned(records)
    for sentence in filter(None, (*without_setting(job.cells, records), waiting(job.cells, records))):
        notify(sentence)
    if job.cells != first.cells:
        known = {cell.key for cell in first.chosen}
        more = [cell for cell in job.chosen if cell.key not in known]
        todo = _to_do(more, records, force=force, retry_failed=retry_failed)
        if todo and not (fail_fast and _stopped(first.chosen, records)):
            execute(job, todo)
            records, _ = store.scan()
        else:
            store.prepare(job.suite, job.cells)
    statuses = {cell.key: records[cell.key]["status"] if cell.key in records else "missing" for cell in job.chosen}
    unfinished = [(cell, statuses[cell.key]) for cell in job.chosen if not finished(cell, statuses[cell.key])]
    report = None
    if reports is not None and not selection.get("shard"):
        from lossbench.report import write

        report = write([store.root], reports)
    return RunResult(store.root, statuses, unfinished, job.suite.outline.missing, report)


@dataclass(frozen=True)
class _Engine:
    """Where cells will run: preloaded processes here and, if asked for, a Ray cluster."""

    job: Job
    server: Server
    cluster: Any  # None: this machine
    jobs: int | None

    @property
    def size(self) -> int:
        """How many cells run at once."""
        return self.jobs or (self.cluster.size() if self.cluster else available_cores())

    def execute(self, todo: list[Cell], store: Store, *, data_given: bool, **how: Any) -> None:
        from lossbench.engines import local, ray

        how |= {"registry": self.job.registry, "data": self.job.data}
        try:
            if self.cluster:
                ray.execute(todo, store, self.cluster, jobs=self.jobs, data_given=data_given, **how)
            else:
                local.execute(todo, store, self.server, jobs=self.size, **how)
        except StoreError as error:
            raise RunError(str(error)) from error


@contextlib.contextmanager
def _engine(
    name: str, job: Job, todo: list[Cell], address: str | None, notify: Callable[[str], None], asked: dict[str, Any]
) -> Iterator[_Engine]:
    """The engine for these cells, started; SuiteError when a plugin of theirs is not sound."""
    from lossbench.engines import local, ray

    with contextlib.ExitStack() as engines:
        if name == "local":
            local.gpu_places(todo)
        on_ray = ray.connected(address, todo, notify=notify, **asked)
        cluster = engines.enter_context(on_ray) if name == "ray" else None
        server = engines.enter_context(local.serving(todo, job.registry))
        if problems := local.preflight(server, todo, job.registry, job.data):
            raise SuiteError(problems[0] + (f" (and {len(problems) - 1} more)" if problems[1:] else ""))
        yield _Engine(job, server, cluster, asked["jobs"])


def finished(cell: Cell, status: str) -> bool:
    """Whether a cell came to what it was planned for. A trial that diverged did: such a setting is not chosen."""
    return status == "done" or (cell.kind == "trial" and status == "diverged")


def _check_engine(engine: str, address: str | None) -> None:
    """Refuse an engine that is not there before anything else is done."""
    from lossbench.engines import ray

    if engine == "ray":
        ray.check(address)
    elif engine != "local":
        raise LossbenchError(f"there is no engine '{engine}'; {nearest(engine, ('local', 'ray'))}")


def available_cores() -> int:
    """The cores that this process may use, which a container may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _counting(registry: Registry, folder: Path) -> Callable[[Spec], int]:
    return lambda spec: count_classes(spec.name, dict(spec.options), registry, folder)


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
            missing[experiment.name] = str(error).replace(str(folder), "$LOSSBENCH_DATA")
    if not here:
        raise DataError(next(iter(missing.values())))
    return replace(suite, outline=replace(suite.outline, missing=missing, examples=examples), experiments=tuple(here))


def _opening(suite: str | os.PathLike[str], job: Job, expected: Forecast) -> str:
    """How long it will take; beyond an hour, what would take less."""
    from lossbench.forecast import in_words

    told = f"this will take {in_words(expected)}"
    if expected.seconds > HOUR and (shorter := shorter_profiles(suite, job)):
        told += "; shorter: " + ", ".join(f"--profile {name}" for name in shorter)
    return told


def _to_do(cells: list[Cell], records: dict[str, Any], *, force: bool, retry_failed: bool) -> list[Cell]:
    if force:
        return cells
    if retry_failed:
        return [cell for cell in cells if cell.key in records and records[cell.key]["status"] in RETRIED]
    return [cell for cell in cells if cell.key not in records]


def _stopped(cells: list[Cell], records: Mapping[str, Any]) -> bool:
    """Whether a run that fails fast has met a cell that did not finish."""
    return not all(cell.key in records and finished(cell, records[cell.key]["status"]) for cell in cells)


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
