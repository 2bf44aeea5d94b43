"""What figures draw is what the numbers say."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from kit.pictures import LONG, TOTAL, TWENTY, along, each_figure, labelled, made, panel, results_of, study

from lossbench.analysis import series
from lossbench.analysis.answer import Column
from lossbench.analysis.claims import OUTCOMES
from lossbench.analysis.results import Results
from lossbench.core.format import Claim
from lossbench.core.point import Point
from lossbench.report import figures
from lossbench.report.figures import forest, marks, style
from lossbench.report.figures.statements import MARKS as OUTCOME_MARKS
from lossbench.report.figures.style import Drawing


@pytest.fixture(scope="module")
def results() -> Results:
    return study()


@pytest.fixture(scope="module")
def drawings(results) -> dict[str, Drawing]:
    return {drawing.name: drawing for drawing in [*each_figure(results), figures.angles_by_class(results, "classes")]}


def at_chance(group, label: str):
    """The same cells and records, but one loss guesses."""
    return [
        (cell, replace(record, correct=TOTAL // 10) if cell.kind == "train" and cell.loss.label == label else record)
        for cell, record in group
    ]


def test_a_statement_has_a_mark_for_every_case_of_it():
    claims = [
        Claim(text=f"{loss}", statement=said, experiment="losses", better=loss, than="softmax")
        for said, losses in {"Better than softmax": LONG[1:4], "And these": LONG[4:]}.items()
        for loss in losses
    ]
    found = results_of(at_chance(made("losses", "digits", LONG, seeds=10), "center"), claims=claims)
    ax = panel(figures.statements(found))
    shown = dict(zip((text.get_text() for text in ax.get_yticklabels()), ax.get_yticks(), strict=True))
    marks = [(y, line.get_label()) for line in ax.lines if line.get_label() in OUTCOMES for y in line.get_ydata()]
    assert "not testable" in set(found.claims["verdict"])
    for statement, cases in found.claims.groupby("statement"):
        row = shown.pop(statement)
        assert Counter(word for place, word in marks if place == row) == Counter(cases["verdict"])
    assert not shown


def test_no_line_of_a_statement_ends_within_an_equation():
    said = "A loss is better than all the others, also with m = 4"  # a plain wrap would end after `m =`
    losses = [(said, loss) for loss in LONG[1:3]]
    claims = [
        Claim(text=loss, statement=text, experiment="losses", better=loss, than="softmax") for text, loss in losses
    ]
    ax = panel(figures.statements(results_of(made("losses", "digits", LONG, seeds=10), claims=claims)))
    (label,) = (text.get_text() for text in ax.get_yticklabels())
    assert label.splitlines()[-1] == "m\u00a0=\u00a04"


def test_every_outcome_of_a_claim_and_every_verdict_has_its_own_mark():
    assert set(OUTCOME_MARKS) == set(OUTCOMES)
    assert set(marks.MARKS) == {"better", "worse", "equivalent", "undecided", "not testable"}
    assert len({(mark["marker"], mark.get("mfc")) for mark in OUTCOME_MARKS.values()}) == len(OUTCOMES)
    assert len({(mark.marker, mark.filled) for mark in marks.MARKS.values()}) == 5
    assert len({mark.sign for mark in marks.MARKS.values()}) == 5


def judged(results: Results, experiment: str, metric: str = "accuracy"):
    """The comparisons of an experiment by loss, best first."""
    frame = results.comparisons.query("metric == @metric and experiment == @experiment")
    return frame.sort_values("delta", ascending=metric == "step_seconds").to_dict("records")


def names_of(ax) -> list[str]:
    return [tick.get_text() for tick in ax.get_yticklabels()]


def test_a_panel_of_differences_shows_its_comparisons_best_first(results):
    found = results_of(made("losses", "digits", LONG, seeds=10))
    ax = panel(figures.difference_forest(found))
    rows = judged(found, "losses")
    assert names_of(ax) == [row["loss"] for row in rows]
    texts = [text.get_text().replace("\u2007", "") for text in ax.texts]
    for place, (row, bar) in enumerate(zip(rows, ax.collections[0].get_segments(), strict=True)):
        (mark,) = labelled(ax, row["loss"])
        assert (mark.get_xdata()[0], mark.get_ydata()[0]) == pytest.approx((row["delta"], place))
        assert bar == pytest.approx(np.array([(row["low"], place), (row["high"], place)]))
        assert mark.get_marker() == marks.MARKS[row["verdict"]].marker
        assert (mark.get_markerfacecolor() == "white") == (not marks.MARKS[row["verdict"]].filled)
        delta, low, high = (f"{row[name]:+.2f}".replace("-", "−") for name in ("delta", "low", "high"))
        star = "*" if "one seed decides" in row["flags"] else ""
        assert f"{delta} [{low}, {high}]  {row['verdict']}{star}" in texts
    assert len({row["verdict"] for row in rows}) > 1
    band = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    assert (band.x0, band.x1) == pytest.approx((-0.5, 0.5))
    baseline = found.main.query("loss == 'softmax'")["value"].iloc[0]
    assert any(text.startswith(f"softmax {baseline:.2f} %, n = 10 seeds") for text in texts)


def test_each_dataset_has_a_panel_with_its_own_axis_and_order(results, drawings):
    columns = results.answer.columns
    axes = [ax for ax in drawings["differences"].canvas.axes if ax.get_visible()]
    assert [ax.get_title(loc="left") for ax in axes] == [column.name for column in columns]
    assert len({ax.get_xlim() for ax in axes}) == len(axes) > 1
    for ax, column in zip(axes, columns, strict=True):
        ranked = sorted(column.rows, key=lambda loss: -column.rows[loss]["delta"])
        assert names_of(ax) == ranked
        for row in column.rows.values():
            assert ax.get_xlim()[0] < row["low"] < row["high"] < ax.get_xlim()[1]
    assert len({tuple(names_of(ax)) for ax in axes}) > 1


def test_where_less_is_better_the_smallest_is_on_top_and_better(results):
    headline = replace(results.metrics["accuracy"], higher_is_better=False)
    info = replace(results.info, metrics=(headline, *(m for m in results.info.metrics if m.name != "accuracy")))
    turned = Results(info, results.runs, results.cells, results.records, {})
    ax = panel(figures.difference_forest(turned))
    assert names_of(ax) == list(reversed(names_of(panel(figures.difference_forest(results)))))
    row = next(iter(turned.answer.columns[0].rows.values()))
    assert row["verdict"] in ("undecided", "equivalent", "worse")


def test_a_loss_far_from_the_others_is_cut_with_an_arrow_and_its_value(results):
    group = made("losses", "digits", LONG, seeds=10)
    wild = [(cell, replace(record, correct=3_000) if cell.loss.label == "center" else record) for cell, record in group]
    tame, found = results_of(group), results_of(wild)
    before, ax = panel(figures.difference_forest(tame)), panel(figures.difference_forest(found))
    assert np.ptp(ax.get_xlim()) < 2.5 * np.ptp(before.get_xlim())  # the others are not squeezed
    row = found.answer.columns[0].rows["center"]
    assert row["delta"] < -20
    (mark,), (arrow,) = labelled(ax, "center"), labelled(ax, "beyond the axis")
    assert arrow.get_marker() == "<" and mark.get_marker() == "v"
    assert ax.get_xlim()[0] == arrow.get_xdata()[0] < mark.get_xdata()[0]
    assert arrow.get_ydata()[0] == mark.get_ydata()[0] == len(LONG) - 2
    assert any(f"−{-row['delta']:.2f} [" in text.get_text() for text in ax.texts)
    assert "An arrow marks what lies beyond the axis." in figures.difference_forest(found).caption
    assert "arrow" not in figures.difference_forest(tame).caption


def test_a_loss_at_chance_is_a_grey_cross_that_says_so():
    found = results_of(at_chance(made("losses", "digits", LONG, seeds=5), "a_softmax"))
    ax = panel(figures.difference_forest(found))
    (mark,) = labelled(ax, "a_softmax")
    assert (mark.get_marker(), mark.get_color()) == ("x", style.LINE)
    assert any(text.get_text().endswith("at chance") for text in ax.texts)
    assert "not testable" in [text.get_text() for text in figures_legend(figures.difference_forest(found))]


def figures_legend(drawing: Drawing):
    return drawing.canvas.legends[0].get_texts()


def test_of_many_losses_the_best_and_the_worst_are_drawn_and_the_panel_says_so():
    losses = ["softmax", *(f"center[weight={index}]" for index in range(44))]
    results = results_of(made("losses", "digits", losses, seeds=3, evaluations=False))
    ax = panel(figures.difference_forest(results))
    ranked = sorted(results.answer.columns[0].rows.values(), key=lambda row: -row["delta"])
    assert names_of(ax) == [row["loss"] for row in [*ranked[:20], *ranked[-20:]]]
    assert any("best 20 and worst 20 of 44" in text.get_text() for text in ax.texts)


def test_of_many_datasets_some_are_drawn_and_the_caption_says_so():
    results = results_of(*(made(name, name, LONG[:3], seeds=3, evaluations=False) for name in "abcdefghijklmnopqrs"))
    drawing = figures.difference_forest(results)
    assert sum(ax.get_visible() for ax in drawing.canvas.axes) == 12
    assert "12 of 19 panels are drawn; the table has all." in drawing.caption
    assert drawing.height < 12


def column(name: str, dataset: str, **verdicts: str) -> Column:
    words = {loss: verdict.partition("*") for loss, verdict in verdicts.items()}
    rows = {
        loss: {"low": 0.0, "verdict": word, "flags": "one seed decides" if star else ""}
        for loss, (word, star, _) in words.items()
    }
    return Column(Point({"dataset": dataset}), "classification", name, name, False, {}, rows, 0)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ([column("mnist", "mnist", a="better", b="worse")], "a is better than softmax on mnist"),
        ([column("mnist", "mnist", a="better*")], "a is better than softmax on mnist (one seed decides)"),
        ([column("mnist", "mnist", a="better", b="better")], "a and b are better than softmax on mnist"),
        ([column("m", "m", a="better", b="better", c="better", d="worse")],
         "3 of 4 losses are better than softmax on m"),
        ([column("m", "m", a="better"), column("c", "c", a="better", b="better"), column("f", "f", a="worse")],
         "a is better than softmax on 2 of 3 datasets; 1 more on fewer"),
        ([column("m, default", "m", a="better"), column("m, tuned", "m", a="undecided")],
         "a is better than softmax on m, default"),
        ([column("m, default", "m", a="better"), column("m, tuned", "m", a="better"), column("g", "g", a="worse")],
         "a is better than softmax on 2 of 3 panels"),
        ([column("m", "m", a="equivalent", b="worse", c="worse", d="undecided")],
         "No loss is better than softmax on m: 1 equivalent, 1 undecided, 2 worse"),
        ([column("m", "m", a="worse", b="undecided"), column("c", "c", a="worse", b="equivalent")],
         "No loss is better than softmax on any of 2 datasets: 1 of 2 are worse on some"),
        ([column("m", "m", a="undecided", b="undecided")], "No loss differs clearly from softmax on m"),
        ([column("m", "m", a="not testable")], "No comparison with softmax can be tested"),
    ],
)  # fmt: skip
def test_the_title_states_the_finding(columns, sentence):
    assert forest.finding(columns, "softmax") == sentence


def test_step_times_are_ratios_with_their_verdicts(results, drawings):
    ax = panel(drawings["step-time"])
    rows = judged(results, "losses", "step_seconds")
    assert names_of(ax) == [row["loss"] for row in rows]  # the fastest on top
    for row, bar in zip(rows, ax.collections[0].get_segments(), strict=True):
        (mark,) = labelled(ax, row["loss"])
        assert mark.get_xdata()[0] == pytest.approx(1 + row["delta"] / 100)
        assert bar[:, 0] == pytest.approx([1 + row["low"] / 100, 1 + row["high"] / 100])
        assert mark.get_marker() == marks.MARKS[row["verdict"]].marker
    assert rows[-1]["verdict"] == "worse"  # slower
    assert ax.get_xscale() == "log"
    assert "n = 5 processes" in [text.get_text() for text in ax.texts]


def test_every_seed_is_a_dot(results, drawings):
    for label in LONG:
        (dots,) = labelled(panel(drawings["seeds-losses"]), label)
        mine = results.trained.query("experiment == 'losses' and label == @label")
        assert sorted(dots.get_xdata()) == pytest.approx(sorted(mine["accuracy"]))
    assert figures.seed_dots(results, "width") is None  # the first table has no point of it
    two = results_of(*(made("losses", name, LONG, seeds=3) for name in ("digits", "glyphs")))
    drawing = figures.seed_dots(two, "losses")
    assert [ax.get_title(loc="left") for ax in drawing.canvas.axes] == ["digits", "glyphs"]


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
    names = names_of(ax)
    values = ax.collections[0].get_array().reshape(len(names), len(names))
    assert np.ma.allclose(values, -values.T)
    compared = results.comparisons.query("metric == 'accuracy' and experiment == 'losses'").set_index("loss")
    texts = {(int(text.get_position()[1]), int(text.get_position()[0])): text.get_text() for text in ax.texts}
    base = names.index("softmax")
    for label in LONG[1:]:
        row = names.index(label)
        assert values[row, base] == pytest.approx(compared["delta"][label])
        verdict = compared["verdict"][label]
        assert texts[row, base].partition("\n")[2] == marks.MARKS[verdict].sign
        turned = {"better": "worse", "worse": "better"}.get(verdict, verdict)
        assert texts[base, row].partition("\n")[2] == marks.MARKS[turned].sign
    frame = results.main.query("experiment == 'losses'").set_index("loss")["accuracy"]
    assert names == sorted(names, key=lambda label: -frame[label])


def test_a_heatmap_of_many_losses_has_numbers_for_names_and_colours_that_an_outlier_does_not_bleach():
    group = made("losses", "digits", TWENTY[:15], seeds=5)
    wild = [(cell, replace(record, correct=2_500) if cell.loss.label == "hinge" else record) for cell, record in group]
    ax = panel(figures.pairwise_heatmap(results_of(wild), "losses"))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [str(number) for number in range(1, 16)]
    assert names_of(ax)[-1] == "hinge  15"
    mesh = ax.collections[0]
    assert mesh.get_clim()[1] < 5 < np.abs(mesh.get_array()).max()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_pairs_without_a_difference_are_faint(results, drawings):
    ax = panel(drawings["pairs-losses"])
    names = names_of(ax)
    found = series.pairs(results, "losses")
    strong = {frozenset((row["a"], row["b"])) for row in found.to_dict("records") if row["verdict"] in marks.DECIDED}
    assert 0 < len(strong) < len(found)
    alpha = ax.collections[0].get_alpha()
    for (i, a), (j, b) in itertools.permutations(enumerate(names), 2):
        assert (alpha[i, j] == 1) == (frozenset((a, b)) in strong)


def test_a_pair_over_several_points_is_a_mean_within_seeds(results):
    row = series.pairs(results, "width").query("a == 'softmax' and b == 'center'").iloc[0]
    compared = results.comparisons.query("metric == 'accuracy' and experiment == 'width' and loss == 'center'")
    assert len(row["points"]) == 3
    assert row["delta"] == pytest.approx(-compared["delta"].mean())


def test_width_and_classes_draw_the_means_and_mark_the_minimum(results, drawings):
    frame = results.main.query("experiment == 'width' and loss == 'center'").sort_values("width")
    accuracy, gain = drawings["axis-width-width"].canvas.axes
    (drawn,) = labelled(accuracy, "center")
    assert list(drawn.get_ydata()) == pytest.approx(list(frame["accuracy"]))
    assert np.log(np.asarray(drawn.get_xdata(), float)) == pytest.approx(np.log(frame["width"].to_numpy()), abs=0.4)
    assert "M_min = 9" in [text.get_text() for text in accuracy.texts]
    assert accuracy.get_xscale() == gain.get_xscale() == "log"
    axes = drawings["axis-classes-classes"].canvas.axes
    assert [ax.get_title(loc="left") for ax in axes[::2]] == ["M = C − 1", "M = 64"]
    (drawn,) = labelled(axes[2], "softmax")
    frame = results.main.query("experiment == 'classes' and loss == 'softmax' and width == 64").sort_values("classes")
    assert list(drawn.get_ydata()) == pytest.approx(list(frame["accuracy"]))


def test_along_an_axis_the_intervals_are_those_of_the_comparisons(results, drawings):
    gain = drawings["axis-width-width"].canvas.axes[1]
    compared = results.comparisons.query("metric == 'accuracy' and experiment == 'width'")
    bars = np.array(sorted(tuple(bar[:, 1]) for bar in gain.collections[-1].get_segments()))
    assert bars == pytest.approx(np.array(sorted(zip(compared["low"], compared["high"], strict=True))))


def test_along_an_axis_a_loss_far_from_the_others_leaves_it_but_a_trend_stays_on_it():
    group = made("width", "digits", LONG, widths=(2, "min", 90))
    wild = [(cell, replace(record, correct=1_500) if cell.loss.label == "center" else record) for cell, record in group]
    accuracy, gain = along(results_of(wild), "width", "width").canvas.axes
    for label in LONG:
        (line,) = labelled(accuracy, label)
        inside = [accuracy.get_ylim()[0] < value < accuracy.get_ylim()[1] for value in line.get_ydata()]
        assert all(inside) if label != "center" else not any(inside)
    (far,) = labelled(accuracy, "center")
    arrows = labelled(accuracy, "beyond the axis")
    assert [arrow.get_xdata()[0] for arrow in arrows] == list(far.get_xdata())
    assert {arrow.get_color() for arrow in arrows} == {far.get_color()}
    written = [text.get_text() for text in accuracy.texts if "M_min" not in text.get_text()]
    assert written == [f"{value:.1f}" for value in far.get_ydata()]
    (far,) = labelled(gain, "center")
    assert [text.get_text() for text in gain.texts] == [f"−{-value:.2f}" for value in far.get_ydata()]
    assert gain.get_ylim()[0] > -10


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


def ends_of(collection) -> list[float]:
    """Where the bars of a cause or phase end."""
    return [path.vertices[:, 0].max() for path in collection.get_paths()]


def test_memory_bars_add_up(results, drawings):
    frame = results.main.query("experiment == 'losses'")
    ax = panel(drawings["memory-losses"])
    held = frame["bytes_model"] + frame["bytes_classifier"] + frame["bytes_loss"] + frame["bytes_optimizer"]
    assert np.array(ends_of(ax.collections[-1])) * 1024 == pytest.approx(held.to_numpy())
    body = [path.vertices[:, 0].min() for path in ax.collections[0].get_paths()]
    assert body == [0] * len(LONG)


def test_phases_add_up_to_the_step(results, drawings):
    ax = panel(drawings["phases-losses"])
    rounds = next(seconds for point, seconds, _ in results.timed if point["experiment"] == "losses")
    assert ends_of(ax.collections[-1]) == pytest.approx([1000 * np.median(rounds[label]) for label in LONG])


def test_the_front_is_that_of_the_means_with_intervals(results, drawings):
    frame = series.front(results, "losses").set_index("loss")
    times = results.comparisons.query("metric == 'step_seconds'").set_index("loss")
    ax = panel(drawings["pareto-losses"])
    for label in LONG:
        row = frame.loc[label]
        if label != "softmax":
            assert row["ratio"] == pytest.approx(1 + times["delta"][label] / 100)
            assert row["ratio_high"] == pytest.approx(1 + times["high"][label] / 100)
        (dot,) = labelled(ax, label)
        assert (dot.get_xdata()[0], dot.get_ydata()[0]) == pytest.approx((row["ratio"], row["accuracy"]))
        assert (dot.get_markerfacecolor() != "white") == row["best"]
        bars = [line for line in ax.lines if line.get_color() == dot.get_color() and line is not dot]
        assert list(bars[0].get_xdata()) == pytest.approx([row["ratio_low"], row["ratio_high"]])
        assert list(bars[1].get_ydata()) == pytest.approx([row["low"], row["high"]])
    assert frame["best"]["softmax"]  # nothing is faster
    assert frame["chance"].between(0, 1).all()
    few = results_of(made("losses", "digits", LONG, seeds=4, timing=12))
    assert series.front(few, "losses")["chance"].isna().all()
    assert "this probability is not estimated" in figures.pareto(few, "losses").caption


def test_a_loss_timed_in_one_process_has_no_interval_of_its_time():
    group = made("losses", "digits", LONG, seeds=3, timing=12)
    alone = [(cell, replace(record, timing={**record.timing, "process": [0] * 12}) if record.rounds else record)
             for cell, record in group]  # fmt: skip
    found = results_of(alone)
    frame = series.front(found, "losses").set_index("loss")
    assert frame["ratio_low"].drop("softmax").isna().all() and frame["ratio"].notna().all()
    assert figures.step_time_forest(found) is None
    assert figures.pareto(found, "losses").svg


def test_pareto_numbers_do_not_overlap_and_a_far_loss_stands_at_the_edge_with_its_values():
    group = made("losses", "digits", TWENTY[:15], seeds=10, timing=12)
    wild = [(cell, replace(record, correct=2_500) if cell.kind == "train" and cell.loss.label == "hinge" else record)
            for cell, record in group]  # fmt: skip
    found = results_of(wild)
    drawing = figures.pareto(found, "losses")
    ax = panel(drawing)
    accuracy = series.front(found, "losses").set_index("loss")["accuracy"]
    bottom, top = ax.get_ylim()
    assert accuracy["hinge"] < bottom < accuracy.drop("hinge").min() < accuracy.max() < top
    (arrow,) = labelled(ax, "hinge")
    assert bottom < arrow.get_ydata()[0] < accuracy.drop("hinge").min()
    texts = [text.get_text() for text in ax.texts]
    assert sorted(texts, key=lambda text: int(text.split()[0]))[:-1] == [str(number) for number in range(1, 15)]
    assert texts[-1].startswith(f"15 ({accuracy['hinge']:.1f}, ")
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(one.shrunk(0.9, 0.8).overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert "An arrow marks a loss beyond the axes" in drawing.caption


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
