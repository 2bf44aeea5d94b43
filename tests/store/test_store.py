"""Records on disk are there whole or not at all, and what is not sound is never trusted."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from conftest import SMALL

from lossbench.core.errors import StoreError
from lossbench.core.model import Record
from lossbench.plan.cells import plan
from lossbench.store.records import Store, load_records


@pytest.fixture
def suite_and_cells(read_suite):
    suite = read_suite(SMALL)
    return suite, plan(suite)


@pytest.fixture
def store(tmp_path, suite_and_cells):
    suite, cells = suite_and_cells
    store = Store(tmp_path / "run")
    store.prepare(suite, cells)
    return store


def done(cell, bits=(True, False, True)):
    bits = np.array(bits)
    angles = {"train": [10.0, None], "test": [20.0, 40.0]}
    return Record(cell, "done", correct=int(bits.sum()), total=len(bits), angles=angles), bits


def test_what_is_written_can_be_read_back(store, suite_and_cells):
    cell = suite_and_cells[1][0]
    record, bits = done(cell)
    store.write(record, bits)
    found = store.read(cell.key)
    assert Record.from_json(found) == record
    assert found["accuracy"] == pytest.approx(100 * 2 / 3)
    assert store.correct(cell.key).tolist() == bits.tolist()
    assert list((store.root / "staging").iterdir()) == []  # the folder came by a rename, not by a copy


def test_record_json_has_the_public_fields(store, suite_and_cells):
    record, bits = done(suite_and_cells[1][1])
    store.write(record, bits)
    found = json.loads((store.cells / record.cell.key / "record.json").read_text())
    public = [
        "key",
        "status",
        "error",
        "cell",
        "label",
        "correct",
        "total",
        "accuracy",
        "seconds",
        "bytes",
        "angles",
        "curve",
        "environment",
    ]
    assert set(public) <= set(found)
    cell = {"experiment", "task", "dataset", "backbone", "width", "classes", "loss", "options", "seed", "kind", "trial"}
    assert set(found["cell"]) == {*cell, "point"}
    assert found["label"] == found["cell"]["loss"] == "w_softmax"
    assert found["cell"]["options"] == {"alpha": 1.0, "gradient": "exact"}


DAMAGE = {
    "truncated record": lambda folder: (folder / "record.json").write_bytes(
        (folder / "record.json").read_bytes()[:100]
    ),
    "empty record": lambda folder: (folder / "record.json").write_bytes(b""),
    "foreign JSON": lambda folder: (folder / "record.json").write_text('{"hello": 1}'),
    "a list": lambda folder: (folder / "record.json").write_text("[1, 2]"),
    "damaged bits": lambda folder: (folder / "correct.npz").write_bytes(b"no archive"),
    "missing bits": lambda folder: (folder / "correct.npz").unlink(),
    "no record": lambda folder: (folder / "record.json").unlink(),
    "another cell's record": lambda folder: folder.rename(folder.with_name("0" * 20)),
    "altered result": lambda folder: (folder / "record.json").write_text(
        (folder / "record.json").read_text().replace('"accuracy": ', '"accuracy": 9')
    ),
    "altered settings": lambda folder: (folder / "record.json").write_text(
        (folder / "record.json").read_text().replace('"steps": 6', '"steps": 600')
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cell_is_named_and_never_trusted(store, suite_and_cells, damage):
    first, second = suite_and_cells[1][:2]
    for cell in (first, second):
        store.write(*done(cell))
    DAMAGE[damage](store.cells / first.key)
    sound, damaged = store.scan()
    assert set(sound) == {second.key}
    assert len(damaged) == 1
    assert store.read(first.key) is None


def test_a_foreign_file_among_the_cells_is_named(store):
    (store.cells / "notes.txt").write_text("hello")
    assert list(store.scan()[1]) == ["notes.txt"]
    moved = store.set_aside("notes.txt")
    assert moved.read_text() == "hello"
    assert store.scan() == ({}, {})


def test_a_checkpoint_that_is_not_the_one_of_its_record_is_refused(store, suite_and_cells):
    cell = replace(suite_and_cells[1][0], kind="warm", key="")
    store.write(Record(cell, "done"), checkpoint=b"weights")
    assert store.checkpoint(cell.key) == b"weights"
    (store.cells / cell.key / "checkpoint.pt").write_bytes(b"wEights")
    with pytest.raises(StoreError, match=r"checkpoint\.pt: is damaged"):
        store.checkpoint(cell.key)
    (store.cells / cell.key / "checkpoint.pt").unlink()
    with pytest.raises(StoreError, match=r"checkpoint\.pt: cannot be read"):
        store.checkpoint(cell.key)


def test_replacing_a_record_keeps_the_old_one_aside(store, suite_and_cells):
    cell = suite_and_cells[1][0]
    store.write(*done(cell, [True]))
    store.write(*done(cell, [False]))
    assert store.read(cell.key)["correct"] == 0
    aside = list((store.root / "set_aside").iterdir())
    assert json.loads((aside[0] / "record.json").read_text())["correct"] == 1


def test_a_writer_that_fails_leaves_nothing_in_cells(store, suite_and_cells, monkeypatch):
    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(StoreError, match="No space left on device"):
        store.write(*done(suite_and_cells[1][0]))
    assert store.scan() == ({}, {})


def test_leftovers_of_dead_writers_are_swept_but_not_those_of_living_ones(store):
    for name in ("a" * 20 + "-1", "b" * 20 + "-2"):
        (store.root / "staging" / name).mkdir()
    with store.claim("b" * 20) as ours:
        assert ours
        other = Store(store.root)
        other.sweep_staging()
        assert [path.name for path in (store.root / "staging").iterdir()] == ["b" * 20 + "-2"]


def test_a_claim_excludes_others_until_it_is_let_go(store):
    with store.claim("k") as first, Store(store.root).claim("k") as second:
        assert (first, second) == (True, False)
    with Store(store.root).claim("k") as third:
        assert third


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(StoreError, match="is not a run folder"):
        load_records(tmp_path)


def test_a_damaged_plan_says_what_to_do(store):
    (store.root / "plan.json").write_text("{")
    with pytest.raises(StoreError, match=r"plan\.json: is damaged; run the suite again"):
        load_records(store.root)


def test_records_become_a_table_with_a_row_for_each_planned_cell(store, suite_and_cells):
    _, cells = suite_and_cells
    for cell in cells[:3]:
        store.write(*done(cell))
    frame = load_records(store.root)
    assert len(frame) == 3
    assert frame["label"].tolist() == ["softmax", "w_softmax", "softmax"]
    assert frame["angle_test"].tolist() == [30.0] * 3
    assert frame["angle_train"].tolist() == [10.0] * 3
    assert frame["accuracy"].iloc[0] == pytest.approx(66.67, abs=0.01)


def test_an_empty_run_is_an_empty_table_with_its_columns(store):
    frame = load_records(store.root)
    assert len(frame) == 0
    assert {"key", "status", "accuracy", "seed"} <= set(frame.columns)


def test_who_wants_to_be_alone_waits_for_the_others_and_they_for_it(store):
    other = Store(store.root)
    with store.claim("a") as first, other.claim("b", alone=True) as alone, other.claim("c") as beside:
        assert (first, alone, beside) == (True, False, True)
    with store.claim("b", alone=True) as alone, other.claim("c") as beside:
        assert (alone, beside) == (True, False)


def test_a_record_is_shown_under_the_labels_of_the_plan(tmp_path, read_suite):
    """The suite is rewritten so that it means the same: the records stay, the labels are the new ones."""
    text = SMALL + "timing = { rounds = 3 }\n"
    suite = read_suite(text)
    store = Store(tmp_path / "run")
    store.prepare(suite, plan(suite))
    for cell in plan(suite):
        if cell.kind == "timing":
            store.write(Record(cell, "done", rounds={spec.label: [1.0, 2.0, 3.0] for spec in cell.losses}))
        else:
            store.write(*done(cell))
    rewritten = read_suite(
        text.replace('"w_softmax"]', '{ name = "w_softmax", alpha = 1 }]').replace(
            "channels = 4", 'preset = "mnist", channels = 4'
        )
    )
    store.prepare(rewritten, plan(rewritten))
    frame = load_records(store.root)
    assert len(frame) == 5
    assert set(frame["backbone"]) == {"cnn[preset=mnist,channels=4,depths=(1)]"}
    assert set(frame["rounds"].iloc[-1]) == {"softmax", "w_softmax[alpha=1.0]"}


def test_many_records_are_read_by_two_processes_with_the_same_result(store, suite_and_cells):
    """In a process of its own, since the one that runs the tests has threads."""
    for cell in suite_and_cells[1]:
        store.write(*done(cell))
    (store.cells / "notes.txt").write_text("hello")
    code = """if True:
        import os, sys
        from lossbench.store import records
        store = records.Store(sys.argv[1])
        alone = store.scan()
        os.sched_getaffinity = lambda pid: {0, 1}
        forked, fork = [], os.fork
        os.fork = lambda: forked.append(1) or fork()
        records.MANY = 2
        together = store.scan()
        assert forked and together == alone and list(together[0]) == list(alone[0]) and together[1]
    """
    subprocess.run([sys.executable, "-c", code, str(store.root)], check=True, timeout=60)
