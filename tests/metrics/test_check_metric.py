"""`lossbench check metrics/x.py`, and the metric that `lossbench new metric` writes."""

from __future__ import annotations

import pytest
from kit.commands import invoke

from lossbench.plugins.metrics import METRICS
from lossbench.plugins.registry import Plugin, Registry
from lossbench.plugins.scaffold import new
from lossbench.training.check import _Case, _findings

HEAD = '"""A metric."""\nUNIT, BETTER, TASKS = "", "lower", ("classification",)\n'
FAULTS = {
    "declarations": '"""A metric."""\nBETTER, TASKS = "lower", ("classification",)\ndef measure(test):\n    return 1\n',
    "docstring": HEAD.replace('"""A metric."""\n', "") + "def measure(test):\n    return 1\n",
    "loads": HEAD + "import no_such_module\ndef measure(test):\n    return 1\n",
    "runs": HEAD + "def measure(test):\n    return [1.0, 2.0]\n",
    "deterministic": HEAD + "import time\ndef measure(test):\n    return time.perf_counter()\n",
    "inputs untouched": HEAD + "def measure(test):\n    test.features.mul_(2)\n    return 1\n",
    "no class weights": HEAD + "def measure(test):\n    return test.weights.norm()\n",
    "options act": HEAD + "def measure(test, *, k: int = 1):\n    return 1\n",
}


def checked(tmp_path, text):
    path = tmp_path / "metrics" / "mine.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return list(_findings(Plugin("metric", "mine", path), Registry(), lambda name: None))


@pytest.mark.parametrize("name", FAULTS)
def test_every_property_finds_its_fault_and_only_that(name, tmp_path):
    found = checked(tmp_path, FAULTS[name])
    assert [finding.property for finding in found if finding.status == "fail"] == [name]


def test_a_metric_that_uses_more_than_it_declares_is_found(tmp_path):
    text = HEAD + 'NEEDS = "predictions"\ndef measure(test):\n    return test.features.norm(dim=1)\n'
    found = {finding.property: finding for finding in checked(tmp_path, text)}
    assert found["runs"].status == "fail" and "NoneType" in found["runs"].sentence


def test_a_new_metric_works_and_passes(tmp_path, monkeypatch):
    path = new("metric", "mine", tmp_path)
    found = list(_findings(Plugin("metric", "mine", path), Registry(), lambda name: None))
    assert {finding.status for finding in found} == {"pass", "fact"}
    monkeypatch.chdir(tmp_path)
    assert "mine" in invoke("list", "metrics", "--plugins", ".").stdout
    assert "options:\n  k: int = 1" in invoke("info", "metric", "mine", "--plugins", ".").stdout


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.source in ("test", "record")])
def test_built_in_metrics_keep_to_what_they_declare(name):
    """Each is measured on what its NEEDS allow, in all of its tasks."""
    metric = METRICS[name]
    for task in metric.tasks:
        case = _Case(metric, task)
        assert case.value() is None
        assert case.untouched() is None
