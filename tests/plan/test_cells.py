"""From a suite to cells: what is trained, in which order, and what makes two cells the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from conftest import SMALL, write_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.suites import TUNED

from lossbench.core.model import Cell
from lossbench.plan.cells import plan, unique
from lossbench.plan.selection import Selection, select
from lossbench.plugins.registry import Registry

WARM = SMALL + 'warm_start = { loss = "softmax[bias=false]", steps = 3 }\n'


def test_the_grid_is_complete_and_seeds_go_outermost(read_suite):
    cells = plan(read_suite(SMALL.replace("widths = [8]", 'widths = [8, "min"]')))
    seen = [(cell.seed, cell.width, cell.loss.label) for cell in cells]
    assert seen == [(s, m, loss) for s in (0, 1) for m in (8, 9) for loss in ("softmax", "w_softmax")]


def test_min_is_one_less_than_the_classes_and_equal_widths_count_once(read_suite):
    text = SMALL.replace("widths = [8]", 'widths = ["min", 4, 9]').replace("seeds = 2", "seeds = 1\nclasses = [5, 10]")
    cells = plan(read_suite(text))
    assert {(cell.classes, cell.width) for cell in cells} == {(5, 4), (5, 9), (10, 9), (10, 4)}
    assert {cell.dataset.label for cell in cells} == {"digits[classes=5]", "digits[classes=10]"}
    assert len(unique(cells)) == len(cells) == 8


def test_a_warm_start_is_shared_and_stands_before_those_that_need_it(read_suite):
    cells = plan(read_suite(WARM))
    assert [cell.kind for cell in cells] == ["warm", "train", "train"] * 2
    assert cells[1].warm_cell().key == cells[2].warm_cell().key == cells[0].key
    assert cells[0].schedule.steps == 3
    assert cells[0].key != cells[3].key


def test_timing_cells_hold_all_losses_and_come_last(read_suite):
    cells = plan(read_suite(SMALL + "timing = { rounds = 3, steps = 1 }\n"))
    assert [cell.kind for cell in cells] == ["train"] * 4 + ["timing"]
    assert [spec.label for spec in cells[-1].losses] == ["softmax", "w_softmax"]


@pytest.mark.parametrize(
    ("table", "processes"), [("rounds = 3", 3), ("rounds = 9", 5), ("rounds = 9, processes = 2", 2)]
)
def test_the_rounds_of_a_timing_cell_are_those_of_five_processes_or_as_many_as_it_has_rounds(
    read_suite, table, processes
):
    cell = plan(read_suite(SMALL + f"timing = {{ {table} }}\n"))[-1]
    assert cell.timing.processes == processes


def test_the_processes_of_a_timing_cell_are_in_its_key_and_in_no_other(read_suite):
    two, three = (plan(read_suite(SMALL + f"timing = {{ processes = {count} }}\n")) for count in (2, 3))
    same = [one.key == other.key for one, other in zip(two, three, strict=True)]
    assert same == [cell.kind != "timing" for cell in two]


def test_a_cell_that_two_experiments_share_has_one_key(read_suite):
    again = SMALL.partition('suite"\n')[2].replace('name = "digits"', 'name = "again"')
    cells = plan(read_suite(SMALL + again))
    assert len(cells) == 8
    assert len(unique(cells)) == 4
    assert {cell.experiment for cell in unique(cells)} == {"digits"}


def test_however_an_option_is_written_the_cell_is_the_same(read_suite):
    written = SMALL.replace('"w_softmax"]', '{ name = "w_softmax", gradient = "exact", alpha = 1 }]')
    assert [cell.key for cell in plan(read_suite(written))] == [cell.key for cell in plan(read_suite(SMALL))]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("steps = 6", "steps = 7"),
        ("batch = 16", "batch = 17"),
        ("channels = 4", "channels = 5"),
        ("widths = [8]", "widths = [7]"),
        ("seeds = 2", "seeds = [2, 3]"),
        ("batch = 16", "batch = 16, lr = 0.5"),
        ("seeds = 2", "seeds = 2\nthreads = 2"),
        ('dataset = "digits"', 'dataset = { name = "digits", train = 100 }'),
    ],
)
def test_everything_that_decides_the_result_changes_the_key(read_suite, old, new):
    before = {cell.key for cell in plan(read_suite(SMALL))}
    after = {cell.key for cell in plan(read_suite(SMALL.replace(old, new)))}
    assert not before & after


def test_names_and_titles_do_not_change_the_key(read_suite):
    renamed = SMALL.replace('name = "digits"\ndataset', 'name = "other"\ndataset').replace("A small", "Another")
    assert [cell.key for cell in plan(read_suite(renamed))] == [cell.key for cell in plan(read_suite(SMALL))]


def test_editing_a_loss_changes_its_cells_and_no_others(tmp_path, read_suite):
    path = write_loss(tmp_path, "mine", "pass")
    text = SMALL.replace('"w_softmax"]', '"mine"]')
    before = {cell.loss.name: cell.key for cell in plan(read_suite(text, plugins=Registry([tmp_path])))}
    path.write_text(path.read_text().replace("* 0.1", "* 0.2"))
    after = {cell.loss.name: cell.key for cell in plan(read_suite(text, plugins=Registry([tmp_path])))}
    assert before["softmax"] == after["softmax"]
    assert before["mine"] != after["mine"]


def test_filters_choose_cells_and_keep_the_warm_starts_they_need(read_suite):
    cells = plan(read_suite(WARM.replace("widths = [8]", "widths = [8, 9]") + "timing = { rounds = 3 }\n"))
    chosen = select(cells, Selection(losses=["w_softmax"], widths=[9], seeds=[1]))
    assert [(cell.kind, cell.width, cell.seed) for cell in chosen] == [("warm", 9, 1), ("train", 9, 1)]
    assert {cell.kind for cell in select(cells, Selection(widths=[8]))} == {"warm", "train", "timing"}
    assert select(cells, Selection(losses=["nothing"])) == []


def test_a_cell_survives_the_way_through_json(read_suite):
    for cell in plan(read_suite(WARM + "timing = { rounds = 3 }\n")):
        back = Cell.from_json(json.loads(json.dumps(cell.to_json())))
        assert back == cell
        assert back.computed_key() == cell.key


def test_a_trial_of_an_older_plan_has_its_number_in_its_label(read_suite):
    trials = [cell for cell in plan(read_suite(TUNED)) if cell.kind == "trial"]
    for cell in trials:
        older = cell.to_json()
        older["losses"][0]["label"] += f" trial {older.pop('trial')}"
        assert Cell.from_json(older) == cell
        assert Cell.from_json(older).key == cell.key


@settings(max_examples=15)
@given(
    seeds=st.integers(1, 5),
    widths=st.lists(st.integers(1, 30), min_size=1, max_size=4, unique=True),
    k=st.integers(2, 10),
)
def test_the_number_of_cells_is_the_product_of_the_grid(read_suite, seeds, widths, k):
    text = SMALL.replace("seeds = 2", f"seeds = {seeds}\nclasses = [{k}]").replace("widths = [8]", f"widths = {widths}")
    cells = plan(read_suite(text))
    assert len(cells) == seeds * len(widths) * 2
    assert len({cell.key for cell in cells}) == len(cells)
    assert all(replace(cell, key="").key == cell.key for cell in cells)
