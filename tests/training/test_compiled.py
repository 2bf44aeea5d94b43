"""Compiled cells: other keys, the same bits whenever and wherever they are trained, and eager without a compiler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL
from kit.runs import processes_of, records, results, started, wait_until, write_suite

from lossbench import api
from lossbench.core import compiler
from lossbench.core.errors import LossbenchError
from lossbench.core.model import Cell
from lossbench.data import data_folder
from lossbench.engines import worker
from lossbench.engines.preflight import preflight
from lossbench.plan.cells import plan
from lossbench.plugins.registry import Registry
from lossbench.training import cell as train
from lossbench.training import compiled
from lossbench.training.recipe import optimizer_of

COMPILED = SMALL + "compile = true\n"
PATIENCE = 1200  # seconds for a run that compiles, on a busy machine
needs_compiler = pytest.mark.skipif(compiler.found() is None, reason="no C++ compiler")


@pytest.fixture
def cell(read_suite) -> Cell:
    return plan(read_suite(COMPILED))[0]


@pytest.fixture
def no_compiler(monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.delenv("CXX", raising=False)


def test_compile_is_in_the_keys_of_all_cells_where_it_is_true_and_in_no_others(read_suite):
    more = "warm_start = { steps = 4 }\ntiming = { rounds = 3, steps = 2, processes = 3 }\n"
    eager, without, fast = (
        plan(read_suite(SMALL + more + text)) for text in ("", "compile = false\n", "compile = true\n")
    )
    assert {cell.kind for cell in eager} == {"warm", "train", "timing"}
    assert [cell.key for cell in eager] == [cell.key for cell in without]
    assert not {cell.key for cell in eager} & {cell.key for cell in fast}
    assert [replace(cell, compile=False, key="").key for cell in fast] == [cell.key for cell in eager]


def test_a_compiled_cell_is_the_same_after_a_journey_as_json_and_an_eager_one_does_not_mention_it(cell):
    assert Cell.from_json(cell.to_json()) == cell
    assert cell.to_json()["compile"] is True
    assert "compile" not in replace(cell, compile=False, key="").to_json()


def test_only_compiled_cells_have_a_fused_optimizer(cell, registry):
    shape = (1, 8, 8)
    assert train.build(cell, cell.loss, registry, shape).optimizer.param_groups[0]["fused"]
    eager = replace(cell, compile=False, key="")
    assert not train.build(eager, cell.loss, registry, shape).optimizer.param_groups[0]["fused"]
    assert not optimizer_of(cell.schedule, torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).param_groups[0]["fused"]


def test_a_step_of_the_fused_optimizer_is_that_of_the_other_one_but_for_rounding(cell):
    ends = []
    for fused in (False, True):
        torch.manual_seed(0)
        modules = [torch.nn.Linear(6, 5), torch.nn.Linear(5, 4)]
        optimizer = optimizer_of(cell.schedule, *modules, fused=fused)
        for _ in range(5):
            optimizer.zero_grad()
            modules[1](modules[0](torch.ones(3, 6)).tanh()).square().mean().backward()
            optimizer.step()
        ends.append(torch.cat([tensor.flatten() for module in modules for tensor in module.parameters()]).detach())
    torch.testing.assert_close(*ends)


@pytest.mark.parametrize("options", ["", "[nesterov=true]", "[dampening=0.5]"])
def test_a_parameter_that_the_warm_start_lacks_starts_without_momentum_in_a_fused_optimizer_too(
    cell, registry, options
):
    """The bias is new. Its first steps are those of the optimizer that is not fused, whose momentum may be absent."""
    schedule = cell.schedule.model_copy(update={"optimizer": f"sgd{options}"})
    warm_loss = replace(cell.loss, options={**cell.loss.options, "bias": False})
    images, labels = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 10
    ends = []
    for compile_ in (False, True):
        mine = replace(cell, schedule=schedule, compile=compile_, key="")
        warm, refined = (run_eagerly(train.build(mine, loss, registry, (1, 8, 8))) for loss in (warm_loss, cell.loss))
        for _ in range(3):
            warm.update(images, labels)
        refined.refine(warm.checkpoint())
        for _ in range(3):
            refined.update(images, labels)
        ends.append(refined.loss.state_dict()["bias"])
    assert ends[0].abs().max() > 1e-3
    torch.testing.assert_close(*ends)


def run_eagerly(state):
    """The state with its optimizer, run eagerly: compiling takes half a minute."""
    state.compile = False
    return state


def test_without_a_compiler_cells_are_planned_as_eager_ones_and_a_run_says_so_once(tmp_path, no_compiler):
    job, eager = (api.prepare(write_suite(tmp_path, text)) for text in (COMPILED, SMALL))
    assert list(job.notices) == ["compile = true: no C++ compiler found (g++), cells train eagerly"]
    assert [cell.key for cell in job.cells] == [cell.key for cell in eager.cells]
    assert not eager.notices


@pytest.mark.slow
def test_a_run_without_a_compiler_trains_eagerly(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "CXX"}
    environment["PATH"] = str(Path(sys.executable).parent)
    suite = write_suite(tmp_path, COMPILED.replace("seeds = 2", "seeds = 1"))
    with (tmp_path / "said").open("w") as said:
        run = started(tmp_path, "run", suite, "--no-report", "--out", "run", env=environment, stderr=said)
        assert run.wait(PATIENCE) == 0
    assert (tmp_path / "said").read_text().count("no C++ compiler found (g++), cells train eagerly") == 1
    found = records(tmp_path / "run")
    assert found.keys() == {cell.key for cell in api.prepare(write_suite(tmp_path, SMALL)).cells if cell.seed == 0}
    assert not any("compiler" in record["environment"] for record in found.values())


def test_a_machine_without_a_compiler_fails_a_compiled_cell_with_one_sentence(cell, registry, no_compiler):
    outcome = worker._attempted(cell, lambda: train.run(cell, registry, data_folder()))
    assert (outcome.record.status, outcome.record.cause) == ("failed", "environment")
    assert outcome.record.error.strip().endswith("compile = true: no C++ compiler found (g++) on this machine")


def test_a_backbone_that_torch_cannot_compile_is_refused_before_anything_trains(tmp_path, read_suite):
    (tmp_path / "backbones").mkdir()
    (tmp_path / "backbones" / "branching.py").write_text(
        '"""Chooses its layer by its input."""\n'
        "from torch import nn\n\n\n"
        "class Backbone(nn.Module):\n"
        "    def __init__(self, in_shape, width):\n"
        "        super().__init__()\n"
        "        self.fc, self.other = nn.Linear(64, width), nn.Linear(64, width)\n\n"
        "    def forward(self, images):\n"
        "        layer = self.fc if images.sum().item() > 0 else self.other\n"
        "        return layer(images.flatten(1))\n"
    )
    registry = Registry([tmp_path])
    text = COMPILED.replace('{ name = "cnn", channels = 4, depths = [1] }', '"branching"')
    cells = plan(read_suite(text, plugins=registry))
    (problem,) = preflight(cells, registry, data_folder(), begin=list)
    assert problem.startswith(
        "suite.toml: experiment.digits.backbone: backbone 'branching': compile = true: torch cannot"
    )
    assert problem.endswith("; set compile = false") and "\n" not in problem
    eager = [replace(cell, compile=False, key="") for cell in cells]
    assert preflight(eager, registry, data_folder(), begin=list) == []


def test_a_backbone_is_compiled_before_memory_is_measured(cell, registry, monkeypatch):
    order = []
    monkeypatch.setattr(train, "compile_first", lambda *_: order.append("compiled"))
    monkeypatch.setattr(train.measure, "PeakMemory", lambda device: order.append("meter"))
    train._prepared(cell, registry, data_folder())
    assert order == ["compiled", "meter"]


@pytest.mark.slow
def test_one_process_compiles_a_kind_the_others_wait_and_one_that_is_killed_is_replaced(cell, tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    log = tmp_path / "log"
    log.touch()

    def process(name: str, seconds: float) -> int:
        """A process that compiles for so long; it notes when it begins, and whether it was the one that compiled."""

        def first_pass() -> None:
            with log.open("a") as file:
                file.write(f"{name} ")
            time.sleep(seconds)

        if pid := os.fork():
            return pid
        try:
            spent = compiled.prepare(cell, (1, 8, 8), first_pass)
            with log.open("a") as file:
                file.write(f"{'compiled' if spent else 'read'} ")
        finally:
            os._exit(0)

    killed = process("killed", 60)
    wait_until(lambda: log.read_text() == "killed ", 20)
    waiting = [process("waiting", 0.05), process("waiting", 0.05)]
    time.sleep(0.1)
    assert log.read_text() == "killed "
    os.kill(killed, signal.SIGKILL)
    for pid in (killed, *waiting):
        os.waitpid(pid, 0)
    assert sorted(log.read_text().split()) == ["compiled", "killed", "read", "waiting", "waiting"]
    assert compiled.prepare(replace(cell, seed=5, key=""), (1, 8, 8), lambda: None) == 0
    assert compiled.prepare(replace(cell, threads=2, key=""), (1, 8, 8), lambda: None) > 0


def test_the_code_depends_on_the_network_and_its_input_and_not_on_the_loss(cell):
    kind = compiled.kind_of(cell, (1, 8, 8))
    same = replace(cell, seed=3, losses=(replace(cell.loss, name="other"),), kind="warm", experiment="x", key="")
    assert compiled.kind_of(same, (1, 8, 8)) == kind
    others = [{"width": 9}, {"channels_last": True}, {"autocast": "bfloat16"}, {"threads": 2}]
    others += [{"backbone": replace(cell.backbone, source="changed")}]
    others += [{"schedule": cell.schedule.model_copy(update={"batch": 17})}]
    for change in others:
        assert compiled.kind_of(replace(cell, **change, key=""), (1, 8, 8)) != kind
    assert compiled.kind_of(cell, (1, 9, 8)) != kind


@pytest.mark.slow
@needs_compiler
def test_compiled_cells_have_the_same_bits_in_any_number_of_processes_wherever_compiled_and_after_a_kill(tmp_path):
    text = COMPILED.replace("steps = 6", "steps = 300, evaluations = 2")
    text += 'warm_start = { loss = "softmax[bias=false]", steps = 5 }\n'  # the bias is new in the cells that follow
    text += "timing = { rounds = 3, steps = 2, processes = 2 }\n"

    def run(name: str, jobs: int) -> subprocess.Popen:
        """A run with a folder of its own for compiled code."""
        arguments = ["run", write_suite(tmp_path, text), "--no-report", "--checkpoint", "0.02s", "--out", name]
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"code-of-{name}")}
        return started(tmp_path, *arguments, "-j", str(jobs), env=environment)

    assert run("whole", 2).wait(PATIENCE) == 0
    killed = run("killed", 1)
    warm = {key for key, record in records(tmp_path / "whole").items() if record["cell"]["kind"] == "warm"}
    assert len(warm) == 2  # one per seed

    def saved() -> set[str]:
        """The cells of the killed run that have a saved state, but for warm starts: their five steps end too soon."""
        return {path.stem for path in tmp_path.glob("killed/partial/[!.]*.pt")} - warm

    wait_until(lambda: saved() or killed.poll() is not None, PATIENCE)
    killed.kill()
    killed.wait()
    wait_until(lambda: not processes_of(tmp_path))
    assert saved() - records(tmp_path / "killed").keys()
    assert run("killed", 1).wait(PATIENCE) == 0
    found = results(tmp_path / "whole")
    assert len(found) == 7 and {record["status"] for record in found.values()} == {"done"}
    assert results(tmp_path / "killed") == found
    assert any("resumed" in record["flags"] for record in records(tmp_path / "killed").values())
    for name in ("whole", "killed"):  # one kind, compiled once
        (machine,) = (tmp_path / f"code-of-{name}").iterdir()
        assert len(list(machine.glob("kinds/*.lock"))) == len(list(machine.glob("aotautograd/*"))) == 1
    (tmp_path / "eager").mkdir()
    eager = write_suite(tmp_path / "eager", text.replace("compile = true", "compile = false"))
    assert not api.run(eager, out=tmp_path / "eager" / "run", reports=None).unfinished
    ours, theirs = (
        {(one["label"], one["cell"]["seed"]): one for one in records(tmp_path / place).values() if one["curve"]}
        for place in ("whole", "eager/run")
    )
    assert ours.keys() == theirs.keys()
    for name, record in ours.items():  # the same training but for rounding
        assert record["digest"] != theirs[name]["digest"]
        assert record["curve"][0]["loss"] == pytest.approx(theirs[name]["curve"][0]["loss"], rel=1e-3)
        assert record["environment"]["compiler"]


@pytest.mark.slow
@needs_compiler
def test_batch_norm_takes_one_root_per_channel_and_has_the_same_bits_as_with_one_per_activation(tmp_path):
    script = """
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code
from lossbench.training import compiled

torch._inductor.config.force_disable_caches = True
torch.manual_seed(0)
network = nn.Sequential(nn.Conv2d(1, 12, 3), nn.PReLU(12), nn.BatchNorm2d(12)).to(memory_format=torch.channels_last)
images = torch.randn(5, 1, 9, 9)
for change in (lambda: None, compiled.keep_scales):
    change()
    torch._dynamo.reset()
    network.zero_grad()
    network[2].reset_running_stats()
    features, sources = run_and_get_code(compiled.forward, network, images)
    features.square().mean().backward()
    ends = [features.detach(), *(p.grad for p in network.parameters()), *network[2].buffers()]
    print(sources[0].count(".rsqrt()"))
    print([end.double().sum().item().hex() for end in ends], [end.double().norm().item().hex() for end in ends])
"""
    path = tmp_path / "twice.py"
    path.write_text(script)
    printed = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True).stdout
    roots, bits, fewer_roots, same_bits = printed.splitlines()
    assert bits == same_bits
    assert int(fewer_roots) < int(roots)


@needs_compiler
def test_a_folder_that_torch_cannot_use_and_code_that_it_cannot_compile_are_one_sentence(cell, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "ROOT", tmp_path / "my code")
    with pytest.raises(LossbenchError, match="its path has a space; set TORCHINDUCTOR_CACHE_DIR"):
        compiled.prepare(cell, (1, 8, 8), lambda: None)
    monkeypatch.setattr(compiled, "ROOT", tmp_path)

    failed = type("CompilerFailed", (RuntimeError,), {"__module__": "torch._dynamo.exc"})

    def fails() -> None:
        raise failed("C++ compile error\nand its output")

    with pytest.raises(LossbenchError) as refused:
        compiled.prepare(cell, (1, 8, 8), fails)
    why = "compile = true: torch could not compile the backbone (CompilerFailed: C++ compile error)"
    assert str(refused.value) == why
    with pytest.raises(ZeroDivisionError):
        compiled.prepare(cell, (1, 8, 8), lambda: 1 / 0)
    assert compiled.prepare(cell, (1, 8, 8), lambda: None) > 0  # what failed is not taken for compiled


def test_prepare_refuses_a_machine_without_a_compiler(cell, no_compiler):
    with pytest.raises(LossbenchError, match="no C\\+\\+ compiler found"):
        compiled.prepare(cell, (1, 8, 8), lambda: None)
