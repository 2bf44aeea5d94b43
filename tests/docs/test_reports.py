"""The committed reports are what today's code writes from the records beside them."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from conftest import command
from kit.pages import ROOT

from lossbench.report import differing

ARCHIVES = sorted((ROOT / "reports").glob("*/records.tar.xz"))


def _marked(archive: Path) -> Any:
    """The reports of many records take too long for the default tests."""
    name = archive.parent.name
    return pytest.param(archive, id=name, marks=() if name == "quick" else pytest.mark.slow)


@pytest.mark.parametrize("archive", [_marked(path) for path in ARCHIVES])
def test_a_committed_report_is_what_todays_code_writes_from_its_records(archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a report names the folders of its runs
    with tarfile.open(archive) as records:
        records.extractall("runs", filter="data")
    runs = sorted(Path("runs").iterdir())
    assert runs[0].name == archive.parent.name
    assert differing(runs, archive.parent) == {}


@pytest.mark.slow
def test_a_report_has_the_same_bytes_with_the_kernels_of_another_cpu(tmp_path):
    """Matrix products of another CPU's kernels have other last bits; the suite has trends and correlations."""
    folder = ROOT / "reports/quick"
    with tarfile.open(folder / "records.tar.xz") as records:
        records.extractall(tmp_path / "runs", filter="data")
    older = {**os.environ, "OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3"}
    check = command("report", "quick", "--reports", folder, "--check")
    checked = subprocess.run(check, cwd=tmp_path, env=older, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
