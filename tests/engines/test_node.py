"""What a node does with a cell, tried without a cluster: the same as the local engine, in a folder of its own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from conftest import SMALL, alive, write_loss

from lossbench import api
from lossbench.core.files import locked
from lossbench.core.model import Cell, result
from lossbench.engines.ray import node
from lossbench.plugins.registry import Registry
from lossbench.store.records import Store

ONE = SMALL.replace("seeds = 2", "seeds = 1").replace('["softmax", "w_softmax"]', '["mine"]')
ONE = ONE.replace("title", 'baseline = "mine"\ntitle')
LONGER = ONE.replace("steps = 6", "steps = 40")


@pytest.fixture(scope="module", autouse=True)
def no_server_stays():
    yield
    node._servers.close()


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch) -> Path:
    """Where the folders of cells are made."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def planned(folder: Path, text: str) -> tuple[Cell, Registry]:
    (folder / "suite.toml").write_text(text)
    job = api.prepare(folder / "suite.toml")
    return job.chosen[0], job.registry


def asked(cell: Cell, registry: Registry, **changes) -> tuple[dict, dict]:
    """A cell as the driver sends it: what is its own, and what it shares with the others of its run."""
    shared = {
        "run": "a run",
        "plugins": node.pack(registry),
        "folders": [str(folder) for folder in registry.folders],
        "identity": changes.pop("identity", None) or node.identity(),
        "data": os.environ["LOSSBENCH_DATA"],
        "data_given": True,
        "store": "/home/me/run",
        "limits": {"timeout": None, "memory": None, "checkpoint": 60} | changes,
    }
    return cell.to_json(), shared


def test_the_first_cell_is_not_charged_for_loading_torch(tmp_path):
    write_loss(tmp_path, "mine", "pass")
    cell, registry = planned(tmp_path, ONE)
    messages = node.work(*asked(cell, registry))
    assert next(messages) == {"started": True}  # the time limit counts from here
    assert all(server.ready for server in node._servers._servers._running.values())
    assert next(messages)["record"]["status"] == "done"


def test_the_plugin_files_travel_and_nothing_else(tmp_path):
    write_loss(tmp_path, "mine", "pass")
    (tmp_path / "datasets" / "pets").mkdir(parents=True)
    (tmp_path / "datasets" / "pets" / "cat.jpg").write_bytes(b"x" * 1000)
    (tmp_path / "losses" / "notes.txt").write_text("not a plugin")
    (tmp_path / "other").mkdir()
    registry = Registry([tmp_path, tmp_path / "other"])
    packed = node.pack(registry)
    assert [sorted(files) for files in packed] == [["losses/mine.py"], []]
    there = Registry(node.unpack(packed, tmp_path / "there"))
    assert there.find("loss", "mine").source_hash == registry.find("loss", "mine").source_hash
    assert len(there.folders) == 2


def test_a_cell_comes_to_the_same_as_locally(tmp_path, scratch, kept_servers):
    write_loss(tmp_path, "mine", "if self.calls == 1: print('hello from', __file__)")
    cell, registry = planned(tmp_path, ONE)
    local = api.run(tmp_path / "suite.toml", out=tmp_path / "local", reports=None)
    _, message = node.work(*asked(cell, registry))
    store = Store(local.folder)
    assert result(message["record"]) == result(store.read(cell.key))
    assert (message["correct"] == store.correct(cell.key)).all()
    assert message["log"] == store.log(cell.key).read_text() == f"hello from {tmp_path / 'losses' / 'mine.py'}\n"
    assert message["checkpoint"] is None and not message["unfinished"]
    assert list(scratch.iterdir()) == []


def test_a_cell_that_goes_wrong_speaks_of_the_users_files(tmp_path, scratch):
    write_loss(tmp_path, "mine", "if len(labels) > 2: raise RuntimeError('no way')")
    cell, registry = planned(tmp_path, ONE)
    _, message = node.work(*asked(cell, registry))
    assert message["record"]["status"] == "failed"
    for text in (message["record"]["error"], message["log"]):
        assert str(tmp_path / "losses" / "mine.py") in text and "RuntimeError: no way" in text
        assert str(scratch) not in text
    write_loss(tmp_path, "mine", "if len(labels) > 2: os._exit(3)")
    cell, registry = planned(tmp_path, ONE)
    _, message = node.work(*asked(cell, registry))
    assert "exit code 3" in message["record"]["error"]
    assert message["record"]["error"].endswith(f"its log: /home/me/run/logs/{cell.key}.log")


def test_limits_are_kept_on_the_node(tmp_path):
    write_loss(tmp_path, "mine", "if len(labels) > 2: time.sleep(600)")
    cell, registry = planned(tmp_path, ONE)
    _, message = node.work(*asked(cell, registry, timeout=1.0))
    assert (message["record"]["status"], message["record"]["error"]) == ("timeout", "killed after 1 seconds")


def test_another_attempt_goes_on_from_the_state_that_was_sent(tmp_path):
    slowly = tmp_path / "slowly"
    slowly.touch()
    write_loss(tmp_path, "mine", f"if os.path.exists({str(slowly)!r}): time.sleep(0.03)")
    cell, registry = planned(tmp_path, LONGER)
    started, *states, whole = node.work(*asked(cell, registry, checkpoint=0.2))
    slowly.unlink()
    assert started == {"started": True}
    assert states and all(set(state) == {"partial"} for state in states)
    *_, resumed = node.work(*asked(cell, registry), partial=states[-1]["partial"])
    assert "resumed" in resumed["record"]["flags"] and "resumed" not in whole["record"]["flags"]
    assert result(resumed["record"]) == result(whole["record"])
    damaged = states[-1]["partial"][:-9] + bytes(9)  # on its way
    *_, restarted = node.work(*asked(cell, registry), partial=damaged)
    assert restarted["record"]["flags"] == ["restarted"] and "starts from the beginning" in restarted["log"]
    assert result(restarted["record"]) == result(whole["record"])


def test_a_machine_with_another_lossbench_torch_or_plugin_is_refused(tmp_path, monkeypatch):
    path = write_loss(tmp_path, "mine", "pass")
    cell, registry = planned(tmp_path, ONE)
    here = node.identity()
    assert node.difference(here, node.identity()) is None
    for change, sentence in (
        (
            {"lossbench": "f" * 64, "place": "/opt/old"},
            f"its lossbench ({here['place']}) differs from that of this run (/o",
        ),
        ({"torch": "1.0"}, f"it has torch {here['torch']}, this run torch 1.0"),
    ):
        (message,) = node.work(*asked(cell, registry, identity=here | change))
        assert message["refused"].startswith(sentence)
        assert list(node.probe(here | change)) == [message]
    assert list(node.probe(here)) == [{"ready": True}]
    path.write_text(path.read_text() + "# changed\n")
    (message,) = node.work(*asked(cell, Registry(registry.folders)))
    assert message["refused"].startswith("its loss 'mine' differs from that of this run")
    (message,) = node.work(*asked(cell, Registry()))
    assert message["refused"].startswith("unknown loss 'mine'")
    monkeypatch.setattr(node, "version", lambda name: "2.9.1+cu128")
    assert node.identity()["torch"] == "2.9.1"  # a driver without a GPU has another build of the same torch


def test_each_node_finds_its_own_data(monkeypatch):
    monkeypatch.setenv("LOSSBENCH_DATA", "/mine")
    assert node._data_folder("/drivers", given=False) == Path("/mine")
    assert node._data_folder("/named", given=True) == Path("/named")
    monkeypatch.delenv("LOSSBENCH_DATA")
    assert node._data_folder("/drivers", given=False) == Path("/drivers")


def test_the_folders_of_the_killed_are_cleared_away_and_those_of_the_living_are_not(scratch):
    names = {name: scratch / f"{node.SCRATCH}{name}" for name in ("dead", "young", "busy")}
    for folder in (*names.values(), scratch / "lossbench-data-x"):
        folder.mkdir()
        (folder / "file").write_text("x")
        if folder != names["young"]:
            os.utime(folder, (0, 0))
    with locked(names["busy"], folder=True), node._scratch() as mine:
        kept = {names["young"], names["busy"], scratch / "lossbench-data-x", mine}
        assert set(scratch.iterdir()) == kept
    assert not mine.exists()


def test_whoever_stops_the_task_stops_the_cell(tmp_path, scratch):
    marker = tmp_path / "pid"
    write_loss(
        tmp_path,
        "mine",
        f"if self.calls == 1: open({str(marker)!r}, 'w').write(str(os.getpid()))\n        time.sleep(0.05)",
    )
    cell, registry = planned(tmp_path, ONE.replace("steps = 6", "steps = 4000"))
    messages = node.work(*asked(cell, registry, checkpoint=0.1))
    assert [set(next(messages)) for _ in range(2)] == [{"started"}, {"partial"}]
    pid = int(marker.read_text())
    assert alive(pid)
    messages.close()
    assert not alive(pid)
    assert list(scratch.iterdir()) == []
