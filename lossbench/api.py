"""The Python interface. Heavy modules are imported where they are needed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lossbench import engines
from lossbench.core.current import stale
from lossbench.core.errors import DataError, SuiteError
from lossbench.core.metric import Metric
from lossbench.core.model import Cell
from lossbench.data import load_dataset
from lossbench.engines import available_cores, scheduler
from lossbench.engines.protocol import Engine, Limits, Resources, RunContext
from lossbench.engines.scheduler import Event
from lossbench.engines.servers import Servers
from lossbench.plan import job
from lossbench.plan.cells import needed, training_steps
from lossbench.plan.job import Job
from lossbench.plan.selection import Selection
from lossbench.plugins.create import create_backbone, create_loss
from lossbench.report import check_folder, write
from lossbench.store.records import Store, load_records, tabulated
from lossbench.store.stale import outdated
from lossbench.suite.claims import of_angles
from lossbench.suite.overrides import SetLike
from lossbench.suite.source import SuiteLike

if TYPE_CHECKING:
    import pandas

    from lossbench.data.cache import Progress
    from lossbench.data.download.fetch import Progress as Transfer
    from lossbench.data.download.supply import Download
    from lossbench.plan.choose import Choice
    from lossbench.plan.forecast import Forecast
    from lossbench.report import Report

__all__ = [
    "Event",
    "Job",
    "RunResult",
    "create_backbone",
    "create_loss",
    "load_dataset",
    "load_records",
    "prepare",
    "run",
]

FORECAST_STEPS = 50_000  # longer runs begin with a forecast
HOUR = 3600

RETRIED = ("failed", "oom", "timeout")  # a diverged cell is a result: it would diverge again


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run: its folder, the statuses of its cells, its report."""

    folder: Path
    statuses: dict[str, str]  # by key; "missing": no record
    unfinished: list[tuple[Cell, str]]  # cells that did not finish, with their status
    missing: Mapping[str, str]  # experiments that were not run because their data is unavailable → why
    report: Report | None
    cells: list[Cell]  # the whole suite, as this run planned it
    metrics: tuple[Metric, ...]
    note: str = ""  # the profile's note

    @property
    def records(self) -> pandas.DataFrame:
        """The records of this run's cells, as `load_records` gives them."""
        return tabulated(self.cells, Store(self.folder).scan()[0], self.metrics)


def prepare(
    suite: SuiteLike,
    *,
    profile: str | None = None,
    data: str | os.PathLike[str] | None = None,
    plugins: Sequence[str | os.PathLike[str]] = (),
    fetch: bool = True,
    set: SetLike = (),
) -> Job:
    """Read and plan a suite without training anything."""
    return job.prepare(suite, Selection(profile=profile, data=data, plugins=plugins, fetch=fetch, set=set))


def predict(job: Job, cells: list[Cell], jobs: int | None = None, servers: Servers | None = None) -> Forecast:
    """How long these cells will take, from a few real steps of every kind among them."""
    from lossbench.plan.forecast import forecast, kinds

    known = job.measurable(cells)
    with contextlib.closing(Servers(job.registry)) if servers is None else contextlib.nullcontext(servers) as started:
        costs = started.probe(kinds(known), job.data) if known else []
    return forecast(cells, costs, jobs or available_cores())


def run(
    suite: SuiteLike,
    *,
    profile: str | None = None,
    set: SetLike = (),
    experiments: Sequence[str] = (),
    losses: Sequence[str] = (),
    datasets: Sequence[str] = (),
    backbones: Sequence[str] = (),
    widths: Sequence[int] = (),
    seeds: Sequence[int] = (),
    at: Mapping[str, Sequence[Any]] | None = None,
    shard: str | None = None,
    data: str | os.PathLike[str] | None = None,
    plugins: Sequence[str | os.PathLike[str]] = (),
    fetch: bool = True,
    keep: Sequence[str] = (),
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
    on_fetch: Callable[[], AbstractContextManager[Transfer | None]] = contextlib.nullcontext,
) -> RunResult:
    """Train the cells of a suite that have no record yet, and write its report.

    What to run:
        suite       a path, the name of a built-in suite, or a dict with the keys of a suite file
        profile     another scale of the suite; "none" for no profile (default: the first of its `auto` that can run)
        set         keys that override the suite and its profile, such as {"schedule.steps": 100, "seeds": 2}
        experiments, losses, datasets, backbones, widths, seeds      only these; losses as `name[option=value]`
        at          only these values of axes, as in {"steps": [300]}
        shard       "I/N": only shard I of N, balanced by training steps; writes no report
        data        the folder with the datasets (default: $LOSSBENCH_DATA, else the user's cache)
        plugins     folders with losses/, backbones/ or datasets/
        fetch       download missing datasets whose publisher is known
        keep        what finished cells keep besides their records: "predictions", "features", "model"
        force       train all selected cells again, even finished ones
        retry_failed    train only cells that failed or ran out of memory or time
        fail_fast   start no new cells after the first failure

    Where and how:
        out         the run folder (default: runs/<suite name>)
        reports     the folder for the report; None writes none
        jobs        cells at a time (default: the number of cores)
        timeout, memory     seconds and bytes per cell; a cell that exceeds one is killed
        checkpoint  seconds between saved states of a running cell
        engine      "local", or "ray" for the Ray cluster at `address` (default: $RAY_ADDRESS, else a new local one)
        cpus_per_cell, gpus_per_cell    what Ray reserves per cell (default: its threads, no GPU)

    Progress:
        on_event    called with an `Event` whenever a cell starts or ends
        on_start    called with the job and the cells to train
        notify      called with messages for the user
        on_prepare, on_fetch    follow datasets that are being prepared or downloaded
    """
    chosen = engines.create(engine, Resources(jobs, address, cpus_per_cell, gpus_per_cell))
    chosen.check()
    if shard:
        reports = None
    if reports is not None:
        check_folder(reports)
    said = _FirstLine(notify, on_prepare)
    selection = Selection(
        profile=profile,
        data=data,
        plugins=plugins,
        experiments=experiments,
        losses=losses,
        datasets=datasets,
        backbones=backbones,
        widths=widths,
        seeds=seeds,
        at=at or {},
        shard=shard,
        fetch=fetch,
        set=set,
        keep=tuple(keep),
    )
    with contextlib.closing(Servers()) as servers:
        servers.start_ahead()
        planned = job.prepare(
            suite,
            selection,
            gpu=chosen.gpu,
            get=partial(_get, notify, on_fetch),
            on_choice=said.choice,
            progress=said.prepared,
        )
        said.ready(planned)
        servers.registry = planned.registry
        store = Store(out or Path("runs") / planned.suite.info.name)
        limits = Limits(timeout, memory, checkpoint)
        context = RunContext(
            store, planned.registry, planned.data, servers, limits, data_given=bool(data), notify=said.say
        )
        session = _Session(
            chosen, context, said, _with_notices(on_event, notify), on_start, notify, force, retry_failed, fail_fast
        )
        trained = session.train(planned)
        tuned = session.train_tuned(planned, trained)
    report = None
    if reports is not None:
        report = write([store.root], reports, plans=store.prepared and [store.prepared])
    return session.result(tuned, report)


@dataclass
class _Session:
    """The training of one run: its cells go to an engine, their records to a store."""

    engine: Engine
    context: RunContext
    said: _FirstLine
    on_event: Callable[[Event], None]
    on_start: Callable[[Job, list[Cell]], None]
    notify: Callable[[str], None]
    force: bool
    retry_failed: bool
    fail_fast: bool
    records: dict[str, Any] = field(init=False)
    again: set[str] = field(default_factory=set)  # finished cells that must be trained again for a metric

    def __post_init__(self) -> None:
        self.store = self.context.store
        self.records = _sound_records(self.store, self.said.say)

    def train(self, planned: Job) -> Job:
        """Train the defaults, the trials, and the tuned cells that earlier trials decided."""
        self._remeasure(planned)  # what was chosen may be another trial by now
        job = planned if self.force else planned.tuned(self.records)  # forced trials may decide otherwise
        self._remeasure(job)
        todo = self._to_do(job.chosen)
        self.context.servers.keep(todo)
        if todo:
            self._execute(job, todo)
        else:
            self.said.expected(job, "")
            self.store.prepare(job.suite, job.cells)
            self.on_start(job, [])
        return job

    def train_tuned(self, planned: Job, trained: Job) -> Job:
        """Train the tuned cells that the trials of this run decided."""
        job = planned.tuned(self.records)
        for sentence in job.tuning_notices(self.records):
            self.notify(sentence)
        if job.cells == trained.cells:
            return job
        self._remeasure(job)
        known = {cell.key for cell in trained.chosen if cell.kind != "warm" or cell.key in self.records}
        more = self._missing([cell for cell in job.chosen if cell.key not in known])
        if more and not (self.fail_fast and self._unfinished(trained.chosen)):
            self._execute(job, more)
        else:
            self.store.prepare(job.suite, job.cells)
        return job

    def result(self, job: Job, report: Report | None) -> RunResult:
        statuses = {cell.key: self._status(cell) for cell in job.chosen}
        info = job.suite.info
        unfinished = self._unfinished(job.chosen)
        found = self.store.root, statuses, unfinished, info.missing, report, job.cells, info.metrics, info.note
        return RunResult(*found)

    def _remeasure(self, job: Job) -> None:
        """Bring the metrics of finished cells up to date; those that did not keep enough are to be trained again."""
        if self.force:
            return
        known = [cell for cell in job.chosen if cell.key not in self.again]
        found = outdated(known, self.records, job.suite.info.metrics)
        for sentence in found.sentences():
            self.said.say(sentence)
        self.again |= {cell.key for cell in found.train}
        if not found.measure:
            return
        limit = self.context.limits.timeout or 0
        titles = {cell.key: cell.title for cell in found.measure}
        for problem in self.context.servers.remeasure(found.measure, self.context.data, self.store.root, limit):
            if problem["damaged"]:
                self.said.say(f"{problem['why']}; {titles[problem['key']]} will be trained again")
                self.again.add(problem["key"])
            else:
                self.said.say(f"not measured: {titles[problem['key']]}: {problem['why']}")
        self.records, _ = self.store.scan()

    def _execute(self, job: Job, todo: list[Cell]) -> None:
        redo = frozenset(cell.key for cell in todo if cell.key in self.records)
        rules = scheduler.Rules(self.context.limits.timeout, self.fail_fast, redo=redo)
        with self.said.anyway(job), _opened(self.engine, job, todo, self.context):
            if self.said.waits or training_steps(todo) > FORECAST_STEPS:
                expects = predict(job, [*todo, *job.following()], self.engine.size(), self.context.servers)
                self.said.expected(job, _opening(job, expects))
            self.store.prepare(job.suite, job.cells)
            self.store.sweep_staging()
            self.on_start(job, todo)
            scheduler.execute(todo, self.engine, self.store, rules, self.on_event, self.notify)
        self.records, _ = self.store.scan()

    def _to_do(self, cells: list[Cell]) -> list[Cell]:
        if not self.retry_failed or self.force:
            return self._missing(cells)
        lost = {cell.key for cell in cells if cell.kind == "warm" and cell.key not in self.records}
        return needed(cells, lost | {cell.key for cell in cells if self._status(cell) in RETRIED})

    def _missing(self, cells: list[Cell]) -> list[Cell]:
        if self.force:
            return cells
        return needed(cells, {cell.key for cell in cells if cell.key not in self.records or cell.key in self.again})

    def _status(self, cell: Cell) -> str:
        record = self.records.get(cell.key)
        return "missing" if record is None else "not measured" if stale(cell, record) else record["status"]

    def _unfinished(self, cells: list[Cell]) -> list[tuple[Cell, str]]:
        statuses = {cell.key: self._status(cell) for cell in cells}
        left = needed(cells, {cell.key for cell in cells if not finished(cell, statuses[cell.key])})
        return [(cell, statuses[cell.key]) for cell in left]


def _sound_records(store: Store, say: Callable[[str], None]) -> dict[str, Any]:
    """The records that can be trusted; damaged ones are set aside with a notice."""
    records, damaged = store.scan()
    for name, why in damaged.items():
        with store.claim(name) as ours:  # another run may be writing it right now
            if ours and store.read(name) is None and not store.lacks_checkpoint(name):
                say(f"{store.cells / name}: {why}; set aside as {store.set_aside(name)}")
    return records


def _with_notices(on_event: Callable[[Event], None], notify: Callable[[str], None]) -> Callable[[Event], None]:
    """`on_event`, with a notice for cells that were trained from the beginning again."""

    def tell(event: Event) -> None:
        if event.kind == "ended" and event.record and "restarted" in event.record["flags"]:
            notify(f"{event.cell.title}: its saved state was damaged, so it was trained from the beginning")
        on_event(event)

    return tell


class _FirstLine:
    """Prints which profile was chosen, why and how long it takes, before all other messages."""

    def __init__(self, notify: Callable[[str], None], on_prepare: Progress) -> None:
        self.waits = False
        self._notify, self._on_prepare = notify, on_prepare
        self._later: list[Callable[[], None]] = []

    def choice(self, choice: Choice | None, fetching: str) -> None:
        """A profile was chosen; downloads, which may take long, are announced at once."""
        if fetching:
            self._notify(fetching)
        self.waits = choice is not None

    def prepared(self, name: str, done: int, total: int) -> None:
        """Progress of a dataset's preparation; its last message waits for the first line."""
        if self.waits and done == total:
            self._later.append(lambda: self._on_prepare(name, done, total))
        else:
            self._on_prepare(name, done, total)

    def ready(self, job: Job) -> None:
        """The job is known: the note of a given profile, and the experiments that cannot run."""
        for sentence in (*([] if self.waits else filter(None, [job.opening()])), *job.notices, *job.not_run()):
            self.say(sentence)

    def say(self, text: str) -> None:
        if self.waits:
            self._later.append(lambda: self._notify(text))
        else:
            self._notify(text)

    def expected(self, job: Job, told: str) -> None:
        """The forecast is known: print the first line and the messages that waited for it."""
        if line := job.opening(told) if self.waits else told:
            self._notify(line)
        self.waits = False
        while self._later:
            self._later.pop(0)()

    @contextlib.contextmanager
    def anyway(self, job: Job) -> Iterator[None]:
        """Make sure that the first line is printed, even if the block raises."""
        try:
            yield
        finally:
            self.expected(job, "")


def _get(
    notify: Callable[[str], None],
    on_fetch: Callable[[], AbstractContextManager[Transfer | None]],
    download: Download,
    folder: Path,
) -> None:
    """Download one dataset, with notices."""
    from lossbench.data.download import fetch

    notify(f"fetching {download}")
    try:
        with on_fetch() as progress:
            fetch.get(download.source, folder, progress, wait=True)
    except DataError as error:
        notify(f"not fetched: {error}")
        raise


@contextlib.contextmanager
def _opened(engine: Engine, job: Job, todo: list[Cell], context: RunContext) -> Iterator[None]:
    """An engine that is ready for these cells; SuiteError if one of their plugins is invalid."""
    with engine.open(todo, context):
        info = job.suite.info
        measured = of_angles(info.claims, [spec for cell in todo for spec in cell.losses], info.metrics)
        if problems := context.servers.preflight(todo, context.data, measured, context.limits.timeout or 0):
            raise SuiteError(problems[0] + (f" (and {len(problems) - 1} more)" if problems[1:] else ""))
        yield


def finished(cell: Cell, status: str) -> bool:
    """Whether a cell needs no further attempt. A trial that diverged is finished: its setting is not chosen."""
    return status == "done" or (cell.kind == "trial" and status == "diverged")


def _opening(job: Job, expected: Forecast) -> str:
    """A sentence on how long the run will take, with shorter profiles if it is more than an hour."""
    from lossbench.plan.forecast import in_words

    told = f"this will take {in_words(expected)}"
    if expected.seconds > HOUR and (shorter := job.shorter_profiles()):
        told += "; shorter: " + ", ".join(f"--profile {name}" for name in shorter)
    return told
