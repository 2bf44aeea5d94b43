"""Which cell runs when, tried with an engine that trains nothing: the protocol is all that the scheduler knows."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from conftest import SMALL

from lossbench import engines
from lossbench.core.errors import LossbenchError, RunError, StoreError
from lossbench.core.model import Record
from lossbench.engines import scheduler
from lossbench.engines.protocol import Ended, Engine, Resources, Started
from lossbench.engines.scheduler import Rules
from lossbench.plan.cells import plan, unique
from lossbench.store.records import Store

WARM = SMALL + "warm_start = { steps = 3 }\n"


class Pretended(Engine):
    """Starts what is submitted and ends it in the same order, as `fates` says by the label of the loss."""

    def __init__(self, store: Store, jobs: int = 2, gpus: int = 0, **fates) -> None:
        self.store, self.jobs, self.gpus, self.fates = store, jobs, gpus, fates
        self.queue, self.log, self.started, self.most = [], [], set(), 0

    @contextmanager
    def open(self, cells, setting):
        yield

    def size(self, device="cpu"):
        return self.jobs if device == "cpu" else self.gpus

    def submit(self, cell):
        self.queue.append(cell)
        self.log.append(cell.kind)
        self.most = max(self.most, len(self.queue))

    def events(self):
        if not self.queue:
            return
        cell = self.queue[0]
        fate = self.fates.get(cell.label, "done")
        if cell.key not in self.started:
            self.started.add(cell.key)
            yield Started(cell.key)
        if fate == "hangs" and ("cancel", cell.key) not in self.log:
            time.sleep(0.01)
            return
        self.queue.pop(0)
        self.started.discard(cell.key)
        if fate == "done":
            bits, state = np.array([True, False]), b"state" if cell.kind == "warm" else None
            self.store.write(Record(cell, "done", correct=1, total=2), bits, state)
            yield Ended(cell.key)
        else:
            yield Ended(cell.key, Record(cell, "failed", "it broke", None if fate == "hangs" else fate))

    def cancel(self, key):
        self.log.append(("cancel", key))


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "run")


def run(read_suite, store, engine, text=WARM, **rules):
    """What the store has in the end, as pairs of label and status, and the events and sentences on the way."""
    events, said = [], []
    cells = unique(plan(read_suite(text)))
    scheduler.execute(cells, engine, store, Rules(**rules), events.append, said.append)
    found = {cell.key: store.read(cell.key) for cell in cells}
    return sorted((record["label"], record["status"]) for record in found.values() if record), events, said


def test_every_cell_gets_a_record_and_warm_starts_come_first(read_suite, store):
    engine = Pretended(store, jobs=3)
    found, events, _ = run(read_suite, store, engine)
    assert [status for _, status in found] == ["done"] * 6
    assert engine.log == ["warm"] * 2 + ["train"] * 4
    assert engine.most <= 3
    assert sorted(event.kind for event in events) == ["ended"] * 6 + ["started"] * 6
    assert all(event.record["status"] == "done" for event in events if event.kind == "ended")


def test_a_cell_waits_for_its_own_warm_start_only(read_suite, store):
    engine = Pretended(store, jobs=2)
    order = []
    real = engine.submit
    engine.submit = lambda cell: (order.append((cell.kind, cell.seed)), real(cell))
    run(read_suite, store, engine)
    for seed in (0, 1):
        assert order.index(("warm", seed)) < order.index(("train", seed))


def test_a_late_warm_start_begins_while_there_is_other_work(read_suite, store):
    """Three seeds on two cores: the third warm start (9 steps) runs beside cells (6 steps) of the first two."""
    engine = Pretended(store, jobs=2)
    order = []
    real = engine.submit
    engine.submit = lambda cell: (order.append((cell.kind, cell.seed)), real(cell))
    run(read_suite, store, engine, WARM.replace("steps = 3", "steps = 9").replace("seeds = 2", "seeds = 3"))
    later = order[order.index(("warm", 2)) + 1 :]
    assert len([seed for _, seed in later if seed != 2]) >= 2


def test_a_short_warm_start_waits_for_its_turn(read_suite, store):
    engine = Pretended(store, jobs=1)
    run(read_suite, store, engine)
    assert engine.log == ["warm", "train", "train"] * 2


def test_a_failed_warm_start_fails_those_that_need_it_with_its_cause(read_suite, store):
    found, events, _ = run(read_suite, store, Pretended(store, **{"warm start: softmax": "plugin"}))
    assert {status for _, status in found} == {"failed"} and len(found) == 6
    needing = [event.record for event in events if event.kind == "ended" and event.cell.kind == "train"]
    assert all("its warm start" in record["error"] and record["cause"] == "plugin" for record in needing)


def test_timing_cells_run_alone(read_suite, store):
    engine = Pretended(store, jobs=4)
    busy = []
    real = engine.submit
    engine.submit = lambda cell: (busy.append(([c.kind for c in engine.queue], cell.kind)), real(cell))
    run(read_suite, store, engine, SMALL + "timing = { rounds = 3, steps = 1 }\n")
    assert ([], "timing") in busy
    assert all("timing" not in others and (kind != "timing" or not others) for others, kind in busy)


def test_what_fails_because_of_the_environment_is_tried_as_often_as_the_engine_allows(read_suite, store):
    engine = Pretended(store, softmax="environment", w_softmax="plugin")
    engine.attempts = 3
    found, _, said = run(read_suite, store, engine, SMALL)
    assert {status for _, status in found} == {"failed"}
    assert len(engine.log) == 2 * 3 + 2 * 1  # what the plugin did would happen again
    assert len(said) == 2 * 2 and all(text.endswith("it broke; trying again") for text in said)
    errors = {record["error"] for record in store.scan()[0].values()}
    assert errors == {"it broke (tried 3 times)", "it broke"}


def test_an_engine_with_one_attempt_retries_nothing(read_suite, store):
    engine = Pretended(store, softmax="environment")
    run(read_suite, store, engine, SMALL)
    assert len(engine.log) == 4
    assert "it broke" in {record["error"] for record in store.scan()[0].values()}


def test_a_cell_that_takes_too_long_is_cancelled_and_a_timeout(read_suite, store):
    engine = Pretended(store, softmax="hangs")
    engine.attempts = 3
    found, _, said = run(read_suite, store, engine, SMALL, timeout=0.05)
    assert dict(found) == {"softmax": "timeout", "w_softmax": "done"} and not said
    late = next(record for record in store.scan()[0].values() if record["status"] == "timeout")
    assert (late["error"], late["cause"]) == ("killed after 0.05 seconds", "environment")


def test_an_engine_that_keeps_the_limit_itself_is_given_its_patience(read_suite, store):
    engine = Pretended(store, jobs=1)
    engine.patience = 60
    found, *_ = run(read_suite, store, engine, SMALL, timeout=0)
    assert {status for _, status in found} == {"done"}


def test_fail_fast_starts_nothing_new_after_a_failure(read_suite, store):
    engine = Pretended(store, jobs=1, softmax="plugin")
    run(read_suite, store, engine, SMALL, fail_fast=True)
    assert len(engine.log) == 1


def test_cells_on_a_gpu_wait_for_one_and_those_on_the_cpu_do_not(read_suite, store):
    cuda = SMALL + 'device = "cuda"\n'
    engine = Pretended(store, jobs=4, gpus=1)
    found, *_ = run(read_suite, store, engine, cuda)
    assert len(found) == 4 and engine.most == 1


def test_records_that_are_there_are_kept_unless_they_are_to_be_redone(read_suite, store):
    cells = plan(read_suite(SMALL))
    for cell in cells:
        store.write(Record(cell, "failed", "before", "plugin"))
    engine = Pretended(store)
    _, events, _ = run(read_suite, store, engine, SMALL, redo=frozenset([cells[0].key]))
    assert engine.log == ["train"] and len(events) == 5
    assert store.read(cells[0].key)["status"] == "done"
    assert store.read(cells[1].key)["status"] == "failed"


def test_a_cell_that_another_run_holds_is_left_to_it(read_suite, store):
    cell = plan(read_suite(SMALL))[0]
    other, engine = Store(store.root), Pretended(store)

    def events():
        if not engine.queue:  # nothing is left but the cell that the other run holds: it finishes it now
            other.write(Record(cell, "diverged"))
            holding.close()
        return Pretended.events(engine)

    engine.events = events
    with ExitStack() as holding:
        assert holding.enter_context(other.claim(cell.key))
        _, seen, _ = run(read_suite, store, engine, SMALL)
    assert [event.kind for event in seen].count("held") == 1
    assert seen[-1].record["status"] == "diverged" and len(engine.log) == 3


def test_a_store_that_cannot_be_written_ends_the_run_with_its_sentence(read_suite, store, monkeypatch):
    def full(*_):
        raise StoreError("no space left")

    monkeypatch.setattr(store, "write", full)
    with pytest.raises(RunError, match="no space left"):
        run(read_suite, store, Pretended(store, softmax="plugin"), SMALL)


def test_an_engine_is_created_by_name_and_an_unknown_name_gets_the_nearest():
    assert set(engines.ENGINES) == {"local", "ray"}
    for name in engines.ENGINES:
        engine = engines.create(name, Resources(jobs=3))
        assert all(callable(getattr(engine, part)) for part in ("check", "open", "size", "submit", "events", "cancel"))
    with pytest.raises(LossbenchError, match="unknown engine 'rye'; did you mean 'ray'"):
        engines.create("rye", Resources())
