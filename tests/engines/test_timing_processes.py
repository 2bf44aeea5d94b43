"""Timing cells take their rounds from several fresh processes, one after another, and leave none of them behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from textwrap import indent

import pytest
from conftest import SMALL, alive, write_loss
from kit.ends import ENVIRONMENT, PLUGIN
from kit.runs import by_label, hiding, pids, processes_of, started, wait_until, write_suite

from lossbench import api
from lossbench.core import guard
from lossbench.engines.fresh import AGAIN

SUITE = (
    SMALL.replace('"w_softmax"]', '"mine"]').replace("seeds = 2", "seeds = 1")
    + "timing = { rounds = 3, steps = 1, processes = 2 }\n"
)
MEMORY = 500 * 2**20

# In a process of the timing cell, and not of the cell that is trained: note its pid, where the C library lies in its
# memory, and which of the processes before it exist.
NOTES = """\
if self.calls == 1 and b"server.main" in open("/proc/self/cmdline", "rb").read():
    before = [line.split()[0] for line in open({notes!r})]
    library = next(line.partition("-")[0] for line in open("/proc/self/maps") if "libc" in line)
    with open({notes!r}, "a") as notes:
        print(os.getpid(), library, *(pid for pid in before if os.path.exists(f"/proc/{{pid}}")), file=notes)
    if len(before) == {process}:
        {does}
"""


def write_mine(folder: Path, does: str, process: int = 1) -> None:
    """A loss that does something in one process of a timing cell."""
    (folder / "notes").touch()
    text = NOTES.format(notes=str(folder / "notes"), process=process, does=does)
    write_loss(folder, "mine", indent(text, " " * 8).strip())


def noted(folder: Path) -> list[list[str]]:
    """What each process of the timing cell has noted."""
    return [line.split() for line in (folder / "notes").read_text().splitlines()]


def fresh_processes() -> list[int]:
    """Those that this process has started, through its servers, and that are not gone."""
    found = []
    for pid in guard.descendants(os.getpid()):
        line = Path(f"/proc/{pid}/cmdline")
        if line.exists() and b"server.main" in line.read_bytes():
            found.append(pid)
    return found


def run(folder: Path, does: str, process: int = 1, **options) -> dict:
    """The record of the timing cell."""
    write_mine(folder, does, process)
    api.run(write_suite(folder, SUITE), out=folder / "run", reports=None, **options)
    assert fresh_processes() == []
    return by_label(folder / "run")["timing"]


@pytest.mark.slow
def test_the_processes_are_new_interpreters_one_after_another_within_the_memory_limit(tmp_path):
    record = run(tmp_path, "pass", memory=MEMORY)
    assert record["status"] == "done", record["error"]
    assert record["timing"]["process"] == [0, 0, 1]
    assert all(len(seconds) == 3 for seconds in record["rounds"].values())
    (one, library), (other, other_library) = noted(tmp_path)  # and no third word: the first was gone
    assert one != other
    if Path("/proc/sys/kernel/randomize_va_space").read_text().strip() != "0":
        assert library != other_library  # forks of one process have the same layout


@pytest.mark.slow
@pytest.mark.parametrize("process", [0, 1])
def test_a_process_that_is_killed_ends_its_cell_with_a_status_and_nothing_survives(tmp_path, process):
    hidden = tmp_path / "hidden"
    record = run(tmp_path, f"{hiding(hidden)}; os.kill(os.getpid(), signal.SIGKILL)", process)
    assert (record["status"], record["cause"]) == ("failed", ENVIRONMENT)
    assert "its process was killed by SIGKILL" in record["error"]
    assert len(noted(tmp_path)) == process + 1 and len(pids(hidden)) == 2
    assert not any(map(alive, pids(hidden)))


def test_a_time_limit_counts_for_all_processes_together_and_ends_them(tmp_path):
    record = run(tmp_path, "pass", timeout=1.5)  # while the first one imports torch
    assert (record["status"], record["error"]) == ("timeout", "killed after 1.5 seconds")


@pytest.mark.slow
@pytest.mark.parametrize(("by", "process"), [(signal.SIGKILL, 0), (signal.SIGKILL, 1), (signal.SIGINT, 1)])
def test_a_run_that_is_killed_leaves_no_process_of_a_timing_cell(tmp_path, by, process):
    hidden = tmp_path / "hidden"
    write_mine(tmp_path, f"{hiding(hidden)}; time.sleep(600)", process)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    parent = started(tmp_path, "run", write_suite(tmp_path, SUITE), "--no-report", **quiet)
    try:
        wait_until(lambda: len(pids(hidden)) == 2)
    finally:
        parent.send_signal(by)
        parent.wait()
    assert len(noted(tmp_path)) == process + 1
    wait_until(lambda: not any(map(alive, pids(hidden))), 20)
    wait_until(lambda: not processes_of(tmp_path), 20)
    assert "timing" not in by_label(tmp_path / "runs/small")


ENDS = {
    "raises": ("raise RuntimeError('no way')", "failed", PLUGIN, "RuntimeError: no way"),
    "exits": ("os._exit(0)", "failed", PLUGIN, "exit code 0"),
    "asks for another process": (f"os._exit({AGAIN})", "failed", PLUGIN, f"exit code {AGAIN}"),
    "raises SystemExit": ("raise SystemExit(0)", "failed", PLUGIN, f"exit code {os.EX_SOFTWARE}"),
    "finds no disk": ("raise OSError(28, 'No space left on device')", "failed", ENVIRONMENT, "No space left"),
    "takes too much": ("held = torch.zeros(600 * 2**20 // 4) + 1", "oom", ENVIRONMENT, "allocate"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
def test_every_end_of_a_process_is_that_of_the_cell(tmp_path, how):
    does, status, cause, why = ENDS[how]
    record = run(tmp_path, does, memory=MEMORY)
    assert (record["status"], record["cause"]) == (status, cause), record["error"]
    assert why in record["error"] and len(noted(tmp_path)) == 2
