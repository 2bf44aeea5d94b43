"""The data of the page: the numbers of the analysis, each once, safe inside a script element."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import SMALL
from kit.page_of import LOSSES, SUITE, TIMES, truth
from kit.synthetic import Truth, analysed, common, noise
from scipy import stats as scipy_stats

from lossbench.analysis.results import analyse
from lossbench.plan.cells import plan
from lossbench.report.output import payload as module
from lossbench.report.output.drill import Drill, rounded, significant, thinned
from lossbench.report.output.payload import VERDICTS, embedded, payload
from lossbench.store.records import Store


@pytest.fixture(scope="module")
def results(read_suite):
    return analysed(read_suite(SUITE), truth, times=TIMES)


@pytest.fixture(scope="module")
def data(results):
    return payload(results, Drill(results))


def rows(data: dict, table: str) -> list[dict]:
    return [dict(zip(data["fields"][table], row, strict=True)) for row in data["tables"][table]]


def cells(data: dict) -> list[dict]:
    return [dict(zip(data["drill"]["fields"], row, strict=True)) for row in data["drill"]["cells"]]


def test_every_row_has_its_fields_and_everything_is_json(data):
    for name, table in data["tables"].items():
        assert {len(row) for row in table} <= {len(data["fields"][name])}, name
    assert json.loads(embedded(data)) == json.loads(json.dumps(data, allow_nan=False))


def test_losses_are_in_the_order_of_the_suite_and_the_headline_is_the_first_metric(data):
    assert [loss["label"] for loss in data["losses"]] == LOSSES
    assert data["metrics"][0]["name"] == "accuracy"


def test_a_mean_is_that_of_the_cells_with_student_s_interval(data):
    by_group: dict[tuple[int, int], list[float]] = {}
    for cell in cells(data):
        point, loss, kind, _ = data["groups"][cell["group"]]
        if kind == "train":
            by_group.setdefault((point, loss), []).append(cell["values"][0])
    found = [row for row in rows(data, "means") if row["metric"] == 0]
    assert len(found) == len(by_group) == 5 + 3 * 2
    for row in found:
        values = np.array(by_group[row["point"], row["loss"]])
        half = scipy_stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
        wanted = [values.mean(), values.mean() - half, values.mean() + half]
        assert [row["mean"], row["low"], row["high"]] == pytest.approx(wanted, abs=2e-3)
        assert row["n"] == len(values) == 6


def test_a_difference_is_that_of_the_comparisons(data, results):
    wanted = {(row["metric"], row["point"], row["loss"]): row for row in results.comparisons.to_dict("records")}
    points = list(dict.fromkeys(cell.point for cell in results.cells))
    found = rows(data, "differences")
    assert len(found) == len(wanted)
    for row in found:
        metric = data["metrics"][row["metric"]]
        mine = wanted[metric["name"], points[row["point"]], LOSSES[row["loss"]]]
        numbers = [[side[name] for name in ("delta", "low", "high")] for side in (row, mine)]
        assert numbers[0] == pytest.approx(numbers[1], abs=0.06 * 10.0 ** -metric["digits"])


def test_the_verdicts_say_better_and_worse_in_the_direction_of_the_metric(data):
    verdicts = {row["loss"]: VERDICTS[row["verdict"]] for row in rows(data, "differences") if row["metric"] == 0}
    assert (verdicts[LOSSES.index("w_softmax")], verdicts[LOSSES.index("hinge")]) == ("better", "worse")
    assert verdicts[LOSSES.index("center")] == "equivalent"
    step = next(index for index, metric in enumerate(data["metrics"]) if metric["rounds"])
    times = {row["loss"]: VERDICTS[row["verdict"]] for row in rows(data, "differences") if row["metric"] == step}
    assert times[LOSSES.index("l_softmax[m=2]")] == "worse"  # slower
    assert times[LOSSES.index("hinge")] == "better"


def test_flags_levels_and_ranges_of_seeds_are_carried_where_the_analysis_has_them(results):
    frame = results.comparisons.assign(flags="at chance; one seed decides", level=0.99, median=0.25, seeds_needed=12)
    frame = frame.assign(seeds_needed_high=40)
    other = SimpleNamespace(comparisons=frame, metrics=results.metrics)
    made = module.Payload(results, Drill(results))
    made.results = other
    first = dict(zip(module.FIELDS["differences"], next(iter(made.differences())), strict=True))
    assert (first["flags"], first["level"], first["median"]) == ("at chance; one seed decides", 0.99, 0.25)
    assert first["needed"] == [12, 40]


def test_every_pair_of_losses_is_compared_once_at_points_with_more_than_two(data):
    pairs = [(row["point"], row["a"], row["b"]) for row in rows(data, "pairs")]
    assert len(pairs) == len(set(pairs)) == 5 * 4 // 2
    assert all(a < b for _, a, b in pairs)


def test_of_very_many_pairs_one_point_of_each_experiment_is_kept(read_suite, monkeypatch):
    suite = SMALL.replace("widths = [8]", "widths = [4, 8, 16]").replace('"w_softmax"]', '"w_softmax", "center"]')
    results = analysed(read_suite(suite), lambda cell: Truth(90 + noise(cell, 1)))
    assert len({row["point"] for row in rows(payload(results, Drill(results)), "pairs")}) == 3
    monkeypatch.setattr(module, "MOST_PAIRS", 5)
    found = payload(results, Drill(results))
    assert {found["points"][row["point"]]["axes"]["width"] for row in rows(found, "pairs")} == {16}


def test_points_have_short_names_that_differ_and_one_represents_each_experiment(data):
    names = [(point["experiment"], point["name"]) for point in data["points"]]
    assert names == [("digits", ""), ("widths", "M = 4"), ("widths", "M = 9"), ("widths", "M = 20")]
    assert [point["name"] for point in data["points"] if point.get("chief")] == ["", "M = 20"]


def test_the_lines_along_an_axis_lead_through_its_points_in_order(data):
    (along,) = data["along"]
    assert (along["experiment"], along["axis"], along["symbol"]) == ("widths", "width", "M")
    (line,) = along["lines"]
    assert [data["points"][index]["axes"]["width"] for index in line["points"]] == [4, 9, 20]
    assert line["minimum"] == 9


def test_curves_have_both_series_and_few_steps(data, read_suite):
    found = rows(data, "curves")
    assert {row["series"] for row in found} == {"loss", "accuracy"}
    assert all(row["steps"] == [1, 2, 3, 4, 5, 6] for row in found)
    long = tuple({"step": step, "loss": 1 / step} for step in range(1, 501))
    results = analysed(read_suite(SMALL), lambda cell: Truth(curve=long))
    thin = rows(payload(results, Drill(results)), "curves")
    assert all(len(row["steps"]) == module.STEPS and row["steps"][-1] == 500 for row in thin)


def test_memory_and_phases_are_those_of_the_analysis(data, results):
    first = rows(data, "memory")[0]
    assert (first["fc"], first["classifier"], first["state"], first["model"], first["peak"]) == (32, 80, 0, 999, 1000)
    phases = {LOSSES[row["loss"]]: row["step"] for row in rows(data, "phases")}
    assert phases["l_softmax[m=2]"] == pytest.approx(4 * phases["softmax"], rel=0.05)
    assert len(phases) == len(results.phases)


def test_many_classes_have_quartiles_of_their_angles(results, data, monkeypatch):
    assert {(row["classes"], len(row["values"])) for row in rows(data, "angles")} == {(10, 10)}
    monkeypatch.setattr(module, "MOST_CLASSES", 9)
    found = rows(payload(results, Drill(results)), "angles")
    assert {(row["classes"], len(row["values"])) for row in found} == {(10, 5)}
    assert all(row["values"] == sorted(row["values"]) for row in found)


def test_each_case_of_a_statement_has_its_verdict_and_its_cells(data):
    found = {statement["text"]: statement["cases"] for statement in data["statements"]}
    assert len(found) == 4
    (case,) = found["W-Softmax is more accurate"]
    assert case["verdict"] == "supported"
    assert [data["groups"][group][3] for group in case["groups"]] == ["w_softmax", "softmax"]
    (timed,) = found["W-Softmax is faster"]
    assert [data["groups"][group][2] for group in timed["groups"]] == ["timing"]


def test_seeds_of_every_compared_metric_are_with_the_cells(data, results):
    compared = [metric["name"] for metric in data["metrics"] if results.metrics[metric["name"]].compared]
    assert [metric["name"] for metric in data["metrics"]][: len(compared)] == compared
    assert {len(cell["values"]) for cell in cells(data)} == {len(compared)}


def test_json_cannot_end_its_element():
    given = {"title": "</script><!-- <script> &amp; \u2028"}
    text = embedded(given)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == given


def test_control_characters_of_labels_become_visible(read_suite):
    results = analysed(read_suite(SMALL), lambda cell: Truth())
    odd = replace(results, info=replace(results.info, title="\x1b[31mred"))
    assert "\\u001b" not in embedded(payload(odd, Drill(odd)))


def test_a_run_with_nothing_finished_has_its_points_and_cells(tmp_path, read_suite):
    suite = read_suite(SMALL)
    store = Store(tmp_path / "run")
    store.prepare(suite, plan(suite))
    results = analyse([store.root])
    found = payload(results, Drill(results))
    assert all(not table for table in found["tables"].values())
    assert [cell["status"] for cell in cells(found)] == ["missing"] * 4
    assert len(found["points"]) == 1


def test_numbers_are_short(read_suite):
    assert [rounded(value, 2) for value in (1.0, 1.005, -0.1249, None, float("nan"), float("inf"))] == [
        *(1, 1.0, -0.12), None, None, None,
    ]  # fmt: skip
    assert [significant(value) for value in (1234.5, 0.00012345, 0.0, None)] == [1230, 0.000123, 0, None]
    assert thinned(3, 5) == [0, 1, 2]
    assert thinned(101, 5) == [0, 25, 50, 75, 100]


def test_a_large_suite_has_a_small_payload(read_suite):
    """Half a kilobyte per cell: 6 losses at 5 points, 10 seeds."""
    losses = ", ".join(f'{{ name = "w_softmax", alpha = {n / 10} }}' for n in range(1, 6))
    suite = SMALL.replace('"w_softmax"]', losses + "]").replace("widths = [8]", "widths = [4, 8, 12, 16, 20]")
    curve = tuple({"step": step, "loss": 1.2345 / step, "correct": 10 * step} for step in range(1, 101))
    results = analysed(
        read_suite(suite.replace("seeds = 2", "seeds = 10")),
        lambda cell: Truth(90 + common(cell.seed) + noise(cell, 1), curve=curve),
    )
    assert len(results.cells) == 300
    assert len(embedded(payload(results, Drill(results)))) < 200_000
