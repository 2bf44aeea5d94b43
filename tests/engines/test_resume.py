"""Interruptions, limits and full disks: nothing finished is lost, and what goes on comes to the same bits."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SMALL, command, write_loss
from test_engine import processes_of, records, results, wait_until, write_suite

from lossbench.core.model import result
from lossbench.data import data_folder
from lossbench.plan.cells import plan
from lossbench.store.records import Store
from lossbench.training import cell as train
from lossbench.training.checkpoints import Checkpointer, DamagedError


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
    partial = Checkpointer(tmp_path / "state.pt", cell.key, every=0)
    step = train.Batches.at

    def interrupted(batches, number):
        if number == 17:
            raise InterruptedHere
        return step(batches, number)

    with monkeypatch.context() as patched, pytest.raises(InterruptedHere):
        patched.setattr(train.Batches, "at", interrupted)
        train.run(cell, registry, data_folder(), checkpointer=partial)
    assert partial.read()["progress"]["done"] == 17
    steps = []
    monkeypatch.setattr(train.Batches, "at", lambda batches, number: steps.append(number) or step(batches, number))
    resumed = train.run(cell, registry, data_folder(), checkpointer=partial)
    assert steps == list(range(17, 30))
    assert resumed.record.flags == ("resumed",) and whole.record.flags == ()
    assert result(resumed.record.to_json()) == result(whole.record.to_json())
    assert np.array_equal(resumed.correct, whole.correct)


@pytest.fixture
def kept(tmp_path, read_suite, registry, monkeypatch):
    """A cell of 30 steps that was stopped after 17, and where its state is."""
    cell = plan(read_suite(SMALL.replace("steps = 6", "steps = 30")))[0]
    partial = Checkpointer(tmp_path / "kept" / "state.pt", cell.key, every=0)
    step = train.Batches.at

    def interrupted(batches, number):
        if number == 17:
            raise InterruptedHere
        return step(batches, number)

    with monkeypatch.context() as patched, pytest.raises(InterruptedHere):
        patched.setattr(train.Batches, "at", interrupted)
        train.run(cell, registry, data_folder(), checkpointer=partial)
    return cell, partial


def test_a_kept_state_with_any_bit_flipped_is_not_read(kept):
    _, partial = kept
    sound = partial.path.read_bytes()
    assert partial.read()["progress"]["done"] == 17
    rng = np.random.default_rng(0)
    bits = [*range(8 * 100), *rng.choice(8 * len(sound), 300, replace=False).tolist()]  # the header, and 300 anywhere
    for bit in bits:
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        partial.path.write_bytes(damaged)
        with pytest.raises(DamagedError):
            partial.read()
    partial.path.write_bytes(sound)
    assert partial.read()["progress"]["done"] == 17


def _signed(partial: Checkpointer, **changed) -> None:
    """Write the state of a cell with some of it changed, checksum and all."""
    state = partial.read()
    for place, value in changed.items():
        *parts, last = place.split("__")
        inner = state
        for part in parts:
            inner = inner[part]
        inner[last] = value
    partial.write(state)


DAMAGES = {
    "empty": lambda partial: partial.path.write_bytes(b""),
    "truncated": lambda partial: partial.path.write_bytes(partial.path.read_bytes()[:-1]),
    "longer": lambda partial: partial.path.write_bytes(partial.path.read_bytes() + b"\0"),
    "nonsense": lambda partial: partial.path.write_bytes(b"half a checkpoint"),
    "of an older version": lambda partial: torch.save(partial.read(), partial.path),
    "of another cell": lambda partial: Checkpointer(partial.path, "f" * 20).write(partial.read()),
    "a folder": lambda partial: (partial.path.unlink(), partial.path.mkdir()),
    "without a part": lambda partial: _signed(partial, progress={}),
    "of another shape": lambda partial: _signed(partial, state__loss__weight=torch.zeros(3, 8)),
    "of another type": lambda partial: _signed(partial, state__loss__weight=torch.zeros(10, 8).double()),
    "with another tensor": lambda partial: _signed(partial, state__loss__more=torch.zeros(3)),
    "without momentum": lambda partial: _signed(partial, state__optimizer={}),
    "beyond the end": lambda partial: _signed(partial, progress__done=30),
    "at another step": lambda partial: _signed(partial, state__step=16),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_not_trusted_and_the_cell_says_so(kept, registry, capsys, damage):
    cell, partial = kept
    DAMAGES[damage](partial)
    found = train.run(cell, registry, data_folder(), checkpointer=Checkpointer(partial.path, cell.key))
    assert found.record.flags == ("restarted",)
    assert "the kept state state.pt is not used: it" in capsys.readouterr().out
    assert not partial.path.is_file()
    assert result(found.record.to_json()) == result(train.run(cell, registry, data_folder()).record.to_json())


def test_a_run_that_was_killed_and_its_state_damaged_comes_to_the_same_bits_and_says_so(tmp_path, lossbench):
    text = SMALL.replace("seeds = 2", "seeds = 1").replace("steps = 6", "steps = 1500")
    suite = write_suite(tmp_path, text.replace('losses = ["softmax", "w_softmax"]', 'losses = ["softmax"]'))
    arguments = ["run", suite, "--no-report", "--checkpoint", "0.1s", "--out"]
    run = subprocess.Popen(command(*arguments, "killed"), cwd=tmp_path, stderr=subprocess.DEVNULL)
    wait_until(lambda: list(tmp_path.glob("killed/partial/*.pt")) or run.poll() is not None)
    run.kill()
    run.wait()
    wait_until(lambda: not processes_of(tmp_path), 20)
    (state,) = (tmp_path / "killed/partial").glob("[!.]*.pt")
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    stale = state.with_name(f".{state.name}-99999")
    stale.write_bytes(b"half")
    resumed = lossbench(*arguments, "killed", "-q")
    assert resumed.returncode == 0
    said = "digits  softmax  M=8 C=10 seed=0: its kept state was damaged, so it was trained from the beginning"
    assert resumed.stderr == f"lossbench: {said}\n"
    (record,) = records(tmp_path / "killed").values()
    assert record["flags"] == ["restarted"]
    assert "begins anew" in lossbench("logs", record["key"], "--run", "killed").stdout
    assert list((tmp_path / "killed/partial").iterdir()) == []
    assert lossbench(*arguments, "whole", "-q").returncode == 0
    assert results(tmp_path / "killed") == results(tmp_path / "whole")


def test_half_written_states_are_swept_but_not_those_of_a_cell_that_another_run_holds(tmp_path):
    store = Store(tmp_path)
    store.partial("x").parent.mkdir()
    for name in (".aaaa.pt-1", ".bbbb.pt-2", "cccc.pt"):
        (tmp_path / "partial" / name).write_bytes(b"half")
    with store.claim("bbbb") as ours:
        assert ours
        Store(tmp_path).sweep_staging()
    assert {path.name for path in (tmp_path / "partial").iterdir()} == {".bbbb.pt-2", "cccc.pt"}


def test_a_cell_shorter_than_a_minute_keeps_no_state(tmp_path, read_suite, registry):
    cell = plan(read_suite(SMALL))[0]
    train.run(cell, registry, data_folder(), checkpointer=Checkpointer(tmp_path / "state.pt", cell.key))
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
