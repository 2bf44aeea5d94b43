"""Interruptions, limits and full disks: nothing finished is lost, and what goes on comes to the same bits."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from conftest import SMALL
from kit.runs import processes_of, records, results, started, wait_until, write_suite

from lossbench import api
from lossbench.cli.commands import cli
from lossbench.core.errors import LossbenchError
from lossbench.core.model import result
from lossbench.data import data_folder
from lossbench.plan.cells import plan
from lossbench.store.records import Store
from lossbench.training import cell as train
from lossbench.training.checkpoints import Checkpointer, DamagedError


class InterruptedHere(Exception):  # noqa: N818  # it is no error
    """Stands for a kill: it comes between two steps."""


def stopped_after_17_steps(cell, registry, monkeypatch, partial) -> None:
    step = train.Batches.at

    def interrupted(batches, number):
        if number == 17:
            raise InterruptedHere
        return step(batches, number)

    with monkeypatch.context() as patched, pytest.raises(InterruptedHere):
        patched.setattr(train.Batches, "at", interrupted)
        train.run(cell, registry, data_folder(), checkpointer=partial)


@pytest.mark.parametrize(
    "loss", ["softmax", "center", "l_softmax", "a_softmax", "elasticface", "adaface", "curricularface"]
)
def test_a_cell_goes_on_from_its_kept_state_to_the_same_bits(tmp_path, read_suite, registry, monkeypatch, loss):
    text = SMALL.replace('"w_softmax"]', f'"{loss}"]' if loss != "softmax" else '"normface"]')
    text = text.replace("steps = 6, batch = 16", "steps = 30, batch = 16, evaluations = 3")
    cell = next(cell for cell in plan(read_suite(text)) if cell.loss.name == loss)
    whole = train.run(cell, registry, data_folder())
    partial = Checkpointer(tmp_path / "state.pt", cell.key, every=0)
    stopped_after_17_steps(cell, registry, monkeypatch, partial)
    assert partial.read()["progress"]["done"] == 17
    steps, step = [], train.Batches.at
    monkeypatch.setattr(train.Batches, "at", lambda batches, number: steps.append(number) or step(batches, number))
    resumed = train.run(cell, registry, data_folder(), checkpointer=partial)
    assert steps == list(range(17, 30))
    assert resumed.record.flags == ("resumed",) and whole.record.flags == ()
    assert result(resumed.record.to_json()) == result(whole.record.to_json())
    assert np.array_equal(resumed.correct, whole.correct)


@pytest.fixture(scope="module")
def whole(read_suite, registry):
    """A cell of 30 steps, and its record."""
    cell = plan(read_suite(SMALL.replace("steps = 6", "steps = 30")))[0]
    return cell, train.run(cell, registry, data_folder()).record


@pytest.fixture
def kept(tmp_path, whole, registry, monkeypatch):
    """That cell, stopped after 17 steps, and where its state is."""
    cell, _ = whole
    partial = Checkpointer(tmp_path / "kept" / "state.pt", cell.key, every=0)
    stopped_after_17_steps(cell, registry, monkeypatch, partial)
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
def test_a_damaged_state_is_not_trusted_and_the_cell_says_so(kept, whole, registry, capsys, damage):
    cell, partial = kept
    DAMAGES[damage](partial)
    found = train.run(cell, registry, data_folder(), checkpointer=Checkpointer(partial.path, cell.key))
    assert found.record.flags == ("restarted",)
    assert "the saved state state.pt is not used: it" in capsys.readouterr().out
    assert not partial.path.is_file()
    assert result(found.record.to_json()) == result(whole[1].to_json())


@pytest.mark.slow
def test_a_run_that_was_killed_and_its_state_damaged_comes_to_the_same_bits_and_says_so(tmp_path, kept_servers):
    text = SMALL.replace("seeds = 2", "seeds = 1").replace("steps = 6", "steps = 1500")
    suite = write_suite(tmp_path, text.replace('losses = ["softmax", "w_softmax"]', 'losses = ["softmax"]'))
    arguments = ["run", suite, "--no-report", "--checkpoint", "0.1s", "--out"]
    run = started(tmp_path, *arguments, "killed", stderr=subprocess.DEVNULL)
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
    said: list[str] = []
    again = partial(api.run, suite, reports=None, notify=said.append)
    assert not again(out=tmp_path / "killed").unfinished
    assert said == [
        "digits  softmax  M=8 C=10 seed=0: its saved state was damaged, so it was trained from the beginning"
    ]
    (record,) = records(tmp_path / "killed").values()
    assert record["flags"] == ["restarted"]
    assert "starts from the beginning" in Store(tmp_path / "killed").log(record["key"]).read_text()
    assert list((tmp_path / "killed/partial").iterdir()) == []
    assert not again(out=tmp_path / "whole").unfinished
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


def test_a_memory_limit_that_is_none_is_refused():
    for amount in ("lots", "0GiB", "4", "-1GiB"):
        refused = CliRunner().invoke(cli, ["run", "quick", f"--memory={amount}"])
        assert refused.exit_code == 2 and "500MiB or 4GiB" in refused.output


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


def test_a_full_disk_is_one_sentence_and_what_is_finished_stays(tmp_path, small_disk, kept_servers):
    run = partial(api.run, write_suite(tmp_path, SMALL), out=small_disk / "run", reports=None)
    assert not run(seeds=[0]).unfinished
    before = results(small_disk / "run")
    (small_disk / "ballast").write_bytes(bytes(3 * 2**20 - shutil.disk_usage(small_disk).used - 4 * 1024))
    with pytest.raises(LossbenchError) as full:
        run()
    assert str(full.value).count("No space left on device") == 1
    assert results(small_disk / "run").items() >= before.items()
    (small_disk / "ballast").unlink()
    assert not run().unfinished
    assert len(results(small_disk / "run")) == 4


def test_a_read_only_folder_is_one_sentence(tmp_path, small_disk, kept_servers):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(LossbenchError, match="Read-only file system"):
        api.run(write_suite(tmp_path, SMALL), out=small_disk / "run", reports=None)


def test_a_cell_in_low_precision_is_another_cell(read_suite, registry):
    plain = plan(read_suite(SMALL))[0]
    low = plan(read_suite(SMALL + 'autocast = "bfloat16"\nchannels_last = true\n'))[0]
    assert low.key != plain.key
    record = train.run(low, registry, data_folder()).record
    assert record.status == "done"
    assert record.digest != train.run(replace(plain, key=plain.key), registry, data_folder()).record.digest


def test_a_warm_start_whose_checkpoint_was_deleted_is_trained_again_only_for_a_cell_that_needs_it(tmp_path):
    warm = SMALL + "warm_start = { steps = 4 }\n"
    suite = write_suite(tmp_path, warm)
    api.run(suite, out=tmp_path / "run", reports=None)
    before = results(tmp_path / "run")
    checkpoints = list(tmp_path.glob("run/cells/*/checkpoint.pt"))
    assert len(checkpoints) == 2
    for path in checkpoints:
        path.unlink()
    trained, said = [], []

    def again(text: str) -> api.RunResult:
        trained.clear()
        on_event = partial(_note, trained)
        return api.run(
            write_suite(tmp_path, text), out=tmp_path / "run", reports=None, on_event=on_event, notify=said.append
        )

    assert not again(warm).unfinished and not trained and not said
    plans = CliRunner().invoke(cli, ["plan", str(suite), "--out", str(tmp_path / "run"), "--no-forecast"])
    assert "0 of 6 cells to train, 0 steps" in plans.stdout
    state = CliRunner().invoke(cli, ["status", str(tmp_path / "run")])
    assert state.exit_code == 0 and "damaged" not in state.output
    assert not again(
        warm.replace('"w_softmax"]', '"w_softmax", "hinge"]').replace("seeds = 2", "seeds = [1]")
    ).unfinished
    assert sorted((cell.kind, cell.seed) for cell in trained) == [("train", 1), ("warm", 1)] and not said
    assert {key: found for key, found in results(tmp_path / "run").items() if key in before} == before


def _note(trained, event) -> None:
    if event.kind == "started":
        trained.append(event.cell)


def test_tuned_cells_get_back_the_warm_starts_whose_checkpoints_were_deleted(tmp_path):
    tuned = SMALL.replace("seeds = 2", "seeds = 1") + "warm_start = { steps = 4 }\n"
    suite = write_suite(tmp_path, tuned + "[tune]\ntrials = 2\nseeds = 1\nvalidation = 0.2\nlr = [0.005, 0.1]\n")
    api.run(suite, out=tmp_path / "run", reports=None)
    before = results(tmp_path / "run")
    for path in tmp_path.glob("run/cells/*/checkpoint.pt"):
        path.unlink()
    gone = [
        key
        for key, record in records(tmp_path / "run").items()
        if record["cell"]["kind"] == "trial" or record["cell"]["experiment"] == "digits-tuned"
    ]
    for key in gone:
        shutil.rmtree(tmp_path / "run" / "cells" / key)
    trained = []
    assert not api.run(suite, out=tmp_path / "run", reports=None, on_event=partial(_note, trained)).unfinished
    assert results(tmp_path / "run") == before
    assert {cell.key for cell in trained if cell.kind != "warm"} <= set(gone)
    assert sum(cell.kind == "warm" for cell in trained) == 2  # of the trials, and of the tuned cells
