"""Two runs with different profiles in one folder: each report describes the plan of its own run."""

from __future__ import annotations

import json
import subprocess

import pytest
from conftest import SMALL, command

from lossbench import api
from lossbench.report import write
from lossbench.store.records import Store

pytestmark = pytest.mark.slow  # two real runs at once

TWO_SCALES = f"""{SMALL}
[profile.short]
all = {{ seeds = 3, losses = ["softmax", "center"] }}
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A run of the whole suite; a second process runs its other profile while the first is at work."""
    tmp_path = tmp_path_factory.mktemp("both")
    (tmp_path / "suite.toml").write_text(TWO_SCALES)
    ended = []

    def on_event(event):
        if event.kind == "ended" and not ended:
            ended.append(event)
            other = command("run", "suite.toml", "--profile", "short", "--reports", "reports/short", "--out", "run")
            assert subprocess.run(other, cwd=tmp_path, capture_output=True, check=False, timeout=240).returncode == 0

    result = api.run(
        tmp_path / "suite.toml", out=tmp_path / "run", reports=tmp_path / "reports" / "whole", jobs=1, on_event=on_event
    )
    assert ended
    return tmp_path, result


def stated(tmp_path, name):
    return json.loads((tmp_path / "reports" / name / "report.json").read_text())


def test_a_report_describes_the_plan_of_its_own_run(both):
    tmp_path, result = both
    whole, short = stated(tmp_path, "whole"), stated(tmp_path, "short")
    assert (whole["profile"], whole["losses"], whole["statuses"]) == (None, ["softmax", "w_softmax"], {"done": 4})
    assert (short["profile"], short["losses"], short["statuses"]) == ("short", ["softmax", "center"], {"done": 6})
    assert {row["n"] for row in whole["main"]} == {2}
    assert set(result.records["label"]) == {"softmax", "w_softmax"}


def test_a_report_of_the_folder_describes_its_last_plan(both):
    tmp_path, _ = both
    write([tmp_path / "run"], tmp_path / "reports" / "folder")
    assert Store(tmp_path / "run").plan()[0].profile == "short"
    assert stated(tmp_path, "folder")["profile"] == "short"
