"""Time to target, on learning curves with known answers."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace

import numpy as np
import pytest
from conftest import SMALL
from kit.claims import claim
from kit.synthetic import ENVIRONMENT, Truth, analysed, timing_record, write_run

from lossbench.analysis.compare import compare
from lossbench.analysis.results import analyse
from lossbench.report.sections.cost import cost

STEPS, TOTAL = range(10, 101, 10), 1000
SUITE = SMALL.replace("steps = 6, batch = 16", "steps = 100, batch = 16, evaluations = 10").replace(
    "seeds = 2", "seeds = 3"
)
FINAL = {"softmax": (90.0, 91.0, 92.0), "w_softmax": (95.0, 80.0, 91.0)}  # so the target is 91 − 1 = 90 %
AT = {"softmax": (100, 50, 30), "w_softmax": (20, None, 90)}  # the steps at which the curves below first have 90 %


def curve(cell, final, at, warm=0):
    """60 % before step `at`, 90 % there, the final accuracy at the end, and a dip between that does not count."""
    shares = [60.0 if at is None or step < at else 90.0 if step == at else 85.0 for step in STEPS]
    shares[-1] = final
    scored = zip(STEPS, shares, strict=True)
    return tuple({"step": warm + step, "loss": 1.0, "correct": round(TOTAL * share / 100)} for step, share in scored)


def truth(cell, **more):
    name, seed = cell.loss.name, cell.seed
    final, at = FINAL[name][seed], AT[name][seed]
    warm = cell.warm.steps if cell.warm else 0
    return Truth(final, curve=curve(cell, final, at, warm), **more)


def found(results, metric, loss):
    (point,) = results.points
    return results.measured.at(metric, point, loss)


@pytest.fixture(scope="module")
def results(read_suite):
    claims = claim('metric = "steps_to_target"\nbetter = "softmax"\nthan = "w_softmax"')
    return analysed(read_suite(SUITE + claims), truth, total=TOTAL)


def test_the_target_is_the_baselines_mean_final_accuracy_minus_a_point(results):
    assert list(results.targets.values()) == [pytest.approx(90)]


def test_the_first_score_at_the_target_counts_and_who_never_has_it_counts_with_all_steps(results):
    assert found(results, "steps_to_target", "softmax") == {0: 100, 1: 50, 2: 30}
    assert found(results, "steps_to_target", "w_softmax") == {0: 20, 1: 100, 2: 90}
    assert results.to_target.censored == {(results.points[0], "w_softmax"): {1}}


def test_restricted_means_are_compared_by_seed_and_censored_seeds_are_stated(results):
    (row,) = results.comparisons[results.comparisons["metric"] == "steps_to_target"].to_dict("records")
    differences = [20 - 100, 100 - 50, 90 - 30]
    assert row["delta"] == pytest.approx(statistics.mean(differences))
    assert (row["n"], row["unit"], row["censored"], row["censored_baseline"]) == (3, "steps", 1, 0)
    assert results.comparisons.set_index("metric").loc["accuracy", ["censored", "censored_baseline"]].isna().all()
    claimed = results.claims.iloc[0]
    assert claimed["delta"] == pytest.approx(-statistics.mean(differences))
    assert claimed["evidence"].endswith("censored (target not reached): softmax 0 of 3, w_softmax 1 of 3")


def test_the_report_has_a_table_with_the_censored_seeds(results):
    (table,) = [block for block in cost(results).blocks if "Time to target" in getattr(block, "caption", "")]
    lines = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(line["loss"], line["target, %"], line["steps"], line["censored"]) for line in lines] == [
        ("softmax", "90.00", "60", "0 of 3"),
        ("w_softmax", "90.00", "70", "1 of 3"),
    ]
    assert lines[0]["steps − softmax [interval]"] == "0" and lines[1]["steps − softmax [interval]"].startswith(
        "+10.0 ["
    )
    assert lines[0]["seconds"] == "–"  # no cell has step times


def test_steps_are_counted_from_the_cells_own_first_step(read_suite):
    warmed = SUITE + "warm_start = { steps = 40 }\n"
    assert found(analysed(read_suite(warmed), truth, total=TOTAL), "steps_to_target", "softmax") == {
        0: 100,
        1: 50,
        2: 30,
    }


def test_curves_without_scores_and_points_without_a_finished_baseline_have_no_time(read_suite):
    def plain(cell):
        full = truth(cell)
        return replace(full, curve=tuple({"step": one["step"], "loss": 1.0} for one in full.curve))

    def lost(cell):
        return Truth(status="failed") if cell.loss.name == "softmax" else truth(cell)

    for came_to in (plain, lost):
        without = analysed(read_suite(SUITE), came_to, total=TOTAL)
        assert found(without, "steps_to_target", "w_softmax") == {}
        assert "steps_to_target" not in set(without.comparisons["metric"])
        assert not any("Time to target" in getattr(block, "caption", "") for block in cost(without).blocks)


def test_seconds_are_steps_at_the_pace_of_the_cells_of_one_environment(read_suite):
    def paced(cell):
        return truth(cell, step_seconds=0.5 if cell.loss.name == "softmax" else 2.0)

    def elsewhere(cell):
        return truth(cell, step_seconds=0.5, environment={**ENVIRONMENT, "fingerprint": f"machine {cell.seed}"})

    here = analysed(read_suite(SUITE), paced, total=TOTAL)
    assert found(here, "seconds_to_target", "softmax") == {0: 50, 1: 25, 2: 15}
    assert found(here, "seconds_to_target", "w_softmax") == {0: 40, 1: 200, 2: 180}
    assert here.measured.resolution("seconds_to_target", here.points, "w_softmax") == 20
    apart = analysed(read_suite(SUITE), elsewhere, total=TOTAL)
    assert found(apart, "seconds_to_target", "softmax") == {} != found(apart, "steps_to_target", "softmax")


def test_seconds_are_steps_at_the_pace_of_timing_cells_where_there_are_any(read_suite):
    times = {"softmax": 0.01, "w_softmax": 0.02}
    suite = read_suite(SUITE + "timing = { rounds = 5 }\n")
    timed = analysed(suite, lambda cell: truth(cell, step_seconds=99.0), total=TOTAL, times=times)
    (cell,) = [cell for cell in timed.cells if cell.kind == "timing"]
    rounds = timing_record(cell, times).rounds
    for loss, steps in (("softmax", {0: 100, 1: 50, 2: 30}), ("w_softmax", {0: 20, 1: 100, 2: 90})):
        pace = float(np.median(rounds[loss]))
        assert found(timed, "seconds_to_target", loss) == pytest.approx({seed: n * pace for seed, n in steps.items()})


def test_equal_times_to_target_are_no_certainty(read_suite):
    """Two losses that are one score apart in three seeds have not been shown to differ."""

    def came_to(cell):
        return Truth(91, curve=curve(cell, 91, 40 if cell.loss.name == "w_softmax" else 30))

    body = 'metric = "steps_to_target"\nbetter = "softmax"\nthan = "w_softmax"'
    row = analysed(read_suite(SUITE + claim(body)), came_to, total=TOTAL).claims.iloc[0]
    assert (row["delta"], row["n"]) == (-10.0, 3)
    assert row["p"] > 0.001 and row["verdict"] == "undecided"


def test_two_runs_are_compared_by_the_target_of_the_earlier_one(tmp_path, read_suite):
    def after(cell):  # 2 points better at the end, so its own target would be 92 %
        full = truth(cell)
        return replace(full, accuracy=full.accuracy + 2)

    suite = read_suite(SUITE)
    runs = [write_run(suite, tmp_path / name, made, total=TOTAL) for name, made in (("a", truth), ("b", after))]
    rows = compare(*runs).frame.set_index(["metric", "loss"])
    for loss, mean in (("softmax", 60), ("w_softmax", 70)):
        assert (rows.loc[("steps_to_target", loss), ["before", "after", "delta"]] == [mean, mean, 0]).all()
    assert rows.loc[("accuracy", "softmax"), "delta"] == pytest.approx(2)


def test_a_claim_about_a_metric_of_an_older_version_is_reported_as_such(tmp_path, read_suite):
    body = 'metric = "angle"\nbetter = "softmax"\nthan = "w_softmax"'
    folder = write_run(read_suite(SUITE + claim(body)), tmp_path / "run", truth, total=TOTAL)
    plan = folder / "plan.json"
    written = json.loads(plan.read_text())
    text = json.dumps(written).replace('"metric": "angle"', '"metric": "steps_to_converge"')
    plan.write_text(text)
    row = analyse([folder]).claims.iloc[0]
    assert (row["verdict"], row["evidence"]) == ("not testable", "this lossbench has no metric 'steps_to_converge'")
