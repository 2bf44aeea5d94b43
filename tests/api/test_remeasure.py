"""A run brings the metrics of finished cells up to date: from what they kept, or else by training them again."""

from __future__ import annotations

import json

from conftest import SMALL
from kit.commands import invoke

METRIC = '''"""The mean norm of test features, times a factor."""
UNIT, BETTER, TASKS = "", "higher", ("classification",)


def measure(test):
    return 1.0 * test.features.norm(dim=1)
'''


def test_a_changed_metric_is_measured_again_or_its_cells_are_trained_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics").mkdir()
    metric, suite = tmp_path / "metrics" / "norms.py", tmp_path / "suite.toml"

    def records():
        found = (json.loads(path.read_text()) for path in sorted(tmp_path.glob("runs/small/cells/*/record.json")))
        return {record["key"]: record for record in found}

    metric.write_text(METRIC)
    suite.write_text(SMALL.replace("seeds = 2", "seeds = 1") + 'metrics = ["norms"]\n')
    first = invoke("run", "suite.toml", "--no-report", "--keep", "features")
    assert first.returncode == 0, first.stderr
    before = records()
    assert all(record["kept"].keys() == {"features.npz"} for record in before.values())

    metric.write_text(METRIC.replace("1.0 *", "2.0 *"))
    said = "2 cells are measured again, without training: 'norms' is new or was changed"
    assert said in invoke("plan", "suite.toml", "--no-forecast").stdout
    again = invoke("run", "suite.toml", "--no-report")
    assert again.returncode == 0 and said in again.stderr and "2 already done, 0 to train" in again.stderr
    for key, record in records().items():
        assert record["metrics"]["norms"] == 2 * before[key]["metrics"]["norms"]
        assert record["seconds"] == before[key]["seconds"]  # nothing was trained

    metric.write_text(METRIC.replace("1.0 *", "1 / 0 *"))
    broken = invoke("run", "suite.toml", "--no-report")
    assert broken.returncode == 1 and "ZeroDivisionError" in broken.stderr and "not measured: digits" in broken.stderr
    state = invoke("status", "small")
    assert state.returncode == 1 and "by the next run: 2 cells are measured again" in state.stdout

    metric.write_text(METRIC.replace("1.0 *", "4.0 *"))
    damaged, deleted = sorted(tmp_path.glob("runs/small/cells/*/features.npz"))
    damaged.write_bytes(b"other")
    deleted.unlink()
    said = "1 cell did not keep its features, which 'norms' needs: it will be trained again"
    planned = invoke("plan", "suite.toml", "--no-forecast").stdout
    assert said in planned and "1 of 2 cells to train" in planned
    last = invoke("run", "suite.toml", "--no-report")
    assert last.returncode == 0, last.stderr
    assert said in last.stderr and "features.npz: is damaged" in last.stderr and "2 to train" in last.stderr
    for key, record in records().items():
        assert record["metrics"]["norms"] == 4 * before[key]["metrics"]["norms"]
        assert record["digest"] == before[key]["digest"] and record["seconds"] != before[key]["seconds"]
