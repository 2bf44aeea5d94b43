"""Which datasets of a suite are missing, and which of them can be downloaded. Every answer is computed once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.core.errors import DataError
from lossbench.data import count_classes, is_available
from lossbench.data.download.fetch import absent, state
from lossbench.data.download.http import unreachable
from lossbench.data.download.sources import SOURCES, Source
from lossbench.plugins.registry import Registry


@dataclass(frozen=True)
class Download:
    """A dataset to download before a run, and the experiments that need it."""

    source: Source
    bytes: int
    experiments: tuple[str, ...]

    def __str__(self) -> str:
        """`mnist: 11.1 MiB, licence: CC BY-SA 3.0, for mnist, mnist_width`."""
        return (
            f"{self.source.name}: {self.bytes / 2**20:.1f} MiB, licence: {self.source.licence}, "
            f"for {', '.join(self.experiments)}"
        )


class Supply:
    """The data folder of a run, and its publishers, which are asked only with `fetch`."""

    def __init__(self, registry: Registry, folder: Path, *, fetch: bool = True) -> None:
        self.registry, self.folder, self.fetch = registry, folder, fetch
        self.failed: dict[str, str] = {}  # by dataset: why its download failed
        self._silent: dict[str, str] = {}  # by dataset: why its publishers cannot be reached
        self._asked: set[str] = set()
        self._lacking: dict[str, tuple[str, ...] | None] = {}
        self._classes: dict[str, int] = {}

    def count_classes(self, name: str, options: Mapping[str, Any]) -> int:
        """The number of classes of a dataset; its files are read once, however many experiments use it."""
        own = self.registry.find("dataset", name).own
        free = {"train", "augment", "gray", "size"} - own.keys()  # these do not change the classes
        decides = {option: value for option, value in options.items() if option not in free}
        key = json.dumps([name, decides], sort_keys=True, default=str)
        if key not in self._classes:
            self._classes[key] = count_classes(name, dict(options), self.registry, self.folder)
        return self._classes[key]

    def lacking(self, name: str, options: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The missing datasets that this one needs, itself included; None: it needs no files."""
        source = SOURCES.get(name)
        if source and source.embedded:
            return None
        key = json.dumps([name, options], sort_keys=True, default=str)
        if key not in self._lacking:
            missing: tuple[str, ...] = ()
            if not is_available(name, dict(options), self.registry, self.folder):
                needed = [name, *(source.beside if source else ())]
                found = [part for part in needed if part not in SOURCES or state(SOURCES[part], self.folder) != "yes"]
                missing = tuple(found) or (name,)
            self._lacking[key] = missing
        return self._lacking[key]

    def obtainable(self, names: Iterable[str]) -> set[str]:
        """The datasets among `names` that can be downloaded now; each publisher is asked once."""
        if not self.fetch:
            return set()
        able = [name for name in dict.fromkeys(names) if name in SOURCES and SOURCES[name].files]
        able = [name for name in able if name not in self.failed and state(SOURCES[name], self.folder) != "yes"]
        files = {name: absent(SOURCES[name], self.folder) for name in able if name not in self._asked}
        # A dataset whose archives are present needs no publisher.
        self._silent |= unreachable({name: wanted[0] for name, wanted in files.items() if wanted})
        self._asked |= files.keys()
        return {name for name in able if name not in self._silent}

    def downloads(self, lacking: Mapping[str, Sequence[str]]) -> list[Download]:
        """The downloads for the missing datasets of each experiment; none for one that would remain incomplete."""
        able = self.obtainable(name for names in lacking.values() for name in names)
        users: dict[str, list[str]] = {}
        for experiment, names in lacking.items():
            if able.issuperset(names):
                for name in names:
                    users.setdefault(name, []).append(experiment)
        return [
            Download(SOURCES[name], sum(file.size for file in absent(SOURCES[name], self.folder)), tuple(experiments))
            for name, experiments in users.items()
        ]

    def have(self, downloads: Iterable[Download], get: Callable[[Download, Path], None]) -> None:
        """Download these; a failure is remembered with its reason and not tried again."""
        for download in downloads:
            name = download.source.name
            try:
                get(download, self.folder)
                if state(download.source, self.folder) != "yes":
                    raise DataError(f"{name}: was downloaded, but its files are not in {self.folder}")
            except DataError as error:
                self.failed[name] = str(error)
        self._lacking.clear()
        self._classes.clear()

    def why(self, names: Iterable[str]) -> str:
        """Why these datasets were not downloaded, if that was tried."""
        reasons = [self.failed.get(name) or self._silent.get(name, "") for name in names]
        return "; ".join(filter(None, reasons))
