"""The first screen: which loss to use, per task, with what changes the reading."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import SMALL
from kit.synthetic import Truth, analysed, common, noise

from lossbench.report.blocks import Prose, Table
from lossbench.report.sections.answer import _untuned, _where, answer, caveats, sentences

LOSSES = ["softmax", "w_softmax", "center", "l_softmax", "a_softmax"]
GAIN = {"softmax": 0.0, "w_softmax": 3.0, "center": 0.0, "l_softmax": -2.0, "a_softmax": 0.0}
NOISE = {"a_softmax": 2.5}
TWO = (
    SMALL.replace('losses = ["softmax", "w_softmax"]', f"losses = {LOSSES}")
    .replace("seeds = 2", "seeds = 10")
    .replace('dataset = "digits"', 'dataset = ["digits", "glyphs[classes=10,size=12]"]')
)


def truth(cell, gain=GAIN, base=90.0, **more):
    level = base + common(cell.seed) + gain[cell.loss.name] + noise(cell, NOISE.get(cell.loss.name, 0.05))
    return Truth(level, **more)


def falling(steps=40, fall=1.0):
    """A learning curve that ends while it falls by `fall` per tenth of its steps."""
    return tuple({"step": 3 * step, "loss": 5.0 - fall * step / (steps / 10)} for step in range(steps))


@pytest.fixture(scope="module")
def results(read_suite):
    return analysed(read_suite(TWO), truth)


def said(results) -> str:
    return " ".join(f"{block.lead} {block.text}" for block in sentences(results))


def test_there_is_one_column_per_dataset_under_its_short_name(results):
    assert [column.name for column in results.answer.columns] == ["digits", "glyphs"]


def test_the_sentence_names_better_equivalent_and_worse_losses_with_their_size(results):
    text = said(results)
    assert text.startswith("Classification on digits and glyphs (10 seeds, default settings): w_softmax (on both, +")
    assert "is better than softmax" in text
    assert "center (on both, one seed decides) is equivalent (within ±0.5 points)" in text
    assert "l_softmax (on both, −2" in text and "is worse" in text
    assert "2 of 8 comparisons are undecided" in text


def test_where_nothing_is_better_the_sentence_says_by_how_much_at_most(read_suite):
    suite = read_suite(TWO.replace(', "a_softmax"', "").replace("'a_softmax'", "'center[strength=0.01]'"))
    found = analysed(suite, lambda cell: truth(cell, gain=dict.fromkeys(GAIN, 0.0)))
    text = said(found)
    assert "no loss is better than softmax by more than 0." in text
    assert "equivalent" in text and "worse" not in text


def test_where_every_loss_is_worse_no_bound_of_a_gain_is_given(read_suite):
    suite = read_suite(TWO.replace(', "a_softmax"', "").replace("'a_softmax'", "'center[strength=0.01]'"))
    found = analysed(suite, lambda cell: truth(cell, gain={**dict.fromkeys(GAIN, -3.0), "softmax": 0.0}))
    assert "default settings): no loss is better than softmax; " in said(found)


def test_a_loss_that_is_better_on_one_dataset_only_is_said_to_be(read_suite):
    def one(cell):
        return truth(cell, gain={**GAIN, "w_softmax": 3.0 if cell.dataset.name == "glyphs" else 0.0})

    assert "w_softmax (on glyphs, +" in said(analysed(read_suite(TWO), one))


def test_of_several_points_the_one_where_the_baseline_is_best_is_shown(read_suite):
    suite = read_suite(TWO.replace("widths = [8]", "widths = [4, 8, 16]"))
    found = analysed(suite, lambda cell: truth(cell, base=90.0 + 2 * (cell.width == 8)))
    assert {column.point["width"] for column in found.answer.columns} == {8}
    (table,) = (block for block in answer(found).blocks if isinstance(block, Table))
    assert "digits: C = 10, M = 8" in table.caption or "digits: M = 8" in table.caption


def test_an_undertrained_dataset_is_a_caveat_with_the_baselines_accuracy(read_suite):
    def short(cell):
        return truth(cell, curve=falling() if cell.dataset.name == "glyphs" else falling(fall=0.01))

    found = analysed(read_suite(TWO), short)
    line = caveats(found)[0]
    assert line.startswith("glyphs (89.96 %)") and "is undertrained" in line
    assert "digits" not in line
    flags = found.comparisons.groupby("dataset")["flags"].apply(lambda flags: flags.str.contains("undertrained").any())
    assert list(flags.sort_index()) == [False, True]


def test_a_loss_at_chance_is_not_tested_and_named(read_suite):
    def collapsed(cell):
        return truth(cell, gain={**GAIN, "l_softmax": -79.0})

    found = analysed(read_suite(TWO), collapsed)
    assert "l_softmax (on both) is at chance and not tested" in said(found)
    assert any("at chance, hence not tested: l_softmax (digits and glyphs)" in line for line in caveats(found))
    (table,) = (block for block in answer(found).blocks if isinstance(block, Table))
    assert next(row for row in table.rows if row[0] == "l_softmax")[1:3] == ("× at chance", "× at chance")


def test_a_loss_at_chance_outside_the_first_table_is_no_caveat_of_it(read_suite):
    def collapsed(cell):
        narrow = cell.width == 4
        return truth(cell, base=90.0 - narrow, gain={**GAIN, "l_softmax": -79.0 if narrow else -2.0})

    found = analysed(read_suite(TWO.replace("widths = [8]", "widths = [4, 8]")), collapsed)
    assert len(found.at_chance) == 2
    assert not any("at chance" in line for line in caveats(found))


def test_untuned_suites_and_few_seeds_are_caveats_and_there_are_three_at_most(read_suite):
    def everything(cell):
        lost = cell.loss.name == "center" and cell.seed == 0
        return truth(cell, gain={**GAIN, "l_softmax": -79.0}, curve=falling(), status="failed" if lost else "done")

    few = analysed(read_suite(TWO.replace("seeds = 10", "seeds = 4")), truth)
    assert any("only 4 seeds" in line for line in caveats(few))
    assert any("no loss was tuned" in line for line in caveats(few))
    found = caveats(analysed(read_suite(TWO), everything))
    assert len(found) == 3
    assert "center (2 cells)" in found[2]


def test_one_of_something_is_singular(read_suite):
    def lost(cell):
        failed = cell.loss.name == "center" and cell.seed == 0 and cell.dataset.name == "digits"
        return truth(cell, status="failed" if failed else "done")

    assert "did not finish: center (1 cell)." in caveats(analysed(read_suite(TWO), lost))

    def fragile(cell):  # one seed is far off
        off = 2.4 if cell.loss.name == "l_softmax" and cell.seed == 0 and cell.dataset.name == "digits" else 0.0
        return truth(cell, gain={**GAIN, "l_softmax": -1.0 + off})

    calm = read_suite(TWO.replace(", 'a_softmax'", ""))
    found = [line for line in caveats(analysed(calm, fragile)) if "marked" in line]
    assert found == ["1 verdict marked * depends on a single seed."]


def test_where_a_verdict_holds_is_counted_among_the_datasets_that_test_the_loss(results):
    first, second = results.answer.columns
    without = replace(second, dataset="letters", rows={})
    task = results.answer.tasks[0]
    for columns, met, expected in (
        ([first, second], [first], "on digits"),
        ([first, second], [first, second], "on both"),
        ([first, second, without], [first, second], "on both datasets tested"),
        ([first, second, first], [first, second, first], "on all 3"),
        ([first, second, first], [first, second], "on 2 of 3"),
    ):
        assert _where(replace(task, columns=columns), "w_softmax", met) == expected


def test_datasets_that_were_not_tuned_beside_others_that_were_are_a_caveat(results):
    first, second = results.answer.columns

    def told(*columns):
        return _untuned(SimpleNamespace(answer=replace(results.answer, columns=columns)))

    tuned = replace(first, tuned=True)
    expected = "only digits was tuned: elsewhere the order may change with other options or learning rates."
    assert told(tuned, first, second) == [expected]
    assert told(tuned, first) == []


def test_a_run_with_one_seed_has_no_answer_yet(read_suite):
    found = analysed(read_suite(TWO.replace("seeds = 10", "seeds = 1")), truth)
    (block,) = answer(found).blocks
    assert isinstance(block, Prose) and "not yet enough" in block.text
    assert block.text.endswith("a comparison needs 3 paired seeds, and there are at most 1.")
