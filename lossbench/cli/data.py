"""`lossbench data …`: list, download and verify datasets."""

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
    "--data", "folder", metavar="DIR", help="The dataset folder [$LOSSBENCH_DATA, else the user's cache]."
)


@click.group()
def data() -> None:
    """List, download and verify datasets.

    \b
    lossbench data list                 list datasets and how to get missing ones
    lossbench data get fashion_mnist    download, verify and unpack a dataset
    lossbench data verify               compare local files with the published checksums
    """


@data.command(name="list")
@folder_option
@click.option("-v", "--verbose", is_flag=True, help="Also show URLs, file paths and checksums.")
def list_(folder: str | None, verbose: bool) -> None:
    """List datasets and how to get missing ones."""
    from lossbench.data import data_folder
    from lossbench.data.download.fetch import state
    from lossbench.data.download.sources import SOURCES

    place = data_folder(folder)
    screen.show_data({name: (source, state(source, place)) for name, source in SOURCES.items()}, place, verbose)


@data.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@folder_option
def get(names: tuple[str, ...], folder: str | None) -> None:
    """Download, verify and unpack datasets.

    Files come from their publishers; available datasets are not fetched again. An interrupted download resumes where
    it stopped. Without network, copy the files by hand: `lossbench data list -v` shows their URLs and where to put
    them; this command then verifies and unpacks them.
    """
    from lossbench.data import data_folder
    from lossbench.data.download.fetch import get as fetch
    from lossbench.data.download.sources import find

    place = data_folder(folder)
    for source in [find(name) for name in names]:  # all names are known before anything is fetched
        with watching(terminal=sys.stderr.isatty()) as progress:
            fetch(source, place, progress)
        why = "" if source.files or source.pieces else f": {source.instructions}"
        screen.echo(f"{source.name} is available{why or f' in {place}'}")


@data.command()
@click.argument("names", nargs=-1, metavar="[NAME]…")
@folder_option
def verify(names: tuple[str, ...], folder: str | None) -> int:
    """Verify datasets against published checksums.

    Checks NAME… (default: all available datasets) file by file.

    Exit code 0: everything matches. 1: a file is wrong or missing. 2: invalid request.
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
        screen.echo(f"no dataset in {place}; `lossbench data list` shows how to get some")
        return DONE
    return screen.show_checks({source.name: check(source, place) for source in chosen})


class _Lines:
    """For logs: one line when a download begins and every few seconds after."""

    def __init__(self) -> None:
        self._what, self._total, self._next = "", 0, 0.0

    def start(self, what: str, done: int, total: int) -> None:
        resumed = f", resuming at {screen.amount(done)}" if done else ""
        self._say(f"{what}: {screen.amount(total)}{resumed}")
        self._what, self._total, self._next = what, total, time.monotonic() + EVERY

    def at(self, done: int) -> None:
        if time.monotonic() >= self._next:
            self._say(f"{self._what}: {100 * done / self._total:.0f} %")
            self._next = time.monotonic() + EVERY

    def _say(self, text: str) -> None:
        screen.echo(text, err=True)


class _Bars:
    """One progress bar per file: bytes, speed, time left."""

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
        if what not in self._tasks:  # a second try uses the same bar
            self._tasks[what] = self.bars.add_task(what, total=total)
        self._now = self._tasks[what]
        self.bars.reset(self._now, total=total, completed=done)

    def at(self, done: int) -> None:
        self.bars.update(self._now, completed=done)


@contextmanager
def watching(*, terminal: bool, quiet: bool = False) -> Iterator[Progress | None]:
    """Show the progress of downloads: bars in a terminal, lines elsewhere."""
    if quiet:
        yield None
        return
    if not terminal:
        yield _Lines()
        return
    shown = _Bars()
    with shown.bars:
        yield shown
