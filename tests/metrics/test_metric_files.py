"""A built-in metric is one file, whose declarations are read without running it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from conftest import SMALL
from kit.synthetic import Truth, write_run

from lossbench import metrics as evaluations
from lossbench.analysis.accuracy import means
from lossbench.analysis.results import analyse
from lossbench.core.errors import PluginError
from lossbench.core.model import Record
from lossbench.plan.cells import plan
from lossbench.plugins import metrics, registry
from lossbench.plugins.metrics import METRICS, TAKEN, built_in
from lossbench.store.records import Store, load_records
from lossbench.suite.schema import json_schema
from lossbench.tasks import TASKS

NEW = '''"""The share of test images that are taken for one class."""
UNIT, BETTER, TASKS = "points", "lower", ("classification",)


def measure(test, *, chosen: int = 0):
    return 100 * float((test.predicted == chosen).mean())
'''


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('"""No unit."""\nBETTER, TASKS = "lower", ()\ndef measure(test): ...\n', "a metric needs UNIT"),
        (
            'UNIT, BETTER, TASKS = "", "up", ()\ndef measure(test): ...\n',
            "BETTER must be one of higher, lower, got 'up'",
        ),
        (
            'UNIT, BETTER, TASKS, FROM = "", "lower", (), "air"\ndef measure(test): ...\n',
            "FROM must be one of test, record, rounds, curves, got 'air'",
        ),
        ('UNIT, BETTER, TASKS = "", "lower", ("sorting",)\ndef measure(test): ...\n', "unknown task 'sorting'"),
        ('UNIT, BETTER, TASKS, NEEDS = "", "lower", (), "luck"\ndef measure(test): ...\n', "NEEDS must be one of"),
        ('UNIT, BETTER, TASKS = "", "lower", ()\n', "defines no 'measure', so it is not a metric"),
    ],
)
def test_a_file_that_does_not_say_what_it_is_is_refused_in_a_sentence(tmp_path, monkeypatch, text, problem):
    (tmp_path / "odd.py").write_text(text)
    monkeypatch.setattr(registry, "_built_in", lambda kind: tmp_path)
    with pytest.raises(PluginError, match=problem):
        built_in(registry.Registry())


def test_no_file_is_run_to_learn_what_it_measures(tmp_path, monkeypatch):
    (tmp_path / "costly.py").write_text(f"raise SystemExit\n{NEW}NAMES = {{'c@1': ('C at 1', {{'chosen': 1}})}}\n")
    monkeypatch.setattr(registry, "_built_in", lambda kind: tmp_path)
    (found,) = built_in(registry.Registry()).values()
    assert (found.name, found.title, found.unit, found.higher_is_better) == ("c@1", "C at 1", "points", False)
    with pytest.raises(PluginError, match="fails on import"):
        found.measure(None)


def test_every_reader_follows_the_registry(registry):
    schema = json_schema(registry)["$defs"]["ClaimText"]["properties"]
    assert all(name in schema["metric"]["description"] for name in METRICS)
    measured = {metric.column for metric in METRICS.values() if metric.column}
    assert measured <= {*means(METRICS.values()), "accuracy"}
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
    scores = {name for name, metric in METRICS.items() if metric.is_score}
    assert scores == {*of_classes, *retrieval, *pairs, *identification}


def test_no_metric_of_a_user_can_take_the_column_of_something_else(tmp_path, read_suite):
    suite = read_suite(SMALL)
    folder = write_run(suite, tmp_path / "run", lambda cell: Truth(accuracy=80))
    found = analyse([folder])
    named = {metric.column for metric in METRICS.values()} | set(means(METRICS.values()))
    columns = {*found.records, *found.main} - named
    assert {name for name in columns if not name.startswith(("seconds_", "bytes_"))} <= {*TAKEN}


@pytest.mark.parametrize(
    ("written", "name", "title", "options"),
    [
        ("tar@1e-4", "tar@0.0001", "TAR at FAR 0.0001", {"far": 1e-4}),
        ("tar[far=1e-4]", "tar@0.0001", "TAR at FAR 0.0001", {"far": 1e-4}),
        ("tar[far=0.01]", "tar@0.01", "TAR at FAR 1 %", {"far": 0.01}),
        ("recall@20", "recall@20", "Recall@20", {"k": 20}),
        ("recall[k=1]", "recall@1", "Recall@1", {"k": 1}),
        ("rank@5", "rank@5", "Rank-5", {"k": 5}),
        ("tpir@0.3", "tpir@0.3", "TPIR at FPIR 0.3", {"fpir": 0.3}),
    ],
)
def test_a_metric_at_another_value_has_one_name_however_it_is_written(registry, written, name, title, options):
    found = metrics.find(registry, written)
    assert (found.name, found.title, found.column, dict(found.options)) == (name, title, name, options)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("tar@1.5", "'far' of metric 'tar' must be between 0 and 1, got 1.5"),
        ("tar@0", "must be between 0 and 1"),
        ("recall@0", "'k' of metric 'recall' must be 1 or more, got 0"),
        ("recall@2.5", "must be int"),
        ("recall", "unknown metric 'recall'; known: recall@1, recall@5, recall@10, or another k after the @"),
        ("auc@3", "unknown metric 'auc@3'"),
        ("taar@0.1", "unknown metric 'taar@0.1'; did you mean 'tar@0.1'"),
    ],
)
def test_a_value_that_a_metric_cannot_have_is_refused(registry, written, problem):
    with pytest.raises(PluginError, match=re.escape(problem)):
        metrics.find(registry, written)


def test_what_every_cell_loads_is_light():
    """All built-in metrics run in every cell's process: scipy.stats or scipy.optimize would double its start."""
    for path in Path(evaluations.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None) or ""
                names = {f"{module}.{alias.name}".lstrip(".") for alias in node.names}
                assert not {name for name in names if name.startswith("scipy")} - {"scipy.special"}, path.name
