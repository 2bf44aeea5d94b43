"""Real runs: suites on disk, the command line as a process, the records it leaves and the processes it must not."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from conftest import alive, command

from lossbench.core.model import result


def write_suite(folder: Path, text: str) -> Path:
    path = folder / "suite.toml"
    path.write_text(text)
    return path


def records(folder: Path) -> dict[str, dict]:
    """The records of a run folder, by key."""
    return {path.parent.name: json.loads(path.read_text()) for path in folder.glob("cells/*/record.json")}


def by_label(folder: Path) -> dict[str, dict]:
    """The records of a run folder that has one seed."""
    return {record["label"]: record for record in records(folder).values()}


def results(folder: Path) -> dict[str, dict]:
    """What must be the same whenever a cell is trained again, by key."""
    return {key: result(record) for key, record in records(folder).items()}


# A Ctrl-C reaches these processes also where whoever started the tests ignores SIGINT, as `nohup … &` does.
INTERRUPTIBLE = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}


def ran(folder: Path, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`lossbench …` in a folder, from its start to its end."""
    read = {"capture_output": True, "text": True, "timeout": 240}
    return subprocess.run(command(*arguments), cwd=folder, check=False, **INTERRUPTIBLE, **read, **options)


def started(folder: Path, *arguments: str | Path, **options: Any) -> subprocess.Popen:
    """`lossbench …` in a folder, still running."""
    return subprocess.Popen(command(*arguments), cwd=folder, **INTERRUPTIBLE, **options)


def processes_of(folder: Path) -> list[int]:
    """The fork servers and cells that work for this run folder (a server inherits its parent's working folder)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
                here = (entry / "cwd").resolve()
            except OSError:
                continue
            if b"lossbench" in line and here == folder.resolve() and alive(int(entry.name)):
                found.append(int(entry.name))
    return found


def wait_until(condition, seconds: float = 150) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def hiding(marker: Path) -> str:
    """Python that starts a process in a session of its own whose parent ends, and writes down its pid and our own."""
    shell = f"setsid sleep 600 & echo $! >> {marker}"
    return f"open({str(marker)!r}, 'a').write(f'{{os.getpid()}} '); __import__('subprocess').run({['sh', '-c', shell]})"


def pids(marker: Path) -> list[int]:
    return [int(pid) for pid in marker.read_text().split()] if marker.exists() else []
