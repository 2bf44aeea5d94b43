"""The headline metric decides what verdicts, margins, ranks, Pareto fronts and tuning are about."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import SMALL
from kit.commands import invoke
from kit.runs import write_suite
from kit.synthetic import Truth, analysed

from lossbench import stats
from lossbench.analysis.results import analyse
from lossbench.core.errors import SuiteError
from lossbench.core.model import Record
from lossbench.plan.cells import plan
from lossbench.report.sections.accuracy import comparisons
from lossbench.report.sections.answer import answer
from lossbench.store.records import Store, load_records
from lossbench.suite.settings import scored, tuned_experiments

# Angles are in degrees, and lower is better; the accuracies say the opposite.
ANGLE = 'headline = "angle"\nmargin = 2.0\n' + SMALL.replace("seeds = 2", "seeds = 10").replace(
    '"w_softmax"]', '"w_softmax", "arcface"]'
)
ANGLES = {"softmax": 30.0, "w_softmax": 20.0, "arcface": 30.1}


def truth(cell):
    noise = float(np.random.default_rng([cell.seed, list(ANGLES).index(cell.loss.name)]).normal(0, 0.3))
    return Truth(accuracy=90 - (cell.loss.name == "w_softmax"), angle=ANGLES[cell.loss.name] + noise)


@pytest.fixture(scope="module")
def results(read_suite):
    return analysed(read_suite(ANGLE), truth)


def test_verdicts_and_the_margin_are_those_of_the_headline(results):
    frame = results.comparisons[results.comparisons["metric"] == "angle"].set_index("loss")
    values = {loss: list(results.measured.at("angle", results.points[0], loss).values()) for loss in ANGLES}
    assert (frame.loc["w_softmax", "verdict"], frame.loc["w_softmax", "wins"]) == ("better", 10)  # seeds it is lower
    assert frame.loc["arcface", "verdict"] == "equivalent"
    assert frame.loc["w_softmax", "worst"] == pytest.approx(
        max(mine - base for mine, base in zip(values["w_softmax"], values["softmax"], strict=True))
    )


def test_the_main_table_and_the_front_are_those_of_the_headline(results):
    main = results.main.set_index("loss")
    for loss, row in main.iterrows():
        values = list(results.measured.at("angle", results.points[0], str(loss)).values())
        mean, low, high = stats.mean_interval(values)
        assert (row["value"], row["low"], row["high"]) == pytest.approx((mean, low, high))
        assert row["accuracy"] == pytest.approx(90 - (loss == "w_softmax"), abs=0.01) and np.isnan(row["test_se"])
        assert (row["median"], row["worst"]) == pytest.approx((np.median(values), max(values)))  # lower is better
    front = results.front.set_index("loss")["front_memory"]
    assert front["w_softmax"] == pytest.approx(1) and front["softmax"] == pytest.approx(0)  # equal memory, lower angle


def test_the_report_names_it_with_its_unit_and_its_direction(results):
    (table,) = comparisons(results).blocks
    assert {"angle, degrees", "Δ degrees [interval]"} <= set(table.columns)
    first = answer(results).blocks[0]
    assert re.match(r"w_softmax \(−\d+\.\d\d degrees\) is better than softmax; arcface is equivalent", first.text)


def test_ranks_give_the_first_place_to_the_best(read_suite):
    _, experiment = ANGLE.split("[[experiment]]")
    other = experiment.replace('name = "digits"', 'name = "glyphs"').replace('dataset = "digits"', 'dataset = "glyphs"')
    (found,) = analysed(read_suite(f"{ANGLE}[[experiment]]{other}"), truth).rankings
    assert found.table.losses[int(found.test.ranks.argmin())] == "w_softmax"
    assert found.table.means.min() == pytest.approx(20, abs=0.5)


def test_trials_are_chosen_by_it(read_suite):
    suite = read_suite(ANGLE + "\n[tune]\ntrials = 3\nlr = [0.001, 0.1]\n")
    cells = plan(suite)
    records = {
        cell.key: {
            **{"status": "done", "accuracy": 10.0 * cell.trial, "angles": {}, "geometry": {}, "verification": {}},
            **{"metrics": {"angle": 40 - 10 * (cell.trial == 2)}, "measured": {"angle": "lossbench"}},
        }
        for cell in cells
        if cell.trial
    }
    scores = scored(cells, records, suite.info.headline_metric)
    (tuned,) = tuned_experiments(suite.experiments, cells, scores)
    trials = suite.experiments[0].trials.settings
    assert all(setting == trials[label][1] for (_, label), setting in tuned.settings.items()) and tuned.settings
    stale = {key: {**record, "measured": {"angle": "other code"}} for key, record in records.items()}
    assert scored(cells, stale, suite.info.headline_metric) == {}  # they have yet to be measured


def test_trials_are_chosen_by_one_that_is_computed_from_the_record(read_suite):
    suite = read_suite('headline = "bytes"\nmargin = 9.0\n' + SMALL + "\n[tune]\ntrials = 3\nlr = [0.001, 0.1]\n")
    cells = [cell for cell in plan(suite) if cell.trial]
    record = {"status": "done", "accuracy": 1.0, "angles": {}, "geometry": {}, "verification": {}}
    records = {cell.key: {**record, "bytes": {"fc": 9 - cell.trial, "classifier": 1, "loss": 0}} for cell in cells}
    found = scored(cells, records, suite.info.headline_metric)
    assert [found[cell.key]["score"] for cell in cells] == [cell.trial - 10 for cell in cells]


def test_a_claim_without_a_metric_is_about_it(read_suite):
    claim = '[[claim]]\ntext = "x"\nexperiment = "digits"\nbetter = "w_softmax"\nthan = "softmax"\n'
    found = analysed(read_suite(ANGLE + claim), truth).claims
    assert found[["metric", "verdict", "unit"]].values.tolist() == [["angle", "supported", "degrees"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('headline = "angle"\n' + SMALL, ["headline", "needs the key 'margin': how many degrees of 'angle'"]),
        ('headline = "angle"\nmargin = 200.0\n' + SMALL, ["margin", "at most 180 degrees"]),
        ('headline = "step_seconds"\nmargin = 1.0\n' + SMALL, ["headline", "no record has a value of 'step_seconds'"]),
        (
            'headline = "auc"\n' + SMALL,
            ["headline", "'auc' is only available for verification; the task of 'digits' is classification"],
        ),
        ('headline = "accuarcy"\n' + SMALL, ["headline", "did you mean 'accuracy'"]),
    ],
)
def test_a_headline_that_cannot_be_one_is_refused(text, expected, read_suite):
    with pytest.raises(SuiteError) as refused:
        read_suite(text)
    assert all(part in str(refused.value) for part in expected), str(refused.value)


def test_the_noise_of_the_test_set_is_that_of_its_values_per_example(tmp_path, read_suite):
    """Every seed gives the same small gain, which a few odd examples cause: another test set may have none."""
    suite = read_suite('headline = "nll"\nmargin = 0.01\n' + SMALL.replace("seeds = 2", "seeds = 4"))
    store, rng = Store(tmp_path / "run"), np.random.default_rng(0)
    cells = [cell for cell in plan(suite) if cell.kind == "train"]
    store.prepare(suite, cells)
    odd = np.zeros(200)
    odd[:3] = 1.0
    for cell in cells:
        values = 1 + 0.001 * rng.normal(size=200) + odd * (cell.loss.name == "softmax")
        record = Record(cell, "done", correct=200, total=200, metrics={"nll": values.mean()}, measured={})
        store.write(record, np.ones(200, bool), examples={"nll": values})
    found = analyse([store.root])
    row = found.comparisons.set_index("metric").loc["nll"]
    assert row["delta"] == pytest.approx(-0.015, abs=1e-3)
    assert abs(row["delta"]) > 20 * row["seed_se"]  # seeds alone would decide
    assert row["test_se"] == pytest.approx(odd.std(ddof=1) / np.sqrt(200), rel=0.01)
    assert row["verdict"] == "undecided"


@pytest.mark.parametrize(
    ("headline", "shown"),
    [
        ("accuracy", "{:.2f} %"),
        ("ece", "ece {:.2f} %"),
        ("nll", "nll {:.4g} nats"),
        ("simplex_distance", "simplex_distance {:.4g}"),
        ("bytes", "bytes {:.4g} bytes"),
    ],
)
def test_lines_of_progress_show_it(headline, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suite = write_suite(
        tmp_path, SMALL.replace("[[experiment]]", 'headline = "accuracy"\nmargin = 1.0\n\n[[experiment]]')
    )
    ran = invoke("run", suite, "--set", f"headline={headline}", "--seed", "0", "--no-report", "-j1")
    lines = [line.split("  ") for line in ran.stderr.splitlines() if line.startswith("[")]
    frame = load_records("runs/small").set_index("label")
    assert [parts[-4] for parts in lines] == ["softmax", "w_softmax"]
    for _, *_, label, _, outcome, seconds in lines:
        assert outcome == shown.format(frame.loc[label, headline]) and seconds.endswith(" s")
