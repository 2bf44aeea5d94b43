"""Figures say what the numbers say, look the same everywhere and every time, and stay on their canvas."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import xml.etree.ElementTree
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.core.format import Claim, Schedule, Timing
from lossbench.core.model import Cell, Record, Spec, SuiteInfo
from lossbench.report import figures
from lossbench.report.figures.statements import MARKS
from lossbench.store.records import tabulated

TOTAL = 5_000
LONG = ["softmax", "center", "l_softmax[m=2]", "a_softmax", "w_softmax[alpha=0.5]", "w_softmax[alpha=1.0]"]
TWENTY = [
    *LONG, "hinge", "contrastive", "triplet", "prototype", "normface", "cosface[s=16.0]", "arcface[m=0.3,s=16.0]",
    "subcenter_arcface[k=3,m=0.3,s=16.0]", "sphereface_r", "sphereface2", "curricularface", "adaface", "magface",
    "elasticface",
]  # fmt: skip


def spec(label: str) -> Spec:
    return Spec(label.partition("[")[0], {"written": label}, label, "0")


def made(experiment: str, dataset: str, labels, *, widths=(64,), classes=(10,), seeds=5, timing=0, evaluations=True):
    """The cells and records of an experiment with a known truth: loss i gains i/10 points, width and classes matter."""
    rng = np.random.default_rng(sum(map(ord, experiment + dataset)))
    specs = tuple(spec(label) for label in labels)
    common = {"task": "classification", "backbone": spec("cnn"), "warm": None, "threads": 1}
    environment = {"fingerprint": "abc"}
    found = []
    for k, asked in itertools.product(classes, widths):
        width = k - 1 if asked == "min" else asked
        data = spec(dataset if len(classes) == 1 else f"{dataset}[classes={k}]")
        place = {
            "experiment": experiment,
            "dataset": data,
            "width": width,
            "classes": k,
            "schedule": Schedule(steps=200),
            **common,
        }
        for seed in range(seeds):
            shared = rng.normal(0, 0.4)
            for index, one in enumerate(specs):
                cell = Cell(kind="train", losses=(one,), seed=seed, timing=None, **place)
                accuracy = 93 + shared + 0.1 * index - 12 / width - k / 40 + rng.normal(0, 0.25)
                angle = 60 - index + 4 * np.sin(np.arange(k)) + rng.normal(0, 1, k)
                steps = range(20, 201, 20)
                curve = [{"step": s, "loss": (2 + index / 5) * np.exp(-s / 60) + rng.uniform(0.05, 0.1)} for s in steps]
                for point in curve if evaluations else []:
                    point["correct"] = round(TOTAL * accuracy / 100 * (1 - np.exp(-point["step"] / 40)))
                sizes = {"fc": 4 * width * 500, "classifier": 4 * width * k, "loss": 4 * width * k * (index % 3 == 1)}
                sizes |= {"model": 40_000 + 4 * width * 500, "optimizer": 44_000 + 4 * width * 500}
                record = Record(
                    cell, "done", correct=round(TOTAL * accuracy / 100), total=TOTAL, curve=tuple(curve),
                    angles={"train": list(angle - 2), "test": list(angle)}, environment=environment,
                    bytes={**sizes, "peak": int(6e7 + 1e5 * rng.normal())},
                )  # fmt: skip
                found.append((cell, record))
        if timing:
            cell = Cell(kind="timing", losses=specs, seed=0, timing=Timing(rounds=timing), **place)
            base = rng.uniform(0.010, 0.012, timing)
            rounds = {
                x.label: list(base * (1 + 0.03 * i) * rng.uniform(0.98, 1.02, timing)) for i, x in enumerate(specs)
            }
            parts = {"forward": 0.4, "backward": 0.5, "optimizer": 0.1}
            split = {
                x: {name: [share * s for s in taken] for name, share in parts.items()} for x, taken in rounds.items()
            }
            found.append((cell, Record(cell, "done", rounds=rounds, timing={"phases": split}, environment=environment)))
    return found


def results_of(*groups, claims=()) -> Results:
    found = [pair for group in groups for pair in group]
    cells = tuple(cell for cell, _ in found)
    outline = SuiteInfo("study", "A study", "softmax", 0.5, tuple(claims), {}, None, "lossbench run study.toml")
    records = tabulated(cells, {cell.key: record.to_json() for cell, record in found})
    return Results(outline, ("runs/study",), cells, records.assign(steps_to_converge=np.nan), {})


def with_features(results: Results, labels=10) -> Results:
    """The same records with the feature planes of width 2 that training keeps."""
    rng = np.random.default_rng(0)
    kept = []
    for row in results.records.to_dict("records"):
        if row["width"] != 2 or row["kind"] != "train":
            kept.append(None)
            continue
        turn = np.linspace(0, 2 * np.pi, labels, endpoint=False) + 0.2
        weights = np.column_stack([np.cos(turn), np.sin(turn)])
        classes = rng.integers(0, labels, 500)
        points = weights[classes] * rng.uniform(2, 12, (500, 1)) + rng.normal(0, 0.5, (500, 2))
        kept.append({"points": points.round(3).tolist(), "labels": classes.tolist(), "weights": weights.tolist()})
    frame = results.records.assign(features=kept)
    return Results(results.outline, results.runs, results.cells, frame, {})


def stated(labels) -> list[Claim]:
    """Two statements of several cases, one of them long and with cases that no record answers."""
    named = {"Every loss is better than softmax": ("losses", "width"), f"So it is{' elsewhere' * 9}": ("lfw", "mnist")}
    return [
        Claim(text=f"{said} ({name}, {label})", statement=said, experiment=name, better=label, than="softmax")
        for said, names in named.items()
        for name in names
        for label in labels[1:4]
    ]


def study(labels=LONG) -> Results:
    """All that a figure can ask for: claims, timing, widths, classes, six datasets, features of width 2."""
    return with_features(
        results_of(
            made("losses", "digits", labels, seeds=10, timing=12),
            made("width", "digits", labels, widths=(2, 4, "min", 18, 90)),
            made("classes", "glyphs", labels[:3], widths=("min", 64), classes=(10, 50, 200)),
            *(made(name, name, labels[:4], seeds=3) for name in ("mnist", "fashion_mnist", "cifar10", "omniglot")),
            claims=stated(labels),
        )
    )


@pytest.fixture(scope="module")
def results() -> Results:
    return study()


@pytest.fixture(scope="module")
def drawings(results) -> dict[str, figures.Drawing]:
    """Every kind of figure, once or twice."""
    found = [whole(results) for group in figures.WHOLE.values() for whole in group]
    found += [each(results, "losses") for group in figures.EACH.values() for each in group]
    for each in (figures.seed_dots, figures.width_drawing, figures.memory_bars, figures.feature_scatter):
        found.append(each(results, "width"))
    found += [figures.classes_curve(results, "classes"), figures.angles_by_class(results, "classes")]
    return {drawing.name: drawing for drawing in found if drawing}


def panel(drawing: figures.Drawing, number: int = 0):
    return drawing.canvas.axes[number]


def labelled(ax, label: str) -> list:
    """What is drawn for a loss, in the order of drawing."""
    return [line for line in ax.lines if line.get_label() == label]


# --- figures say what the numbers say


def test_a_statement_has_a_mark_for_every_case_of_it(results, drawings):
    ax = panel(drawings["claims"])
    shown = {
        text.get_text().replace("\n", " "): place
        for text, place in zip(ax.get_yticklabels(), ax.get_yticks(), strict=True)
    }
    marks = [(line.get_ydata()[0], line.get_label()) for line in ax.lines if line.get_label() in MARKS]
    told = results.claims.assign(came_out=results.claims["verdict"].where(results.claims["n"] > 0, "not run"))
    assert {"not run", "supported"} < set(told["came_out"])
    for statement, cases in told.groupby("statement"):
        row = shown.pop(statement)
        assert Counter(word for place, word in marks if place == row) == Counter(cases["came_out"])
    assert not shown


def test_the_forest_draws_the_differences_their_intervals_and_the_verdict(results, drawings):
    frame = results.comparisons
    frame = frame[(frame["metric"] == "accuracy") & (frame["experiment"] == "losses")]
    ax = panel(drawings["differences"])
    assert "n = 10 seeds" in ax.get_title(loc="left")
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(frame["loss"])
    for place, row in enumerate(frame.to_dict("records")):
        bar, dot = labelled(ax, row["loss"])
        assert list(bar.get_xdata()) == pytest.approx([row["low"], row["high"]])
        assert (dot.get_xdata()[0], dot.get_ydata()[0]) == pytest.approx((row["delta"], place))
        assert (dot.get_markerfacecolor() == "white") == (not row["verdict"].startswith("different"))
    band = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    assert (band.x0, band.x1) == pytest.approx((-0.5, 0.5))


def test_an_interval_beyond_the_axis_has_an_arrow_and_its_true_numbers():
    group = made("losses", "digits", LONG, seeds=3)
    wild = [
        (cell, record if cell.loss.label != "center" else replace(record, correct=(3_500, 4_950, 4_650)[cell.seed]))
        for cell, record in group
    ]
    results = results_of(wild)
    row = results.comparisons.query("metric == 'accuracy' and loss == 'center'").iloc[0]
    ax = panel(figures.difference_forest(results))
    low, high = ax.get_xlim()
    assert row["low"] < low
    assert row["high"] > high
    assert {"<", ">"} <= {line.get_marker() for line in ax.lines}
    assert any(f"{row['high']:+.2f}" in text.get_text() for text in ax.texts)


def test_of_many_rows_those_that_differ_most_are_drawn_and_the_rest_is_admitted():
    losses = ["softmax", *(f"center[weight={index}]" for index in range(44))]
    results = results_of(
        made("losses", "digits", losses, seeds=3), made("width", "digits", losses, widths=(2,), seeds=3)
    )
    drawing = figures.difference_forest(results)
    shown = sum(len(ax.get_yticks()) for ax in drawing.canvas.axes)
    assert shown <= 80
    assert "40 of 44 that differ most" in panel(drawing).get_title(loc="left").replace("\n", " ")
    assert "40 of 44 that differ most" in panel(drawing, 1).get_title(loc="left").replace("\n", " ")
    assert "the tables have all" in drawing.caption
    hidden = set(losses[1:]) - {tick.get_text() for tick in panel(drawing).get_yticklabels()}
    gain = results.comparisons.query("metric == 'accuracy' and experiment == 'losses'").set_index("loss")["delta"].abs()
    assert gain[list(hidden)].max() <= gain[[label for label in losses[1:] if label not in hidden]].min()


def test_step_times_are_ratios(results, drawings):
    frame = results.comparisons.query("metric == 'step_seconds'")
    for row in frame.to_dict("records"):
        bar, dot = labelled(panel(drawings["step-time"]), row["loss"])
        assert dot.get_xdata()[0] == pytest.approx(1 + row["delta"] / 100)
        assert list(bar.get_xdata()) == pytest.approx([1 + row["low"] / 100, 1 + row["high"] / 100])
    assert panel(drawings["step-time"]).get_xscale() == "log"


def test_every_seed_is_a_dot(results, drawings):
    for label in LONG:
        (dots,) = labelled(panel(drawings["seeds-losses"]), label)
        mine = results.trained.query("experiment == 'losses' and label == @label")
        assert sorted(dots.get_xdata()) == pytest.approx(sorted(mine["accuracy"]))
    assert sum(ax.get_visible() for ax in drawings["seeds-width"].canvas.axes) == 5


def test_the_diagram_counts_datasets_and_not_seeds(results, drawings):
    found = results.ranking
    # digits (two experiments, six widths), glyphs (with three class counts) and four more; glyphs has three losses.
    assert found.table.datasets == ("digits", "glyphs", "mnist", "fashion_mnist", "cifar10", "omniglot")
    assert found.table.losses == tuple(LONG[:3])
    ax = panel(drawings["ranks-accuracy"])
    for loss, rank in zip(found.table.losses, found.test.ranks, strict=True):
        (dot,) = labelled(ax, loss)
        assert dot.get_xdata()[0] == pytest.approx(rank)
    (cd,) = labelled(ax, "CD")
    assert np.ptp(cd.get_xdata()) == pytest.approx(found.difference)
    assert "N = 6 datasets" in drawings["ranks-accuracy"].caption


def test_ranks_without_a_difference_join_all_losses():
    sets = "abcdef"
    same = results_of(*(made(name, name, ["softmax", *LONG[1:4]], seeds=2) for name in sets))
    noise = same.records.assign(accuracy=np.random.default_rng(3).normal(90, 1, len(same.records)))
    results = Results(same.outline, same.runs, same.cells, noise, {})
    assert results.ranking.test.p > 0.05
    drawing = figures.critical_difference_diagram(results)
    (bar,) = labelled(panel(drawing), "not told apart")
    assert np.ptp(bar.get_xdata()) >= np.ptp(results.ranking.test.ranks)
    assert "finds no difference" in drawing.caption


def test_the_heatmap_is_the_comparisons_and_their_mirror(results, drawings):
    ax = panel(drawings["pairs-losses"])
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    values = ax.collections[0].get_array().reshape(len(names), len(names))
    assert np.ma.allclose(values, -values.T)
    compared = results.comparisons.query("metric == 'accuracy' and experiment == 'losses'").set_index("loss")["delta"]
    for label in LONG[1:]:
        assert values[names.index(label), names.index("softmax")] == pytest.approx(compared[label])
    frame = results.main.query("experiment == 'losses'").set_index("loss")["accuracy"]
    assert names == sorted(names, key=lambda label: -frame[label])


def test_a_pair_over_several_points_is_a_mean_within_seeds(results):
    row = series.pairs(results, "width").query("a == 'softmax' and b == 'center'").iloc[0]
    compared = results.comparisons.query("metric == 'accuracy' and experiment == 'width' and loss == 'center'")
    assert row["points"] == 5
    assert row["delta"] == pytest.approx(-compared["delta"].mean())


def test_width_and_classes_draw_the_means_and_mark_the_minimum(results, drawings):
    frame = results.main.query("experiment == 'width' and loss == 'center'").sort_values("width")
    accuracy = panel(drawings["width-width"])
    drawn = next(made for made in accuracy.containers if made.get_label() == "center")
    assert list(drawn.lines[0].get_ydata()) == pytest.approx(list(frame["accuracy"]))
    assert np.log(np.asarray(drawn.lines[0].get_xdata(), float)) == pytest.approx(
        np.log(frame["width"].to_numpy()), abs=0.4
    )
    assert "M_min = C − 1 = 9" in [text.get_text() for text in accuracy.texts]
    sizes = panel(drawings["width-width"], 1).lines[0]
    assert list(sizes.get_ydata()) == pytest.approx([4 * 500 * width / 1024 for width in (2, 4, 9, 18, 90)])
    titles = [ax.get_title(loc="left") for ax in drawings["classes-classes"].canvas.axes]
    assert titles == ["M = C − 1", "M = 64"]
    drawn = next(made for made in panel(drawings["classes-classes"], 1).containers if made.get_label() == "softmax")
    frame = results.main.query("experiment == 'classes' and loss == 'softmax' and width == 64").sort_values("classes")
    assert list(drawn.lines[0].get_ydata()) == pytest.approx(list(frame["accuracy"]))


def test_learning_curves_are_means_over_seeds_with_their_intervals(results, drawings):
    mine = results.trained.query("experiment == 'losses' and label == 'a_softmax'")
    last = [100 * curve[-1]["correct"] / TOTAL for curve in mine["curve"]]
    loss, accuracy = drawings["learning-losses"].canvas.axes
    (line,) = labelled(accuracy, "a_softmax")
    assert line.get_ydata()[-1] == pytest.approx(np.mean(last))
    (line,) = labelled(loss, "a_softmax")
    assert line.get_ydata()[0] == pytest.approx(np.mean([curve[0]["loss"] for curve in mine["curve"]]))
    assert len(accuracy.collections) == len(LONG)
    unscored = results_of(made("losses", "digits", LONG, seeds=3, evaluations=False))
    assert len(figures.learning_curves(unscored, "losses").canvas.axes) == 1


def test_angles_are_those_of_the_classes(results, drawings):
    mine = results.trained.query("experiment == 'losses' and label == 'center'")
    (line,) = labelled(panel(drawings["angles-losses"], 1), "center")
    assert line.get_ydata() == pytest.approx(np.mean([angles["test"] for angles in mine["angles"]], axis=0))
    (line,) = labelled(panel(drawings["angles-classes"]), "center")  # 200 classes: sorted
    assert (np.diff(line.get_ydata()) >= 0).all()


def test_memory_bars_add_up(results, drawings):
    frame = results.main.query("experiment == 'width'")
    ax = panel(drawings["memory-width"])
    total = np.sum([[bar.get_width() for bar in container] for container in ax.containers], axis=0)
    held = frame["bytes_model"] + frame["bytes_classifier"] + frame["bytes_loss"] + frame["bytes_optimizer"]
    assert total * 1024 == pytest.approx(held.to_numpy())


def test_phases_add_up_to_the_step(results, drawings):
    ax = panel(drawings["phases-losses"])
    total = np.sum([[bar.get_width() for bar in container] for container in ax.containers], axis=0)
    rounds = next(seconds for point, seconds in results.timings() if point["experiment"] == "losses")
    assert total == pytest.approx([1000 * np.median(rounds[label]) for label in LONG])


def test_the_front_is_that_of_the_means_with_intervals(results, drawings):
    frame = series.front(results, "losses").set_index("loss")
    times = results.comparisons.query("metric == 'step_seconds'").set_index("loss")
    for label in LONG[1:]:
        assert frame["ratio"][label] == pytest.approx(1 + times["delta"][label] / 100)
    for drawn in panel(drawings["pareto-losses"]).containers:
        dot = drawn.lines[0]
        row = frame.loc[drawn.get_label()]
        assert (dot.get_xdata()[0], dot.get_ydata()[0]) == pytest.approx((row["ratio"], row["accuracy"]))
        assert (dot.get_markerfacecolor() != "white") == row["best"]
    assert frame["best"]["softmax"]  # nothing is faster
    assert frame["chance"].between(0, 1).all()
    few = results_of(made("losses", "digits", LONG, seeds=4, timing=12))
    assert series.front(few, "losses")["chance"].isna().all()
    assert "no chance of that is stated" in figures.pareto(few, "losses").caption


def test_the_plane_shows_every_feature_and_the_directions(results, drawings):
    row = results.records.query("experiment == 'width' and width == 2 and label == 'center' and seed == 0").iloc[0]
    ax = panel(drawings["features-width"], 1)
    assert ax.get_title(loc="center").startswith("center\n")
    labels = np.asarray(row["features"]["labels"])
    for number in range(10):
        dots = labelled(ax, str(number))[0]
        assert np.column_stack(dots.get_data()) == pytest.approx(
            np.asarray(row["features"]["points"])[labels == number]
        )
    assert {text.get_text() for text in ax.texts} == set(map(str, range(10)))


# --- None where a figure does not apply


def test_figures_that_do_not_apply_are_none(results):
    without = results_of(made("one", "digits", ["softmax", "center"], seeds=1, evaluations=False))
    none = {each.__name__: each(without, "one") for group in figures.EACH.values() for each in group}
    none |= {whole.__name__: whole(without) for group in figures.WHOLE.values() for whole in group}
    drawn = {name for name, drawing in none.items() if drawing}
    assert drawn == {"angles_by_class", "memory_bars", "learning_curves"}
    assert figures.width_curve(without, "one") is None
    assert figures.differences(without, "accuracy", "points", 0.5) is None
    assert figures.width_drawing(results, "losses") is None
    assert figures.classes_curve(results, "width") is None
    assert figures.feature_scatter(results, "losses") is None  # width 64
    four = results_of(*(made(name, name, LONG, seeds=2) for name in "abcd"))
    assert figures.critical_difference_diagram(four) is None  # four datasets prove nothing


def test_a_run_with_nothing_finished_has_no_figure():
    group = made("one", "digits", LONG, seeds=2, timing=5)
    assert not list(figures.gallery(results_of([(cell, Record(cell, "failed", error="x")) for cell, _ in group])))
    empty = results_of(group)
    nothing = Results(empty.outline, empty.runs, empty.cells, empty.records.iloc[:0], {})
    assert not list(figures.gallery(nothing))


# --- how they look


def test_every_loss_has_one_look_everywhere(results, drawings):
    look = figures.looks(results.labels)
    seen = set()
    for drawing in drawings.values():
        for ax in drawing.canvas.axes:
            lines = [*ax.lines, *(made.lines[0] for made in ax.containers if hasattr(made, "has_xerr"))]
            owners = {id(made.lines[0]): made.get_label() for made in ax.containers if hasattr(made, "has_xerr")}
            for line in lines:
                owner = owners.get(id(line), line.get_label())
                if owner in look:
                    seen.add(drawing.name.partition("-")[0])
                    assert line.get_color() == look[owner].colour, (drawing.name, owner)
    assert seen >= {
        "differences",
        "step",
        "seeds",
        "ranks",
        "width",
        "classes",
        "learning",
        "angles",
        "memory",
        "pareto",
    }


def test_twenty_losses_look_different():
    look = figures.looks(TWENTY)
    assert look["softmax"].colour == figures.BASELINE_COLOUR
    assert len({(one.colour, one.marker) for one in look.values()}) == 20
    assert len({(one.colour, str(one.dash)) for one in look.values()}) == 20
    assert figures.looks(TWENTY[:4]) == {label: look[label] for label in TWENTY[:4]}


# Machado, Oliveira & Fernandes 2009, severity 1, on linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_are_told_apart_by_every_kind_of_sight(sight):
    seen = {c: lab(SIGHT[sight] @ linear(c)) for c in (figures.BASELINE_COLOUR, *figures.PALETTE)}
    apart = {(a, b): np.linalg.norm(seen[a] - seen[b]) for a, b in itertools.combinations(seen, 2)}
    assert min(apart.values()) > 14, min(apart, key=apart.get)  # 2.3 is just noticeable


def test_colours_stand_out_on_their_card():
    for colour in figures.PALETTE:
        assert 1.05 / (TO_XYZ[1] @ linear(colour) + 0.05) > 2


@pytest.mark.parametrize("labels", [LONG, TWENTY], ids=["few losses", "twenty losses"])
def test_nothing_is_drawn_outside_the_canvas(labels, drawings):
    shown = drawings.values()
    if labels is TWENTY:
        shown = figures.gallery(results_of(made("losses", "fashion_mnist", labels, seeds=3, timing=5)))
    for drawing in shown:
        box = drawing.canvas.get_tightbbox()
        assert box.x0 >= 0 and box.y0 >= 0, drawing.name
        assert box.x1 <= drawing.width and box.y1 <= drawing.height, drawing.name


def test_names_do_not_overlap(drawings):
    """Neither those along an axis nor those of a critical-difference diagram."""
    twenty = results_of(*(made(name, name, TWENTY, seeds=1, evaluations=False) for name in "abcde"))
    ranked = {"ranks of twenty": figures.critical_difference_diagram(twenty)}
    for name, drawing in {**drawings, **ranked}.items():
        for ax in drawing.canvas.axes:
            groups = [ax.get_yticklabels()] if ax.get_visible() else []
            groups += [[text for text in ax.texts if text.get_text().strip()]] if name.startswith("ranks") else []
            for group in groups:
                boxes = [text.get_window_extent() for text in group if text.get_text()]
                for one, other in itertools.combinations(boxes, 2):
                    assert not one.shrunk(0.98, 0.9).overlaps(other.shrunk(0.98, 0.9)), name


OPTIONS = ",".join(f"option_number_{number}={number}.25" for number in range(6))
# 110 letters or more each: two that differ in the middle alone, one without a place to break, controls and dollars.
ENDLESS = [
    "baseline_" + "x" * 101,
    f"loss[alpha=1.0,{OPTIONS},beta=1.0]",
    f"loss[alpha=1.0,{OPTIONS.replace('3.25', '3.75')},beta=1.0]",
    f"w_softmax[$\\frac{{$=1,{OPTIONS}]",
    f"center[note=\x1b[31m red\nand\tmore,{OPTIONS}]",
]


@pytest.fixture(scope="module")
def endless() -> list[figures.Drawing]:
    """Every kind of figure of losses, datasets and statements with endless names."""
    long_set = f"folder[path=/data/{'d' * 100}]"
    claims = [
        Claim(
            text=f"{index}",
            statement=f"{'W' * 110} $\\frac{{$ \x1b[31m",
            experiment="losses",
            better=label,
            than=ENDLESS[0],
        )
        for index, label in enumerate(ENDLESS[1:])
    ]
    found = results_of(
        made("losses", long_set, ENDLESS, seeds=10, timing=12),
        made("width", "digits", ENDLESS[:3], widths=(2, 4, "min", 18)),
        made("classes", "glyphs", ENDLESS[:3], widths=("min", 64), classes=(10, 50)),
        *(made(name, name, ENDLESS[:3], seeds=3) for name in ("mnist", "fashion_mnist", "cifar10")),
        claims=claims,
    )
    found = with_features(replace(found, outline=replace(found.outline, baseline=ENDLESS[0])))
    return list(figures.gallery(found))


def test_endless_names_are_shortened_and_nothing_overlaps_or_leaves_the_canvas(endless):
    kinds = {drawing.name.partition("-")[0] for drawing in endless}
    assert len(kinds) >= 13
    for drawing in endless:
        box = drawing.canvas.get_tightbbox()
        assert box.x0 >= 0 and box.y0 >= 0, drawing.name
        assert box.x1 <= drawing.width and box.y1 <= drawing.height, drawing.name
        for ax in (ax for ax in drawing.canvas.axes if ax.get_visible()):
            inside = ax.get_position()
            assert inside.width * drawing.width > 0.9, drawing.name  # there is room left for what is drawn
            texts = [text for text in ax.get_yticklabels() if text.get_text()]
            texts += [text for text in ax.texts if text.get_text().strip()] if drawing.name.startswith("ranks") else []
            for one, other in itertools.combinations([text.get_window_extent() for text in texts], 2):
                assert not one.shrunk(0.98, 0.9).overlaps(other.shrunk(0.98, 0.9)), drawing.name


def test_endless_names_stay_apart_and_without_control_characters(endless):
    forest = next(drawing for drawing in endless if drawing.name == "differences")
    names = [text.get_text() for text in forest.canvas.axes[0].get_yticklabels()]
    assert len(set(names)) == len(ENDLESS) - 1
    assert all(len(name) <= 48 and name.isprintable() for name in names)
    assert names[0].startswith("loss[alpha=1.0,") and names[0].endswith("beta=1.0]")
    for drawing in endless:
        xml.etree.ElementTree.fromstring(drawing.svg)
        assert "\x1b" not in drawing.svg


def test_all_panels_of_a_shared_axis_show_their_points():
    drawing = figures.classes_curve(
        results_of(made("classes", "glyphs", LONG[:3], widths=("min", 64), classes=(10, 50))), "classes"
    )
    for ax in drawing.canvas.axes[:2]:
        low, high = ax.get_ylim()
        heights = [value for line in ax.lines for value in line.get_ydata()]
        assert low <= min(heights) <= max(heights) <= high


# --- the same bytes every time

RENDER = """
import sys
sys.path[:0] = sys.argv[1:]
from test_figures import hashes
print(*hashes(), sep="\\n")
"""


def hashes() -> list[str]:
    """The hashes of a figure in every format."""
    results = results_of(made("losses", "digits", LONG[:3], seeds=3, timing=5))
    return [f"{name} {sha256(data).hexdigest()}" for name, data in figures.step_time_forest(results).files.items()]


def test_another_process_with_other_hashes_writes_the_same_bytes():
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", RENDER, *map(str, Path(__file__).parents[:2])]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.splitlines() == hashes()


def test_figures_have_the_same_bytes_when_drawn_again(results, drawings):
    again = [
        *(figures.difference_forest(results, experiment="losses"), figures.critical_difference_diagram(results)),
        *(figures.seed_dots(results, "width"), figures.width_drawing(results, "width")),
        *(figures.memory_bars(results, "losses"), figures.feature_scatter(results, "width")),
    ]
    drawings = {**drawings, "differences-losses": figures.difference_forest(results, experiment="losses")}
    for drawing in again:
        assert drawing.svg == drawings[drawing.name].svg, drawing.name


def test_text_stays_text_and_no_file_tells_the_time(drawings):
    drawing = drawings["step-time"]
    assert ">w_softmax[alpha=1.0]<" in drawing.svg
    assert "Verdana, sans-serif" in drawing.svg
    assert "<dc:date>" not in drawing.svg
    assert drawing.pdf.startswith(b"%PDF")
    assert b"CreationDate" not in drawing.pdf
    assert drawing.png.startswith(b"\x89PNG")
    assert set(drawing.files) == {"step-time.svg", "step-time.pdf", "step-time.png"}
    block = drawing.block()
    assert (block.name, block.svg, block.caption) == ("step-time", drawing.svg, drawing.caption)
