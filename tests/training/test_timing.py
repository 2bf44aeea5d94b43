"""Step times: measured alone, paired by round, split into phases; disturbed rounds are seen and repeated."""

from __future__ import annotations

import itertools
import multiprocessing
import time

import numpy as np
import pytest
from conftest import SMALL, write_loss
from hypothesis import given
from hypothesis import strategies as st

from lossbench.data import data_folder
from lossbench.plan.cells import plan
from lossbench.plugins.registry import Registry
from lossbench.training import cell as train
from lossbench.training import timing

TIMED = SMALL + "timing = { rounds = 5, steps = 3 }\n"


@pytest.fixture
def timing_cell(read_suite):
    return next(cell for cell in plan(read_suite(TIMED)) if cell.kind == "timing")


def test_every_loss_has_every_round_and_the_phases_add_up(timing_cell, registry):
    record = train.run(timing_cell, registry, data_folder()).record
    assert set(record.rounds) == {"softmax", "w_softmax"}
    for label, seconds in record.rounds.items():
        phases = record.timing["phases"][label]
        assert set(phases) == {"forward", "backward", "optimizer"}
        assert np.sum(list(phases.values()), axis=0) == pytest.approx(seconds)
        assert len(seconds) == 5 and min(seconds) > 0
    assert record.environment["fingerprint"]


def test_rounds_visit_every_loss_in_shuffled_order_on_the_same_batches(timing_cell, registry, monkeypatch):
    visits = []
    real = timing._visit

    def visit(state, ready):
        visits.append((type(state.loss).__module__, [images.sum().item() for images, _ in ready]))
        return real(state, ready)

    monkeypatch.setattr(timing, "_visit", visit)
    train.run(timing_cell, registry, data_folder())
    rounds = (
        list(itertools.batched(visits, 2))
        if hasattr(itertools, "batched")
        else list(zip(visits[::2], visits[1::2], strict=True))
    )
    assert all(first[0] != second[0] and first[1] == second[1] for first, second in rounds)
    assert len({first[0] for first, _ in rounds}) == 2  # either loss goes first now and then
    assert len({tuple(first[1]) for first, _ in rounds}) == len(rounds)  # and no two rounds see the same batches


@pytest.mark.parametrize("disturbed", [{1, 3}, set(range(1, 100))])
def test_a_round_that_lost_its_core_is_repeated_and_a_machine_that_is_never_quiet_is_told(
    timing_cell, registry, monkeypatch, disturbed
):
    """The clock of this process stands still in a disturbed round: somebody else had the core."""
    clock = {"wall": 0.0, "busy": 0.0, "visits": 0}

    def visit(state, ready):
        number = clock["visits"] // 2
        clock["visits"] += 1
        clock["wall"] += 1.0
        clock["busy"] += 0.5 if number in disturbed else 1.0
        return [0.1, 0.1, 0.1 + number]

    monkeypatch.setattr(timing, "_visit", visit)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock["wall"])
    monkeypatch.setattr(timing.time, "process_time", lambda: clock["busy"])
    record = timing.time_losses(timing_cell, registry, train.load_dataset("digits"))
    kept = [round(seconds - 0.3) for seconds in record.rounds["softmax"]]
    if len(disturbed) == 2:
        assert kept == [2, 4, 5, 6, 7] and record.timing["disturbed"] == 0 and record.timing["repeated"] == 2
    else:
        assert kept == [11, 12, 13, 14, 15] and record.timing["disturbed"] == 5


@given(st.integers(1, 12), st.data())
def test_exactly_the_wanted_rounds_are_kept_each_once_and_in_order_whichever_were_quiet(wanted, data):
    quiet = data.draw(st.lists(st.booleans(), min_size=wanted, max_size=timing.PATIENCE * wanted))
    kept = timing.chosen(quiet, wanted)
    assert len(kept) == wanted
    assert kept == sorted(set(kept)) and set(kept) <= set(range(len(quiet)))
    good = [place for place, is_quiet in enumerate(quiet) if is_quiet]
    assert [place for place in kept if quiet[place]] == good[:wanted]  # no quiet round gives way to a disturbed one
    stand_ins = [place for place in kept if not quiet[place]]
    passed_over = [place for place in range(len(quiet)) if place not in kept and not quiet[place]]
    assert all(place < stand_in for place in passed_over for stand_in in stand_ins)  # the last ones stand in


def test_quiet_rounds_at_the_end_cost_no_round(timing_cell, registry, monkeypatch):
    """The last rounds are quiet, and too few: the stand-ins are other rounds, and as many as are missing."""
    clock = {"wall": 0.0, "busy": 0.0, "visits": 0}

    def visit(state, ready):
        number = clock["visits"] // 2
        clock["visits"] += 1
        clock["wall"] += 1.0
        clock["busy"] += 1.0 if number in (1, 14, 15) else 0.5
        return [0.1, 0.1, 0.1 + number]

    monkeypatch.setattr(timing, "_visit", visit)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock["wall"])
    monkeypatch.setattr(timing.time, "process_time", lambda: clock["busy"])
    record = timing.time_losses(timing_cell, registry, train.load_dataset("digits"))
    kept = [round(seconds - 0.3) for seconds in record.rounds["softmax"]]
    assert kept == [1, 12, 13, 14, 15]
    assert record.timing["disturbed"] == 2


def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_slower_loss_is_found_slower_whatever_runs_beside_it(tmp_path, read_suite):
    """A loss that waits twice a step's time takes about three steps' time, paired round by round, under real load."""
    write_loss(tmp_path, "lazy", "end = time.perf_counter() + 0.02\n        while time.perf_counter() < end: pass")
    registry = Registry([tmp_path])
    text = TIMED.replace('"w_softmax"]', '"lazy"]')
    cell = next(cell for cell in plan(read_suite(text, plugins=registry)) if cell.kind == "timing")
    beside = multiprocessing.get_context("spawn").Process(target=burn, args=(5,))
    beside.start()
    record = train.run(cell, registry, data_folder()).record
    beside.kill()
    beside.join()
    more = np.array(record.rounds["lazy"]) - np.array(record.rounds["softmax"])
    assert np.median(more) == pytest.approx(0.02, rel=0.5)
    in_forward = np.array(record.timing["phases"]["lazy"]["forward"]) - record.timing["phases"]["softmax"]["forward"]
    assert np.median(in_forward) == pytest.approx(0.02, rel=0.5)
