"""Parts of a suite, and their records brought together: nothing is lost, nothing twice, nothing contradictory."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.commands import invoke

from lossbench.core.errors import StoreError
from lossbench.core.model import Cell, Record, Suite, result
from lossbench.plan.cells import plan, unique
from lossbench.plan.selection import parse_shard, shard
from lossbench.store.merge import merge
from lossbench.store.records import Store

WARM = SMALL + "warm_start = { steps = 3 }\n"
TWO = SMALL + SMALL.partition('suite"\n')[2].replace('name = "digits"', 'name = "wide"').replace("[8]", "[9]")


def steps_of(cells: list[Cell]) -> int:
    return sum(cell.schedule.steps for cell in cells)


# --- shards


@settings(max_examples=40)
@given(
    seeds=st.integers(1, 6),
    widths=st.integers(1, 4),
    warm=st.booleans(),
    timing=st.booleans(),
    parts=st.integers(1, 9),
    order=st.randoms(use_true_random=False),
)
def test_shards_are_disjoint_complete_balanced_and_know_no_order(read_suite, seeds, widths, warm, timing, parts, order):
    text = SMALL.replace("seeds = 2", f"seeds = {seeds}").replace("widths = [8]", f"widths = {[*range(8, 8 + widths)]}")
    text += ("warm_start = { steps = 3 }\n" if warm else "") + (
        "timing = { rounds = 3, steps = 1 }\n" if timing else ""
    )
    cells = unique(plan(read_suite(text)))
    shards = [shard(cells, part, parts) for part in range(1, parts + 1)]
    assert sorted(cell.key for mine in shards for cell in mine) == sorted(cell.key for cell in cells)
    for mine in shards:
        assert mine == [cell for cell in cells if cell in mine]  # the plan's order
    shuffled = order.sample(cells, len(cells))
    for part, mine in enumerate(shards, start=1):
        assert {cell.key for cell in shard(shuffled, part, parts)} == {cell.key for cell in mine}
    largest = 6 + 6 + 3  # two losses and their warm start; a timing cell takes 3 × 1 × 2 steps
    loads = [sum(6 if cell.timing else cell.schedule.steps for cell in mine) for mine in shards]
    assert max(loads) - min(loads) <= largest


def test_a_warm_start_and_the_losses_of_a_seed_stay_together(read_suite):
    for text in (SMALL, WARM):
        cells = unique(plan(read_suite(text.replace("seeds = 2", "seeds = 7"))))
        for part in (1, 2, 3):
            mine = shard(cells, part, 3)
            keys = {cell.key for cell in mine}
            assert all(cell.warm_cell().key in keys for cell in mine if cell.warm)
            for seed in {cell.seed for cell in mine}:
                assert {cell.loss.name for cell in mine if cell.seed == seed} == {"softmax", "w_softmax"}


def test_shards_are_balanced_by_steps_not_by_cells(read_suite):
    second = TWO.removeprefix(SMALL).replace("steps = 6", "steps = 12").replace("seeds = 2", "seeds = 1")
    cells = unique(plan(read_suite(SMALL + second)))
    loads = {part: steps_of(shard(cells, part, 2)) for part in (1, 2)}
    assert loads == {1: 24, 2: 24}  # the long pair alone, the two short ones together: largest first


def test_what_a_shard_is_called():
    assert parse_shard("2/8") == (2, 8)
    for wrong in ("", "2", "0/8", "9/8", "1/0", "-1/2", "1/2/3", "a/b", "1.0/2", "²/3"):
        with pytest.raises(ValueError, match="is not a shard I/N with 1 ≤ I ≤ N"):
            parse_shard(wrong)


# --- merging, with records that nobody trained


def record_of(cell: Cell, status: str = "done", correct: int = 3, **fields) -> Record:
    if status in ("failed", "oom", "timeout"):
        return Record(cell, status, error=fields.get("error", "because"))
    if status == "diverged":
        return Record(cell, status, error="the training loss is not finite at step 2", **fields)
    return Record(cell, "done", correct=correct, total=5, digest=f"{correct}" * 8, **fields)


def run_folder(folder: Path, suite: Suite, *records: Record) -> Path:
    store = Store(folder)
    store.prepare(suite, plan(suite))
    for record in records:
        bits = np.arange(5) < (record.correct or 0)
        done, kind = record.status == "done", record.cell.kind
        store.write(record, bits if done and kind == "train" else None, b"state" if done and kind == "warm" else None)
        store.log(record.cell.key).write_text(f"log of {record.cell.key} in {folder.name}")
    return folder


@pytest.fixture(scope="module")
def suite(read_suite) -> Suite:
    return read_suite(WARM)


@pytest.fixture(scope="module")
def cells(suite) -> list[Cell]:
    return plan(suite)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_parts_of_a_run_make_the_whole(tmp_path, suite, cells):
    whole = run_folder(tmp_path / "whole", suite, *map(record_of, cells))
    parts = [
        run_folder(tmp_path / str(part), suite, *map(record_of, shard(unique(cells), part, 3))) for part in (1, 2, 3)
    ]
    done = merge(parts, tmp_path / "out")
    assert (done.copied, done.kept, done.missing) == (6, 0, 0)
    made, wanted = tree(tmp_path / "out"), tree(whole)
    for name in (name for name in wanted if name.startswith("cells/") or name in ("plan.json", "suite.toml")):
        assert made[name] == wanted[name], name
    assert {name for name in made if name.startswith("cells/")} == {
        name for name in wanted if name.startswith("cells/")
    }
    assert sum(name.startswith("logs/") for name in made) == 6
    assert not any(name.startswith(("staging/", "set_aside/")) for name in made)


def test_merging_into_a_run_adds_what_it_lacks_and_keeps_what_it_has(tmp_path, suite, cells):
    one = run_folder(tmp_path / "one", suite, *map(record_of, cells[:4]))
    two = run_folder(tmp_path / "two", suite, *(record_of(cell, seconds={"train": 9.0}) for cell in cells[2:5]))
    first = merge([one], tmp_path / "out")
    before = tree(tmp_path / "out")
    second = merge([two, two, tmp_path / "out"], tmp_path / "out")
    assert (first.copied, first.kept, first.missing) == (4, 0, 2)
    assert (second.copied, second.kept, second.missing) == (1, 4, 1)
    after = tree(tmp_path / "out")
    assert before.items() <= after.items()  # seconds are what was met on the way: no conflict, and the first stays
    again = merge([one, two], tmp_path / "out")
    assert (again.copied, again.kept) == (0, 5)
    assert {name: text for name, text in tree(tmp_path / "out").items() if "claims" not in name} == {
        name: text for name, text in after.items() if "claims" not in name
    }


CONFLICTS = {
    "another count": lambda cell: record_of(cell, correct=4),
    "another digest": lambda cell: replace(record_of(cell), digest="f" * 8),
    "another end": lambda cell: record_of(cell, "diverged"),
}


@pytest.mark.parametrize("case", CONFLICTS)
@pytest.mark.parametrize("turned", [False, True])
def test_contradicting_records_are_named_and_nothing_is_written(tmp_path, suite, cells, case, turned):
    one = run_folder(tmp_path / "one", suite, *map(record_of, cells))
    two = run_folder(tmp_path / "two", suite, CONFLICTS[case](cells[1]))
    both = [two, one] if turned else [one, two]
    with pytest.raises(StoreError) as caught:
        merge(both, tmp_path / "out")
    for part in (cells[1].key, cells[1].title, str(one), str(two), "nothing was merged"):
        assert part in str(caught.value)
    assert not (tmp_path / "out").exists()
    before = tree(one)
    with pytest.raises(StoreError, match="nothing was merged"):
        merge([two], one)
    assert tree(one) == before


def test_a_difference_in_the_bits_alone_is_a_conflict(tmp_path, suite, cells):
    one = run_folder(tmp_path / "one", suite, record_of(cells[1]))
    two = Store(run_folder(tmp_path / "two", suite))
    two.write(record_of(cells[1]), np.array([False, False, True, True, True]))
    with pytest.raises(StoreError, match=cells[1].key):
        merge([one, two.root], tmp_path / "out")


@pytest.mark.parametrize("status", ["failed", "oom", "timeout"])
@pytest.mark.parametrize("better", ["done", "diverged"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_result_wins_over_a_cell_that_only_did_not_finish(tmp_path, suite, cells, status, better, turned):
    lost = run_folder(tmp_path / "lost", suite, record_of(cells[1], status))
    won = run_folder(tmp_path / "won", suite, record_of(cells[1], better))
    merge([won, lost] if turned else [lost, won], tmp_path / "out")
    found = Store(tmp_path / "out").read(cells[1].key)
    assert found["status"] == better
    assert "in won" in Store(tmp_path / "out").log(cells[1].key).read_text()
    if not turned:  # the other is set aside, not deleted, where it stood in the way
        merge([won], lost)
        assert Store(lost).read(cells[1].key)["status"] == better
        (aside,) = (lost / "set_aside").iterdir()
        assert json.loads((aside / "record.json").read_text())["status"] == status


def test_two_failures_are_no_contradiction(tmp_path, suite, cells):
    one = run_folder(tmp_path / "one", suite, record_of(cells[1], "failed", error="/tmp/a broke"))
    two = run_folder(tmp_path / "two", suite, record_of(cells[1], "timeout", error="/tmp/b broke"))
    assert merge([one, two], tmp_path / "out").copied == 1
    assert Store(tmp_path / "out").read(cells[1].key)["error"] == "/tmp/a broke"


OTHERS = {
    "another suite": (WARM.replace('name = "small"', 'name = "large"'), "differ in 'name'"),
    "another margin": (WARM.replace("title", "margin = 2.0\ntitle"), "differ in 'margin'"),
    "another plan": (WARM.replace("steps = 6", "steps = 7"), "have different plans: only one has"),
    "more seeds": (WARM.replace("seeds = 2", "seeds = 3"), "have different plans: only one has"),
    "another experiment": (WARM + TWO.removeprefix(SMALL), "only one has the experiment 'wide'"),
}


@pytest.mark.parametrize("case", OTHERS)
@pytest.mark.parametrize("turned", [False, True])
def test_runs_of_something_else_are_refused(tmp_path, suite, cells, read_suite, case, turned):
    text, sentence = OTHERS[case]
    one = run_folder(tmp_path / "one", suite, *map(record_of, cells))
    two = run_folder(tmp_path / "two", read_suite(text))
    with pytest.raises(StoreError, match=sentence) as caught:
        merge([two, one] if turned else [one, two], tmp_path / "out")
    assert str(one) in str(caught.value) and str(two) in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_how_a_suite_was_called_or_written_does_not_matter(tmp_path, suite, cells):
    info = replace(suite.info, command="lossbench run elsewhere/small.toml", title="The same")
    one = run_folder(tmp_path / "one", suite, record_of(cells[0]))
    two = run_folder(tmp_path / "two", replace(suite, info=info, text="# a comment\n" + suite.text))
    renamed = replace(cells[0], losses=(replace(cells[0].loss, label="plain softmax"),))
    Store(two).write(record_of(renamed), None, b"state")
    assert merge([one, two], tmp_path / "out").copied == 1
    assert (tmp_path / "out/suite.toml").read_text() == suite.text


def test_an_experiment_that_one_machine_has_no_data_for_comes_from_the_other(tmp_path, read_suite):
    both = read_suite(TWO)
    info = replace(both.info, missing={"wide": "glyphs are not there"})
    half = replace(both, info=info, experiments=both.experiments[:1])
    one = run_folder(tmp_path / "one", half, *map(record_of, plan(half)))
    two = run_folder(tmp_path / "two", both, *(record_of(cell) for cell in plan(both) if cell.experiment == "wide"))
    for number, runs in enumerate(([one, two], [two, one])):
        out = tmp_path / f"out{number}"
        done = merge(runs, out)
        assert (done.copied, done.missing) == (8, 0)
        info, planned = Store(out).plan()
        assert not info.missing
        assert {cell.key for cell in planned} == {cell.key for cell in plan(both)}
    merge([one], tmp_path / "alone")
    assert Store(tmp_path / "alone").plan()[0].missing == {"wide": "glyphs are not there"}


def test_damaged_records_are_left_out_and_said(tmp_path, suite, cells):
    one = run_folder(tmp_path / "one", suite, *map(record_of, cells))
    (one / "cells" / cells[1].key / "correct.npz").write_bytes(b"rubbish")
    said: list[str] = []
    done = merge([one], tmp_path / "out", said.append)
    assert (done.copied, done.missing) == (5, 1)
    assert said == [f"{one / 'cells' / cells[1].key}: correct.npz is damaged; left out"]
    assert (one / "cells" / cells[1].key).exists()  # what is read is not touched


def test_records_of_older_plans_stay_where_they_are(tmp_path, suite, cells, read_suite):
    (old, *_) = plan(read_suite(WARM.replace("steps = 6", "steps = 5")))
    one = run_folder(
        tmp_path / "one", suite, record_of(cells[0]), record_of(plan(read_suite(SMALL))[0]), record_of(old)
    )
    assert merge([one], tmp_path / "out").copied == len(list((tmp_path / "out/cells").iterdir()))


def test_a_folder_that_is_no_run_is_not_filled(tmp_path, suite, cells):
    one = run_folder(tmp_path / "one", suite, *map(record_of, cells))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name in ("mine", "file"):
        with pytest.raises(StoreError, match="is not a run folder"):
            merge([one], tmp_path / name)
    assert list((tmp_path / "mine").iterdir()) == [tmp_path / "mine" / "thesis.tex"]
    with pytest.raises(StoreError, match="is not a run folder"):
        merge([tmp_path / "mine"], tmp_path / "out")
    assert merge([one], tmp_path / "empty").copied == 6


def test_a_run_that_is_at_work_in_the_target_is_not_disturbed(tmp_path, suite, cells):
    one = run_folder(tmp_path / "one", suite, *map(record_of, cells))
    out = Store(run_folder(tmp_path / "out", suite))
    with out.claim(cells[0].key) as ours:
        assert ours
        with pytest.raises(StoreError, match=f"another run is training {cells[0].key} there"):
            merge([one], out.root)
    assert merge([one], out.root).missing == 0


# --- the command line, with real cells


@pytest.fixture(scope="module")
def sharded(tmp_path_factory) -> Path:
    """A folder with a suite, its shards s1 and s2, and the whole of it."""
    from lossbench import api

    folder = tmp_path_factory.mktemp("sharded")
    (folder / "suite.toml").write_text(WARM)
    for name, part in (("s1", "1/2"), ("s2", "2/2"), ("whole", None)):
        ran = api.run(folder / "suite.toml", out=folder / name, reports=None, shard=part)
        assert not ran.unfinished
    return folder


@pytest.mark.slow
def test_shards_merged_are_the_whole_run_to_the_bit_and_can_be_reported(sharded, lossbench, tmp_path):
    counts = [len(list((sharded / name / "cells").iterdir())) for name in ("s1", "s2", "whole")]
    assert counts == [3, 3, 6]
    merged = lossbench("merge", sharded / "s1", sharded / "s2", "-o", "all")
    assert merged.returncode == 0, merged.stderr
    assert merged.stdout == "all: 6 records merged, 0 already present, 0 missing\n"
    found = [Store(folder).scan()[0] for folder in (tmp_path / "all", sharded / "whole")]
    assert {key: result(record) for key, record in found[0].items()} == {
        key: result(record) for key, record in found[1].items()
    }
    for folder, reports in (("all", "a"), (sharded / "whole", "b")):
        assert lossbench("report", folder, "--reports", reports).returncode == 0
    assert (tmp_path / "a/comparisons.csv").read_bytes() == (tmp_path / "b/comparisons.csv").read_bytes()


def test_a_shard_trains_its_part_writes_no_report_and_may_be_empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.toml").write_text(SMALL)
    planned = invoke("plan", "suite.toml", "--shard", "1/2", "--no-forecast")
    assert "2 of 2 cells to train" in planned.stdout
    first = invoke("run", "suite.toml", "--shard", "1/3")
    last = invoke("run", "suite.toml", "--shard", "3/3")
    assert first.returncode == last.returncode == 0, (first.stderr, last.stderr)
    assert "2 cells, 0 already done, 2 to train" in first.stderr
    assert "0 cells, 0 already done, 0 to train" in last.stderr  # two seeds make two groups
    assert not (tmp_path / "reports").exists()
    for wrong in ("0/2", "3/2", "1", "x/y"):
        told = invoke("run", "suite.toml", "--shard", wrong)
        assert told.returncode == 2
        assert told.stderr == f"lossbench: --shard: '{wrong}' is not a shard I/N with 1 ≤ I ≤ N, such as 2/8\n"


def test_a_merge_that_cannot_be_is_one_sentence_and_exit_code_two(tmp_path, monkeypatch, suite, cells):
    monkeypatch.chdir(tmp_path)
    run_folder(tmp_path / "one", suite, *map(record_of, cells))
    run_folder(tmp_path / "two", suite, record_of(cells[1], correct=4))
    for arguments in (["one", "two", "-o", "out"], ["one", "three", "-o", "out"], ["one", "-o", "one/plan.json"]):
        told = invoke("merge", *arguments)
        assert told.returncode == 2
        assert told.stdout == ""
        assert len(told.stderr.splitlines()) == 1 and told.stderr.startswith("lossbench: ")
        assert not (tmp_path / "out").exists()
    assert invoke("merge", "one").returncode == 2  # no -o


def test_many_random_merges_lose_nothing(tmp_path, suite, cells):
    """Whatever records lie in whichever folders, in any order: every cell ends with the best that any folder had."""
    for attempt in range(8):
        draw = random.Random(attempt)
        states = [[draw.choice([None, "done", "failed", "oom"]) for _ in cells] for _ in range(3)]
        runs = []
        for number, mine in enumerate(states):
            made = [record_of(cell, status) for cell, status in zip(cells, mine, strict=True) if status]
            runs.append(run_folder(tmp_path / f"{attempt}-{number}", suite, *made))
        draw.shuffle(runs)
        done = merge(runs, tmp_path / f"{attempt}-out")
        found = Store(tmp_path / f"{attempt}-out").scan()[0]
        for place, cell in enumerate(cells):
            had = {mine[place] for mine in states} - {None}
            status = found[cell.key]["status"] if cell.key in found else None
            assert status in (had or {None}) and ("done" not in had or status == "done")
        assert done.copied == len(found) and done.copied + done.missing == len(cells)
        shutil.rmtree(tmp_path / f"{attempt}-out")
