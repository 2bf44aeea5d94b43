"""A table says which point each row is about, whatever the suite sweeps."""

from __future__ import annotations

import numpy as np
import pytest
from kit.synthetic import Truth, analysed, common, write_run

from lossbench.analysis.compare import compare
from lossbench.analysis.series import distinct, followed
from lossbench.core.point import Point, varied
from lossbench.report import figures
from lossbench.report.blocks import Table
from lossbench.report.figures.axes import MOST_PANELS, along_axis
from lossbench.report.output.drill import Drill
from lossbench.report.sections import SECTIONS

GRID = """
name = "small"
margin = 0.5
[[experiment]]
name = "grid"
dataset = [{ name = "digits", train = [200, 400] }, "glyphs[classes=10,train=300]"]
backbone = ["cnn[channels=4,depths=(1)]", "cnn[channels=6,depths=(1)]"]
widths = [8, 9]
losses = ["softmax", "center"]
seeds = 3
timing = { rounds = 5 }
schedule = { steps = 20, lr = [0.02, 0.5] }
"""
COLUMNS = ["dataset", "backbone", "M", "train", "lr"]


def truth(cell):
    rng = np.random.default_rng([cell.seed, *f"{cell.point} {cell.label}".encode()])
    return Truth(80 + common(cell.seed) + rng.normal(0, 1))


@pytest.fixture(scope="module")
def suite(read_suite):
    return read_suite(GRID)


@pytest.fixture(scope="module")
def results(suite):
    return analysed(suite, truth)


@pytest.fixture(scope="module")
def tables(results):
    sections = [build(results) for build in SECTIONS]
    return [(part.slug, block) for part in sections for block in part.blocks if isinstance(block, Table)]


def test_every_row_of_every_table_is_about_one_point(tables, results):
    drill = Drill(results)
    seen = set()
    for slug, table in tables:
        if slug not in ("answer", "claims", "threats", "environment", "datasets"):
            seen.add(slug)
            found = [table.columns.index(name) for name in COLUMNS if name in table.columns]
            assert len(found) == len(COLUMNS) or "Fixed: digits, C = 10." in table.caption  # only digits has `train`
            loss = [table.columns.index("loss")] if "loss" in table.columns else []
            rows = [tuple(row[place] for place in [*found, *loss]) for row in table.rows]
            assert len(set(rows)) == len(rows), (slug, table.caption)
            assert table.caption.endswith("C = 10.")
            assert all(drill.links(table))
    assert seen == {"accuracy", "comparisons", "axis-tables", "cost", "cost-everywhere", "geometry", "memory"}


def test_an_axis_that_a_dataset_lacks_is_a_dash_and_a_minimum_width_is_marked(tables):
    table = next(table for slug, table in tables if slug == "accuracy")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert {row["train"] for row in rows if row["dataset"].startswith("glyphs")} == {"–"}
    assert {row["M"] for row in rows} == {"8", "9 (min)"}
    assert {"dataset", "backbone", "loss"} <= table.left and not {"M", "lr", "train"} & table.left


def test_of_many_lines_along_an_axis_that_of_the_best_baseline_is_drawn_for_each_dataset_and_backbone(results):
    found = {along.axis: along for along in followed(results, "grid")}
    assert set(found) == {"width", "train", "lr"}
    assert len(found["lr"].lines) == 12
    drawing = along_axis(results, "grid", found["lr"])
    titles = [ax.get_title(loc="left") for ax in drawing.canvas.axes[::2]]
    assert len(titles) == len(set(titles)) == MOST_PANELS
    assert "4 of 12 lines are drawn, where softmax is best; the table has all points." in drawing.caption
    for ax in drawing.canvas.axes[::2]:
        (drawn,) = (line for line in ax.lines if line.get_label() == "softmax")
        dataset, backbone, *_ = ax.get_title(loc="left").split(", ")
        mine = results.main.query("loss == 'softmax'")
        mine = mine[[dataset in point["dataset"] and backbone in point["backbone"] for point in mine["point"]]]
        assert max(drawn.get_ydata()) == pytest.approx(mine["value"].max())


def test_every_figure_is_drawn_although_datasets_have_different_axes(results):
    found = [drawing for slug in {**figures.WHOLE, **figures.EACH} for drawing in figures.of_section(results, slug)]
    kinds = {drawing.name.partition("-")[0] for drawing in found}
    assert kinds >= {"differences", "axis", "angles", "seeds", "memory", "phases"}
    points = [column.point for column in results.answer.columns]
    assert {"train" in point for point in points} == {True, False}
    (dots,) = (drawing for drawing in found if drawing.name == "seeds-grid")
    for ax, point in zip(dots.canvas.axes, points, strict=False):
        (drawn,) = (line for line in ax.lines if line.get_label() == "center")
        assert sorted(drawn.get_xdata()) == pytest.approx(
            sorted(results.measured.at("accuracy", point, "center").values())
        )


def test_points_name_what_distinguishes_them():
    points = [
        Point({"experiment": "a", "dataset": "digits", "lr": 0.1, "train": 200}),
        Point({"dataset": "digits", "lr": 0.2}),
    ]
    assert varied(points) == ["lr", "train"]
    assert distinct(["cnn[channels=4,depths=(1)]", "cnn[channels=6,depths=(1)]"]) == {
        "cnn[channels=4,depths=(1)]": "channels=4",
        "cnn[channels=6,depths=(1)]": "channels=6",
    }
    assert distinct(["digits", "glyphs[train=300]"]) == {"digits": "digits", "glyphs[train=300]": "glyphs"}
    assert distinct(["cnn[a=1]", "cnn[a=2]", "mlp"]) == {"cnn[a=1]": "cnn[a=1]", "cnn[a=2]": "cnn[a=2]", "mlp": "mlp"}


def test_two_runs_are_compared_point_by_point(suite, tmp_path):
    def worse(cell):
        drop = 5 if cell.point["lr"] == 0.5 and cell.point.get("train") == 200 and cell.loss.name == "center" else 0
        return Truth(truth(cell).accuracy - drop)

    before = write_run(suite, tmp_path / "before", truth)
    frame = compare(before, write_run(suite, tmp_path / "after", worse)).frame
    changed = frame[frame["delta"].abs() > 1]
    assert {(point["lr"], point["train"]) for point in changed["point"]} == {(0.5, 200)}
    assert len(changed) == 4  # two backbones and widths
    assert len(set(zip(frame["point"], frame["loss"], strict=True))) == len(frame)
