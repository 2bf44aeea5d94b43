"""A metric of the user's own: one file beside the suite, and everything that reads metrics knows it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from conftest import SMALL

from lossbench import data
from lossbench.analysis.compare import compare
from lossbench.analysis.results import analyse
from lossbench.core.current import stale
from lossbench.core.errors import SuiteError
from lossbench.engines.remeasure import remeasure
from lossbench.engines.servers import Servers
from lossbench.plan.cells import plan, unique
from lossbench.plugins.registry import Registry
from lossbench.report import write
from lossbench.store.merge import merge
from lossbench.store.records import Store, load_records
from lossbench.store.stale import outdated
from lossbench.training.cell import run

ZEROS = '''"""The share of test images that are taken for one class."""
UNIT, BETTER, TASKS = "points", "lower", ("classification",)
NEEDS = "predictions"


def measure(test, *, chosen: int = 0):
    return 100 * float((test.predicted == chosen).mean())
'''

NORMS = '''"""The norm of each test feature, as a share of the mean norm of training features."""
UNIT, BETTER, TASKS = "", "higher", ("classification",)


def measure(test):
    return test.features.norm(dim=1) / test.train.features.norm(dim=1).mean()
'''

LATER = '''"""The last training loss."""
UNIT, BETTER, TASKS = "", "lower", ("classification",)
FROM = "record"


def measure(record):
    return record["curve"][-1]["loss"]
'''

LISTED = 'metrics = ["zeros", "zeros[chosen=3]", "norms", "later"]\n'
CLAIM = """
[[claim]]
text = "fewer zeros"
experiment = "digits"
metric = "zeros[chosen=3]"
better = "w_softmax"
than = "softmax"
"""


def folder_of(place, **sources) -> Registry:
    (place / "metrics").mkdir(exist_ok=True)
    for name, text in sources.items():
        (place / "metrics" / f"{name}.py").write_text(text)
    return Registry([place])


def train(read_suite, text, registry, folder, keep=()):
    """What a run does, without its processes: plan, train, store."""
    suite = read_suite(text, plugins=registry)
    store, cells = Store(folder), plan(suite)
    store.prepare(suite, cells)
    for cell in unique(cells):
        if store.read(cell.key) is None:
            outcome = run(replace(cell, keep=keep), registry, data.data_folder())
            files = {"examples": outcome.examples, "kept": outcome.kept}
            store.write(outcome.record, outcome.correct, outcome.checkpoint, **files)
    return suite, store, unique(cells)


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    place = tmp_path_factory.mktemp("beside")
    return place, folder_of(place, zeros=ZEROS, norms=NORMS, later=LATER)


@pytest.fixture(scope="module")
def trained(beside, read_suite):
    """A run whose cells kept their features."""
    place, registry = beside
    return train(read_suite, SMALL + LISTED + CLAIM, registry, place / "run", keep=("features",))


def test_it_is_measured_recorded_tabulated_compared_and_claimed(trained):
    _, store, cells = trained
    records = store.scan()[0]
    table = load_records(store.root).set_index("key")
    for cell in cells:
        found, row = records[cell.key], table.loc[cell.key]
        assert list(found["metrics"]) == ["accuracy", "zeros", "zeros[chosen=3]", "norms", "later"]
        with np.load(store.root / "cells" / cell.key / "features.npz") as kept:
            predicted, features, train = kept["predicted"], kept["features"], kept["train.features"]
        assert found["metrics"]["zeros"] == row["zeros"] == pytest.approx(100 * np.mean(predicted == 0))
        assert found["metrics"]["zeros[chosen=3]"] == pytest.approx(100 * np.mean(predicted == 3))
        norms = np.linalg.norm(features, axis=1) / np.linalg.norm(train, axis=1).mean()
        assert found["metrics"]["norms"] == pytest.approx(norms.mean(), rel=1e-5)
        assert store.examples(cell.key, "norms") == pytest.approx(norms, rel=1e-5)
        assert store.examples(cell.key, "zeros") is None
        assert found["metrics"]["later"] == found["curve"][-1]["loss"]
        assert {spec.label: spec.source for spec in cell.metrics}.items() <= found["measured"].items()
    results = analyse([store.root])
    rows = results.comparisons[results.comparisons["metric"] == "zeros[chosen=3]"]
    assert rows[["loss", "unit", "n"]].values.tolist() == [["w_softmax", "points", 2]]
    means = table.groupby("label")["zeros[chosen=3]"].mean()
    assert rows["delta"].item() == pytest.approx(means["w_softmax"] - means["softmax"])
    assert results.main.set_index("loss")["norms"].to_dict() == table.groupby("label")["norms"].mean().to_dict()
    assert results.claims["states"].tolist() == ["zeros[chosen=3]: w_softmax < softmax"]
    assert results.claims["delta"].item() == pytest.approx(rows["delta"].item())


def test_a_list_chooses_what_is_recorded_and_nothing_else_is_compared(trained):
    _, store, _ = trained
    results = analyse([store.root])
    assert set(results.comparisons["metric"]) == {"accuracy", "zeros", "zeros[chosen=3]", "norms", "later"}
    assert load_records(store.root)["angle_test"].isna().all()


def test_a_report_needs_the_run_folder_only(trained, tmp_path):
    """The plan says what a metric is called, its unit and its direction; its file may be gone."""
    _, store, _ = trained
    copy = shutil.copytree(store.root, tmp_path / "run")
    (tmp_path / "run" / "suite.toml").unlink()
    write([copy], tmp_path / "reports")
    stated = json.loads((tmp_path / "reports" / "report.json").read_text())
    assert {"zeros", "norms", "later"} <= set(stated["main"][0])
    assert {metric["name"]: metric["unit"] for metric in stated["metrics"]}["zeros[chosen=3]"] == "points"
    assert stated["claims"][0]["states"] == "zeros[chosen=3]: w_softmax < softmax"


def test_metrics_and_what_is_kept_are_not_part_of_a_key(beside, read_suite):
    plain, asked = (plan(read_suite(text, plugins=beside[1])) for text in (SMALL, SMALL + LISTED + 'keep = ["model"]'))
    assert [cell.key for cell in plain] == [cell.key for cell in asked]
    assert [spec.label for spec in asked[0].metrics] == ["zeros", "zeros[chosen=3]", "norms", "later"]
    again = type(asked[0]).from_json(json.loads(json.dumps(asked[0].to_json())))
    assert again == asked[0] and again.keep == ("model",)


def test_a_cell_of_two_experiments_measures_and_keeps_what_either_asks_for(beside, read_suite):
    _, experiment = SMALL.split("[[experiment]]")
    other = experiment.replace('name = "digits"', 'name = "other"', 1) + 'keep = ["predictions"]\nmetrics = ["norms"]'
    text = f"{SMALL}metrics = ['zeros']\nkeep = ['features']\n[[experiment]]{other}"
    cells = plan(read_suite(text, plugins=beside[1]))
    assert len(unique(cells)) == len(cells) / 2
    for cell in unique(cells):
        assert [spec.label for spec in cell.metrics] == ["zeros", "norms"] and not cell.default_metrics
        assert cell.keep == ("features", "predictions")


def test_only_the_process_of_a_finished_training_runs_the_file(tmp_path, read_suite):
    """A library that a metric imports may patch torch: neither this training nor another may notice."""
    library = "import scipy.optimize  # noqa\n"
    registry = folder_of(tmp_path, zeros=library + ZEROS)
    cell = plan(read_suite(SMALL + 'metrics = ["zeros"]', plugins=registry))[0]
    assert registry.find("metric", "zeros").footprint.modules == ("scipy.optimize",)
    assert Servers(registry)._imports(cell) == {}


# ---- changed files ---------------------------------------------------------------------------------------------------


def test_a_changed_file_is_measured_again_from_what_was_kept(beside, trained, tmp_path, read_suite):
    suite, store, cells = trained
    copy = Store(shutil.copytree(store.root, tmp_path / "run"))
    before = copy.scan()[0]
    registry = folder_of(tmp_path, zeros=ZEROS.replace("100 *", "50 *"), norms=NORMS, later=LATER)
    suite = read_suite(SMALL + LISTED + CLAIM, plugins=registry)
    cells = unique(plan(suite))
    assert [cell.key for cell in cells] == list(dict.fromkeys(cell.key for cell in plan(trained[0])))
    assert [spec.label for spec in stale(cells[0], before[cells[0].key])] == ["zeros", "zeros[chosen=3]"]
    copy.prepare(suite, plan(suite))
    assert load_records(copy.root)["zeros"].isna().all()  # the old value is not that of this file
    assert load_records(copy.root)["norms"].notna().all()
    found = outdated(cells, before, suite.info.metrics)
    assert (len(found.measure), len(found.train)) == (4, 0)
    assert found.sentences() == ["4 cells are measured again, without training: 'zeros' is new or was changed"]
    assert remeasure(cells, registry, data.data_folder(), lambda step: None, str(copy.root)) == []
    after = copy.scan()[0]
    for key, record in after.items():
        assert record["metrics"]["zeros"] == before[key]["metrics"]["zeros"] / 2
        same = ("digest", "seconds", "curve", "environment", "correct", "kept")
        assert all(record[name] == before[key][name] for name in same)
        assert copy.examples(key, "norms").tolist() == store.examples(key, "norms").tolist()
        assert copy.kept(key, "features.npz", record["kept"]["features.npz"])
    assert outdated(cells, after, suite.info.metrics).sentences() == []
    assert load_records(copy.root)["zeros"].notna().all()
    merge([store.root, copy.root], tmp_path / "all")  # of the first file, as the plan of the first run
    assert load_records(tmp_path / "all")["zeros"].tolist() == load_records(store.root)["zeros"].tolist()
    notes = compare(store.root, copy.root).notes
    assert "'zeros' was changed between the two runs, so it is not compared" in notes


def test_a_cell_that_kept_too_little_is_trained_again_and_the_reason_is_told(beside, trained, read_suite):
    _, registry = beside
    _, store, _ = trained
    records = {key: {**record, "kept": {}} for key, record in store.scan()[0].items()}
    suite = read_suite(SMALL + 'metrics = ["norms", "feature_norm", "later"]', plugins=registry)
    found = outdated(unique(plan(suite)), records, suite.info.metrics)
    assert (len(found.measure), len(found.train)) == (0, 4)
    assert found.sentences() == [
        "4 cells did not keep their features, which 'feature_norm' needs: they will be trained again"
    ]
    kept = {key: {**record, "kept": {"predictions.npz": ""}} for key, record in records.items()}
    assert len(outdated(unique(plan(suite)), kept, suite.info.metrics).train) == 4
    kept = {key: {**record, "kept": {"model.pt": ""}} for key, record in records.items()}
    assert len(outdated(unique(plan(suite)), kept, suite.info.metrics).measure) == 4
    from_record = {
        key: {**record, "measured": {"norms": record["measured"]["norms"]}} for key, record in records.items()
    }
    suite = read_suite(SMALL + 'metrics = ["norms", "later"]', plugins=registry)
    assert (
        len(outdated(unique(plan(suite)), from_record, suite.info.metrics).measure) == 4
    )  # no training: it is FROM it


def test_defaults_of_a_newer_lossbench_train_nothing_again(trained, read_suite):
    """Only a metric that the suite names can make a cell train again."""
    records = trained[1].scan()[0]
    assert outdated(unique(plan(read_suite(SMALL))), records, read_suite(SMALL).info.metrics).sentences() == []


def test_a_damaged_file_is_not_trusted(beside, trained, tmp_path, read_suite):
    _, store, cells = trained
    copy = Store(shutil.copytree(store.root, tmp_path / "run"))
    damaged, deleted = cells[0].key, cells[1].key
    (copy.cells / damaged / "features.npz").write_bytes(b"other")
    (copy.cells / deleted / "features.npz").unlink()
    registry = folder_of(tmp_path, zeros=ZEROS + "\n", norms=NORMS, later=LATER)
    suite = read_suite(SMALL + LISTED, plugins=registry)
    records, bad = copy.scan()
    found = outdated(unique(plan(suite)), records, suite.info.metrics)
    assert bad == {} and [cell.key for cell in found.train] == [deleted]
    problems = remeasure(found.measure, registry, data.data_folder(), lambda step: None, str(copy.root))
    assert [(problem["key"], problem["damaged"]) for problem in problems] == [(damaged, True)]
    assert "features.npz: is damaged" in problems[0]["why"]


def test_a_kept_model_gives_what_training_gave_to_the_bit(beside, tmp_path, read_suite):
    registry = folder_of(tmp_path, zeros=ZEROS, norms=NORMS, later=LATER)
    text = SMALL.replace("seeds = 2", "seeds = 1") + 'metrics = ["zeros"]'
    _, store, cells = train(read_suite, text, registry, tmp_path / "run", keep=("model",))
    suite = read_suite(text.replace('["zeros"]', '["norms", "accuracy", "weight_angle"]'), plugins=registry)
    whole = train(read_suite, text.replace('["zeros"]', '["norms", "weight_angle"]'), registry, tmp_path / "whole")[1]
    assert remeasure(unique(plan(suite)), registry, data.data_folder(), lambda step: None, str(store.root)) == []
    for cell in cells:
        again, trained = store.read(cell.key)["metrics"], whole.read(cell.key)["metrics"]
        assert {name: again[name] for name in trained} == trained
        assert store.examples(cell.key, "norms").tolist() == whole.examples(cell.key, "norms").tolist()


def test_runs_that_measured_different_metrics_of_the_same_cells_merge(beside, trained, tmp_path, read_suite):
    _, registry = beside
    text = SMALL + 'metrics = ["zeros"]'
    few = train(read_suite, text, registry, tmp_path / "few")[1]
    suite = read_suite(SMALL + LISTED, plugins=registry)
    more = Store(shutil.copytree(trained[1].root, tmp_path / "more"))
    more.prepare(suite, plan(suite))
    done = merge([more.root, few.root], tmp_path / "all")
    assert (done.copied, done.missing) == (4, 0)
    assert load_records(done.folder)["norms"].notna().all()
    key = next(iter(few.scan()[0]))
    assert Store(done.folder).kept(key, "features.npz", Store(done.folder).read(key)["kept"]["features.npz"])


# ---- what a suite may not say ----------------------------------------------------------------------------------------

WRONG = {
    "a misspelt name": ('metrics = ["zeroes"]', ["experiment.digits.metrics[0]", "unknown metric 'zeroes'", "'zeros'"]),
    "an unknown option": ('metrics = ["zeros[k=1]"]', ["metrics[0].k", "unknown option 'k'"]),
    "a wrong type": ('metrics = ["zeros[chosen=x]"]', ["metrics[0].chosen", "must be int"]),
    "one metric twice": ('metrics = ["zeros", "zeros"]', ["metrics[1]", "'zeros' is listed twice"]),
    "another task": ('metrics = ["auc"]', ["metrics[0]", "'auc' is only available for verification"]),
    "a key that it needs": ('metrics = ["ece_scaled"]', ["digits.metrics: 'ece_scaled' needs the option 'holdout'"]),
    "a column that is taken": ('metrics = ["total"]', ["metrics[0]", "another column called 'total'"]),
    "something that cannot be kept": ('keep = ["weights"]', ["keep[0]", "predictions"]),
    "an unknown task of the file": ('metrics = ["sorted"]', ["TASKS: unknown task 'sorting'"]),
    "a claim without such a metric": (CLAIM.replace("zeros[", "nulls["), ["claim[0].metric", "unknown metric 'nulls["]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_sentence(case, tmp_path, read_suite):
    other = ZEROS.replace('("classification",)', '("sorting",)')
    registry = folder_of(tmp_path, zeros=ZEROS, total=ZEROS, sorted=other)
    text, expected = WRONG[case]
    with pytest.raises(SuiteError) as refused:
        read_suite(SMALL + text, plugins=registry)
    assert all(part in str(refused.value) for part in expected), str(refused.value)
    assert "\n" not in str(refused.value)


def test_metrics_that_no_cell_measures_may_be_listed(read_suite):
    text = SMALL + 'metrics = ["bytes", "step_seconds", "steps_to_target", "nll"]\n'
    assert [spec.label for spec in plan(read_suite(text))[0].metrics] == ["nll"]


def test_a_broken_file_that_no_suite_names_matters_to_nobody(tmp_path, read_suite):
    registry = folder_of(tmp_path, zeros=ZEROS, broken="UNIT = (", empty="")
    assert read_suite(SMALL + 'metrics = ["zeros"]', plugins=registry)
    with pytest.raises(SuiteError, match="is not valid Python"):
        read_suite(SMALL + 'metrics = ["broken"]', plugins=registry)
    with pytest.raises(SuiteError, match="unknown metric 'nothing'"):
        read_suite(SMALL + 'metrics = ["nothing"]', plugins=registry)
