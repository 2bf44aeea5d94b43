"""A report can be written at any time: while trials are unfinished, and of runs that another lossbench made."""

from __future__ import annotations

import json

import pytest
from synthetic import Truth, noise, write_run
from test_tune import TUNED

from lossbench.report import write

STAGES = {
    "nothing": lambda cell: False,
    "the losses as written": lambda cell: cell.kind == "train",
    "one trial": lambda cell: cell.kind == "trial" and cell.tried[1] == 1,
    "some losses": lambda cell: cell.kind == "train" or cell.tried[0] == "softmax",
    "all but one trial": lambda cell: cell.kind == "train" or cell.tried != ("w_softmax", 2),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_report_can_be_written_while_trials_are_unfinished(tmp_path, read_suite, stage):
    suite = read_suite(TUNED)
    write_run(suite, tmp_path / "run", lambda cell: Truth(90 + noise(cell, 1)) if STAGES[stage](cell) else None)
    write([tmp_path / "run"], tmp_path / "reports")
    stated = json.loads((tmp_path / "reports" / "report.json").read_text())
    losses = {row["loss"]: row for row in stated["tuning"]["losses"]}
    assert losses["w_softmax"]["lr"] is None
    assert losses["w_softmax"]["left"] > 0
    assert "not run" in (tmp_path / "reports" / "summary.md").read_text()
