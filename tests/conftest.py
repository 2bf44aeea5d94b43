"""What the tests share: a registry, a small suite, and a way to run the real command line."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

# Before torch is imported: its networks are tiny here, and idle threads would take the cores from the other tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from lossbench import data
from lossbench.core.model import Suite
from lossbench.plan.job import with_data
from lossbench.plugins.registry import Registry
from lossbench.suite import reading as suite

if "LOSSBENCH_DATA" not in os.environ:  # nobody's own cache is touched
    _scratch = tempfile.TemporaryDirectory(prefix="lossbench-data-")
    os.environ["LOSSBENCH_DATA"] = _scratch.name

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

# Two losses, one width, tiny network: a cell takes a tenth of a second.
SMALL = """
name = "small"
title = "A small suite"

[[experiment]]
name = "digits"
dataset = "digits"
backbone = { name = "cnn", channels = 4, depths = [1] }
widths = [8]
losses = ["softmax", "w_softmax"]
seeds = 2
schedule = { steps = 6, batch = 16 }
"""


# The longest files, the longest first: begun last, they would leave a core idle.
LONGEST = (
    *("test_accuracy", "test_ray", "test_auto", "test_kills"),  # with the slow tests, minutes
    *("test_check", "test_timing_processes", "test_figures_look", "test_check_faults", "test_suite_limits"),
    *("test_figures", "test_tune_runs", "test_resume", "test_docs_run", "test_ends", "test_cli", "test_html"),
    *("test_retrieval", "test_recipe", "test_mistakes", "test_overrides"),  # not long, but last by name
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="session")
def registry() -> Registry:
    return Registry()


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Nothing that this process writes must outlive a power cut; commands in processes of their own do sync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def kept_servers() -> Iterator[None]:
    """`api.run` in a test process forks its cells from servers that stay up: torch is loaded only once."""
    from kit.servers import KeptServers

    from lossbench import api

    kept = KeptServers(Registry())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "Servers", kept)
        yield
    kept.end()


@pytest.fixture(scope="session")
def read_suite(registry: Registry) -> Callable[..., Suite]:
    """A suite from its text."""

    def read(text: str, profile: str | None = None, plugins: Registry = registry) -> Suite:
        def count(spec):
            return data.count_classes(spec.name, dict(spec.options), plugins)

        parsed = suite.parse(text, "suite.toml", plugins, count, profile)
        return with_data(parsed, plugins, data.data_folder())

    return read


@pytest.fixture
def real_data(request) -> Path:
    """The data folder, if it holds the real sets that the test names: @pytest.mark.data("mnist")."""
    folder = data.data_folder()
    for name in request.node.get_closest_marker("data").args:
        if not any(folder.glob(f"{name}*")):
            pytest.skip(f"{name} is not in $LOSSBENCH_DATA ({folder})")
    return folder


@pytest.fixture
def lossbench(tmp_path: Path, monkeypatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `lossbench …` in a folder of its own, in this process: another one would load everything again."""
    from kit.commands import invoke

    monkeypatch.chdir(tmp_path)
    return invoke


def command(*arguments: str | Path) -> list[str]:
    """The command line of `lossbench …` in this interpreter's environment."""
    return [str(Path(sys.executable).with_name("lossbench")), *map(str, arguments)]


def write_loss(folder: Path, name: str, forward: str, *, constructor: str = "pass") -> Path:
    """A loss plugin beside a suite whose `forward` does what the test needs."""
    path = folder / "losses" / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f'''"""A loss for a test."""
import os, signal, time
import torch
import torch.nn.functional as F
from torch import nn


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, level: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, features) * 0.1)
        self.calls = 0
        {constructor}

    def logits(self, features):
        return F.linear(features, self.weight)

    def forward(self, features, labels):
        self.calls += 1
        value = F.cross_entropy(self.logits(features), labels)
        {forward}
        return value
'''
    )
    return path


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return " Z " not in Path(f"/proc/{pid}/stat").read_text() if Path(f"/proc/{pid}/stat").exists() else True
