"""The suites of docs/questions.md can be planned, and their reports answer what they ask."""

from __future__ import annotations

import json
import re

import pytest
from kit.commands import invoke
from kit.pages import DOCS

SUITES = sorted((DOCS / "questions").glob("*.toml"))
# What a report must state: for each suite, the section that answers, and words of it.
ANSWERS = {
    "adamw": ("comparisons", "adamw"),
    "calibration": ("comparisons", "ECE"),
    "class_weight_rate": ("claims", "loss_lr"),
    "everywhere": ("comparisons", "mlp"),
    "growth": ("claims", "doubling of train"),
    "rate_and_batch": ("claims", "doubling of batch"),
    "retrieval": ("retrieval", "MAP@R"),
    "tuned": ("tuning", "lr="),
}


def test_every_suite_is_listed_and_every_listed_suite_exists():
    listed = re.findall(r"\(questions/([\w.]+)\)", (DOCS / "questions.md").read_text())
    assert sorted(listed) == [suite.name for suite in SUITES]
    assert set(ANSWERS) == {suite.stem for suite in SUITES}


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.stem)
def test_a_suite_can_be_planned(suite, tmp_path):
    found = invoke("plan", str(suite), "--no-forecast", "--out", str(tmp_path / "run"))
    assert found.returncode == 0 and "cells to train" in found.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.stem)
def test_a_report_answers_its_question(suite, tmp_path):
    out, reports = str(tmp_path / "run"), tmp_path / "report"
    options = [] if suite.stem == "growth" else ["--set", "schedule.steps=20"]  # its claims are about some steps
    found = invoke("run", str(suite), "--out", out, "--reports", str(reports), *options, "--set", "seeds=3")
    assert found.returncode in (0, 1), found.stdout + found.stderr  # a short training may diverge
    stated = json.loads((reports / "report.json").read_text())
    slug, words = ANSWERS[suite.stem]
    section = next(part for part in stated["sections"] if part["slug"] == slug)
    assert words in json.dumps(section, ensure_ascii=False)
