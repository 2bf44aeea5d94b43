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
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.text import Annotation

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


AXES = ("dataset", "backbone", "classes", "width", "lr", "train")


def at(frame, point):
    """The rows of a frame that have these values; a missing value equals a missing value."""
    for name, value in point.items():
        frame = frame[frame[name].isna() if pd.isna(value) else frame[name] == value]
    return frame


def chosen(results):
    """The points of the first table: for each dataset and backbone, where the records of the baseline are best."""
    frame = csv(results, "records").query("kind == 'train' and label == 'softmax'")
    names = [name for name in AXES if name in frame]
    mean = frame.groupby(names, dropna=False, sort=False)["accuracy"].mean().reset_index()
    best = [group["accuracy"].idxmax() for _, group in mean.groupby(["dataset", "backbone"], sort=False)]
    return [mean.loc[index, names].to_dict() for index in best]


def shown(ax, label):
    """What is drawn for a loss."""
    (line,) = (line for line in ax.lines if line.get_label() == label)
    return line


def segments(ax):
    """The intervals of an axes."""
    (found,) = (made for made in ax.collections if isinstance(made, LineCollection))
    return [np.asarray(ends) for ends in found.get_segments()]


def bars(ax):
    """The widths of stacked bars: by part, one for each row from the top."""
    found = {}
    for made in (made for made in ax.collections if isinstance(made, PolyCollection)):
        corners = [path.vertices for path in made.get_paths()]
        assert [each[:, 1].min() + 0.34 for each in corners] == pytest.approx(list(ax.get_yticks()))
        found[made.get_label()] = [np.ptp(each[:, 0]) for each in corners]
    return found


def signed(value):
    return f"{value:+.2f}".replace("-", "−")


SHAPES = {"better": "^", "worse": "v", "equivalent": "o", "undecided": "o"}


def assert_forest(ax, stated, write):
    """Marks, intervals and texts of a panel are these rows, by the names at its axis."""
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert sorted(names) == sorted(stated)
    marks = {line.get_ydata()[0]: line for line in ax.lines if line.get_label() in GAIN}
    texts = {text.get_position()[1]: text.get_text() for text in ax.texts if not isinstance(text, Annotation)}
    intervals = {ends[0, 1]: list(ends[:, 0]) for ends in segments(ax)}
    for place, name in enumerate(names):
        row = stated[name]
        assert marks[place].get_label() == row["loss"]
        assert marks[place].get_xdata()[0] == pytest.approx(row["delta"])
        assert marks[place].get_marker() == SHAPES[row["verdict"]]
        assert (marks[place].get_markerfacecolor() == "white") == (row["verdict"] == "undecided")
        assert intervals[place] == pytest.approx([row["low"], row["high"]])
        star = "*" if row["flags"] == "one seed decides" else ""
        delta, low, high = (write(row[end]) for end in ("delta", "low", "high"))
        assert texts[place].lstrip("\u2007") == f"{delta} [{low}, {high}]  {row['verdict']}{star}"
    assert len(marks) == len(texts) == len(intervals) == len(names)


ELSEWHERE = {"pareto", "phases", "ranks", "angles"}  # have a test of their own
HERE = {"claims", "differences", "step", "seeds", "learning", "pairs", "axis", "features", "memory"}


def test_every_kind_of_figure_is_compared(results, ranked):
    kinds = {name.partition("-")[0] for name in [*drawings(results), *drawings(ranked)]}
    assert kinds == HERE | ELSEWHERE


def test_differences_are_those_of_the_csv_where_the_baseline_is_best(results, grid):
    for found, count in ((results, 1), (grid, 4)):
        parts, stated, compared = files(found)
        compared = compared[compared["metric"] == "accuracy"]
        axes, points = drawn(found, "differences"), chosen(found)
        assert len(points) == count
        for ax, point in zip(axes, points, strict=True):
            mine = {row["loss"]: row for row in at(compared, point).to_dict("records")}
            assert_forest(ax, mine, signed)
            (base,) = at(pd.DataFrame(stated["main"]), {**point, "loss": "softmax"}).to_dict("records")
            (note,) = (text.get_text() for text in ax.texts if isinstance(text, Annotation))
            assert note == f"softmax {base['value']:.2f} %, n = {base['n']} seeds"
            name = ax.get_title(loc="left")
            table = {row["loss"]: row[name] for row in rows(parts, "answer", name)}
            assert table.pop("softmax") == f"{base['value']:.2f} %"
            assert {loss: cell.split()[0] for loss, cell in table.items()} == {
                loss: signed(row["delta"]) for loss, row in mine.items()
            }


def test_step_times_are_those_of_the_csv(results):
    frame = csv(results, "comparisons").query("metric == 'step_seconds'")
    frame = frame.assign(**{end: 1 + frame[end] / 100 for end in ("delta", "low", "high")})
    stated = {f"{row['loss']}, M = {row['width']}": row for row in frame.to_dict("records")}
    assert len(stated) == 9
    (ax,) = drawn(results, "step-time")
    assert_forest(ax, stated, "{:.3f}".format)


def test_seeds_and_their_means_are_those_of_the_csv(results, grid):
    for found, count in ((results, 1), (grid, 3)):
        frame = csv(found, "records").query("kind == 'train'")
        main = pd.DataFrame(files(found)[1]["main"])
        axes = drawn(found, "seeds-digits")
        assert len(axes) == count
        for ax, point in zip(axes, chosen(found)[:count], strict=True):
            here = at(frame, point)
            labels = [tick.get_text() for tick in axes[0].get_yticklabels()]
            assert set(labels) == set(here["label"])
            (means,) = (line for line in ax.lines if line.get_marker() == "D")
            for place, loss in enumerate(labels):
                values = here[here["label"] == loss]["accuracy"]
                assert sorted(shown(ax, loss).get_xdata()) == pytest.approx(sorted(values))
                assert means.get_xdata()[place] == pytest.approx(values.mean())
                (row,) = at(main, {**point, "loss": loss}).to_dict("records")
                assert list(segments(ax)[place][:, 0]) == pytest.approx([row["low"], row["high"]])


def test_learning_curves_are_means_over_seeds_of_the_records(results):
    frame = at(results.trained, *chosen(results))
    for ax, key, scale in zip(drawn(results, "learning-digits"), ("loss", "correct"), (1, 0.01), strict=True):
        for loss in GAIN:
            curves = [[scale * point[key] for point in curve] for curve in frame[frame["label"] == loss]["curve"]]
            assert len(curves) == 10
            assert list(shown(ax, loss).get_xdata()) == [20, 60]
            assert list(shown(ax, loss).get_ydata()) == pytest.approx(list(np.mean(curves, axis=0)))


def test_pairs_are_paired_differences_of_the_csv(results):
    (point,) = chosen(results)
    mean = at(csv(results, "records").query("kind == 'train'"), point).groupby("label")["accuracy"].mean()
    compared = at(csv(results, "comparisons").query("metric == 'accuracy'"), point).set_index("loss")["verdict"]
    signs = {"better": "▲", "worse": "▼", "equivalent": "≈", "undecided": ""}
    (ax,) = drawn(results, "pairs-digits")
    losses = [tick.get_text() for tick in ax.get_yticklabels()]
    assert losses == [tick.get_text() for tick in ax.get_xticklabels()]
    assert sorted(losses) == sorted(GAIN)
    table = np.ma.filled(ax.collections[0].get_array(), np.nan).reshape(len(losses), -1)
    texts = {text.get_position(): text.get_text() for text in ax.texts}
    for i, a in enumerate(losses):
        for j, b in enumerate(losses):
            number, _, sign = texts[j + 0.5, i + 0.5].partition("\n")
            if i == j:
                assert np.isnan(table[i, j])
                assert number == "·"
                continue
            assert table[i, j] == pytest.approx(mean[a] - mean[b])
            assert number == signed(mean[a] - mean[b])
            if b == "softmax":  # a planned comparison has the same verdict here
                assert sign == signs[compared[a]]


def followed(main, axis):
    """The lines along an axis as values of the other axes; of more than four those where the baseline is best."""
    others = [name for name in AXES if name != axis and name in main]
    groups = [group for _, group in main[main[axis].notna()].groupby(others, dropna=False, sort=False)]
    groups = [group[group["loss"] == "softmax"] for group in groups if group[axis].nunique() > 1]
    if len(groups) > 4:
        best = {}
        for group in groups:
            best.setdefault((group["dataset"].iloc[0], group["backbone"].iloc[0]), []).append(group)
        groups = [max(each, key=lambda group: group["value"].max()) for each in best.values()]
    return [group[others].iloc[0].to_dict() for group in groups]


def test_accuracy_and_gain_along_every_axis_are_those_of_the_json_and_the_csv(results, grid):
    for found, axis, count in ((results, "width", 1), (grid, "lr", 4), (grid, "train", 4)):
        main = pd.DataFrame(files(found)[1]["main"])
        compared = csv(found, "comparisons").query("metric == 'accuracy'")
        axes, lines = drawn(found, f"axis-{axis}-digits"), followed(main, axis)
        assert len(lines) == count
        for left, right, line in zip(axes[::2], axes[1::2], lines, strict=True):
            for ax, frame, name in ((left, main, "value"), (right, compared, "delta")):
                drawn_bars = segments(ax)
                here = at(frame, line).sort_values(axis)
                assert {made.get_label() for made in ax.lines} & set(GAIN) == set(here["loss"])
                assert len(drawn_bars) == len(here)
                for loss, mine in here.groupby("loss"):
                    across, up = shown(ax, loss).get_data()
                    assert (np.diff(across) > 0).all()
                    assert list(up) == pytest.approx(list(mine[name]))
                    ends = sorted((bar[0, 0], *bar[:, 1]) for bar in drawn_bars if bar[0, 0] in across)
                    assert np.array(ends)[:, 1:] == pytest.approx(mine[["low", "high"]].to_numpy(float))


def test_minimum_widths_are_a_line_along_the_classes_and_still_points_of_fixed_widths(read_suite):
    suite = SMALL.replace("[8]", '["min", 3, 16]').replace("seeds = 2", "seeds = 3\nclasses = [4, 8]")
    found = analysed(read_suite(suite), truth)
    main = found.main.set_index(["classes", "width", "loss"])["value"]
    axes = drawn(found, "axis-classes-digits")[::2]
    lines = {ax.get_title(loc="left"): list(shown(ax, "w_softmax").get_ydata()) for ax in axes}
    for title, widths in (("M = 3", (3, 3)), ("M = C − 1", (3, 7)), ("M = 16", (16, 16))):
        stated = [main[classes, width, "w_softmax"] for classes, width in zip((4, 8), widths, strict=True)]
        assert lines.pop(title) == pytest.approx(stated)
    assert not lines


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
    (point,) = chosen(results)
    main = at(pd.DataFrame(files(results)[1]["main"]), point).set_index("loss")
    ledger, peak = drawn(results, "memory-digits")
    unit, peak_unit = (
        1024.0 ** ["B", "KiB", "MiB", "GiB"].index(ax.get_xlabel().rpartition(" ")[2]) for ax in (ledger, peak)
    )
    losses = [tick.get_text() for tick in ledger.get_yticklabels()]
    assert sorted(losses) == sorted(GAIN)
    main = main.loc[losses]
    held = {
        "backbone without its FC layer": main["bytes_model"] - main["bytes_fc"],
        "FC layer": main["bytes_fc"],
        "class weights": main["bytes_classifier"],
        "loss state": main["bytes_loss"],
        "optimizer state": main["bytes_optimizer"],
    }
    widths = bars(ledger)
    assert set(widths) == set(held)
    for cause, stated in held.items():
        assert [unit * width for width in widths[cause]] == pytest.approx(list(stated))
    assert [text.get_text() for text in ledger.texts] == [f"{total / unit:.2f}" for total in sum(held.values())]
    for place, loss in enumerate(losses):
        ((x, y),) = shown(peak, loss).get_xydata()
        assert (peak_unit * x, y) == pytest.approx((main["bytes_peak"][loss], place))


def test_marks_of_claims_are_the_verdicts_of_the_csv(results):
    (ax,) = drawn(results, "claims")
    words = ("supported", "contradicted", "undecided", "not testable")
    marks = Counter(dict.fromkeys(words, 0))
    for line in (line for line in ax.lines if line.get_label() in words):
        marks[line.get_label()] += len(set(line.get_xdata()))
    assert marks == Counter(csv(results, "claims")["verdict"])
    (row,) = rows(files(results)[0], "claims", "supported")
    assert {word: int(row[word]) for word in words} == marks


def test_the_chance_of_the_front_is_one_number(results):
    parts, stated, compared = files(results)
    (ax,) = drawn(results, "pareto-digits")
    entries = [re.fullmatch(r"(\d+)  (\w+) \((.+)\)", text.get_text()) for text in ax.get_legend().get_texts()]
    key = {entry[2]: (entry[1], entry[3]) for entry in entries if entry}
    numbers = {text.get_text(): text.xy for text in ax.texts}
    lines = [sorted(map(tuple, line.get_xydata())) for line in ax.lines]
    table = {(row["loss"], row["M"]): row["P(front), time"] for row in rows(parts, "memory", "P(front), time")}
    main = {row["loss"]: row for row in stated["main"] if row["width"] == 8}
    at_8 = [row for row in stated["front"] if row["width"] == 8]
    assert len(at_8) == len(key) == len(numbers) == 4
    assert len({row["front_time"] for row in at_8}) > 2
    for row in at_8:
        loss, chance = row["loss"], row["front_time"]
        words = "< 1 %" if chance < 0.005 else "> 99 %" if chance > 0.995 else f"{100 * chance:.0f} %"
        number, written = key[loss]
        assert written == words
        assert table[loss, "8"] == f"{chance:.2f}"
        times = compared.query("metric == 'step_seconds' and width == 8 and loss == @loss")[["delta", "low", "high"]]
        ratio, low, high = 1 + times.iloc[0] / 100 if len(times) else (1.0, 1.0, 1.0)
        dot = ratio, row["accuracy"]
        assert shown(ax, loss).get_xydata()[0] == pytest.approx(dot)
        assert numbers[number] == pytest.approx(dot)
        for ends in ([(low, dot[1]), (high, dot[1])], [(ratio, main[loss][end]) for end in ("low", "high")]):
            assert any(len(line) == 2 and np.allclose(line, ends, rtol=0, atol=1e-9) for line in lines)


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
    widths = bars(ax)
    numbers = [text.get_text() for text in ax.texts]
    table = {row["loss"]: row for row in rows(parts, "cost", "median ms")}  # at the point of the first table, too
    (column,) = results.answer.columns
    first = {row["loss"]: row for row in stated["phases"] if row["width"] == column.point["width"]}
    assert len(first) < len(stated["phases"])
    assert sorted(labels) == sorted(GAIN)
    for place, label in enumerate(labels):
        for phase in ("forward", "backward", "optimizer"):
            assert widths[phase][place] == pytest.approx(first[label][phase])
        assert numbers[place] == table[label]["median ms"] == f"{first[label]['step']:.2f}"


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
    (point,) = chosen(results)
    width = point["width"]
    parts, stated, _ = files(results)
    axes = drawn(results, "angles-digits")
    table = {(row["loss"], row["M"]): row for row in rows(parts, "geometry", "0")}
    for split, ax in enumerate(axes):
        for label in GAIN:
            angles = shown(ax, label).get_xydata()
            assert len(angles) == 10
            for number, angle in angles:
                assert table[label, f"{width}"][f"{number:.0f}"].split(" / ")[split] == f"{angle:.1f}"
    means = {(row["loss"], row["width"]): row["angle_test"] for row in stated["main"]}
    for label in GAIN:
        assert np.mean(shown(axes[1], label).get_ydata()) == pytest.approx(means[label, width])
