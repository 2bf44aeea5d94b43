"""Run dataset plugins from users in a separate process: one that hangs or dies is reported and affects nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lossbench.core import apart, errors
from lossbench.core.guard import how_it_ended
from lossbench.plugins.registry import Plugin, Registry

SILENT_SECONDS = 600.0  # without an answer or progress

Progress = Callable[[str, int, int], None]
Load = Callable[[Plugin, Mapping[str, Any], Progress], Any]


def run(load: Load, plugin: Plugin, registry: Registry, job: Mapping[str, Any], progress: Progress) -> Any:
    """The result of `load(plugin, job, progress)`; if it fails, a DataError that names the plugin."""
    work = partial(_loaded, load, list(registry.folders), plugin.name, dict(job))
    try:
        for kind, *content in apart.messages(work, SILENT_SECONDS, fresh=True, renew=True):
            if kind == "progress":
                progress(*content)
            elif kind == "error":
                name, text = content
                raise getattr(errors, name, errors.DataError)(text)
            else:
                return content[0]
    except apart.LostError as lost:
        why = f"load made no progress for {SILENT_SECONDS:g} seconds"
        if lost.raised:
            why = f"load fails ({lost.raised})"
        elif lost.code is not None:
            why = f"load ended its process ({how_it_ended(lost.code)})"
        raise errors.DataError(f"{plugin.path}: {why}") from None


def _loaded(load: Load, folders: Sequence[Path], name: str, job: Mapping[str, Any], say: Callable[[Any], None]) -> None:
    try:
        plugin = Registry(folders).find("dataset", name)
        say(("answer", load(plugin, job, lambda *where: say(("progress", *where)))))
    except errors.LossbenchError as error:
        say(("error", type(error).__name__, str(error)))
