"""Missing datasets: which are fetched before a run, and what happens if that fails."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import subprocess
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from kit.layouts import write_cifar, write_mnist
from kit.publisher import HASTE, publisher
from kit.suites import ANY, NOTE

from lossbench import api
from lossbench.core.errors import DataError
from lossbench.core.files import locked
from lossbench.data.download import fetch, http
from lossbench.data.download.sources import SOURCES, File
from lossbench.plan.job import Job, prepare
from lossbench.plan.selection import Selection


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """No GPU, and no proxy between us and a publisher on the loopback."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def suite(tmp_path) -> Path:
    path = tmp_path / "any.toml"
    path.write_text(ANY)
    return path


@pytest.fixture
def server():
    with publisher() as running:
        yield running


@pytest.fixture
def publish(server, monkeypatch, tmp_path):
    """Make the server the publisher of small sets in the publishers' layout; nothing else can be fetched."""
    monkeypatch.setattr(fetch, "Patience", lambda: HASTE)
    nowhere = "http://127.0.0.1:1/"
    for name, source in list(SOURCES.items()):
        files = tuple(replace(file, addresses=(nowhere,)) for file in source.files)
        monkeypatch.setitem(SOURCES, name, replace(source, files=files))

    def publish(name: str) -> None:
        made = tmp_path / "made" / name
        if name == "mnist":
            write_mnist(made, suffix=".gz")
            paths = sorted((made / "mnist").iterdir())
            files = tuple(offered(server, f"mnist/{path.name}", path.read_bytes()) for path in paths)
        else:
            write_cifar(made, 10)
            packed = tmp_path / "cifar.tar.gz"
            subprocess.run(["tar", "-czf", packed, "-C", made / "cifar10", "cifar-10-batches-bin"], check=True)
            file = offered(server, "cifar10/cifar-10-binary.tar.gz", packed.read_bytes())
            (old,) = SOURCES[name].files
            files = (replace(file, unpack=old.unpack, pieces=old.pieces),)
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], files=files))

    return publish


def offered(server, place: str, body: bytes) -> File:
    server.bodies[Path(place).name] = body
    return File(place, (server.address(Path(place).name),), len(body), hashlib.sha256(body).hexdigest())


def fetched(suite: Path, tmp_path: Path, **options) -> tuple[Job, list[str]]:
    """A job whose data was fetched as a run fetches it, and all that was said."""
    said: list[str] = []
    job = prepare(
        suite,
        Selection(data=tmp_path / "data", **options),
        get=partial(api._get, said.append, contextlib.nullcontext),
        on_choice=lambda choice, fetching: said.append(fetching) if fetching else None,
    )
    return job, said


# Reaching publishers


def test_a_name_that_does_not_resolve_and_a_closed_port_answer_at_once():
    files = {"a": File("a", ("http://no-such-host.invalid/x", "http://127.0.0.1:1/x"), 1, "")}
    started = time.monotonic()
    reasons = http.unreachable(files, seconds=30)
    assert time.monotonic() - started < 15
    assert reasons.keys() == {"a"} and "cannot be reached" in reasons["a"]


def test_silent_publishers_take_a_few_seconds_together(server):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, says nothing
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        files = {str(number): File("x", (address, address), 1, "") for number in range(8)}
        server.bodies["good"] = b"abc"
        files["good"] = File("x", (address, server.address("good")), 3, "")
        started = time.monotonic()
        reasons = http.unreachable(files, seconds=1)
        assert time.monotonic() - started < 4
    assert reasons.keys() == {str(number) for number in range(8)}
    assert all("sent nothing for 1 s" in why for why in reasons.values())


def test_a_publisher_that_refuses_is_not_reachable(server):
    assert "404" in http.unreachable({"a": File("a", (server.address("none"),), 1, "")})["a"]


# Publishers, good and bad


def test_missing_data_is_announced_fetched_and_used(suite, tmp_path, publish):
    publish("mnist")
    publish("cifar10")
    said: list[str] = []
    where = {"data": tmp_path / "data", "out": tmp_path / "run", "reports": None, "jobs": 1}
    result = api.run(suite, notify=said.append, **where)
    assert said[0].startswith("profile cpu: no GPU. To fetch: mnist, cifar10 (")
    size = sum(file.size for file in SOURCES["mnist"].files) / 2**20
    assert said[1] == f"fetching mnist: {size:.1f} MiB, licence: CC BY-SA 3.0, for numbers"
    assert said[2].startswith("fetching cifar10: ") and "licence: none stated, for pictures" in said[2]
    assert said[3].startswith("profile cpu: no GPU; data in ") and "This will take about" in said[3]
    assert set(result.statuses.values()) == {"done"} and len(result.statuses) == 8
    assert set(result.missing) == {"faces"}
    job, said = fetched(suite, tmp_path)
    assert said == []
    assert {cell.key for cell in job.chosen} == set(result.statuses)


def test_plan_fetches_nothing_and_says_what_would_be(suite, tmp_path, publish, server, capsys):
    from lossbench.cli import screen

    publish("mnist")
    job = api.prepare(suite, data=tmp_path / "data")
    todo = screen.show_plan(job, str(tmp_path / "run"))
    shown = capsys.readouterr().out
    assert shown.startswith("profile cpu: no GPU. To fetch: mnist (0 MiB in total).")
    assert "to fetch: mnist: 0.0 MiB, licence: CC BY-SA 3.0, for numbers" in shown
    assert "4 of 4 cells to train" in shown and len(todo) == 4
    assert not (tmp_path / "data/mnist").exists()
    screen.show_forecast(api.predict(job, todo))  # there is nothing yet that could be measured
    assert "an unknown time (no step could be timed)" in capsys.readouterr().out


def test_any_suite_fetches_what_it_lacks_unless_told_not_to(suite, tmp_path, publish, server):
    publish("mnist")
    with pytest.raises(DataError, match="mnist is not available"):
        fetched(suite, tmp_path, profile="cpu", fetch=False)
    assert server.ranges == []
    job, said = fetched(suite, tmp_path, profile="cpu")
    assert said[0].startswith("To fetch: mnist") and said[1].startswith("fetching mnist: ")
    assert set(job.suite.info.missing) == {"pictures", "faces"} and len(job.chosen) == 4


FAULTS = {
    "truncated": (("cut", 100), "ended after"),
    "wrong bytes": ("wrong bytes", "sent a file that is not the published one"),
    "login page": ("login page", "offers 26 bytes instead of"),
    "hanging": ("hang", "sent nothing for"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_download_that_fails_leaves_the_next_profile(suite, tmp_path, publish, server, case):
    server.always, reason = FAULTS[case]
    publish("cifar10")
    job, said = fetched(suite, tmp_path)
    assert said[0].startswith("profile cpu: no GPU. To fetch: cifar10 (")
    assert said[2].startswith("not fetched: cifar10: ") and reason in said[2] and "\n" not in said[2]
    opening = job.opening()
    assert opening.startswith("profile offline: no GPU, and mnist, cifar10, casia_webface, lfw are not in ")
    assert "could not be fetched" in opening and opening.endswith(NOTE)
    assert {cell.experiment for cell in job.chosen} == {"numbers", "pictures"} and not job.suite.info.missing


def test_a_publisher_in_trouble_is_not_even_asked_for_the_file(suite, tmp_path, publish, server):
    server.always = 500
    publish("mnist")
    job, said = fetched(suite, tmp_path)
    assert job.opening().startswith("profile offline: ")
    assert said == []


def test_a_slow_download_is_waited_for(suite, tmp_path, publish, server):
    server.always = "slow"
    publish("mnist")
    job, said = fetched(suite, tmp_path)
    assert said[0].startswith("profile cpu: ")
    assert "numbers" not in job.suite.info.missing


def test_one_failed_download_costs_only_its_own_experiments(suite, tmp_path, publish, server):
    publish("mnist")
    publish("cifar10")
    server.bodies["cifar-10-binary.tar.gz"] = bytes(SOURCES["cifar10"].files[0].size)
    job, _ = fetched(suite, tmp_path)
    missing = job.suite.info.missing
    assert {cell.experiment for cell in job.chosen} == {"numbers"} and set(missing) == {"pictures", "faces"}
    assert "it could not be fetched now: cifar10: http://127.0.0.1" in missing["pictures"]
    assert str(tmp_path) not in missing["pictures"]
    assert any(sentence.startswith("not run: pictures: ") for sentence in job.not_run())


def test_an_explicit_profile_whose_downloads_all_fail_is_one_sentence(suite, tmp_path, publish, server):
    server.always = "wrong bytes"
    publish("mnist")
    with pytest.raises(DataError, match="sent a file that is not the published one") as error:
        api.run(suite, profile="cpu", data=tmp_path / "data", out=tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_only_the_datasets_that_are_asked_for_are_fetched(suite, tmp_path, publish, server):
    publish("mnist")
    publish("cifar10")
    _, said = fetched(suite, tmp_path, datasets=["mnist"])
    assert [sentence for sentence in said if sentence.startswith("fetching")] == [said[1]]
    assert not (tmp_path / "data/cifar10").exists()


def test_an_archive_put_there_by_hand_needs_no_network(suite, tmp_path, publish, server):
    publish("cifar10")
    (file,) = SOURCES["cifar10"].files
    place = tmp_path / "data" / file.place
    place.parent.mkdir(parents=True)
    place.write_bytes(server.bodies.pop(place.name))
    job, said = fetched(suite, tmp_path)
    assert said[0].startswith("profile cpu: ")
    assert set(job.suite.info.missing) == {"numbers", "faces"}


def test_a_run_waits_for_another_that_fetches_into_the_same_folder(tmp_path, publish):
    publish("mnist")
    folder = tmp_path / "data"
    folder.mkdir()
    with locked(folder, folder=True):
        waiting = threading.Thread(target=fetch.get, args=(SOURCES["mnist"], folder), kwargs={"wait": True})
        waiting.start()
        time.sleep(0.3)
        assert waiting.is_alive() and not (folder / "mnist").exists()
    waiting.join(30)
    assert fetch.state(SOURCES["mnist"], folder) == "yes"
