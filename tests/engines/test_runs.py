"""Whole runs: the same bits for any number of jobs, shared folders, damaged files, Ctrl-C; nothing finished is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from conftest import SMALL, write_loss
from kit.runs import processes_of, records, results, started, wait_until, write_suite

from lossbench import api

# Two experiments: refined from a shared start, and trained in one go with as many steps.
SUITE = SMALL.replace("steps = 6", "steps = 20") + "warm_start = { steps = 10 }\n"
SUITE += "\n[[experiment]]" + SMALL.partition("[[experiment]]")[2].replace("steps = 6", "steps = 30").replace(
    '"digits"\n', '"alone"\n', 1
).replace(', "w_softmax"]', "]")


@pytest.fixture(scope="module")
def finished(kept_servers, tmp_path_factory) -> Path:
    """A folder with the suite and its finished run, three cells at a time. Tests work on copies."""
    folder = tmp_path_factory.mktemp("finished")
    done = api.run(write_suite(folder, SUITE), out=folder / "run", reports=None, jobs=3)
    assert not done.unfinished and len(results(folder / "run")) == 8
    return folder


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_refining_through_the_engine_equals_training_in_one_go(finished):
    trained = {"digits": {}, "alone": {}}
    for record in records(finished / "run").values():
        if record["cell"]["kind"] == "train" and record["label"] == "softmax":
            trained[record["cell"]["experiment"]][record["cell"]["seed"]] = record["digest"], record["correct"]
    assert trained["digits"] == trained["alone"] and len(trained["alone"]) == 2


@pytest.mark.slow
def test_two_runs_on_one_folder_share_the_work_and_come_to_the_same_bits(finished, tmp_path):
    """One cell at a time in each of them: the bits do not depend on the number of jobs."""
    suite = write_suite(tmp_path, SUITE)
    other = started(tmp_path, "run", suite, "--no-report", "-j", "1", "--out", "run", stderr=subprocess.PIPE, text=True)
    wait_until(lambda: (tmp_path / "run/plan.json").exists() or other.poll() is not None, 120)
    ours = api.run(suite, out=tmp_path / "run", reports=None, jobs=1)
    stderr = other.communicate(timeout=240)[1]
    assert other.returncode == 0 and not ours.unfinished, stderr
    assert results(tmp_path / "run") == results(finished / "run")
    assert not (tmp_path / "run/set_aside").exists()  # no cell was trained twice


def test_damaged_and_foreign_files_are_named_set_aside_and_made_again(copied):
    folder, said, trained = copied / "run", [], []
    before = results(folder)
    again = partial(
        api.run,
        copied / "suite.toml",
        out=folder,
        reports=None,
        notify=said.append,
        on_start=lambda job, todo: trained.append([cell.key for cell in todo]),
    )
    (folder / "cells/notes.txt").write_text("mine")
    again()  # although nothing is left to train
    assert len(said) == 1 and "notes.txt" in said[0]
    assert not (folder / "cells/notes.txt").exists()
    victim = next(key for key, record in sorted(records(folder).items()) if record["cell"]["kind"] == "train")
    path = folder / "cells" / victim / "record.json"
    path.write_bytes(path.read_bytes()[:200])
    assert not again().unfinished
    assert f"{victim}: record.json is truncated" in said[-1] and trained == [[], [victim]]
    assert results(folder) == before
    assert len(list((folder / "set_aside").iterdir())) == 2


def test_force_trains_again_and_comes_to_the_same(copied):
    before = results(copied / "run")
    trained = []
    api.run(
        copied / "suite.toml",
        out=copied / "run",
        reports=None,
        force=True,
        losses=["w_softmax"],
        on_start=lambda job, todo: trained.extend(cell for cell in todo if cell.kind == "train"),
    )
    assert len(trained) == 2
    assert results(copied / "run") == before
    assert len(list((copied / "run/set_aside").iterdir())) >= 2


@pytest.mark.slow  # docs/python.md is such a script, and always run
def test_a_script_without_a_main_guard_can_run_a_suite(tmp_path):
    """multiprocessing would import the user's script again in every child; the fork server does not."""
    suite = write_suite(tmp_path, SMALL.replace("seeds = 2", "seeds = 1"))
    script = tmp_path / "script.py"
    script.write_text(
        f"import lossbench\nfound = lossbench.run({str(suite)!r}, reports=None).records\nprint(len(found))\n"
    )
    run = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "2", run.stderr


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path):
    suite = write_suite(tmp_path, SMALL.replace("steps = 6", "steps = 400000"))
    run = started(tmp_path, "run", suite, "--no-report", stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(lambda: list(tmp_path.glob("runs/small/logs/*.log")) or run.poll() is not None, 120)
    time.sleep(0.2)
    os.killpg(run.pid, signal.SIGINT)
    _, stderr = run.communicate(timeout=120)
    assert run.returncode == 130, stderr
    assert "the same command continues from here" in stderr
    assert "Traceback" not in stderr
    wait_until(lambda: not processes_of(tmp_path), 20)


def test_fail_fast_starts_nothing_new_after_a_failure(tmp_path, kept_servers):
    write_loss(tmp_path, "bad", "if len(labels) > 2: raise RuntimeError('x')")
    text = SMALL.replace('["softmax", "w_softmax"]', '["bad", "softmax"]').replace("seeds = 2", "seeds = 5")
    done = api.run(write_suite(tmp_path, text), out=tmp_path / "run", reports=None, jobs=1, fail_fast=True)
    assert len(records(tmp_path / "run")) == 1 and len(done.unfinished) == 10
