"""Progress of a run: bars with the running cells in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lossbench.core import plain
from lossbench.core.errors import last_line
from lossbench.core.metric import Metric
from lossbench.core.model import SCORED, Cell
from lossbench.plugins.metrics import value_in

if TYPE_CHECKING:
    from lossbench.engines.scheduler import Event
    from lossbench.plan.job import Job


HELD = "waiting: another run in this folder is training the remaining cells (stopped with Ctrl-Z? `fg` resumes it)"


class Watch:
    """Shows only problems; the subclasses show more."""

    def start(self, job: Job, todo: list[Cell]) -> None:
        """Called when the cells to train are known."""

    def prepare(self, name: str, done: int, total: int) -> None:
        """Progress of a dataset's preparation, in images."""

    def event(self, event: Event) -> None:
        """A cell started or ended."""

    def say(self, text: str) -> None:
        """Print a sentence for the user."""
        print(f"lossbench: {plain.text(text)}", file=sys.stderr, flush=True)


class Lines(Watch):
    """One line per finished cell."""

    def __init__(self) -> None:
        self._total = self._ended = 0
        self._headline: Metric | None = None

    def prepare(self, name: str, done: int, total: int) -> None:
        if done == total:
            self.say(f"prepared {name}: {total:,} images")

    def start(self, job: Job, todo: list[Cell]) -> None:
        self._total += len(todo)
        self._headline = job.suite.info.headline_metric
        self.say(_opening(job, todo))

    def event(self, event: Event) -> None:
        if event.kind == "held":
            self.say(HELD)
        elif event.kind == "ended":
            self._ended += 1
            outcome = plain.line(_outcome(event, self._headline))
            print(f"[{self._ended}/{self._total}] {outcome}", file=sys.stderr, flush=True)


class Bars(Watch):
    """A bar with the time left, and below it the running cells."""

    def __init__(self) -> None:
        import rich.console
        import rich.live
        import rich.progress

        self._console = rich.console.Console(stderr=True, highlight=False)
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("[bold]cells"),
            rich.progress.BarColumn(bar_width=32),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn("left"),
            rich.progress.TimeRemainingColumn(),
            console=self._console,
        )
        self._running: dict[str, tuple[Cell, float]] = {}
        self._live = rich.live.Live(self, console=self._console, refresh_per_second=4, transient=True)
        self._task: Any = None
        self._preparing: Any = None

    def prepare(self, name: str, done: int, total: int) -> None:
        import rich.progress

        if self._preparing is not None and self._preparing.tasks[0].description != name:
            self._preparing.stop()  # that dataset is prepared; its message comes later
            self._preparing = None
        if self._preparing is None:
            self._preparing = rich.progress.Progress(
                rich.progress.TextColumn("preparing {task.description}", style="bold", markup=False),
                rich.progress.BarColumn(bar_width=32),
                rich.progress.MofNCompleteColumn(),
                rich.progress.TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._preparing.add_task(plain.line(name), total=total)
            self._preparing.start()
        self._preparing.update(self._preparing.task_ids[0], completed=done)
        if done == total:
            self._preparing.stop()
            self._preparing = None
            self.say(f"prepared {name}: {total:,} images")

    def __rich__(self) -> Any:
        import rich.console
        import rich.text

        now = time.monotonic()
        lines = [
            rich.text.Text(f"  {cell.title}  {now - since:.0f} s", style="dim", overflow="ellipsis", no_wrap=True)
            for cell, since in self._running.values()
        ]
        return rich.console.Group(self._bar, *lines)

    def start(self, job: Job, todo: list[Cell]) -> None:
        self.say(_opening(job, todo))
        if todo and self._task is None:
            self._task = self._bar.add_task("cells", total=len(todo))
            self._live.start()
        elif todo:  # tuned cells, after their trials
            self._bar.update(self._task, total=(self._bar.tasks[0].total or 0) + len(todo))

    def event(self, event: Event) -> None:
        if event.kind == "started":
            self._running[event.cell.key] = (event.cell, time.monotonic())
            return
        if event.kind == "held":
            self.say(HELD)
            return
        self._running.pop(event.cell.key, None)
        self._bar.advance(self._task)
        if event.record is None or event.record["status"] != "done":
            self.say(_outcome(event, None))

    def say(self, text: str) -> None:
        import rich.text

        self._console.print(rich.text.Text(plain.text(text)))

    def close(self) -> None:
        self._live.stop()
        if self._preparing is not None:
            self._preparing.stop()


@contextmanager
def watching(*, quiet: bool, terminal: bool) -> Iterator[Watch]:
    if quiet or not terminal:
        yield Watch() if quiet else Lines()
        return
    bars = Bars()
    try:
        yield bars
    finally:
        bars.close()


def _opening(job: Job, todo: list[Cell]) -> str:
    done = len(job.chosen) - len(todo)
    return f"{plain.line(job.suite.info.title)}: {len(job.chosen)} cells, {done} already done, {len(todo)} to train"


def _outcome(event: Event, headline: Metric | None) -> str:
    """The end of a cell: its status, the headline metric, its seconds or its error."""
    record = event.record or {"status": "unknown", "seconds": {}, "error": None}
    parts = [f"{record['status']:<8} {event.cell.title}"]
    if headline and record["status"] == "done" and event.cell.kind in SCORED:
        value = value_in(record, headline, event.cell)
        name = "" if headline.name == "accuracy" else f"{headline.name} "
        if value is not None:
            parts.append(f"{name}{value:.2f} %" if headline.is_score else f"{name}{value:.4g} {headline.unit}".rstrip())
    if record["seconds"].get("train") is not None:
        parts.append(f"{record['seconds']['train']:.1f} s")
    if record["error"]:
        parts.append(last_line(record["error"]))
    return "  ".join(parts)
