"""Interruptions, limits and full disks: nothing finished is lost, and what goes on comes to the same bits."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL, write_loss
from test_engine import processes_of, records, results, wait_until, write_suite

from lossbench import train
from lossbench.data import data_folder
from lossbench.plan import plan
from lossbench.schema import result


class InterruptedHere(Exception):  # noqa: N818  # it is no error
    """Stands for a kill: it comes between two steps."""


@pytest.mark.parametrize(
    "loss", ["softmax", "center", "l_softmax", "a_softmax", "elasticface", "adaface", "curricularface"]
)
def test_a_cell_goes_on_from_its_kept_state_to_the_same_bits(tmp_path, read_suite, registry, monkeypatch, loss):
    text = SMALL.replace('"w_softmax"]', f'"{loss}"]' if loss != "softmax" else '"normface"]')
    text = text.replace("steps = 6, batch = 16", "steps = 30, batch = 16, evaluations = 3")
    cell = next(cell for cell in plan(read_suite(text)) if cell.loss.name == loss)
    whole = train.run(cell, registry, data_folder())
    partial = train.Partial(tmp_path / "state.pt", every=0)
    step = train.Batches.at

    def interrupted(batches, number):
        if number == 17:
            raise InterruptedHere
        return step(batches, number)

    with monkeypatch.context() as patched, pytest.raises(InterruptedHere):
        patched.setattr(train.Batches, "at", interrupted)
        train.run(cell, registry, data_folder(), partial=partial)
    assert torch.load(partial.path, weights_only=True)["course"]["done"] == 17
    steps = []
    monkeypatch.setattr(train.Batches, "at", lambda batches, number: steps.append(number) or step(batches, number))
    resumed = train.run(cell, registry, data_folder(), partial=partial)
    assert steps == list(range(17, 30))
    assert resumed.record.flags == ("resumed",) and whole.record.flags == ()
    assert result(resumed.record.to_json()) == result(whole.record.to_json())
    assert np.array_equal(resumed.correct, whole.correct)


def test_a_damaged_state_is_not_trusted(tmp_path, read_suite, registry):
    cell = plan(read_suite(SMALL))[0]
    (tmp_path / "state.pt").write_bytes(b"half a checkpoint")
    found = train.run(cell, registry, data_folder(), partial=train.Partial(tmp_path / "state.pt"))
    assert found.record.flags == ()
    assert result(found.record.to_json()) == result(train.run(cell, registry, data_folder()).record.to_json())


def test_a_cell_shorter_than_a_minute_keeps_no_state(tmp_path, read_suite, registry):
    cell = plan(read_suite(SMALL))[0]
    train.run(cell, registry, data_folder(), partial=train.Partial(tmp_path / "state.pt"))
    assert list(tmp_path.iterdir()) == []


GREEDY = {
    "at_once": "held = torch.zeros(600 * 2**20 // 4) + 1 if len(labels) > 2 else None",
    "by_and_by": """self.held = getattr(self, 'held', [])
        for _ in range(60 if len(labels) > 2 else 0):
            self.held.append(torch.ones(10 * 2**20 // 4)); time.sleep(0.02)""",
    "in_a_child": """import subprocess, sys
        if len(labels) > 2:
            subprocess.run([sys.executable, '-c', 'import time; held = bytearray(600 * 2**20); time.sleep(30)'])""",
}


@pytest.mark.parametrize("how", GREEDY)
def test_a_cell_that_exceeds_the_memory_limit_is_oom_and_the_others_finish(tmp_path, lossbench, how):
    write_loss(tmp_path, "greedy", GREEDY[how])
    suite = write_suite(tmp_path, SMALL.replace('"w_softmax"]', '"greedy"]').replace("seeds = 2", "seeds = 1"))
    ran = lossbench("run", suite, "--no-report", "--memory", "500MiB")
    assert ran.returncode == 1
    found = {record["label"]: record["status"] for record in records(tmp_path / "runs/small").values()}
    assert found == {"softmax": "done", "greedy": "oom"}, ran.stderr
    wait_until(lambda: not processes_of(tmp_path), 20)


@pytest.mark.parametrize("amount", ["lots", "0GiB", "4", "-1GiB"])
def test_a_memory_limit_that_is_none_is_refused(lossbench, amount):
    ran = lossbench("run", "quick", f"--memory={amount}")
    assert ran.returncode == 2 and "500MiB or 4GiB" in ran.stderr


def test_a_network_that_predicts_one_class_is_done_but_flagged(tmp_path, lossbench):
    loss = write_loss(tmp_path, "collapses", "pass")
    loss.write_text(
        loss.read_text().replace("return F.linear(features, self.weight)", "return 0 * features @ self.weight.T")
    )
    ran = lossbench("run", write_suite(tmp_path, SMALL.replace('"w_softmax"]', '"collapses"]')))
    found = {(r["label"], r["status"], "collapsed" in r["flags"]) for r in records(tmp_path / "runs/small").values()}
    assert found == {("softmax", "done", False), ("collapses", "done", True)}
    summary = (tmp_path / "reports" / "summary.md").read_text()
    assert "collapses" in summary and "predict one class only" in summary, ran.stderr


def test_logs_shows_what_a_cell_printed(tmp_path, lossbench):
    write_loss(tmp_path, "talks", "print('this is step', self.calls) if len(labels) > 2 else None")
    suite = write_suite(tmp_path, SMALL.replace('"w_softmax"]', '"talks"]'))
    lossbench("run", suite, "--no-report")
    key = next(key for key, record in records(tmp_path / "runs/small").items() if record["label"] == "talks")
    by_key = lossbench("logs", key[:8])
    assert by_key.returncode == 0 and "this is step 6" in by_key.stdout and key in by_key.stdout
    by_words = lossbench("logs", "talks seed=1", "--run", "small")
    assert "this is step 6" in by_words.stdout and "seed=1" in by_words.stdout
    several = lossbench("logs", "talks")
    assert several.returncode == 2 and "means 2 cells" in several.stderr
    none = lossbench("logs", "whisper")
    assert none.returncode == 2 and "no cell is meant by 'whisper'" in none.stderr


def test_retry_failed_trains_those_and_only_those(tmp_path, lossbench):
    write_loss(tmp_path, "moody", "if len(labels) > 2 and not os.path.exists('calm'): raise RuntimeError('not today')")
    suite = write_suite(tmp_path, SMALL.replace('"w_softmax"]', '"moody"]'))
    assert lossbench("run", suite, "--no-report").returncode == 1
    before = {key: record["environment"] for key, record in records(tmp_path / "runs/small").items()}
    (tmp_path / "calm").touch()
    again = lossbench("run", suite, "--no-report", "--retry-failed")
    assert again.returncode == 0, again.stderr
    assert "2 to train" in again.stderr
    after = records(tmp_path / "runs/small")
    assert {record["status"] for record in after.values()} == {"done"} and set(after) == set(before)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of three megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    if (
        not shutil.which("mount")
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_one_sentence_and_what_is_finished_stays(tmp_path, lossbench, small_disk):
    suite = write_suite(tmp_path, SMALL.replace("seeds = 2", "seeds = 3"))
    assert lossbench("run", suite, "--no-report", "--out", small_disk / "run", "--seed", "0").returncode == 0
    before = results(small_disk / "run")
    (small_disk / "ballast").write_bytes(bytes(3 * 2**20 - used(small_disk) - 16 * 1024))
    full = lossbench("run", suite, "--no-report", "--out", small_disk / "run")
    assert full.returncode in (1, 2)
    assert full.stderr.strip().splitlines()[-1].count("No space left on device") == 1
    assert "Traceback" not in full.stderr
    assert results(small_disk / "run").items() >= before.items()
    (small_disk / "ballast").unlink()
    assert lossbench("run", suite, "--no-report", "--out", small_disk / "run").returncode == 0
    assert len(results(small_disk / "run")) == 6


def used(folder) -> int:
    return shutil.disk_usage(folder).used


def test_a_read_only_folder_is_one_sentence(tmp_path, lossbench, small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    ran = lossbench("run", write_suite(tmp_path, SMALL), "--no-report", "--out", small_disk / "run")
    assert ran.returncode == 2
    assert "Read-only file system" in ran.stderr and "Traceback" not in ran.stderr


def test_refining_through_the_engine_equals_training_from_scratch_with_the_same_schedule(tmp_path, lossbench):
    """softmax for 20 steps and then 60 with a shared start is softmax for 80 steps, to the bit."""
    shared = SMALL.replace("steps = 6", "steps = 60") + 'warm_start = { loss = "softmax", steps = 20 }\n'
    for name, text in (("shared", shared), ("alone", SMALL.replace("steps = 6", "steps = 80"))):
        ran = lossbench("run", write_suite(tmp_path, text), "--no-report", "--out", name, "-l", "softmax")
        assert ran.returncode == 0, ran.stderr
    trained = {
        name: {
            r["cell"]["seed"]: (r["digest"], r["correct"])
            for r in records(tmp_path / name).values()
            if r["cell"]["kind"] == "train"
        }
        for name in ("shared", "alone")
    }
    assert trained["shared"] == trained["alone"] and len(trained["alone"]) == 2


def test_a_cell_in_low_precision_is_another_cell(read_suite, registry):
    plain = plan(read_suite(SMALL))[0]
    low = plan(read_suite(SMALL + 'autocast = "bfloat16"\nchannels_last = true\n'))[0]
    assert low.key != plain.key
    record = train.run(low, registry, data_folder()).record
    assert record.status == "done"
    assert record.digest != train.run(replace(plain, key=plain.key), registry, data_folder()).record.digest
