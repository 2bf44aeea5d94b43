"""What `import lossbench` offers. Heavy modules are imported where they are needed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lossbench import engines
from lossbench.core.errors import DataError, SuiteError
from lossbench.core.model import Cell
from lossbench.data import load_dataset
from lossbench.engines import available_cores, scheduler
from lossbench.engines.protocol import Engine, Limits, Resources, Setting
from lossbench.engines.scheduler import Event
from lossbench.engines.servers import Servers
from lossbench.plan.job import Job, prepare, shorter_profiles, with_data
from lossbench.plugins.registry import Registry
from lossbench.report import check_folder, write
from lossbench.store.records import Store, load_records, tabulated
from lossbench.suite.claims import of_angles
from lossbench.suite.settings import waiting, without_setting

if TYPE_CHECKING:
    import pandas
    from torch import nn

    from lossbench.data.cache import Progress
    from lossbench.data.download.fetch import Progress as Transfer
    from lossbench.data.download.supply import Download
    from lossbench.plan.choose import Choice
    from lossbench.plan.forecast import Forecast
    from lossbench.report import Report

__all__ = ["Job", "create_backbone", "create_loss", "load_dataset", "load_records", "prepare", "run", "with_data"]

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
class RunResult:
    """How a run ended: the run folder, the statuses of its cells, its report."""

    folder: Path
    statuses: dict[str, str]
    unfinished: list[tuple[Cell, str]]  # cells without a `done` record, with their status
    missing: Mapping[str, str]  # experiments that were not run, as their data is not here
    report: Report | None
    cells: list[Cell]  # all that the suite means, as this run planned them
    note: str = ""  # of the suite's profile: what a reader must know first

    @property
    def records(self) -> pandas.DataFrame:
        """The records of this run's own cells, as `load_records` gives them."""
        return tabulated(self.cells, Store(self.folder).scan()[0])


def predict(job: Job, cells: list[Cell], jobs: int | None = None, servers: Servers | None = None) -> Forecast:
    """How long these cells will take, from a few real steps of every kind among them."""
    from lossbench.plan.forecast import forecast, kinds

    known = job.measurable(cells)
    with contextlib.closing(Servers(job.registry)) if servers is None else contextlib.nullcontext(servers) as started:
        costs = started.probe(kinds(known), job.data) if known else []
    return forecast(cells, costs, jobs or available_cores())


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
    fetch: bool = True,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    cpus_per_cell: float | None = None,
    gpus_per_cell: float = 0,
    on_event: Callable[[Event], None] = lambda event: None,
    on_start: Callable[[Job, list[Cell]], None] = lambda job, todo: None,
    notify: Callable[[str], None] = lambda text: None,
    on_prepare: Progress = lambda name, done, total: None,
    on_fetch: Callable[[], AbstractContextManager[Transfer | None]] = contextlib.nullcontext,
    **selection: Any,
) -> RunResult:
    """Train what is missing of a suite in `out` (default runs/<name>) and write its report to `reports` (None: none).

    `selection` is what `prepare` takes: profile, data, plugins, and the filters losses, datasets, backbones, widths,
    seeds, and shard (a part of a suite writes no report). `timeout` is in seconds a cell, `memory` in bytes; cells keep
    their state every `checkpoint` seconds. With `fetch`, missing datasets that have a known publisher are downloaded
    first. With `engine` "ray" cells run on the Ray cluster at `address` (default: $RAY_ADDRESS, else one that is
    started here), each with so many CPUs (default: its threads) and GPUs.
    """
    chosen = engines.create(engine, Resources(jobs, address, cpus_per_cell, gpus_per_cell))
    chosen.check()
    if selection.get("shard"):
        reports = None
    if reports is not None:
        check_folder(reports)
    said = _FirstLine(notify, on_prepare)
    job = prepare(
        suite,
        fetch=fetch,
        gpu=chosen.gpu,
        get=partial(_get, notify, on_fetch),
        on_choice=said.choice,
        progress=said.prepared,
        **selection,
    )
    said.ready(job)
    store = Store(out or Path("runs") / job.suite.outline.name)
    records = _sound_records(store, said.say)
    setting = Setting(
        store,
        job.registry,
        job.data,
        Servers(job.registry),
        Limits(timeout, memory, checkpoint),
        data_given=bool(selection.get("data")),
        notify=said.say,
    )

    def execute(job: Job, todo: list[Cell]) -> None:
        rules = scheduler.Rules(timeout, fail_fast, redo=frozenset(cell.key for cell in todo if cell.key in records))
        with said.anyway(job), _opened(chosen, job, todo, setting):
            steps = sum(cell.schedule.steps for cell in todo if cell.kind != "timing")
            if steps > FORECAST_STEPS or said.waits:
                expects = predict(job, [*todo, *job.following()], chosen.size(), setting.servers)
                said.expected(job, _opening(suite, job, expects))
            store.prepare(job.suite, job.cells)
            store.sweep_staging()
            on_start(job, todo)
            scheduler.execute(todo, chosen, store, rules, _telling(on_event, notify), notify)

    first = job if force else job.tuned(records)  # forced trials may choose otherwise than those that are there
    todo = _to_do(first.chosen, records, force=force, retry_failed=retry_failed)
    if todo:
        execute(first, todo)
    else:
        said.expected(job, "")
        store.prepare(first.suite, first.cells)
        on_start(first, todo)
    records, _ = store.scan()
    job = job.tuned(records)
    for sentence in (*without_setting(job.cells, records), *waiting(job.cells, records)):
        notify(sentence)
    if job.cells != first.cells:
        known = {cell.key for cell in first.chosen}
        more = [cell for cell in job.chosen if cell.key not in known]
        todo = _to_do(more, records, force=force, retry_failed=False)  # what the retried trials chose has no record yet
        if todo and not (fail_fast and _stopped(first.chosen, records)):
            execute(job, todo)
            records, _ = store.scan()
        else:
            store.prepare(job.suite, job.cells)
    statuses = {cell.key: records[cell.key]["status"] if cell.key in records else "missing" for cell in job.chosen}
    unfinished = [(cell, statuses[cell.key]) for cell in job.chosen if not finished(cell, statuses[cell.key])]
    report = None
    if reports is not None:
        report = write([store.root], reports, plans=store.prepared and [store.prepared])
    outline = job.suite.outline
    return RunResult(store.root, statuses, unfinished, outline.missing, report, job.cells, outline.note)


def _sound_records(store: Store, say: Callable[[str], None]) -> dict[str, Any]:
    """The records that can be trusted; what cannot be is set aside, with a word."""
    records, damaged = store.scan()
    for name, why in damaged.items():
        with store.claim(name) as ours:  # another run may be making it anew right now
            if ours and store.read(name) is None:
                say(f"{store.cells / name}: {why}; set aside as {store.set_aside(name)}")
    return records


def _telling(on_event: Callable[[Event], None], notify: Callable[[str], None]) -> Callable[[Event], None]:
    """`on_event`, which also lets people know of cells that began anew."""

    def tell(event: Event) -> None:
        if event.kind == "ended" and event.record and "restarted" in event.record["flags"]:
            notify(f"{event.cell.title}: its kept state was damaged, so it was trained from the beginning")
        on_event(event)

    return tell


class _FirstLine:
    """Where a profile was chosen, the first line says which, why and for how long: until it can, the rest waits."""

    def __init__(self, notify: Callable[[str], None], on_prepare: Progress) -> None:
        self.waits = False
        self._notify, self._on_prepare = notify, on_prepare
        self._later: list[Callable[[], None]] = []

    def choice(self, choice: Choice | None, fetching: str) -> None:
        """A profile was chosen; nothing waits for downloads, which may take long and are told of at once."""
        if fetching:
            self._notify(fetching)
        self.waits = choice is not None

    def prepared(self, name: str, done: int, total: int) -> None:
        """So many images of a dataset are prepared; that all are is a line of its own."""
        if self.waits and done == total:
            self._later.append(lambda: self._on_prepare(name, done, total))
        else:
            self._on_prepare(name, done, total)

    def ready(self, job: Job) -> None:
        """The job is known: the note of a profile that was asked for, and what cannot be run."""
        for sentence in (*([] if self.waits else filter(None, [job.opening()])), *job.not_run()):
            self.say(sentence)

    def say(self, text: str) -> None:
        if self.waits:
            self._later.append(lambda: self._notify(text))
        else:
            self._notify(text)

    def expected(self, job: Job, told: str) -> None:
        """How long it will take is known: the first line is said, and all that waited for it."""
        if line := job.opening(told) if self.waits else told:
            self._notify(line)
        self.waits = False
        while self._later:
            self._later.pop(0)()

    @contextlib.contextmanager
    def anyway(self, job: Job) -> Iterator[None]:
        """Whatever ends this block, the first line was said."""
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
    """Fetch one dataset: announced, watched, and if it fails, told in one sentence."""
    from lossbench.data.download import fetch

    notify(f"fetching {download}")
    try:
        with on_fetch() as progress:
            fetch.get(download.source, folder, progress, wait=True)
    except DataError as error:
        notify(f"not fetched: {error}")
        raise


@contextlib.contextmanager
def _opened(engine: Engine, job: Job, todo: list[Cell], setting: Setting) -> Iterator[None]:
    """An engine that is ready for these cells; SuiteError when one of their plugins is not sound."""
    with contextlib.closing(setting.servers) as servers, engine.open(todo, setting):
        needed = of_angles(job.suite.outline.claims, [spec for cell in todo for spec in cell.losses])
        if problems := servers.preflight(todo, setting.data, needed, setting.limits.timeout or 0):
            raise SuiteError(problems[0] + (f" (and {len(problems) - 1} more)" if problems[1:] else ""))
        yield


def finished(cell: Cell, status: str) -> bool:
    """Whether a cell came to what it was planned for. A trial that diverged did: such a setting is not chosen."""
    return status == "done" or (cell.kind == "trial" and status == "diverged")


def _opening(suite: str | os.PathLike[str], job: Job, expected: Forecast) -> str:
    """How long it will take; beyond an hour, what would take less."""
    from lossbench.plan.forecast import in_words

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
