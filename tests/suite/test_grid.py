"""Lists in a suite sweep: datasets, backbones, their options and the keys of the schedule are axes of the grid."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import SMALL
from kit.synthetic import Truth, analysed, noise

from lossbench.core.errors import SuiteError
from lossbench.core.point import Point
from lossbench.plan.cells import plan
from lossbench.plan.selection import Selection, select
from lossbench.report.output.data import files

GRID = """
name = "swept"

[[experiment]]
name = "scale"
dataset = [{ name = "digits", train = [100, 200, 400] }, "glyphs[classes=10,per_class=20]"]
backbone = ["cnn[channels=4,depths=(1)]", { name = "cnn", channels = 6, depths = [[1], [1, 1]] }]
widths = [8]
losses = ["softmax", "w_softmax", "center", { name = "arcface", s = [8.0, 16.0] }]
seeds = 3
schedule = { steps = 6, batch = 16, lr = [0.02, 0.1] }
"""


def points(suite) -> list[Point]:
    return [node.point for node in suite.experiments[0].grid]


def test_one_experiment_holds_the_product_of_all_lists(read_suite):
    suite = read_suite(GRID)
    found = points(suite)
    assert len(found) == len(set(found)) == (3 + 1) * (1 + 2) * 2
    assert len(plan(suite)) == len(found) * 5 * 3
    assert {point.get("train") for point in found if point["dataset"] == "digits"} == {100, 200, 400}
    assert {point.get("train") for point in found if point["dataset"] != "digits"} == {None}
    assert {point["backbone"] for point in found} == {"cnn[channels=4,depths=(1)]", "cnn[channels=6]"}
    assert {point.get("depths") for point in found} == {None, "(1)", "(1 1)"}
    assert {point["lr"] for point in found} == {0.02, 0.1}


def test_a_swept_cell_is_the_cell_that_the_same_values_give_alone(read_suite):
    alone = SMALL.replace("batch = 16", "batch = 16, lr = 0.05").replace(
        '"digits"\nbackbone', '"digits[train=200]"\nbackbone'
    )
    swept = SMALL.replace("batch = 16", "batch = 16, lr = [0.01, 0.05]").replace(
        '"digits"\nbackbone', '{ name = "digits", train = [100, 200] }\nbackbone'
    )
    assert SMALL not in (alone, swept)
    keys = {cell.key: cell for cell in plan(read_suite(swept))}
    mine = plan(read_suite(alone))
    assert len(keys) == 4 * len(mine)
    assert all(keys[cell.key].axes["train"] == 200 and keys[cell.key].axes["lr"] == 0.05 for cell in mine)


def test_titles_distinguish_cells_of_different_points(read_suite):
    cells = plan(read_suite(GRID))
    assert len({cell.title for cell in cells}) == len(cells)
    assert "dataset=digits" in cells[0].title and "lr=0.02" in cells[0].title


def test_an_axis_is_dotted_where_two_parts_of_an_experiment_sweep_it(read_suite, tmp_path):
    from lossbench.plugins.registry import Registry

    (tmp_path / "backbones").mkdir()
    (tmp_path / "backbones" / "net.py").write_text(
        '"""A net."""\nfrom torch import nn\n\n\nclass Backbone(nn.Module):\n'
        "    def __init__(self, in_shape, width, *, train: int = 1):\n        super().__init__()\n"
        "        self.fc = nn.Linear(3, width)\n"
    )
    text = SMALL.replace('dataset = "digits"', 'dataset = { name = "digits", train = [100, 200] }')
    text = text.replace(text[text.index("backbone =") :].splitlines()[0], 'backbone = { name = "net", train = [1, 2] }')
    found = points(read_suite(text, plugins=Registry([tmp_path])))
    assert {(point["dataset.train"], point["backbone.train"]) for point in found} == {
        (100, 1),
        (100, 2),
        (200, 1),
        (200, 2),
    }


def test_a_list_that_is_one_value_of_an_option_is_not_swept(read_suite):
    one = read_suite(SMALL.replace('dataset = "digits"', 'dataset = { name = "digits", classes = [4, 6] }'))
    assert [point["classes"] for point in points(one)] == [2]  # the digits 4 and 6
    two = read_suite(SMALL.replace('dataset = "digits"', 'dataset = { name = "digits", classes = [[4, 6], [1, 2]] }'))
    assert [point["dataset.classes"] for point in points(two)] == ["(4 6)", "(1 2)"]


def test_an_option_that_takes_a_number_or_a_list_is_swept_where_the_suite_says_so(read_suite):
    written = "backbone = { name = 'cnn', channels = CHANNELS, depths = [1, 1] }"
    text = SMALL.replace(next(line for line in SMALL.splitlines() if line.startswith("backbone")), written)
    assert "channels" not in points(read_suite(text.replace("CHANNELS", "[4, 8]")))[0]
    found = points(read_suite(text.replace("CHANNELS", "{ sweep = [4, 8, 16] }")))
    assert [point["channels"] for point in found] == [4, 8, 16]
    assert {point["backbone"] for point in found} == {"cnn[depths=(1 1)]"}


REFUSED = {
    "a value twice": ("lr = [0.02, 0.1]", "lr = [0.1, 0.1]", ["experiment.scale.schedule.lr: 0.1 is listed twice"]),
    "a dataset twice": ('"glyphs[classes=10,per_class=20]"', '"digits[train=100]", "digits[train=100]"', ["twice"]),
    "no value": ("lr = [0.02, 0.1]", "lr = []", ["schedule.lr", "empty list"]),
    "a bad value among good ones": ("[0.02, 0.1]", "[0.02, -1.0]", ["schedule.lr[1]", "greater than 0"]),
    "a bad option among good ones": (
        "train = [100, 200, 400]",
        "train = [100, 0]",
        ["dataset[0]", "train must be", "got 0"],
    ),
    "an unknown dataset in a list": ('"glyphs[', '"glyph[', ["dataset[1]", "did you mean 'glyphs'"]),
    "too many cells": ("seeds = 3", "seeds = 9999", ["cells", "× 6 datasets"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_in_a_list_is_refused_at_its_place(read_suite, name):
    old, new, said = REFUSED[name]
    text = GRID.replace(old, new)
    if name == "too many cells":
        text = text.replace("[100, 200, 400]", "[100, 200, 300, 400, 500]").replace(
            "widths = [8]", f"widths = {[*range(2, 8)]}"
        )
    assert text != GRID
    with pytest.raises(SuiteError) as error:
        read_suite(text)
    assert all(part in str(error.value) for part in said), str(error.value)


# ---- filters ---------------------------------------------------------------------------------------------------------


def test_cells_are_selected_at_values_of_any_axis(read_suite, registry):
    cells = plan(read_suite(GRID))
    chosen = select(cells, Selection(at={"lr": [0.1], "train": [100, 400]}).resolved(cells, registry))
    assert {(cell.axes["lr"], cell.axes["train"]) for cell in chosen} == {(0.1, 100), (0.1, 400)}
    assert len(chosen) == len(cells) * (2 * 3) // (4 * 3 * 2)
    assert select(cells, Selection(at={"dataset": ["digits"]})) == select(cells, Selection(datasets=["digits"]))


def test_cells_of_an_experiment_are_selected_with_the_warm_starts_they_need(read_suite, registry):
    other = GRID + GRID[GRID.index("[[experiment]]") :].replace('"scale"', '"warmed"').replace(
        "seeds = 3", 'seeds = 2\nwarm_start = { loss = "softmax", steps = 4 }'
    )
    suite = read_suite(other)
    cells = plan(suite)
    chosen = select(cells, Selection(experiments=["warmed"]).resolved(cells, registry))
    assert chosen == [cell for cell in cells if cell.experiment == "warmed"]
    assert {cell.kind for cell in chosen} == {"train", "warm"}
    Selection(experiments=["warmed", "scale"]).check(suite.experiments)
    assert select(cells, Selection(experiments=["warmed", "scale"])) == list(cells)


def test_tuned_cells_are_selected_with_the_experiment_that_is_tuned():
    chosen = Selection(experiments=["scale"])
    assert chosen.has_experiment("scale-tuned") and not chosen.has_experiment("scaled")


SELECTED = {
    "an experiment": (
        {"experiments": ["scal"]},
        ["--experiment: this suite has no experiment 'scal'; did you mean 'scale'?"],
    ),
    "an axis": ({"at": {"lrr": [0.1]}}, ["--at: no experiment of this suite has the axis 'lrr'; did you mean 'lr'?"]),
    "a number": ({"at": {"train": [350]}}, ["--at: no cell has the train 350; known: 400, 200, 100"]),
    "a word for a number": ({"at": {"lr": ["low"]}}, ["--at: no cell has the lr 'low'; known: 0.02, 0.1"]),
    "a word": ({"at": {"depths": ["(1 2)"]}}, ["--at: no cell has the depths '(1 2)'; known: (1 1), (1)"]),
    "one of several": ({"at": {"lr": [0.1, 0.03]}}, ["--at: no cell has the lr 0.03; known: 0.02, 0.1"]),
    "a dataset": ({"datasets": ["digits", "gliphs"]}, ["--dataset: no cell has the dataset 'gliphs'; known: glyphs"]),
    "a backbone": ({"backbones": ["cn"]}, ["--backbone: no cell has the backbone 'cn'; known: cnn"]),
    "a width and a seed": (
        {"widths": [9], "seeds": [0, 77]},
        ["--width: no cell has the width 9; known: 8", "--seed: no cell has the seed 77; known: "],
    ),
}


@pytest.mark.parametrize("name", SELECTED)
def test_what_no_cell_has_cannot_be_selected(read_suite, name):
    chosen, sentences = SELECTED[name]
    with pytest.raises(SuiteError) as refused:
        Selection(**chosen).check(read_suite(GRID).experiments)
    assert len(refused.value.mistakes) == len(sentences)
    for found, sentence in zip(refused.value.mistakes, sentences, strict=True):
        assert found.startswith(sentence), found


def test_what_cells_have_can_be_selected(read_suite):
    experiments = read_suite(GRID).experiments
    labels = [data.dataset.label for data in experiments[0].datasets]
    bare = Selection(datasets=["digits", *labels], backbones=["cnn"], widths=[8], seeds=[0])
    bare.check(experiments)
    Selection(at={"dataset": ["digits"], "lr": [0.1, 0.02], "width": [8], "depths": ["(1 1)"]}).check(experiments)


# ---- claims ----------------------------------------------------------------------------------------------------------


def stated(keys: str) -> str:
    return f'{GRID}\n[[claim]]\ntext = "grows"\nexperiment = "scale"\n{keys}\n'


def truth(cell) -> Truth:
    """On digits the gain of w_softmax grows with the training images at the larger rate, and falls at the smaller."""
    steps = {100: 0, 200: 1, 400: 2}.get(cell.axes.get("train"), 0)
    gain = 3 * steps if cell.axes["lr"] == 0.1 else -3 * steps
    return Truth(60 + (gain if cell.loss.name == "w_softmax" else 0) + noise(cell, 0.3))


@pytest.fixture(scope="module")
def results(read_suite):
    keys = 'increases_with = "train"\nloss = "w_softmax"\nthan = "softmax"'
    return analysed(read_suite(stated(keys)), truth)


def test_a_trend_has_a_case_per_dataset_backbone_and_other_value(results):
    cases = {claim.text for claim in results.info.claims}
    assert len(cases) == 3 * 2  # backbones × rates; glyphs sweeps no training images
    assert "grows (cnn[channels=4,depths=(1)], lr = 0.1)" in cases
    assert all(claim.case["dataset"] == "digits" for claim in results.info.claims)


def test_trends_are_followed_within_their_case(results):
    by_rate = {claim.text: claim.case["lr"] for claim in results.info.claims}
    wanted = {0.1: "supported", 0.02: "contradicted"}
    for row in results.claims.to_dict("records"):
        assert row["verdict"] == wanted[by_rate[row["text"]]], row["text"]
        assert row["delta"] == pytest.approx(3.0 if by_rate[row["text"]] == 0.1 else -3.0, abs=0.6)
        assert row["unit"] == "points per doubling of train"


def test_comparisons_are_made_at_a_point_and_exported_with_its_axes(results):
    import io

    import pandas as pd

    frame = pd.read_csv(io.BytesIO(files(results, [])["comparisons.csv"]))
    mine = frame[(frame["metric"] == "accuracy") & (frame["loss"] == "w_softmax")]
    assert len(mine) == len(results.points) == 24
    row = mine[(mine["train"] == 400) & (mine["lr"] == 0.1) & (mine["backbone"] == "cnn[channels=4,depths=(1)]")]
    assert len(row) == 1 and row["delta"].iloc[0] == pytest.approx(6.0, abs=0.6)


CLAIMED = {
    "at an unknown axis": ('better = "center"\nthan = "softmax"\nat = { lrr = 0.1 }', ["at.lrr", "did you mean 'lr'"]),
    "at a value that no point has": (
        'better = "center"\nthan = "softmax"\nat = { lr = 0.3 }',
        ["claim[0].at.lr", "has no lr 0.3; known: 0.1, 0.02"],
    ),
    "at values that exclude each other": (
        'better = "center"\nthan = "softmax"\nat = { dataset = "glyphs", train = 100 }',
        ["claim[0].at", "no point of experiment 'scale' has all these values"],
    ),
    "along what is fixed": (
        'increases_with = "train"\nloss = "center"\nat = { train = 100 }',
        ["claim[0].at.train", "use 'values'"],
    ),
    "along names": ('increases_with = "depths"\nloss = "center"', ["are not numbers"]),
    "along too few values": ('increases_with = "lr"\nloss = "center"', ["at least 3 values of 'lr'"]),
}


@pytest.mark.parametrize("name", CLAIMED)
def test_a_claim_that_no_point_can_answer_is_refused(read_suite, name):
    keys, said = CLAIMED[name]
    with pytest.raises(SuiteError) as error:
        read_suite(stated(keys))
    assert all(part in str(error.value) for part in said), str(error.value)


def test_a_claim_about_one_point_is_one_case(read_suite):
    keys = 'better = "center"\nthan = "softmax"\nat = { dataset = "digits", train = 100, lr = 0.1, depths = "(1 1)" }'
    (claim,) = read_suite(stated(keys)).info.claims
    assert claim.text == "grows"


def test_a_plan_keeps_the_points(read_suite):
    for cell in plan(read_suite(GRID)):
        again = type(cell).from_json(cell.to_json())
        assert again.point == cell.point and again.title == cell.title
        older = {name: value for name, value in cell.to_json().items() if name not in ("axes", "shows")}
        assert type(cell).from_json(older).point["width"] == cell.width
        assert replace(cell, axes={}, key="").key == cell.key
