"""One quantity, one number: what figures draw is what tables, report.json and the CSV files state."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import SMALL
from synthetic import Truth, analysed, common, noise, timing_record, write_run

from lossbench.analysis.results import analyse
from lossbench.plan.cells import plan
from lossbench.report import figures
from lossbench.report.blocks import Table
from lossbench.report.output import data
from lossbench.report.sections import sections
from lossbench.store.records import Store

GAIN = {"softmax": 0, "w_softmax": 0.4, "center": 0.1, "hinge": -0.2}
TIMES = {"softmax": 0.010, "w_softmax": 0.0101, "center": 0.0102, "hinge": 0.01015}
KS = [3, 4, 5, 6, 7, 8]


def truth(cell):
    return Truth(90 + common(cell.seed) + GAIN[cell.loss.name] + noise(cell, 0.4), angle=40 + noise(cell, 5))


@pytest.fixture(scope="module")
def results(tmp_path_factory, read_suite):
    """Four losses, two timed widths, ten seeds; each phase of a step has noise of its own."""
    text = SMALL.replace('"w_softmax"]', '"w_softmax", "center", "hinge"]').replace("widths = [8]", "widths = [8, 16]")
    suite = read_suite(text.replace("seeds = 2", "seeds = 10\ntiming = { rounds = 20 }"))
    folder = write_run(suite, tmp_path_factory.mktemp("one") / "run", truth, times=TIMES)
    rng = np.random.default_rng(1)
    for cell in (cell for cell in plan(suite) if cell.kind == "timing"):
        record = timing_record(cell, TIMES)
        phases = {
            label: {name: list(np.array(taken) * rng.uniform(0.5, 2, len(taken))) for name, taken in parts.items()}
            for label, parts in record.timing["phases"].items()
        }
        Store(folder).write(replace(record, timing={**record.timing, "phases": phases}))
    return analyse([folder])


@pytest.fixture(scope="module")
def ranked(read_suite):
    """Six datasets that differ by the folder they are read from, on which no loss is better than another."""
    text = SMALL.replace('"w_softmax"]', '"w_softmax", "center", "hinge"]')
    suite = read_suite(text.replace("seeds = 2", f"seeds = 3\nclasses = {KS}"))
    found = analysed(suite, lambda cell: Truth(90 + noise(cell, 1)))
    return replace(
        found, records=found.records.assign(dataset=[f"folder[path=set{k}]" for k in found.records["classes"]])
    )


def files(results):
    parts = sections(results)
    found = data.files(results, parts)
    return parts, json.loads(found["report.json"]), pd.read_csv(io.BytesIO(found["comparisons.csv"]))


def rows(parts, slug, column):
    """The rows of the tables of a section that have a column."""
    tables = [block for part in parts if part.slug == slug for block in part.blocks if isinstance(block, Table)]
    return [
        dict(zip(table.columns, row, strict=True)) for table in tables if column in table.columns for row in table.rows
    ]


def drawn(results, name):
    return next(drawing for drawing in figures.gallery(results) if drawing.name == name).canvas.axes


def test_the_chance_of_the_front_is_one_number(results):
    parts, stated, compared = files(results)
    (ax,) = drawn(results, "pareto-digits")
    shown = {text.get_text().split("  (")[0]: text.get_text() for text in ax.get_legend().get_texts()}
    table = {(row["loss"], row["M"]): row["P(front), time"] for row in rows(parts, "cost", "P(front), time")}
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
    assert f"Groups whose ranks do not differ: {', '.join(stated['ranks']['groups'][0])}." in prose
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
