"""A forecast is the sum of what each kind of cell costs, and long runs say so before they begin."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import SMALL

from lossbench import api
from lossbench.core import gpus
from lossbench.core.errors import LossbenchError
from lossbench.core.format import Schedule
from lossbench.engines import local
from lossbench.plan.cells import plan, unique
from lossbench.plan.forecast import (
    CODE_SECONDS,
    FRESH_SECONDS,
    START_SECONDS,
    Forecast,
    forecast,
    in_words,
    kind_of,
    kinds,
)


@pytest.fixture
def cells(read_suite):
    return unique(plan(read_suite(SMALL.replace("widths = [8]", "widths = [8, 64]") + "warm_start = { steps = 4 }\n")))


def test_losses_and_seeds_are_of_one_kind_and_widths_are_not(cells):
    assert [cell.width for cell in kinds(cells)] == [64, 8]


def test_the_forecast_is_the_sum_over_the_cells_divided_by_the_lanes(cells):
    costs = [
        {"kind": kind_of(cell), "step": cell.width / 1000, "score": 0.5, "bytes": cell.width * 1000}
        for cell in kinds(cells)
    ]
    by_hand = 0.0
    for cell in cells:
        by_hand += START_SECONDS + cell.width / 1000 * cell.schedule.steps + (0.5 if cell.kind == "train" else 0)
    found = forecast(cells, costs, jobs=2)
    assert found.seconds == pytest.approx(by_hand / 2)
    assert (found.bytes, found.measured, found.kinds) == (64_000, 2, 2)
    assert forecast(cells, costs[:1], jobs=1).seconds > found.seconds  # the unmeasured kind costs as the known one
    assert forecast(cells, [], jobs=2).measured == 0


def test_the_forecast_counts_the_processes_of_timing_cells_their_warm_up_rounds_and_no_lanes(read_suite):
    cells = plan(read_suite(SMALL + "timing = { rounds = 7, steps = 2, processes = 3 }\n"))
    (kind,) = kinds(cells)
    costs = [{"kind": kind_of(kind), "step": 0.25, "score": 0.5, "bytes": 1}]
    trained = forecast(cells[:-1], costs, jobs=2).seconds
    steps = (7 + 3) * 2 * len(cells[-1].losses)
    alone = START_SECONDS + 3 * FRESH_SECONDS + 0.25 * steps
    assert forecast(cells, costs, jobs=2).seconds == pytest.approx(trained + alone)


def test_the_forecast_counts_the_code_that_compiled_cells_read_and_the_kinds_that_are_not_compiled_yet(cells):
    fast = [replace(cell, compile=True, key="") for cell in cells]
    assert {kind_of(cell) for cell in fast}.isdisjoint(kind_of(cell) for cell in cells)
    cost = {"step": 0.1, "score": 0.5, "bytes": 1}
    eager = forecast(cells, [{"kind": kind_of(cell), **cost} for cell in kinds(cells)], jobs=2)
    assert eager.saved is None
    costs = [{"kind": kind_of(cell), **cost, "compile": 30.0, "eager": 0.3} for cell in kinds(fast)]
    read = CODE_SECONDS * len(cells) / 2
    found = forecast(fast, costs, jobs=2)  # the probe has compiled both kinds
    assert found.seconds == pytest.approx(eager.seconds + read)
    steps = sum(cell.schedule.steps for cell in cells)
    assert found.saved == pytest.approx((0.3 - 0.1) * steps / 2 - read)
    later = forecast(fast, costs[:1], jobs=2)  # one of them is still to be compiled, as long as the other took
    assert later.seconds == pytest.approx(found.seconds + 30)
    assert later.saved == pytest.approx(found.saved - 30)


def test_a_run_whose_cells_are_too_short_to_be_compiled_says_so():
    longer = "; compile = true makes it 20 seconds longer, as its cells are short"
    assert in_words(Forecast(60, 2**20, 1, 1, saved=-20.0)).endswith(f"per cell{longer}")
    for saved in (None, 0.0, 500.0):
        assert in_words(Forecast(60, 2**20, 1, 1, saved=saved)) == in_words(Forecast(60, 2**20, 1, 1))


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(5, "about 5 seconds"), (119, "about 119 seconds"), (600, "about 10 minutes"), (86_400, "about 24 hours")],
)
def test_the_forecast_is_told_in_words(seconds, told):
    assert in_words(Forecast(seconds, 300 * 2**20, 1, 1)) == f"{told}, up to 300 MiB per cell"


def test_real_steps_give_a_forecast_near_what_the_run_takes(tmp_path):
    text = SMALL.replace("steps = 6", "steps = 300").replace("seeds = 2", "seeds = 1")
    (tmp_path / "suite.toml").write_text(text)
    job = api.prepare(tmp_path / "suite.toml")
    expected = api.predict(job, job.chosen, jobs=1)
    assert expected.measured == expected.kinds == 1
    ran = api.run(tmp_path / "suite.toml", out=tmp_path / "run", reports=None, jobs=1)
    took = ran.records["seconds_train"].sum()
    assert took / 3 < expected.seconds < 6 * took + 5  # right by its order: machines are noisy


def test_a_run_longer_than_an_hour_says_so_first_and_names_what_is_shorter(tmp_path, read_suite):
    (tmp_path / "suite.toml").write_text(
        SMALL + "\n[profile.longer]\nall = { schedule = { steps = 600 } }\n"
        "[profile.tiny]\nall = { schedule = { steps = 1 } }\n[profile.short]\nall = { schedule = { steps = 2 } }\n"
    )
    job = api.prepare(tmp_path / "suite.toml")
    told = api._opening(job, Forecast(3 * 3600, 2**20, 1, 1))
    assert told == "this will take about 3 hours, up to 1 MiB per cell; shorter: --profile tiny, --profile short"
    assert "shorter" not in api._opening(job, Forecast(600, 2**20, 1, 1))


def test_gpus_are_those_named_or_those_the_driver_lists(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-abc")
    assert gpus.visible() == ["2", "GPU-abc"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert gpus.visible() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: x)'; echo 'GPU 1: B (UUID: y)'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert gpus.visible() == ["0", "1"]
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert gpus.visible() == []


def test_cells_that_want_a_gpu_get_one_each_and_none_is_one_sentence(read_suite, monkeypatch):
    cells = plan(read_suite(SMALL + 'device = "cuda"\n'))
    monkeypatch.setattr(gpus, "visible", list)
    with pytest.raises(LossbenchError, match='device = "cuda", but this machine has no GPU'):
        local.gpus_for(cells)
    monkeypatch.setattr(gpus, "visible", lambda: ["0", "3"])
    assert local.gpus_for(cells) == ["0", "3"]
    assert local.gpus_for(plan(read_suite(SMALL))) == []


def test_a_cell_sees_the_gpu_it_was_given_and_no_other(tmp_path, lossbench, monkeypatch):
    """Two pretended GPUs, four cells: each process sees one of them. That torch finds no driver is their end."""
    from conftest import write_loss

    say = "print('sees', os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True)"
    write_loss(tmp_path, "says", "pass", constructor=say)
    suite = SMALL.replace('"w_softmax"]', '"says"]').replace("seeds = 2", "seeds = 4") + 'device = "cuda"\n'
    (tmp_path / "suite.toml").write_text(suite)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    ran = lossbench("run", "suite.toml", "--no-report", "-j", "4", "-l", "says")
    assert ran.returncode == 1
    seen = [path.read_text() for path in (tmp_path / "runs/small/logs").glob("*.log")]
    assert {line for text in seen for line in text.splitlines() if line.startswith("sees")} == {"sees 5", "sees 7"}


def test_a_machine_without_a_gpu_refuses_before_anything_is_written(tmp_path, lossbench, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "suite.toml").write_text(SMALL + 'device = "cuda"\n')
    ran = lossbench("run", "suite.toml")
    assert ran.returncode == 2 and 'use device = "cpu"' in ran.stderr and "Traceback" not in ran.stderr
    assert not (tmp_path / "runs").exists()


def test_cells_whose_epochs_are_unknown_are_named_in_the_forecast(read_suite):
    cell = plan(read_suite(SMALL))[0]
    unknown = replace(cell, schedule=Schedule(epochs=2.0), key="")
    costs = [{"kind": kind_of(cell), "step": 1.0, "score": 0.0, "bytes": 0}]
    assert "unknown" not in in_words(forecast([cell], costs, 1))
    assert "without 1 cells whose number of steps is unknown" in in_words(forecast([cell, unknown], costs, 1))
