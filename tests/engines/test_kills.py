"""A run that is killed again and again comes to what an undisturbed one comes to."""

from __future__ import annotations

import random
import signal
import subprocess
import time

import pytest
from conftest import SMALL
from kit.runs import processes_of, ran, records, results, started, wait_until, write_suite

from lossbench import api

# Cells of a second or two, a loss with state of its own among them, and a warm start.
LONG = (
    SMALL.replace('"w_softmax"]', '"center", "a_softmax", "elasticface[s=8.0]"]')
    .replace("steps = 6", "steps = 500")
    .replace("channels = 4", "channels = 8")
) + "warm_start = { steps = 200 }\n"


@pytest.fixture(scope="module")
def uninterrupted(kept_servers, tmp_path_factory) -> dict[str, dict]:
    """The results of LONG, run in one go."""
    folder = tmp_path_factory.mktemp("whole")
    assert not api.run(write_suite(folder, LONG), out=folder / "run", reports=None).unfinished
    return results(folder / "run")


@pytest.mark.slow
def test_a_run_killed_at_eight_random_instants_comes_to_the_same_bits(tmp_path, uninterrupted):
    suite, out = write_suite(tmp_path, LONG), tmp_path / "killed"
    moments = random.Random(0)
    before: dict[str, dict] = {}
    for attempt in range(8):
        began = time.time()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        run = started(tmp_path, "run", suite, "--no-report", "--out", out, "--checkpoint", "0.1s", **quiet)
        if attempt % 2:  # every second kill finds it training, the others also while it starts
            wait_until(lambda: (out / "plan.json").exists() and (out / "plan.json").stat().st_mtime > began)  # noqa: B023  # called at once
        time.sleep(moments.uniform(0.0, 2.0))
        run.send_signal(signal.SIGKILL)
        run.wait()
        wait_until(lambda: not processes_of(tmp_path), 20)
        now = results(out)
        assert before.items() <= now.items()  # nothing finished is ever lost or changed
        before = now
    finished = ran(tmp_path, "run", suite, "--no-report", "--out", out)
    assert finished.returncode == 0, finished.stderr
    assert results(out) == uninterrupted
    assert list((out / "staging").iterdir()) == []
    assert list((out / "partial").glob("*.pt")) == []
    assert any("resumed" in record["flags"] for record in records(out).values())
