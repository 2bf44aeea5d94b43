"""Fork servers that stay up between tests: torch is loaded once, and a run in the test process starts in no time."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Sequence

from lossbench.core.model import Cell
from lossbench.engines.servers import Servers
from lossbench.plugins.registry import Registry


class KeptServers(Servers):
    """Given to every run that asks for servers. A run closes only those for libraries that its plugins import."""

    def __call__(self, registry: Registry | None = None) -> KeptServers:
        self.registry = registry or Registry()
        return self

    def keep(self, cells: Sequence[Cell]) -> None:
        """All stay up."""

    def close(self) -> None:
        for libraries in [libraries for libraries in self._running if libraries]:
            self._running.pop(libraries).close()
        with contextlib.suppress(queue.Empty):  # what the closed ones said
            while True:
                self._events.get_nowait()

    def end(self) -> None:
        super().close()
