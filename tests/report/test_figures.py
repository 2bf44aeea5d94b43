"""What figures draw is what the numbers say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from kit.pictures import LONG, TOTAL, each_figure, labelled, made, panel, results_of, study

from lossbench.analysis import series
from lossbench.analysis.results import Results
from lossbench.report import figures
from lossbench.report.figures.statements import MARKS
from lossbench.report.figures.style import Drawing


@pytest.fixture(scope="module")
def results() -> Results:
    return study()


@pytest.fixture(scope="module")
def drawings(results) -> dict[str, Drawing]:
    found = [*each_figure(results), *(each(results, "width") for each in (figures.seed_dots, figures.memory_bars))]
    return {drawing.name: drawing for drawing in [*found, figures.angles_by_class(results, "classes")]}


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
    results = results_of(*(made(name, "digits", losses, seeds=3, evaluations=False) for name in ("losses", "width")))
    drawing = figures.difference_forest(results)
    shown = sum(len(ax.get_yticks()) for ax in drawing.canvas.axes)
    assert shown <= 80
    assert "40 of 44 that differ most" in panel(drawing).get_title(loc="left").replace("\n", " ")
    assert "40 of 44 that differ most" in panel(drawing, 1).get_title(loc="left").replace("\n", " ")
    assert "the tables list all" in drawing.caption
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
    assert sum(ax.get_visible() for ax in drawings["seeds-width"].canvas.axes) == 3


def test_the_diagram_counts_datasets_and_not_seeds(results, drawings):
    (found,) = results.rankings
    # digits (two experiments, four widths), glyphs (with two class counts) and four more; glyphs has three losses.
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
    results = Results(same.info, same.runs, same.cells, noise, {})
    assert results.rankings[0].test.p > 0.05
    drawing = figures.critical_difference_diagram(results)
    (bar,) = labelled(panel(drawing), "not different")
    assert np.ptp(bar.get_xdata()) >= np.ptp(results.rankings[0].test.ranks)
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
    assert len(row["points"]) == 3
    assert row["delta"] == pytest.approx(-compared["delta"].mean())


def test_width_and_classes_draw_the_means_and_mark_the_minimum(results, drawings):
    frame = results.main.query("experiment == 'width' and loss == 'center'").sort_values("width")
    accuracy, gain = drawings["axis-width-width"].canvas.axes
    drawn = next(made for made in accuracy.containers if made.get_label() == "center")
    assert list(drawn.lines[0].get_ydata()) == pytest.approx(list(frame["accuracy"]))
    assert np.log(np.asarray(drawn.lines[0].get_xdata(), float)) == pytest.approx(
        np.log(frame["width"].to_numpy()), abs=0.4
    )
    assert "M_min = 9" in [text.get_text() for text in accuracy.texts]
    assert accuracy.get_xscale() == gain.get_xscale() == "log"
    axes = drawings["axis-classes-classes"].canvas.axes
    assert [ax.get_title(loc="left") for ax in axes[::2]] == ["M = C − 1", "M = 64"]
    drawn = next(made for made in axes[2].containers if made.get_label() == "softmax")
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
    rounds = next(seconds for point, seconds, _ in results.timed if point["experiment"] == "losses")
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
    assert "this probability is not estimated" in figures.pareto(few, "losses").caption


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
