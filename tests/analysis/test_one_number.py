"""One quantity, one number: what figures draw is what tables, report.json and the CSV files state."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import SMALL
from kit.synthetic import Truth, analysed, common, noise, write_run

from lossbench.analysis.results import analyse
from lossbench.core.point import Point
from lossbench.report import figures
from lossbench.report.blocks import Table
from lossbench.report.output import data
from lossbench.report.sections import SECTIONS

GAIN = {"softmax": 0, "w_softmax": 0.4, "center": 0.1, "hinge": -0.2}
TIMES = {"softmax": 0.010, "w_softmax": 0.0101, "center": 0.0102, "hinge": 0.01015}
KS = [3, 4, 5, 6, 7, 8]


CLAIMS = """
[[claim]]
text = "Other losses are better"
experiment = "digits"
better = ["w_softmax", "center", "hinge"]
than = "softmax"
"""


def truth(cell):
    accuracy = 90 + common(cell.seed) + GAIN[cell.loss.name] + noise(cell, 0.4)
    curve = tuple({"step": step, "loss": 1 / step + abs(noise(cell, 0.01)), "correct": 90 * step} for step in (20, 60))
    return Truth(accuracy, angle=40 + noise(cell, 5), curve=curve)


@pytest.fixture(scope="module")
def results(tmp_path_factory, read_suite):
    """Four losses, three timed widths, ten seeds; each phase of a step has noise of its own; features at width 2."""
    text = SMALL.replace('"w_softmax"]', '"w_softmax", "center", "hinge"]').replace("[8]", "[8, 16, 2]")
    suite = read_suite(text.replace("seeds = 2", "seeds = 10\ntiming = { rounds = 20 }") + CLAIMS)
    found = analyse([write_run(suite, tmp_path_factory.mktemp("one"), truth, times=TIMES)])
    rng = np.random.default_rng(1)
    frame = found.records.copy()
    for timing in frame.loc[frame["kind"] == "timing", "timing"]:
        for parts in timing["phases"].values():
            parts |= {name: list(np.array(taken) * rng.uniform(0.5, 2, len(taken))) for name, taken in parts.items()}
    kept = {"points": rng.normal(size=(30, 2)).tolist(), "labels": [n % 3 for n in range(30)], "weights": np.eye(3, 2)}
    narrow = (frame["kind"] == "train") & (frame["width"] == 2)
    planes = [kept if each else None for each in narrow]
    return replace(found, records=frame.assign(features=planes))


@pytest.fixture(scope="module")
def ranked(read_suite):
    """Six datasets that differ by the folder they are read from, on which no loss is better than another."""
    text = SMALL.replace('"w_softmax"]', '"w_softmax", "center", "hinge"]')
    suite = read_suite(text.replace("seeds = 2", f"seeds = 3\nclasses = {KS}"))
    found = analysed(suite, lambda cell: Truth(90 + noise(cell, 1)))
    frame = found.records
    points = [Point({**point, "dataset": f"folder[path=set{point['classes']}]"}) for point in frame["point"]]
    return replace(found, records=frame.assign(point=points, dataset=[point["dataset"] for point in points]))


GRID = """
name = "small"
margin = 0.5
[[experiment]]
name = "digits"
dataset = [{ name = "digits", train = [200, 400] }, "glyphs[train=300]"]
backbone = ["cnn[channels=4,depths=(1)]", "cnn[channels=6,depths=(1)]"]
widths = [8]
losses = ["softmax", "center", "w_softmax"]
seeds = 4
schedule = { steps = 20, lr = [0.02, 0.5] }
"""


@pytest.fixture(scope="module")
def grid(read_suite):
    """Two datasets, one with two sizes, × two backbones × two learning rates."""

    def found(cell):
        rng = np.random.default_rng([cell.seed, *f"{cell.point} {cell.label}".encode()])
        return Truth(80 + common(cell.seed) + GAIN[cell.loss.name] + rng.normal(0, 1))

    return analysed(read_suite(GRID), found)


def files(results):
    """The sections without figures, report.json, and comparisons.csv."""
    parts = [build(results) for build in SECTIONS]
    found = data.files(results, parts)
    return parts, json.loads(found["report.json"]), csv(results, "comparisons")


def csv(results, name):
    return pd.read_csv(io.BytesIO(data.files(results, [])[f"{name}.csv"]))


def rows(parts, slug, column):
    """The rows of the tables of a section that have a column."""
    tables = [block for part in parts if part.slug == slug for block in part.blocks if isinstance(block, Table)]
    return [
        dict(zip(table.columns, row, strict=True)) for table in tables if column in table.columns for row in table.rows
    ]


def drawings(results):
    slugs = dict.fromkeys([*figures.WHOLE, *figures.EACH])
    return {drawing.name: drawing for slug in slugs for drawing in figures.of_section(results, slug)}


def drawn(results, name):
    return drawings(results)[name].canvas.axes


def dots(axes, label, marker="o"):
    """The x values of the marks of a loss, or of all losses for None."""
    lines = [line for ax in axes for line in ax.lines if line.get_marker() == marker]
    mine = [line for line in lines if label is None or line.get_label() == label]
    return sorted(value for line in mine for value in np.atleast_1d(line.get_xdata()))


def heights(axes, label):
    """The y values of the error bars of a loss, from left to right."""
    return [list(made.lines[0].get_ydata()) for ax in axes for made in ax.containers if made.get_label() == label]


ELSEWHERE = {"pareto", "phases", "ranks", "angles"}  # have a test of their own
HERE = {"claims", "differences", "step", "seeds", "learning", "pairs", "axis", "features", "memory"}


def test_every_kind_of_figure_is_compared(results, ranked):
    kinds = {name.partition("-")[0] for name in [*drawings(results), *drawings(ranked)]}
    assert kinds == HERE | ELSEWHERE


def test_differences_and_step_times_are_those_of_the_csv(results):
    frame = csv(results, "comparisons")
    for name, metric, scale in (("differences", "accuracy", 1.0), ("step-time", "step_seconds", 0.01)):
        axes = drawn(results, name)
        for loss, group in frame[frame["metric"] == metric].groupby("loss"):
            shift = 0.0 if metric == "accuracy" else 1.0
            assert dots(axes, loss) == pytest.approx(sorted(shift + scale * group["delta"]))
            ends = sorted(tuple(line.get_xdata()) for ax in axes for line in ax.lines if
                          line.get_label() == loss and len(line.get_xdata()) == 2)  # fmt: skip
            stated = sorted(zip(shift + scale * group["low"], shift + scale * group["high"], strict=True))
            assert np.array(ends) == pytest.approx(np.array(stated))


def test_seeds_and_their_means_are_those_of_the_csv(results):
    frame = csv(results, "records").query("kind == 'train'")
    axes = drawn(results, "seeds-digits")
    for loss, group in frame.groupby("label"):
        assert dots(axes, loss) == pytest.approx(sorted(group["accuracy"]))
    means = frame.groupby(["width", "label"])["accuracy"].mean()
    assert dots(axes, None, "D") == pytest.approx(sorted(means))


def test_learning_curves_are_means_over_seeds_of_the_records(results):
    frame = results.trained[results.trained["width"] == 16]
    for ax, key, scale in zip(drawn(results, "learning-digits"), ("loss", "correct"), (1, 0.01), strict=True):
        for loss in GAIN:
            (line,) = (line for line in ax.lines if line.get_label() == loss)
            curves = [[scale * point[key] for point in curve] for curve in frame[frame["label"] == loss]["curve"]]
            assert list(line.get_ydata()) == pytest.approx(list(np.mean(curves, axis=0)))


def test_pairs_are_paired_differences_of_the_csv(results):
    mean = csv(results, "records").query("kind == 'train'").groupby("label")["accuracy"].mean()
    ax = drawn(results, "pairs-digits")[0]
    losses = [tick.get_text() for tick in ax.get_yticklabels()]
    table = np.ma.filled(ax.collections[0].get_array(), np.nan).reshape(len(losses), -1)
    for i, a in enumerate(losses):
        for j, b in enumerate(losses):
            assert np.isnan(table[i, j]) if i == j else table[i, j] == pytest.approx(mean[a] - mean[b])


def test_accuracy_and_gain_along_every_axis_are_those_of_the_json_and_the_csv(results, grid):
    for found, axis in ((results, "width"), (grid, "lr"), (grid, "train")):
        stated = pd.DataFrame(files(found)[1]["main"])
        compared = csv(found, "comparisons").query("metric == 'accuracy'")
        axes = drawn(found, f"axis-{axis}-digits")
        for column, frame, name in ((0, stated, "value"), (1, compared, "delta")):
            others = [key for key in ("dataset", "backbone", "classes", "width", "lr", "train") if
                      key != axis and key in frame]  # fmt: skip
            panels = [group for _, group in frame[frame[axis].notna()].groupby(others, dropna=False, sort=False)]
            for loss in frame["loss"].unique():
                lines = [group[group["loss"] == loss].sort_values(axis) for group in panels]
                lines = [line for line in lines if len(line) > 1]
                assert 1 <= len(lines) <= 6
                shown = heights(axes[column::2], loss)
                assert np.array(shown) == pytest.approx(np.array([line[name] for line in lines]))
                bars = [made.lines[2][0].get_segments() for ax in axes[column::2] for made in ax.containers if
                        made.get_label() == loss]  # fmt: skip
                ends = np.array([[(low, high) for (_, low), (_, high) in bar] for bar in bars])
                assert ends == pytest.approx(np.array([line[["low", "high"]] for line in lines]))


def test_minimum_widths_are_a_line_along_the_classes_and_still_points_of_fixed_widths(read_suite):
    suite = SMALL.replace("[8]", '["min", 3, 16]').replace("seeds = 2", "seeds = 3\nclasses = [4, 8]")
    found = analysed(read_suite(suite), truth)
    main = found.main.set_index(["classes", "width", "loss"])["value"]
    axes = drawn(found, "axis-classes-digits")[::2]
    shown = {ax.get_title(loc="left"): heights([ax], "w_softmax")[0] for ax in axes}
    for title, widths in (("M = 3", (3, 3)), ("M = C − 1", (3, 7)), ("M = 16", (16, 16))):
        stated = [main[classes, width, "w_softmax"] for classes, width in zip((4, 8), widths, strict=True)]
        assert shown.pop(title) == pytest.approx(stated)
    assert not shown


def test_the_table_along_the_width_states_the_memory_of_the_fc_layer(results):
    table = rows(files(results)[0], "axis-tables", "FC layer")
    assert {row["M"].split()[0]: row["FC layer"] for row in table} == {"2": "8 B", "8": "32 B", "16": "64 B"}


def test_features_are_those_of_the_record(results):
    kept = results.trained.query("width == 2").iloc[0]["features"]
    points, labels = np.array(kept["points"]), np.array(kept["labels"])
    for ax in drawn(results, "features-digits"):
        for number in range(3):
            (line,) = (line for line in ax.lines if line.get_label() == str(number))
            assert np.array(line.get_xydata()) == pytest.approx(points[labels == number])


def test_memory_is_that_of_the_json(results):
    main = [row for row in files(results)[1]["main"] if row["n"]]
    ledger, peak = drawn(results, "memory-digits")
    unit, peak_unit = (
        1024.0 ** ["B", "KiB", "MiB", "GiB"].index(ax.get_xlabel().rpartition(" ")[2]) for ax in (ledger, peak)
    )
    bars = {made.get_label(): [unit * bar.get_width() for bar in made] for made in ledger.containers}
    for column, cause in (("bytes_fc", "FC layer"), ("bytes_classifier", "class weights")):
        assert bars[cause] == pytest.approx([row[column] for row in main])
    for loss in GAIN:
        shown = [peak_unit * line.get_xdata()[0] for line in peak.lines if line.get_label() == loss]
        assert shown == pytest.approx([row["bytes_peak"] for row in main if row["loss"] == loss])


def test_marks_of_claims_are_the_verdicts_of_the_csv(results):
    (ax,) = drawn(results, "claims")
    words = ("supported", "contradicted", "undecided", "not testable")
    shown = Counter(line.get_label() for line in ax.lines if line.get_label() in words)
    assert shown == Counter(csv(results, "claims")["verdict"])


def test_the_chance_of_the_front_is_one_number(results):
    parts, stated, compared = files(results)
    (ax,) = drawn(results, "pareto-digits")
    shown = {text.get_text().split("  (")[0]: text.get_text() for text in ax.get_legend().get_texts()}
    table = {(row["loss"], row["M"]): row["P(front), time"] for row in rows(parts, "memory", "P(front), time")}
    at_8 = [row for row in stated["front"] if row["width"] == 8]
    assert len(at_8) == 4
    assert len({row["front_time"] for row in at_8}) > 2
    for row in at_8:
        chance = row["front_time"]
        words = "< 1 %" if chance < 0.005 else "> 99 %" if chance > 0.995 else f"{100 * chance:.0f} %"
        assert shown[row["loss"]] == f"{row['loss']}  ({words})"
        assert table[row["loss"], "8"] == f"{chance:.2f}"
        ratio = compared.query("metric == 'step_seconds' and width == 8 and loss == @row['loss']")["delta"]
        dot = next(made for made in ax.containers if made.get_label() == row["loss"]).lines[0]
        assert dot.get_ydata()[0] == pytest.approx(row["accuracy"])
        assert dot.get_xdata()[0] == pytest.approx(1 + ratio.iloc[0] / 100 if len(ratio) else 1.0)


def test_the_front_of_time_is_among_the_losses_of_one_timing_cell(results):
    """Recomputed by resampling seeds and rounds of one timing cell; the losses of other widths have no part in it."""
    timed = {point["width"]: rounds for point, rounds, _ in results.timed}
    rng = np.random.default_rng(5)
    for width in (8, 16):
        frame = results.trained[results.trained["width"] == width]
        accuracy = frame.pivot_table(index="seed", columns="label", values="accuracy")[list(GAIN)].to_numpy(float)
        seconds = np.log([timed[width][label] for label in GAIN]).T
        counts = np.zeros(4)
        for _ in range(2000):
            high = accuracy[rng.integers(0, 10, 10)].mean(axis=0)
            low = seconds[rng.integers(0, 20, 20)].mean(axis=0)
            counts += [
                not any(
                    high[j] >= high[i] and low[j] <= low[i] and (high[j], low[j]) != (high[i], low[i]) for j in range(4)
                )
                for i in range(4)
            ]
        mine = results.front[results.front["width"] == width].set_index("loss")["front_time"]
        assert [mine[label] for label in GAIN] == pytest.approx(counts / 2000, abs=0.05)


def test_the_phases_of_a_step_are_one_number(results):
    parts, stated, _ = files(results)
    (ax,) = drawn(results, "phases-digits")
    labels = [tick.get_text() for tick in ax.get_yticklabels()]
    bars = {made.get_label(): [bar.get_width() for bar in made] for made in ax.containers}
    numbers = [text.get_text() for text in ax.texts]
    table = {(row["loss"], row["M"]): row for row in rows(parts, "cost", "median ms")}
    first = {row["loss"]: row for row in stated["phases"] if row["width"] == 8}
    for place, label in enumerate(labels):
        for phase in ("forward", "backward", "optimizer"):
            assert bars[phase][place] == pytest.approx(first[label][phase])
        assert numbers[place] == table[label, "8"]["median ms"] == f"{first[label]['step']:.2f}"


def test_ranks_and_their_groups_are_one_number(ranked):
    parts, stated, _ = files(ranked)
    assert stated["ranks"]["n"] == len(KS)
    assert stated["ranks"]["p"] > 0.05
    assert stated["ranks"]["groups"] == [
        sorted(GAIN, key=dict(zip(stated["ranks"]["losses"], stated["ranks"]["ranks"], strict=True)).get)
    ]
    (ax,) = drawn(ranked, "ranks-accuracy")
    table = {row["loss"]: row["mean rank"] for row in rows(parts, "datasets", "mean rank")}
    for label, rank in zip(stated["ranks"]["losses"], stated["ranks"]["ranks"], strict=True):
        (dot,) = (line for line in ax.lines if line.get_label() == label)
        assert dot.get_xdata()[0] == pytest.approx(rank)
        assert table[label] == f"{rank:.2f}"
    (bar,) = (line for line in ax.lines if line.get_label() == "not different")
    assert (min(bar.get_xdata()), max(bar.get_xdata())) == pytest.approx(
        (min(stated["ranks"]["ranks"]) - 0.04, max(stated["ranks"]["ranks"]) + 0.04)
    )
    prose = " ".join(
        block.text for part in parts if part.slug == "datasets" for block in part.blocks if hasattr(block, "text")
    )
    assert f"Groups whose ranks do not differ significantly: {', '.join(stated['ranks']['groups'][0])}." in prose
    assert "apart" not in prose


def test_the_angles_of_classes_are_one_number(results):
    parts, stated, _ = files(results)
    axes = drawn(results, "angles-digits")
    table = {(row["loss"], row["M"]): row for row in rows(parts, "geometry", "0")}
    for split, ax in enumerate(axes):
        for label in GAIN:
            (line,) = (line for line in ax.lines if line.get_label() == label)
            for number, angle in zip(line.get_xdata(), line.get_ydata(), strict=True):
                assert re.split(" / ", table[label, "16"][str(number)])[split] == f"{angle:.1f}"
    means = {(row["loss"], row["width"]): row["angle_test"] for row in stated["main"]}
    line = next(line for line in axes[1].lines if line.get_label() == "center")
    assert np.mean(line.get_ydata()) == pytest.approx(means["center", 16])
