"""A metric is one file: everything that reads metrics reads the registry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SMALL
from kit.synthetic import Truth, write_run

from lossbench.analysis.accuracy import MEANS
from lossbench.analysis.results import analyse
from lossbench.core.errors import PluginError
from lossbench.core.model import Record
from lossbench.plan.cells import plan
from lossbench.plugins import metrics, registry
from lossbench.plugins.metrics import COMPARED, METRICS, metrics_of
from lossbench.store.records import Store, load_records
from lossbench.suite.reading import json_schema
from lossbench.tasks import TASKS

ROOT = Path(__file__).parents[2]

NEW = '''"""The share of test images that are taken for one class."""
UNIT, BETTER, TASKS = "points", "lower", ("classification",)


def measure(test, *, chosen: int = 0):
    return 100 * float((test.predicted == chosen).mean())
'''

CLAIM = """
[[claim]]
text = "fewer zeros"
experiment = "digits"
metric = "zeros"
better = "w_softmax"
than = "softmax"
"""


# What a run does, without its processes: plan, train, store, analyse.
RUN = """
import json, pathlib, sys
from lossbench import data
from lossbench.analysis.results import analyse
from lossbench.plan.cells import plan
from lossbench.plan.job import with_data
from lossbench.plugins.registry import Registry
from lossbench.store.records import Store, load_records
from lossbench.suite.reading import parse
from lossbench.training.cell import run

registry, folder = Registry(), data.data_folder()
suite = parse(sys.argv[1], "suite.toml", registry, lambda spec: 10, None)
suite = with_data(suite, registry, folder)
store, cells = Store("out"), plan(suite)
store.prepare(suite, cells)
for cell in cells:
    outcome = run(cell, registry, folder)
    store.write(outcome.record, outcome.correct)
written = sorted(pathlib.Path("out").glob("cells/*/record.json"))
found = analyse(["out"])
compared = found.comparisons[found.comparisons["metric"] == "zeros"]
print(json.dumps({
    "recorded": [json.loads(path.read_text())["metrics"]["zeros"] for path in written],
    "tabulated": load_records("out").sort_values("key")["zeros"].tolist(),
    "shown": found.main["zeros"].tolist(),
    "compared": compared[["loss", "unit", "n"]].values.tolist(),
    "claimed": found.claims[["metric", "n"]].values.tolist(),
}))
"""


def test_a_file_that_is_dropped_in_is_measured_recorded_tabulated_compared_and_claimed(tmp_path):
    for room in ("lossbench", "losses", "backbones"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "lossbench" / "metrics" / "zeros.py").write_text(NEW)
    ran = subprocess.run(
        [sys.executable, "-c", RUN, SMALL + CLAIM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found["recorded"]) == 4 and all(0 <= value <= 100 for value in found["recorded"])
    assert found["tabulated"] == found["recorded"]
    assert sum(found["shown"]) == pytest.approx(sum(found["recorded"]) / 2)  # means over two seeds
    assert found["compared"] == [["w_softmax", "points", 2]]
    assert found["claimed"] == [["zeros", 2]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('"""No unit."""\nBETTER, TASKS = "lower", ()\ndef measure(test): ...\n', "a metric needs UNIT"),
        (
            'UNIT, BETTER, TASKS = "", "up", ()\ndef measure(test): ...\n',
            "BETTER must be one of higher, lower, got 'up'",
        ),
        ('UNIT, BETTER, TASKS, FROM = "", "lower", (), "air"\n', "FROM must be one of test, record, rounds, got 'air'"),
    ],
)
def test_a_file_that_does_not_say_what_it_is_is_refused_in_a_sentence(tmp_path, monkeypatch, text, problem):
    (tmp_path / "odd.py").write_text(text)
    monkeypatch.setattr(registry, "_built_in", lambda kind: tmp_path)
    with pytest.raises(PluginError, match=problem):
        metrics_of(registry.Registry())


def test_no_file_is_run_to_learn_what_it_measures(tmp_path, monkeypatch):
    (tmp_path / "costly.py").write_text(f"raise SystemExit\n{NEW}NAMES = {{'c@1': ('C at 1', {{'chosen': 1}})}}\n")
    monkeypatch.setattr(registry, "_built_in", lambda kind: tmp_path)
    (found,) = metrics_of(registry.Registry()).values()
    assert (found.name, found.title, found.unit, found.higher_is_better) == ("c@1", "C at 1", "points", False)
    with pytest.raises(PluginError, match="fails on import"):
        found.measure(None)


def test_every_reader_follows_the_registry(registry):
    schema = json_schema(registry)["$defs"]["ClaimText"]["properties"]
    assert schema["metric"]["enum"] == list(METRICS)
    measured = {metric.column for metric in METRICS.values() if metric.source != "rounds"}
    assert measured <= {*MEANS, "accuracy", "bytes_fc", "bytes_peak"}
    of_tasks = ("accuracy", "angle", "auc", "balanced_accuracy", "brier", "ece", "ece_scaled", "eer", "nll")
    retrieval = {name for name, metric in METRICS.items() if metric.tasks == ("retrieval",)}
    verification = ("tar@0.1", "tar@0.01", "tar@0.001", "rank@1", "tpir@0.1", "tpir@0.01")
    assert set(COMPARED) - retrieval == {*of_tasks, *verification, "top5", "worst_class_accuracy"}
    for name, task in TASKS.items():
        assert all(name in METRICS[metric].tasks for metric in task.headline)
    assert {task for metric in METRICS.values() for task in metric.tasks} == set(TASKS)


def test_a_record_without_metrics_gives_the_same_columns(tmp_path, read_suite):
    """Records that an older version wrote state the same numbers in other fields."""
    suite = read_suite(SMALL)
    folder = write_run(suite, tmp_path / "old", lambda cell: Truth(accuracy=80 + cell.seed, angle=30.0))
    old = load_records(folder)
    assert old["angle_test"].tolist() == [30.0] * 4 and old["norm_test"].isna().all()
    store = Store(tmp_path / "new")
    store.prepare(suite, plan(suite))
    for cell in plan(suite):
        data = json.loads((folder / "cells" / cell.key / "record.json").read_text())
        assert data["metrics"] == {}
        written = Record.from_json({**data, "metrics": {"accuracy": data["accuracy"], "angle": 30.0, "gone": 1.0}})
        store.write(written, Store(folder).correct(cell.key))
    assert load_records(tmp_path / "new").equals(old)
    del data["metrics"]
    assert Record.from_json(data).metrics == {}
    assert len(analyse([tmp_path / "new"]).comparisons) == len(analyse([folder]).comparisons) > 0


def test_scores_are_in_points():
    of_classes = {"accuracy", "balanced_accuracy", "ece", "ece_scaled", "top5", "worst_class_accuracy"}
    retrieval = {"recall@1", "recall@5", "recall@10", "map@r", "r_precision"}
    identification = {"rank@1", "tpir@0.1", "tpir@0.01"}
    pairs = {"auc", "eer", "tar@0.1", "tar@0.01", "tar@0.001"}
    assert set(metrics.SCORES) == {*of_classes, *retrieval, *pairs, *identification}
