"""Step times: measured alone, paired by round, split into phases; disturbed rounds are seen and repeated."""

from __future__ import annotations

import multiprocessing
import time
from itertools import groupby

import numpy as np
import pytest
from conftest import SMALL, write_loss
from hypothesis import given
from hypothesis import strategies as st

from lossbench.core.format import Timing
from lossbench.core.model import Cell, Record
from lossbench.data import data_folder
from lossbench.plan.cells import plan
from lossbench.plugins.registry import Registry
from lossbench.training import cell as train
from lossbench.training import timing

TIMED = SMALL + "timing = { rounds = 5, steps = 3, processes = 2 }\n"


@pytest.fixture
def timing_cell(read_suite):
    return next(cell for cell in plan(read_suite(TIMED)) if cell.kind == "timing")


def record_of(cell: Cell, registry: Registry) -> Record:
    """The record of a timing cell whose shares are all measured in this process."""
    shares = [train.run_share(cell, registry, data_folder(), process) for process in range(cell.timing.processes)]
    return timing.joined(cell, shares)


def test_every_loss_has_every_round_and_the_phases_add_up(timing_cell, registry):
    record = record_of(timing_cell, registry)
    assert list(record.rounds) == ["softmax", "w_softmax"]
    for label, seconds in record.rounds.items():
        phases = record.timing["phases"][label]
        assert set(phases) == {"forward", "backward", "optimizer"}
        assert np.sum(list(phases.values()), axis=0) == pytest.approx(seconds)
        assert len(seconds) == 5 and min(seconds) > 0
    assert record.timing["process"] == [0, 0, 0, 1, 1]
    assert record.seconds["train"] == pytest.approx(3 * sum(map(sum, record.rounds.values())))
    assert record.environment["fingerprint"]


def test_the_record_has_the_rounds_of_all_processes_in_order_and_the_sums_of_their_disturbances(timing_cell):
    def share(rounds: list[float], disturbed: int, repeated: int, peak: int) -> timing.Share:
        phases = {
            "forward": rounds,
            "backward": [2 * seconds for seconds in rounds],
            "optimizer": [3 * seconds for seconds in rounds],
        }
        both = {"softmax": phases, "w_softmax": {name: [7 * one for one in parts] for name, parts in phases.items()}}
        counts = {"disturbed": disturbed, "repeated": repeated, "peak": peak}
        return {"phases": both, **counts, "environment": {"fingerprint": str(peak)}}

    record = timing.joined(timing_cell, [share([1.0, 2.0, 3.0], 1, 5, 70), share([4.0, 5.0], 2, 3, 60)])
    assert record.rounds["softmax"] == [6.0, 12.0, 18.0, 24.0, 30.0]
    assert record.rounds["w_softmax"] == [42.0, 84.0, 126.0, 168.0, 210.0]
    assert record.timing["phases"]["softmax"]["backward"] == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert (record.timing["disturbed"], record.timing["repeated"], record.bytes["peak"]) == (3, 8, 70)
    assert record.environment == {"fingerprint": "70"}


@given(rounds=st.integers(3, 300), data=st.data())
def test_rounds_are_spread_evenly_over_the_processes(rounds, data):
    processes = data.draw(st.integers(2, min(rounds, 100)))
    table = Timing(rounds=rounds, processes=processes)
    shares = [table.share(process) for process in range(processes)]
    assert sum(shares) == rounds and max(shares) - min(shares) <= 1 and min(shares) >= 1


def test_rounds_visit_every_loss_in_shuffled_order_on_the_same_batches(timing_cell, registry, monkeypatch):
    visits: list[tuple[int, str, tuple[float, ...]]] = []
    real = timing._visit

    def visit(state, ready):
        visits.append((process, type(state.loss).__module__, tuple(images.sum().item() for images, _ in ready)))
        return real(state, ready)

    monkeypatch.setattr(timing, "_visit", visit)
    monkeypatch.setattr(timing, "QUIET", 0)
    for process in range(2):
        train.run_share(timing_cell, registry, data_folder(), process)
    rounds = [(*key, [loss for _, loss, _ in mine]) for key, mine in groupby(visits, lambda one: (one[0], one[2]))]
    assert [process for process, *_ in rounds] == [0] * (1 + 3) + [1] * (1 + 2)  # each begins with a warm-up
    assert all(len(losses) == len(set(losses)) == 2 for *_, losses in rounds)
    assert len({losses[0] for *_, losses in rounds}) == 2  # either loss goes first now and then
    assert len({batches for _, batches, _ in rounds}) == len(rounds)  # and no two rounds see the same batches


def test_every_process_has_its_own_order_of_building_and_of_visiting(read_suite, registry, monkeypatch):
    many = ", ".join(f'"elasticface[s={scale}.0]"' for scale in range(1, 7))
    text = TIMED.replace('"w_softmax"]', f"{many}]").replace("rounds = 5", "rounds = 6")
    cell = plan(read_suite(text))[-1]
    built: list[list[str]] = []
    visited: list[list[str]] = []
    real = timing.build
    labels: dict[int, str] = {}

    def build(cell, spec, *others):
        state = real(cell, spec, *others)
        labels[id(state)] = spec.label
        built[-1].append(spec.label)
        return state

    def visit(state, ready):
        visited[-1].append(labels[id(state)])
        return [0.1, 0.1, 0.1]

    monkeypatch.setattr(timing, "build", build)
    monkeypatch.setattr(timing, "_visit", visit)
    monkeypatch.setattr(timing, "QUIET", 0)
    for process in (0, 1, 0):
        built.append([])
        visited.append([])
        labels.clear()
        train.run_share(cell, registry, data_folder(), process)
    for orders in (built, visited):
        assert orders[0] == orders[2] != orders[1]  # derived from the seed and the number of the process
        assert sorted(orders[0]) == sorted(orders[1])


def fake_clock(monkeypatch, is_quiet) -> None:
    """Rounds give their own number as the time of the optimizer; in those that are not quiet, others had the core."""
    clock = {"wall": 0.0, "busy": 0.0, "visits": 0}

    def visit(state, ready):
        number = clock["visits"] // 2
        clock["visits"] += 1
        clock["wall"] += 1.0
        clock["busy"] += 1.0 if is_quiet(number) else 0.5
        return [0.1, 0.1, 0.1 + number]

    monkeypatch.setattr(timing, "_visit", visit)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock["wall"])
    monkeypatch.setattr(timing.time, "process_time", lambda: clock["busy"])


def kept(share: timing.Share) -> list[int]:
    """The numbers of the rounds that a share consists of, with `fake_clock`."""
    return [round(seconds - 0.1) for seconds in share["phases"]["softmax"]["optimizer"]]


def test_a_round_that_lost_its_core_is_repeated(timing_cell, registry, monkeypatch):
    fake_clock(monkeypatch, lambda number: number not in (1, 3))
    share = timing.time_share(timing_cell, registry, train.load_dataset("digits"), 0)
    assert kept(share) == [2, 4, 5] and (share["disturbed"], share["repeated"]) == (0, 2)


def test_a_machine_that_is_never_quiet_is_told(timing_cell, registry, monkeypatch):
    fake_clock(monkeypatch, lambda number: False)
    share = timing.time_share(timing_cell, registry, train.load_dataset("digits"), 0)
    assert kept(share) == [7, 8, 9] and (share["disturbed"], share["repeated"]) == (3, 9)


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
    """The last rounds are quiet, and too few: the stand-in is another round, and only one."""
    fake_clock(monkeypatch, lambda number: number in (8, 9))
    share = timing.time_share(timing_cell, registry, train.load_dataset("digits"), 0)
    assert kept(share) == [7, 8, 9] and share["disturbed"] == 1


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
    record = record_of(cell, registry)
    beside.kill()
    beside.join()
    more = np.array(record.rounds["lazy"]) - np.array(record.rounds["softmax"])
    assert 0.01 < np.median(more) < 0.1  # a busy machine stretches both losses, by unequal amounts
    in_forward = np.array(record.timing["phases"]["lazy"]["forward"]) - record.timing["phases"]["softmax"]["forward"]
    assert 0.01 < np.median(in_forward) < 0.1
