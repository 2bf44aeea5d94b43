"""Whatever plugins do to their process before training reaches nobody else: imports that meddle, hang or crash."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from conftest import SMALL, alive, write_loss
from kit.runs import by_label, hiding, pids, started, wait_until, write_suite

from lossbench import api
from lossbench.core import ahead
from lossbench.core.errors import LossbenchError
from lossbench.data import apart, load_dataset
from lossbench.engines import servers
from lossbench.engines.servers import Servers
from lossbench.plugins.registry import Registry
from lossbench.training import cell as train

MINE = SMALL.replace("seeds = 2", "seeds = 1").replace('["softmax", "w_softmax"]', '["mine"]')
MINE = MINE.replace("title", 'baseline = "mine"\ntitle')


def library(folder: Path, name: str, text: str) -> dict[str, str]:
    """A package as pip installs it; the environment in which it is found."""
    site = folder / "lib" / "site-packages"
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text(text)
    metadata = site / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    return {**os.environ, "PYTHONPATH": str(site)}


def importing(folder: Path, loss: str, module: str) -> Path:
    path = write_loss(folder, loss, "pass")
    path.write_text(path.read_text().replace("import torch\n", f"import torch\nimport {module}\n", 1))
    return path


MEDDLES = """
import torch
import torch.nn.functional as F
torch.backends.mkldnn.enabled = False
original = F.cross_entropy
F.cross_entropy = lambda *given, **more: 3 * original(*given, **more)
"""


@pytest.mark.slow
def test_what_a_library_does_on_import_reaches_no_loss_that_does_not_import_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(library(tmp_path, "meddler", MEDDLES)["PYTHONPATH"])
    importing(tmp_path, "mine", "meddler")
    write_loss(tmp_path, "twin", "pass")  # the same loss without the import
    suite = write_suite(tmp_path, MINE.replace('["mine"]', '["mine", "twin"]'))
    job = api.prepare(suite)
    assert not api.run(suite, out=tmp_path / "run", reports=None).unfinished
    twin = next(cell for cell in job.chosen if cell.label == "twin")
    alone = train.run(twin, job.registry, job.data).record  # in this process, which has no meddler
    digests = {label: record["digest"] for label, record in by_label(tmp_path / "run").items()}
    assert digests["twin"] == alone.digest != digests["mine"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import time\ntime.sleep(600)", "did not end within 1 seconds"),
        ("while True: pass", "did not end within 1 seconds"),
        ("import os\nos._exit(3)", "ended the process (exit code 3)"),
        ("import ctypes\nctypes.string_at(0)", "ended the process (killed by SIGSEGV)"),
    ],
)
def test_a_library_that_hangs_or_dies_on_import_is_named_with_its_plugin(tmp_path, monkeypatch, code, said):
    monkeypatch.syspath_prepend(library(tmp_path, "broken_library", code)["PYTHONPATH"])
    monkeypatch.setattr(servers, "IMPORT_SECONDS", 1.0)
    monkeypatch.setattr(ahead, "PRELOAD", ())  # it comes after torch, whose import takes seconds
    path = importing(tmp_path, "mine", "broken_library")
    job = api.prepare(write_suite(tmp_path, MINE))
    with closing(Servers(job.registry)) as opened, pytest.raises(LossbenchError) as refused:
        opened.start(job.chosen)
    assert str(refused.value) == f"{path}: importing 'broken_library' {said}"


def preflight(folder: Path, text: str = MINE, **options) -> list[str]:
    job = api.prepare(write_suite(folder, text))
    return api.Servers(job.registry).preflight(job.chosen, job.data, **options)


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        ("import", "while True: pass", "did not end within 2 seconds"),
        ("import", "sys.exit('enough')", "SystemExit: enough"),
        ("import", "os._exit(3)", "ended its process (exit code 3)"),
        ("constructor", "sys.exit('enough')", "SystemExit: enough"),
        ("forward", "time.sleep(600)", "did not end within 2 seconds"),
        ("forward", "ctypes.string_at(0)", "ended its process (killed by SIGSEGV)"),
    ],
)
def test_a_plugin_that_hangs_or_dies_before_training_is_named(tmp_path, monkeypatch, where, code, said):
    monkeypatch.setattr(servers, "STEP_SECONDS", 2.0)
    path = write_loss(
        tmp_path, "mine", code if where == "forward" else "pass", constructor=code if where == "constructor" else "pass"
    )
    head = "import ctypes, sys\n" + path.read_text()
    path.write_text(head.replace("class Loss", f"{code}\n\n\nclass Loss", 1) if where == "import" else head)
    (problem,) = preflight(tmp_path)
    assert "experiment.digits.losses[0]: loss 'mine'" in problem and said in problem


def test_a_slow_plugin_has_as_long_as_a_cell_may_take(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "STEP_SECONDS", 0.5)
    write_loss(tmp_path, "mine", "pass", constructor="time.sleep(1.5)")
    assert preflight(tmp_path, limit=60) == []


def test_an_option_of_a_metric_that_is_out_of_range_is_refused_before_training(tmp_path):
    write_loss(tmp_path, "mine", "pass")
    (problem,) = preflight(tmp_path, MINE + 'metrics = ["ece[bins=0]", "ece[bins=3]", "nll"]\n')
    assert problem.endswith("experiment.digits.metrics: metric 'ece[bins=0]': bins must be at least 1, got 0")


def test_every_trial_is_tried_although_all_have_the_label_of_their_loss(tmp_path):
    path = write_loss(tmp_path, "mine", "pass", constructor="if level > 1.5: raise ValueError('too high')")
    path.write_text(path.read_text() + 'RANGES = {"level": (1.6, 2.0)}\n')
    (problem,) = preflight(tmp_path, MINE + "\n[tune]\ntrials = 2\n")
    assert problem.endswith("loss 'mine': too high")


def test_an_unsound_plugin_ends_the_run_before_anything_is_written(tmp_path):
    write_loss(tmp_path, "mine", "pass", constructor="raise ValueError('never')")
    with pytest.raises(LossbenchError, match=r"losses\[0\]: loss 'mine': never"):
        api.run(write_suite(tmp_path, MINE), out=tmp_path / "run", reports=tmp_path / "new" / "reports")
    assert not (tmp_path / "run").exists() and not (tmp_path / "new").exists()


@pytest.mark.parametrize("moment", [pytest.param("a library is being imported", marks=pytest.mark.slow), "cells train"])
def test_nothing_survives_a_run_that_is_killed_while(tmp_path, moment):
    """Not even a process that left its session, or one whose parent has ended."""
    marker, environment = tmp_path / "pids", None
    if moment == "cells train":
        write_loss(tmp_path, "mine", f"if len(labels) > 2:\n            {hiding(marker)}; time.sleep(600)")
    else:
        environment = library(tmp_path, "endless", f"import os, subprocess\n{hiding(marker)}\nwhile True: pass")
        importing(tmp_path, "mine", "endless")
    run = started(tmp_path, "run", write_suite(tmp_path, MINE), "-q", "--no-report", env=environment)
    wait_until(lambda: len(pids(marker)) == 2 or run.poll() is not None, 120)
    found = pids(marker)
    assert all(map(alive, found))
    run.kill()
    run.wait()
    wait_until(lambda: not any(map(alive, found)), 30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("while True: pass", "load made no progress for 2 seconds"),
        ("sys.exit('enough')", "load fails (SystemExit: enough)"),
        ("os._exit(3)", "load ended its process (exit code 3)"),
        ("ctypes.string_at(0)", "load ended its process (killed by SIGSEGV)"),
        ("raise KeyError('images')", "load fails (KeyError: 'images')"),
    ],
)
def test_a_dataset_that_hangs_or_dies_while_it_is_loaded_is_named(tmp_path, monkeypatch, code, said):
    if "while" in code:
        monkeypatch.setattr(apart, "SILENT_SECONDS", 2.0)
    path = tmp_path / "datasets" / "theirs.py"
    path.parent.mkdir()
    path.write_text(f'"""Theirs."""\nimport ctypes, os, sys\n\n\ndef load(root):\n    {code}\n')
    with pytest.raises(LossbenchError) as refused:
        load_dataset("theirs", registry=Registry([tmp_path]), data=tmp_path)
    assert str(refused.value).startswith(f"{path}:") and str(refused.value).endswith(said)
