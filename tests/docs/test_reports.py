"""The committed reports are what today's code writes from the records beside them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from kit.pages import ROOT

from lossbench.report import differing

ARCHIVES = sorted((ROOT / "reports").glob("*/records.tar.xz"))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.parent.name)
def test_a_committed_report_is_what_todays_code_writes_from_its_records(archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a report names the folders of its runs
    with tarfile.open(archive) as records:
        records.extractall("runs", filter="data")
    runs = sorted(Path("runs").iterdir())
    assert runs[0].name == archive.parent.name
    assert differing(runs, archive.parent) == {}
