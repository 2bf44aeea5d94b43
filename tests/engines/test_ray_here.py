"""How a run finds its Ray: wrong addresses, no Ray at all, and a Ray that is started for the run and dies."""

from __future__ import annotations

import contextlib
import http.server
import subprocess
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import SMALL, alive, write_loss
from kit.runs import ran, results, started, wait_until, write_suite

from lossbench import api
from lossbench.cli.commands import cli
from lossbench.core.errors import LossbenchError
from lossbench.engines.ray import cluster

LONG = SMALL.replace('"w_softmax"]', '"w_softmax", "mine"]').replace("steps = 6", "steps = 150")


def test_without_ray_the_way_to_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(
        cluster.importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(f"no {name}"))
    )
    with pytest.raises(LossbenchError, match=r"needs Ray \(no ray\): pip install 'lossbench\[ray\]'"):
        cluster.check(None)


def test_an_engine_that_does_not_exist_is_refused_with_the_nearest_before_anything_else(tmp_path):
    with pytest.raises(LossbenchError, match="unknown engine 'rye'; did you mean 'ray'"):
        api.run(tmp_path / "no such suite.toml", engine="rye")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--address", "auto"], "--address needs --engine ray"),
        (["--cpus-per-cell", "2"], "--cpus-per-cell needs --engine ray"),
        (["--engine", "ray", "--cpus-per-cell", "0"], "0.0 is not in the range"),
        (["--engine", "slurm"], "'slurm' is not one of"),
    ],
)
def test_options_that_do_not_go_with_the_engine_are_refused(arguments, sentence):
    refused = CliRunner().invoke(cli, ["run", "quick", *arguments])
    assert refused.exit_code == 2 and sentence in refused.output


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("nowhere.invalid:6379", "no Ray cluster answers at nowhere"),
        ("head", "'head' is not the address of a Ray cluster"),
        ("ray://head:10001", "Ray's client is not supported"),
    ],
)
def test_an_address_where_no_ray_can_be_is_one_sentence(address, sentence):
    with pytest.raises(LossbenchError, match=sentence):
        cluster._reach(address)


def test_something_else_at_the_address_is_one_sentence():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(LossbenchError, match="is not a Ray cluster; the default port"):
            cluster._reach(f"127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()


def test_how_many_cells_fit_on_a_node():
    assert cluster.room_for({"CPU": 1}, {"CPU": 4.0, "memory": 1e9}) == 4
    assert cluster.room_for({"CPU": 1, "GPU": 0.5}, {"CPU": 16.0, "GPU": 2.0}) == 4
    assert cluster.room_for({"CPU": 0.1}, {"CPU": 0.3}) == 3
    assert cluster.room_for({"CPU": 2, "memory": 100}, {"CPU": 8.0, "memory": 250.0}) == 2
    assert cluster.room_for({"CPU": 1, "GPU": 1}, {"CPU": 8.0}) == 0


@pytest.fixture
def no_address(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.slow
def test_without_an_address_ray_is_started_here_and_ended_again(tmp_path, no_address):
    suite = write_suite(tmp_path, SMALL)
    run = ran(tmp_path, "run", suite, "--no-report", "--engine", "ray", "--out", "ray")
    assert run.returncode == 0, run.stderr
    assert len(run.stderr.splitlines()) == 1 + 4, run.stderr  # and not a word of Ray's
    assert run.stdout.splitlines() == ["records  ray"]
    assert results(tmp_path / "ray") == results(api.run(suite, out=tmp_path / "local", reports=None).folder)


@pytest.mark.slow
@pytest.mark.parametrize("daemon", ["raylet", "gcs_server"])
def test_a_ray_that_is_started_here_listens_here_only_and_when_it_dies_the_run_ends(tmp_path, no_address, daemon):
    psutil = pytest.importorskip("psutil")
    write_loss(tmp_path, "mine", "time.sleep(0.04)")
    arguments = ["run", write_suite(tmp_path, LONG), "--no-report", "--out", "out"]
    told = {"stderr": subprocess.PIPE, "text": True}
    run = started(tmp_path, *arguments, "--engine", "ray", "--checkpoint", "0.5s", **told)
    wait_until(lambda: list(tmp_path.glob("out/partial/*.pt")) or run.poll() is not None, 120)
    family = {process: _name(process) for process in psutil.Process(run.pid).children(recursive=True)}
    listening = _listening([psutil.Process(run.pid), *family])
    assert listening and listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}

    (victim,) = [process for process, name in family.items() if name == daemon]
    victim.kill()
    _, stderr = run.communicate(timeout=120)
    assert run.returncode == 1
    *cells, last = stderr.splitlines()
    assert last.startswith("lossbench: ") and "no longer answers" in last, stderr
    assert last.endswith("finished cells are safe, run the same command again")
    assert all(line.startswith(("[", "lossbench: ")) for line in cells), stderr  # and not a word of Ray's
    wait_until(lambda: not [process for process in family if process.is_running() and alive(process.pid)], 30)
    finished = results(tmp_path / "out")
    assert ran(tmp_path, *arguments).returncode == 0
    assert results(tmp_path / "out").items() >= finished.items()


def _name(process) -> str:
    import psutil

    try:
        return Path(process.exe()).name
    except psutil.Error:
        return ""


def _listening(processes) -> set[str]:
    """The addresses that these processes listen on."""
    import psutil

    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found |= {line.laddr.ip for line in process.net_connections() if line.status == psutil.CONN_LISTEN}
    return found
