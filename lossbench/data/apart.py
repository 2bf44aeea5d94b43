"""Dataset plugins that are not ours run in a process of their own: one that hangs or dies is named, and hurts nobody.

The process runs `serve` under a guard. A job comes in on stdin as one line of JSON; lines of JSON go out: {"progress":
[name, done, total]} now and then, at last {"answer": …} or {"error": CLASS, "text": …}.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lossbench.core import errors, guard
from lossbench.plugins.registry import Plugin, Registry

START = "from lossbench.data import apart, done_apart; apart.serve(done_apart)"
SILENT_SECONDS = 600.0  # without an answer or progress

Work = Callable[[Plugin, Mapping[str, Any], Callable[[str, int, int], None]], Any]


def run(plugin: Plugin, registry: Registry, job: Mapping[str, Any], progress: Callable[[str, int, int], None]) -> Any:
    """The answer of a process that does `job` with a dataset plugin; an error that names the plugin otherwise."""
    process, lifeline = guard.started(["-c", START], {}, stderr=None)
    assert process.stdin and process.stdout
    lines: queue.Queue[bytes] = queue.Queue()
    listener = threading.Thread(target=_listen, args=(process.stdout, lines), daemon=True)
    listener.start()
    try:
        asked = {"folders": [str(folder) for folder in registry.folders], "name": plugin.name, "job": dict(job)}
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(json.dumps(asked).encode() + b"\n")
        while line := lines.get(timeout=SILENT_SECONDS):
            told = json.loads(line)
            if "progress" in told:
                progress(*told["progress"])
            elif "answer" in told:
                return told["answer"]
            else:
                raise getattr(errors, told["error"])(told["text"])
        code = process.wait()  # before the lifeline ends: the guard leaves as its process did
    except queue.Empty:
        raise errors.DataError(f"{plugin.path}: load gave no sign of progress for {SILENT_SECONDS:g} seconds") from None
    finally:
        os.close(lifeline)  # the guard ends what is still there
        process.wait()
        listener.join(timeout=10)
        process.stdout.close()
    raise errors.DataError(f"{plugin.path}: load ended its process ({guard.how_it_ended(code)})")


def _listen(stream: Any, lines: queue.Queue[bytes]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(b"")


def serve(work: Work) -> None:
    """Do the one job that comes in."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a plugin prints is no answer
    asked = json.loads(sys.stdin.readline())

    def tell(**what: Any) -> None:
        print(json.dumps(what), file=out, flush=True)

    try:
        plugin = Registry(map(Path, asked["folders"])).find("dataset", asked["name"])
    except errors.LossbenchError as error:
        tell(error=type(error).__name__, text=str(error))
        return
    try:
        tell(answer=work(plugin, asked["job"], lambda *where: tell(progress=where)))
    except errors.LossbenchError as error:
        tell(error=type(error).__name__, text=str(error))
    except (Exception, SystemExit) as error:
        tell(error="DataError", text=f"{plugin.path}: load fails ({type(error).__name__}: {error})")
