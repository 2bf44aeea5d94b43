"""How a run starts: torch is imported while the suite is read, and its compiler only where something needs it."""

from __future__ import annotations

import subprocess
from contextlib import closing

import pytest
from conftest import SMALL, command
from kit.runs import by_label, write_suite

from lossbench import api, cli
from lossbench.cli import commands
from lossbench.core import ahead
from lossbench.core.errors import SuiteError
from lossbench.engines.servers import Servers
from lossbench.plan.cells import plan
from lossbench.training import cell as train

SEEN = '''"""Whether torch's compiler has been imported."""
import sys

UNIT, BETTER, TASKS = "", "lower", ("classification",)


def measure(test):
    return float("torch._dynamo" in sys.modules)
'''

ONE = SMALL.replace("seeds = 2", "seeds = 1").replace('["softmax", "w_softmax"]', '["softmax"]')
ONE += 'metrics = ["seen"]\nwarm_start = { steps = 3 }\n'


def test_a_cell_trains_without_torch_dynamo_to_the_same_bits(tmp_path):
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "seen.py").write_text(SEEN)
    suite = write_suite(tmp_path, ONE)
    assert not api.run(suite, out=tmp_path / "run", reports=None).unfinished
    record = by_label(tmp_path / "run")["softmax"]
    assert record["metrics"]["seen"] == 0
    job = api.prepare(suite)
    warm, refined = sorted(job.chosen, key=lambda cell: cell.kind != "warm")
    checkpoint = train.run(warm, job.registry, job.data).checkpoint
    here = train.run(refined, job.registry, job.data, checkpoint).record  # with torch's own SGD
    assert here.digest == record["digest"]


class Noting(Servers):
    """Notes what it is told to import, and starts nothing."""

    def _with(self, imports):
        self._running[frozenset(imports)] = Closed()


class Closed:
    closed = False

    def close(self):
        self.closed = True


def test_the_server_without_libraries_is_started_before_a_suite_is_read(tmp_path, monkeypatch):
    servers, seen = Noting(), []
    monkeypatch.setattr(api, "Servers", lambda: servers)
    prepare = api.job.prepare
    monkeypatch.setattr(api.job, "prepare", lambda *a, **k: seen.extend(servers._running.items()) or prepare(*a, **k))
    with pytest.raises(SuiteError):
        api.run(write_suite(tmp_path, "name = 3"), reports=None)
    [(libraries, server)] = seen
    assert libraries == frozenset() and server.closed


def test_servers_that_no_cell_needs_are_ended(read_suite):
    with closing(Noting()) as servers:
        servers.start_ahead()
        plain = servers._running[frozenset()]
        servers.keep(plan(read_suite(SMALL)))
        assert not plain.closed
        timm = SMALL.replace('"cnn", channels = 4, depths = [1]', '"timm", model = "resnet10t"')
        servers.keep(plan(read_suite(timm)))
        assert plain.closed and not servers._running


@pytest.fixture
def light(monkeypatch) -> None:
    """Servers that import nothing."""
    monkeypatch.setattr(ahead, "PRELOAD", ())


@pytest.mark.usefixtures("light")
def test_a_run_takes_the_server_that_the_command_line_has_started_and_ends_it():
    with ahead.launching():
        [(process, _)] = ahead._waiting
        with closing(Servers()) as servers:
            servers.start_ahead()
            assert servers._running[frozenset()]._process is process and not ahead._waiting
        assert process.poll() is not None


@pytest.mark.usefixtures("light")
def test_a_server_that_no_run_takes_is_ended():
    with pytest.raises(SuiteError), ahead.launching():
        [(process, _)] = ahead._waiting
        raise SuiteError("of a suite that cannot be read")
    assert process.poll() is not None and not ahead._waiting


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("arguments", "servers"),
    [("run quick", 1), ("run quick --dry-run", 0), ("run -h", 0), ("plan quick", 0), ("list losses", 0), ("", 0)],
)
def test_only_a_command_that_trains_starts_a_server_ahead(arguments, servers, monkeypatch):
    seen = []
    monkeypatch.setattr("sys.argv", ["lossbench", *arguments.split()])
    monkeypatch.setattr(commands, "main", lambda: seen.append(len(ahead._waiting)))
    cli.main()
    assert seen == [servers] and not ahead._waiting


LIGHT = '''"""Softmax in a file that imports a library."""
import click
import torch


class Loss(torch.nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(classes, features))

    def logits(self, features):
        return features @ self.weight.T

    def forward(self, features, labels):
        return torch.nn.functional.cross_entropy(self.logits(features), labels)
'''


@pytest.mark.slow
def test_a_run_outlives_the_server_that_it_started_ahead_and_does_not_need(tmp_path):
    """In a process of its own: the runs of other tests share servers that are never ended."""
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "light.py").write_text(LIGHT)
    text = SMALL.replace('["softmax", "w_softmax"]', '["light"]').replace("title = ", 'baseline = "light"\ntitle = ')
    arguments = command("run", write_suite(tmp_path, text), "--no-report")
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
