"""Real processes: whatever a cell does, it becomes a status, the others finish, and nothing finished is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from conftest import SMALL, alive, command, write_loss

from lossbench.core.model import result

MANY = SMALL.replace("seeds = 2", "seeds = 6").replace("steps = 6", "steps = 60") + "warm_start = { steps = 20 }\n"

# What a loss can do to its process, and what becomes of the cell.
ENDS = {
    "raises": ("raise RuntimeError('no way')", "failed", "no way"),
    "exits": ("os._exit(0)", "failed", "exit code 0"),
    "is_killed": ("os.kill(os.getpid(), signal.SIGKILL)", "failed", "SIGKILL"),
    "crashes": ("import ctypes; ctypes.string_at(0)", "failed", "SIGSEGV"),
    "turns_nan": ("value = value * float('nan')", "diverged", "step 0"),
    "lacks_memory": ("raise MemoryError('too big')", "oom", "too big"),
    "finds_disk_full": ("raise OSError(28, 'No space left on device')", "failed", "No space left"),
}

CAUSES = {"raises": "plugin", "exits": "plugin", "is_killed": "environment", "crashes": "plugin", "turns_nan": None}
CAUSES |= {"lacks_memory": "environment", "finds_disk_full": "environment"}


def records(folder: Path) -> dict[str, dict]:
    return {path.parent.name: json.loads(path.read_text()) for path in folder.glob("cells/*/record.json")}


def results(folder: Path) -> dict[str, dict]:
    return {key: result(record) for key, record in records(folder).items()}


def write_suite(folder: Path, text: str) -> Path:
    path = folder / "suite.toml"
    path.write_text(text)
    return path


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


def wait_until(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_every_end_of_a_cell_is_a_status_and_the_others_finish(tmp_path, lossbench):
    for name, (forward, _, _) in ENDS.items():
        # The preflight calls the loss once on two examples; the trouble starts with a real batch.
        write_loss(tmp_path, name, f"if len(labels) > 2:\n            {forward}")
    losses = ", ".join(f'"{name}"' for name in ["softmax", *ENDS])
    suite = write_suite(
        tmp_path, SMALL.replace('["softmax", "w_softmax"]', f"[{losses}]").replace("seeds = 2", "seeds = 1")
    )
    ran = lossbench("run", suite)
    assert ran.returncode == 1, ran.stderr
    found = {record["label"]: record for record in records(tmp_path / "runs" / "small").values()}
    assert found["softmax"]["status"] == "done"
    for name, (_, status, why) in ENDS.items():
        assert found[name]["status"] == status, found[name]["error"]
        assert why in found[name]["error"]
        assert found[name]["cause"] == CAUSES[name]
        assert f"{status}: digits  {name}" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "log:" in ran.stderr
    assert "7 failed" not in (tmp_path / "reports" / "summary.md").read_text()
    assert "5 failed, 1 oom" in (tmp_path / "reports" / "summary.md").read_text()

    again = lossbench("run", suite, "--no-report")
    assert again.returncode == 1
    assert "8 already done, 0 to train" in again.stderr
    retried = lossbench("run", suite, "--no-report", "--retry-failed")
    assert "6 to train" in retried.stderr  # a diverged cell is a result, not a failure


def test_a_failed_warm_start_fails_those_that_need_it_and_no_others(tmp_path, lossbench):
    write_loss(tmp_path, "bad", "if len(labels) > 2: raise RuntimeError('no warmth')")
    suite = write_suite(tmp_path, SMALL + 'warm_start = { loss = "bad", steps = 2 }\n')
    ran = lossbench("run", suite, "--no-report")
    assert ran.returncode == 1
    states = [(record["cell"]["kind"], record["status"]) for record in records(tmp_path / "runs/small").values()]
    assert sorted(states) == sorted([("warm", "failed")] * 2 + [("train", "failed")] * 4)
    assert "its warm start" in ran.stderr


def test_a_cell_that_hangs_is_killed_with_all_it_started(tmp_path, lossbench):
    marker = tmp_path / "child.pid"
    forward = (
        "if len(labels) > 2:\n"
        "            import subprocess\n"
        f"            open({str(marker)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))\n"
        "            time.sleep(600)"
    )
    write_loss(tmp_path, "hangs", forward)
    suite = write_suite(tmp_path, SMALL.replace('"w_softmax"]', '"hangs"]').replace("seeds = 2", "seeds = 1"))
    ran = lossbench("run", suite, "--no-report", "--timeout", "3s")
    assert ran.returncode == 1
    found = {record["label"]: record["status"] for record in records(tmp_path / "runs/small").values()}
    assert found == {"softmax": "done", "hangs": "timeout"}
    assert {record["cause"] for record in records(tmp_path / "runs/small").values()} == {None, "environment"}
    wait_until(lambda: not alive(int(marker.read_text())), 10)


def test_fail_fast_starts_nothing_new_after_a_failure(tmp_path, lossbench):
    write_loss(tmp_path, "bad", "if len(labels) > 2: raise RuntimeError('x')")
    text = SMALL.replace('["softmax", "w_softmax"]', '["bad", "softmax"]').replace("seeds = 2", "seeds = 5")
    ran = lossbench("run", write_suite(tmp_path, text), "--no-report", "-j", "1", "--fail-fast")
    assert ran.returncode == 1
    assert len(records(tmp_path / "runs/small")) == 1


def test_records_are_equal_to_the_bit_for_any_number_of_jobs(tmp_path, lossbench):
    suite = write_suite(tmp_path, MANY.replace("seeds = 6", "seeds = 2"))
    for jobs in (1, 3):
        ran = lossbench("run", suite, "--no-report", "-j", str(jobs), "--out", f"jobs{jobs}")
        assert ran.returncode == 0, ran.stderr
    first, second = results(tmp_path / "jobs1"), results(tmp_path / "jobs3")
    assert len(first) == 6
    assert first == second


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path):
    suite = write_suite(tmp_path, MANY.replace("steps = 60", "steps = 4000"))
    parent = subprocess.Popen(
        command("run", suite, "--no-report"), cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_until((tmp_path / "runs/small/plan.json").exists)
    time.sleep(1.0)
    os.killpg(parent.pid, signal.SIGINT)
    _, stderr = parent.communicate(timeout=60)
    assert parent.returncode == 130
    assert "the same command continues from here" in stderr
    assert "Traceback" not in stderr
    wait_until(lambda: not processes_of(tmp_path), 20)


def test_two_runs_on_one_folder_share_the_work(tmp_path):
    suite = write_suite(tmp_path, MANY)
    both = [
        subprocess.Popen(
            command("run", suite, "--no-report", "-j", "1"), cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    errors = [run.communicate(timeout=240)[1] for run in both]
    assert [run.returncode for run in both] == [0, 0], errors
    assert len(records(tmp_path / "runs/small")) == 18
    assert not (tmp_path / "runs/small/set_aside").exists()  # no cell was trained twice


def test_damaged_and_foreign_files_are_named_set_aside_and_made_again(tmp_path, lossbench):
    suite = write_suite(tmp_path, SMALL)
    assert lossbench("run", suite, "--no-report").returncode == 0
    folder = tmp_path / "runs/small"
    before = results(folder)
    victim = sorted(folder.glob("cells/*"))[0]
    (victim / "record.json").write_bytes((victim / "record.json").read_bytes()[:200])
    (folder / "cells" / "notes.txt").write_text("mine")
    ran = lossbench("run", suite, "--no-report")
    assert ran.returncode == 0
    assert f"{victim.name}: record.json is truncated" in ran.stderr
    assert "notes.txt" in ran.stderr
    assert "1 to train" in ran.stderr
    assert results(folder) == before
    assert len(list((folder / "set_aside").iterdir())) == 2


def test_force_trains_again_and_comes_to_the_same(tmp_path, lossbench):
    suite = write_suite(tmp_path, SMALL)
    lossbench("run", suite, "--no-report")
    before = results(tmp_path / "runs/small")
    forced = lossbench("run", suite, "--no-report", "--force", "-l", "softmax")
    assert "2 cells, 0 already done, 2 to train" in forced.stderr
    assert results(tmp_path / "runs/small") == before


def test_a_script_without_a_main_guard_can_run_a_suite(tmp_path):
    """multiprocessing would import the user's script again in every child; the fork server does not."""
    suite = write_suite(tmp_path, SMALL)
    script = tmp_path / "script.py"
    script.write_text(
        f"import lossbench\nfound = lossbench.run({str(suite)!r}, reports=None).records\nprint(len(found))\n"
    )
    import sys

    ran = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "4", ran.stderr


def test_foreign_files_are_named_even_when_nothing_is_left_to_train(tmp_path, lossbench):
    suite = write_suite(tmp_path, SMALL)
    lossbench("run", suite, "--no-report")
    (tmp_path / "runs/small/cells/notes.txt").write_text("mine")
    ran = lossbench("run", suite, "--no-report")
    assert ran.returncode == 0
    assert "notes.txt" in ran.stderr
    assert not (tmp_path / "runs/small/cells/notes.txt").exists()


def test_a_folder_called_lossbench_in_the_working_folder_is_not_imported(tmp_path, lossbench):
    (tmp_path / "lossbench").mkdir()
    (tmp_path / "lossbench" / "__init__.py").write_text("raise RuntimeError('not me')\n")
    ran = lossbench("run", write_suite(tmp_path, SMALL), "--no-report")
    assert ran.returncode == 0, ran.stderr
