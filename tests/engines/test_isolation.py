"""Whatever plugins do to their process reaches nobody else: side effects of imports, endless loops, hidden children,
endless logs. Real processes throughout.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import SMALL, alive, command, write_loss

from lossbench import api
from lossbench.core.errors import LossbenchError
from lossbench.core.model import result
from lossbench.data import apart
from lossbench.engines import server, servers

ONE_SEED = SMALL.replace("seeds = 2", "seeds = 1")


def suite_of(folder: Path, losses: str, text: str = ONE_SEED) -> Path:
    path = folder / "suite.toml"
    path.write_text(text.replace('["softmax", "w_softmax"]', losses))
    return path


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


def results(folder: Path) -> dict[str, dict]:
    found = (json.loads(path.read_text()) for path in folder.glob("cells/*/record.json"))
    return {record["label"]: result(record) for record in found}


def wait_until(condition, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def hiding(marker: Path) -> str:
    """Python that starts a process in a session of its own whose parent ends, and notes its pid beside our own."""
    shell = f"setsid sleep 600 & echo $! >> {marker}"
    return f"open({str(marker)!r}, 'a').write(f'{{os.getpid()}} '); __import__('subprocess').run({['sh', '-c', shell]})"


def pids(marker: Path) -> list[int]:
    return [int(pid) for pid in marker.read_text().split()] if marker.exists() else []


MEDDLES = """
import torch
import torch.nn.functional as F
torch.backends.mkldnn.enabled = False
original = F.cross_entropy
F.cross_entropy = lambda *given, **more: 3 * original(*given, **more)
"""


def test_what_a_library_does_on_import_reaches_no_loss_that_does_not_import_it(tmp_path, lossbench):
    environment = library(tmp_path, "meddler", MEDDLES)
    importing(tmp_path, "mine", "meddler")
    alone = lossbench("run", suite_of(tmp_path, '["softmax"]'), "--no-report", "--out", "alone", env=environment)
    beside = lossbench(
        "run", suite_of(tmp_path, '["softmax", "mine"]'), "--no-report", "--out", "both", env=environment
    )
    assert (alone.returncode, beside.returncode) == (0, 0), beside.stderr
    assert results(tmp_path / "both")["softmax"] == results(tmp_path / "alone")["softmax"]
    assert results(tmp_path / "both")["mine"]["digest"] != results(tmp_path / "both")["softmax"]["digest"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import time\ntime.sleep(600)", "did not end within 3 seconds"),
        ("while True: pass", "did not end within 3 seconds"),
        ("import os\nos._exit(3)", "ended the process (exit code 3)"),
        ("import ctypes\nctypes.string_at(0)", "ended the process (killed by SIGSEGV)"),
    ],
)
def test_a_library_that_hangs_or_dies_on_import_is_named_with_its_plugin(tmp_path, monkeypatch, code, said):
    environment = library(tmp_path, "broken_library", code)
    monkeypatch.syspath_prepend(environment["PYTHONPATH"])
    monkeypatch.setattr(servers, "IMPORT_SECONDS", 3.0)
    path = importing(tmp_path, "mine", "broken_library")
    with pytest.raises(LossbenchError) as refused:
        api.run(suite_of(tmp_path, '["softmax", "mine"]'), out=tmp_path / "run", reports=None)
    assert str(refused.value) == f"{path}: importing 'broken_library' {said}"
    assert not (tmp_path / "run" / "cells").exists()


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        ("import", "while True: pass", "did not end within 3 seconds"),
        ("import", "sys.exit('enough')", "SystemExit: enough"),
        ("import", "os._exit(3)", "ended its process (exit code 3)"),
        ("constructor", "sys.exit('enough')", "SystemExit: enough"),
        ("forward", "while True: pass", "did not end within 3 seconds"),
        ("forward", "ctypes.string_at(0)", "ended its process (killed by SIGSEGV)"),
    ],
)
def test_a_plugin_that_hangs_or_dies_before_training_is_named(tmp_path, monkeypatch, where, code, said):
    monkeypatch.setattr(servers, "STEP_SECONDS", 3.0)
    path = write_loss(
        tmp_path, "mine", code if where == "forward" else "pass", constructor=code if where == "constructor" else "pass"
    )
    head = "import ctypes, sys\n" + path.read_text()
    path.write_text(head.replace("class Loss", f"{code}\n\n\nclass Loss", 1) if where == "import" else head)
    with pytest.raises(LossbenchError) as refused:
        api.run(suite_of(tmp_path, '["softmax", "mine"]'), out=tmp_path / "run", reports=None)
    assert "experiment.digits.losses[1]: loss 'mine'" in str(refused.value)
    assert said in str(refused.value)
    assert not (tmp_path / "run" / "cells").exists()


def test_a_slow_plugin_has_as_long_as_a_cell_may_take(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "STEP_SECONDS", 0.5)
    write_loss(tmp_path, "slow", "pass", constructor="time.sleep(1.5)")
    done = api.run(suite_of(tmp_path, '["softmax", "slow"]'), out=tmp_path / "run", reports=None, timeout=60)
    assert not done.unfinished


def test_nothing_survives_a_run_that_is_killed_while_a_library_is_being_imported(tmp_path):
    marker = tmp_path / "pid"
    environment = library(tmp_path, "endless", f"import os, subprocess\n{hiding(marker)}\nwhile True: pass")
    importing(tmp_path, "mine", "endless")
    suite = suite_of(tmp_path, '["softmax", "mine"]')
    run = subprocess.Popen(
        command("run", suite, "--no-report"), cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: len(pids(marker)) == 2, 60)
    started = pids(marker)
    assert all(map(alive, started))
    run.kill()
    run.wait()
    wait_until(lambda: not any(map(alive, started)))


def test_nothing_survives_a_run_that_is_killed_while_cells_train(tmp_path):
    """Not even a process that left its session, or one whose parent has ended."""
    marker = tmp_path / "pids"
    write_loss(tmp_path, "mine", f"if len(labels) > 2:\n            {hiding(marker)}; time.sleep(600)")
    run = subprocess.Popen(
        command("run", suite_of(tmp_path, '["softmax", "mine"]'), "--no-report"),
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: len(pids(marker)) == 2, 60)
    started = pids(marker)
    run.send_signal(signal.SIGKILL)
    run.wait()
    wait_until(lambda: not any(map(alive, started)))


def test_what_a_cell_started_ends_with_it_whatever_session_it_moved_to(tmp_path, lossbench):
    marker = tmp_path / "pid"
    write_loss(tmp_path, "mine", f"if len(labels) > 2 and self.calls == 1:\n            {hiding(marker)}")
    ran = lossbench("run", suite_of(tmp_path, '["softmax", "mine"]'), "--no-report")
    assert ran.returncode == 0, ran.stderr
    assert not any(map(alive, pids(marker)))


def test_a_log_without_end_is_kept_within_bounds_with_its_beginning_and_end(tmp_path, lossbench):
    chatter = "print('beginning'); [print('x' * 9999) for _ in range(3000)]; print('the end', flush=True)"
    write_loss(tmp_path, "mine", f"if len(labels) > 2 and self.calls == 1:\n            {chatter}")
    ran = lossbench("run", suite_of(tmp_path, '["softmax", "mine"]'), "--no-report")
    assert ran.returncode == 0, ran.stderr
    log = max((tmp_path / "runs/small/logs").iterdir(), key=lambda path: path.stat().st_size).read_text()
    assert len(log) <= 2 * server.LOG_END + 100
    assert log.startswith("beginning\n") and log.endswith("the end\n")
    left_out = 30_000_000 + len("beginning\nthe end\n") - 2 * server.LOG_END
    assert f"[… {left_out:,} bytes left out …]" in log


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("while True: pass", "load gave no sign of progress for 4 seconds"),
        ("sys.exit('enough')", "load fails (SystemExit: enough)"),
        ("os._exit(3)", "load ended its process (exit code 3)"),
        ("ctypes.string_at(0)", "load ended its process (killed by SIGSEGV)"),
        ("raise KeyError('images')", "load fails (KeyError: 'images')"),
    ],
)
def test_a_dataset_that_hangs_or_dies_while_it_is_loaded_is_named(tmp_path, monkeypatch, code, said):
    monkeypatch.setattr(apart, "SILENT_SECONDS", 4.0)
    path = tmp_path / "datasets" / "theirs.py"
    path.parent.mkdir()
    path.write_text(f'"""Theirs."""\nimport ctypes, os, sys\n\n\ndef load(root):\n    {code}\n')
    suite = suite_of(tmp_path, '["softmax"]', ONE_SEED.replace('dataset = "digits"', 'dataset = "theirs"'))
    with pytest.raises(LossbenchError) as refused:
        api.run(suite, out=tmp_path / "run", reports=None)
    assert f"experiment.digits.dataset: {path}:" in str(refused.value)
    assert str(refused.value).endswith(said)
