"""`lossbench data …`: which datasets there are, which are here, and how to have the others."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from lossbench.cli import screen
from lossbench.cli.screen import DONE

if TYPE_CHECKING:
    from lossbench.data.download.fetch import Progress

EVERY = 10.0  # seconds between two lines about the same download

folder_option = click.option(
    "--data", "folder", metavar="DIR", help="Where datasets lie [$LOSSBENCH_DATA, else the user's cache]."
)


@click.group()
def data() -> None:
    """List, fetch and check datasets.

    \b
    lossbench data list                 what is here, what is not, sizes, licences, what to cite
    lossbench data get fashion_mnist    download, check and unpack it
    lossbench data verify               read what is here and compare it with what was published
    """


@data.command(name="list")
@folder_option
@click.option("-v", "--verbose", is_flag=True, help="Show addresses, places and checksums as well.")
def list_(folder: str | None, verbose: bool) -> None:
    """List the datasets: whether they are here, their size, licence and what to cite."""
    from lossbench.data import data_folder
    from lossbench.data.download.fetch import state
    from lossbench.data.download.sources import SOURCES

    place = data_folder(folder)
    screen.show_data({name: (source, state(source, place)) for name, source in SOURCES.items()}, place, verbose)


@data.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@folder_option
def get(names: tuple[str, ...], folder: str | None) -> None:
    """Download NAME… from their publishers, check and unpack them; what is here already is not fetched again.

    A download that was stopped goes on where it ended. Without network, fetch the files by hand: `lossbench data list
    -v` shows the addresses and where the files go, and this command then checks and unpacks them.
    """
    from lossbench.data import data_folder
    from lossbench.data.download.fetch import get as fetch
    from lossbench.data.download.sources import find

    place = data_folder(folder)
    for source in [find(name) for name in names]:  # all names are known before anything is fetched
        with watching(terminal=sys.stderr.isatty()) as progress:
            fetch(source, place, progress)
        why = "" if source.files or source.pieces else f": {source.instructions}"
        screen.echo(f"{source.name} is here{why or f' ({place})'}")


@data.command()
@click.argument("names", nargs=-1, metavar="[NAME]…")
@folder_option
def verify(names: tuple[str, ...], folder: str | None) -> int:
    """Check NAME… (or every set that is here) file by file against what was published.

    Exit code 0: all is well. 1: something is wrong or missing. 2: the request is wrong.
    """
    from lossbench.data import data_folder
    from lossbench.data.download.fetch import state
    from lossbench.data.download.fetch import verify as check
    from lossbench.data.download.sources import SOURCES, find

    place = data_folder(folder)
    chosen = [find(name) for name in names] or [
        source for source in SOURCES.values() if (source.files or source.pieces) and state(source, place) != "no"
    ]
    if not chosen:
        screen.echo(f"no dataset is in {place}; `lossbench data list` shows what can be had")
        return DONE
    return screen.show_checks({source.name: check(source, place) for source in chosen})


class _Lines:
    """A line when a download begins, and every few seconds while it goes on: for logs."""

    def __init__(self) -> None:
        self._what, self._total, self._next = "", 0, 0.0

    def start(self, what: str, done: int, total: int) -> None:
        resumed = f", going on at {screen.amount(done)}" if done else ""
        self._say(f"{what}: {screen.amount(total)}{resumed}")
        self._what, self._total, self._next = what, total, time.monotonic() + EVERY

    def at(self, done: int) -> None:
        if time.monotonic() >= self._next:
            self._say(f"{self._what}: {100 * done / self._total:.0f} %")
            self._next = time.monotonic() + EVERY

    def _say(self, text: str) -> None:
        screen.echo(text, err=True)


class _Bars:
    """A bar for every file: bytes, speed, time left."""

    def __init__(self) -> None:
        import rich.console
        import rich.progress

        self.bars = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}", markup=False),
            rich.progress.BarColumn(bar_width=24),
            rich.progress.DownloadColumn(binary_units=True),
            rich.progress.TransferSpeedColumn(),
            rich.progress.TimeRemainingColumn(),
            console=rich.console.Console(stderr=True, highlight=False),
        )
        self._tasks: dict[str, Any] = {}

    def start(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:  # a second try goes on with the same bar
            self._tasks[what] = self.bars.add_task(what, total=total)
        self._now = self._tasks[what]
        self.bars.reset(self._now, total=total, completed=done)

    def at(self, done: int) -> None:
        self.bars.update(self._now, completed=done)


@contextmanager
def watching(*, terminal: bool, quiet: bool = False) -> Iterator[Progress | None]:
    """Show how far downloads are: bars in a terminal, lines anywhere else."""
    if quiet:
        yield None
        return
    if not terminal:
        yield _Lines()
        return
    shown = _Bars()
    with shown.bars:
        yield shown
