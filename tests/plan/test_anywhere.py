"""`lossbench run` without --profile: which profile of `auto` is chosen, what is fetched, and what is said of both."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from conftest import SMALL, command
from test_datasets import write_cifar, write_mnist
from test_download import HASTE, Server

from lossbench import api
from lossbench.core.errors import DataError, SuiteError
from lossbench.core.files import locked
from lossbench.data.download import fetch, reach
from lossbench.data.download.sources import SOURCES, File
from lossbench.plan.cells import plan
from lossbench.plan.choose import Needs, Situation, choose
from lossbench.plan.job import prepare
from lossbench.plan.selection import Selection
from lossbench.plugins.registry import Registry
from lossbench.store.records import Store
from lossbench.suite.reading import json_schema
from lossbench.suite.source import built_in

NOTE = "Stand-ins: digits and glyphs replace MNIST and CIFAR-10. The real data: lossbench run any --profile cpu."
ANY = f"""
name = "any"
title = "Anywhere"
auto = ["full", "cpu", "offline"]

[defaults]
backbone = {{ name = "cnn", channels = 4, depths = [1] }}
widths = [8]
losses = ["softmax", "w_softmax"]
seeds = 2
schedule = {{ steps = 4, batch = 8 }}

[[experiment]]
name = "numbers"
dataset = "mnist"

[[experiment]]
name = "pictures"
dataset = "cifar10"

[[experiment]]
name = "faces"
task = "verification"
dataset = "casia_webface"

[profile.full]
all = {{ device = "cuda" }}

[profile.cpu]
all = {{ schedule = {{ steps = 3 }} }}

[profile.offline]
note = "{NOTE}"
skip = ["faces"]
experiment.numbers = {{ dataset = {{ name = "digits" }} }}
experiment.pictures = {{ dataset = {{ name = "glyphs", classes = 10, per_class = 10, size = 16 }} }}
"""


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
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


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


def ran(suite, tmp_path, **options):
    said: list[str] = []
    options = {"data": tmp_path / "data", "out": tmp_path / "run", "reports": None, "jobs": 1} | options
    return api.run(suite, notify=said.append, **options), said


# What a suite may say

BROKEN = {
    "unknown": ('"cpu", "offline"]', '"cpus", "offline"]', "auto[1]: there is no profile 'cpus'; did you mean 'cpu'?"),
    "twice": ('"cpu", "offline"]', '"cpu", "full"]', "auto[2]: 'full' is listed twice"),
    "empty": ('["full", "cpu", "offline"]', "[]", "auto: must be a list of at least one item"),
    "no list": ('["full", "cpu", "offline"]', '"cpu"', "auto: must be a list"),
    "reserved": ("[profile.cpu]", "[profile.none]", "profile.none: this name is taken"),
    "note": (f'note = "{NOTE}"', "note = 3", "profile.offline.note: must be text, got 3"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_wrong_auto_list_is_one_sentence_with_its_place(lossbench, suite, case):
    before, after, sentence = BROKEN[case]
    assert ANY.count(before) == 1
    suite.write_text(ANY.replace(before, after))
    told = lossbench("plan", suite)
    assert told.returncode == 2
    assert told.stderr.startswith(f"lossbench: {suite}: {sentence}") and len(told.stderr.splitlines()) == 1


def test_the_schema_knows_auto_and_note():
    import tomllib

    schema = json_schema(Registry())
    paper = tomllib.loads(built_in()["paper"].read_text())
    jsonschema.validate(paper, schema)
    assert paper["auto"] == ["full", "cpu", "offline"]
    for place, key in ((paper, "auto"), (paper["profile"]["offline"], "note")):
        place[key] = 3
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(paper, schema)
        del place[key]


# The choice

FULL = Needs("full", True, {"numbers": ("mnist",), "faces": ("casia_webface",)})
CPU = replace(FULL, profile="cpu", gpu=False)
OFFLINE = Needs("offline", False, {})


@pytest.mark.parametrize(
    ("gpu", "here", "obtainable", "profile"),
    [
        (True, True, [], "full"),
        (True, False, ["mnist"], "full"),
        (True, False, [], "offline"),  # a GPU alone trains nothing
        (False, True, [], "cpu"),
        (False, False, ["mnist", "lfw"], "cpu"),
        (False, False, ["lfw"], "offline"),
        (False, False, ["casia_webface"], "cpu"),
    ],
)
def test_the_first_profile_with_its_device_and_some_of_its_data_is_chosen(gpu, here, obtainable, profile):
    lacking = {"numbers": () if here else ("mnist",), "faces": ("casia_webface",)}
    candidates = [replace(FULL, lacking=lacking), replace(CPU, lacking=lacking), OFFLINE]
    choice, _ = choose(candidates, Situation(gpu, "DATA", True, obtainable))
    assert choice.profile == profile
    assert ("no GPU" in choice.why) == (not gpu)
    assert ("neither in DATA nor reachable" in choice.why) == (profile == "offline")


def test_where_no_profile_can_run_all_obstacles_are_said():
    choice, why = choose([FULL, CPU], Situation(False, "DATA", True, []))
    assert choice is None
    assert why == "no GPU, and mnist, casia_webface are neither in DATA nor reachable"


def test_an_experiment_that_lacks_two_sets_needs_both():
    needs = Needs("cpu", False, {"faces": ("casia_webface", "lfw")})
    assert choose([needs], Situation(False, "DATA", True, ["lfw"]))[0] is None
    assert choose([needs], Situation(False, "DATA", True, ["lfw", "casia_webface"]))[0].profile == "cpu"


# A machine without network and data: the real command in a network namespace of its own

ALONE = ["unshare", "-n"]


def alone() -> bool:
    try:
        return subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


needs_namespace = pytest.mark.skipif(not alone(), reason="unshare -n needs root")


def in_the_woods(tmp_path, *arguments, timeout=240):
    home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": "", "CUDA_VISIBLE_DEVICES": ""}
    kept = {key: value for key, value in os.environ.items() if key != "LOSSBENCH_DATA"}
    return subprocess.run(
        [*ALONE, *command(*arguments)],
        cwd=tmp_path,
        env=kept | home,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@needs_namespace
def test_without_network_and_data_the_stand_ins_run_and_everyone_is_told(suite, tmp_path):
    done = in_the_woods(tmp_path, "run", "any.toml")
    assert done.returncode == 0, done.stderr
    first = done.stderr.splitlines()[0]
    why = "no GPU, and mnist, cifar10, casia_webface, lfw are neither in ~/.cache/lossbench nor reachable"
    assert first.startswith(f"lossbench: profile offline: {why}. ") and first.endswith(NOTE)
    assert re.search(r"about \d+ (seconds|minutes)", first)
    summary = (tmp_path / "reports/summary.md").read_text().splitlines()
    assert summary[0] == "# Anywhere" and summary[2] == f"**{NOTE}**"
    page = (tmp_path / "reports/report.html").read_text()
    assert page.index("<h1>Anywhere</h1>") < page.index(NOTE) < page.index('<main id="report"')
    stated = json.loads((tmp_path / "reports/report.json").read_text())
    assert (stated["profile"], stated["note"]) == ("offline", NOTE)
    assert stated["command"] == "lossbench run any.toml --profile offline"
    assert NOTE in done.stdout
    (tmp_path / "reports/summary.md").unlink()
    assert in_the_woods(tmp_path, "report", "any").returncode == 0
    assert NOTE in (tmp_path / "reports/summary.md").read_text()


@needs_namespace
def test_the_stored_command_does_the_same_again(suite, tmp_path):
    in_the_woods(tmp_path, "run", "any.toml", "--no-report")
    command = json.loads((tmp_path / "runs/any/plan.json").read_text())["suite"]["command"]
    again = in_the_woods(tmp_path, *command.split()[1:], "--no-report")
    assert again.returncode == 0
    assert f"lossbench: profile offline: {NOTE}" in again.stderr
    assert "0 to train" in again.stderr


@needs_namespace
def test_quiet_says_that_stand_ins_are_used(suite, tmp_path):
    done = in_the_woods(tmp_path, "run", "any.toml", "-q", "--no-report")
    assert done.returncode == 0 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and NOTE in done.stderr


@needs_namespace
def test_plan_and_a_dry_run_make_the_same_choice(suite, tmp_path):
    for arguments in (["plan", "any.toml", "--no-forecast"], ["run", "any.toml", "-n"]):
        told = in_the_woods(tmp_path, *arguments)
        assert told.returncode == 0
        assert told.stdout.startswith("profile offline: no GPU, and mnist, cifar10")
    assert not (tmp_path / "runs").exists()


@needs_namespace
def test_without_network_an_explicit_profile_has_nothing_to_run(suite, tmp_path):
    started = time.monotonic()
    told = in_the_woods(tmp_path, "run", "any.toml", "--profile", "cpu")
    assert time.monotonic() - started < 60
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 1 and "mnist is not there" in told.stderr


# Reaching publishers


def test_a_name_that_does_not_resolve_and_a_closed_port_answer_at_once():
    files = {"a": File("a", ("http://no-such-host.invalid/x", "http://127.0.0.1:1/x"), 1, "")}
    started = time.monotonic()
    reasons = reach.unreachable(files, seconds=30)
    assert time.monotonic() - started < 15
    assert reasons.keys() == {"a"} and "cannot be reached" in reasons["a"]


def test_silent_publishers_take_a_few_seconds_together(server):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, says nothing
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        files = {str(number): File("x", (address, address), 1, "") for number in range(8)}
        server.bodies["good"] = b"abc"
        files["good"] = File("x", (address, server.address("good")), 3, "")
        started = time.monotonic()
        reasons = reach.unreachable(files, seconds=1)
        assert time.monotonic() - started < 4
    assert reasons.keys() == {str(number) for number in range(8)}
    assert all("sent nothing for 1 s" in why for why in reasons.values())


def test_a_publisher_that_refuses_is_not_reachable(server):
    assert "404" in reach.unreachable({"a": File("a", (server.address("none"),), 1, "")})["a"]


# Local data


def test_with_local_data_cpu_is_chosen_and_what_is_missing_is_not_run(suite, tmp_path, lossbench):
    write_mnist(tmp_path / "data")
    done = lossbench("run", suite, "--data", tmp_path / "data", "--no-fetch")
    assert done.returncode == 1  # two experiments were not run
    first = done.stderr.splitlines()[0]
    assert first.startswith(f"lossbench: profile cpu: no GPU; data in {tmp_path / 'data'}. This will take about ")
    assert "not run: pictures: cifar10 is not there" in done.stderr
    assert "not run: faces: casia_webface is not there" in done.stderr
    assert re.search(r"numbers +4", lossbench("status", "any").stdout)


def test_without_local_data_no_fetch_chooses_the_stand_ins(suite, tmp_path, lossbench):
    told = lossbench("plan", suite, "--data", tmp_path / "data", "--no-fetch", "--no-forecast")
    assert told.returncode == 0
    assert told.stdout.startswith("profile offline: no GPU, and mnist, cifar10, casia_webface, lfw are not in")


def test_a_visible_gpu_chooses_full_and_an_explicit_profile_always_wins(suite, tmp_path, lossbench):
    write_mnist(tmp_path / "data")
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "0"}
    plan = ["plan", suite, "--data", tmp_path / "data", "--no-fetch", "--no-forecast"]
    assert lossbench(*plan, env=env).stdout.startswith("profile full: a GPU is available; data in ")
    assert NOTE in lossbench(*plan, "--profile", "offline", env=env).stdout.splitlines()[0]
    for profile in ("cpu", "none"):
        told = lossbench(*plan, "--profile", profile, env=env).stdout
        assert not told.startswith("profile")
        assert ("4 cells to train, 12 steps" if profile == "cpu" else "4 cells to train, 16 steps") in told


def test_the_suite_without_a_profile_is_run_again_by_its_command(suite, tmp_path):
    write_mnist(tmp_path / "data")
    job = api.prepare(suite, profile="none", data=tmp_path / "data", fetch=False)
    assert job.suite.info.profile is None
    assert job.suite.info.command == f"lossbench run {suite} --profile none"


def test_parts_of_a_suite_must_be_of_one_profile(suite, tmp_path):
    with pytest.raises(SuiteError, match=r"--profile full\|cpu\|offline"):
        prepare(suite, Selection(data=tmp_path / "data", shard="1/2"))


def test_where_no_profile_can_run_nothing_runs(suite, tmp_path, lossbench):
    suite.write_text(ANY.replace('"cpu", "offline"]', '"cpu"]'))
    told = lossbench("run", suite, "--data", tmp_path / "data", "--no-fetch")
    assert told.returncode == 2 and len(told.stderr.splitlines()) == 1
    assert "no profile of its auto = ['full', 'cpu'] can run here: no GPU, and mnist, cifar10" in told.stderr


@pytest.mark.data("mnist", "cifar10")
def test_real_data_chooses_cpu(lossbench, real_data):
    told = lossbench("plan", "paper", "--no-forecast", timeout=600)
    assert told.returncode == 0
    assert told.stdout.startswith("profile cpu: no GPU; data in ")


# Publishers, good and bad


def test_missing_data_is_announced_fetched_and_used(suite, tmp_path, publish):
    publish("mnist")
    publish("cifar10")
    result, said = ran(suite, tmp_path)
    assert said[0].startswith("profile cpu: no GPU. To fetch: mnist, cifar10 (")
    size = sum(file.size for file in SOURCES["mnist"].files) / 2**20
    assert said[1] == f"fetching mnist: {size:.1f} MiB, licence: CC BY-SA 3.0, for numbers"
    assert said[2].startswith("fetching cifar10: ") and "licence: none stated, for pictures" in said[2]
    assert said[3].startswith("profile cpu: no GPU; data in ") and "This will take about" in said[3]
    assert set(result.statuses.values()) == {"done"} and len(result.statuses) == 8
    assert set(result.missing) == {"faces"}
    again, said = ran(suite, tmp_path)
    assert not any(sentence.startswith("fetching") or "To fetch" in sentence for sentence in said)
    assert again.statuses == result.statuses


def test_plan_fetches_nothing_and_says_what_would_be(suite, tmp_path, publish, server, capsys):
    from lossbench.cli import screen

    publish("mnist")
    job = api.prepare(suite, data=tmp_path / "data")
    todo = screen.show_plan(job, str(tmp_path / "run"))
    shown = capsys.readouterr().out
    assert shown.startswith("profile cpu: no GPU. To fetch: mnist (0 MiB in all).")
    assert "to fetch: mnist: 0.0 MiB, licence: CC BY-SA 3.0, for numbers" in shown
    assert "4 of 4 cells to train" in shown and len(todo) == 4
    assert not (tmp_path / "data/mnist").exists()
    screen.show_forecast(api.predict(job, todo))  # there is nothing yet that could be measured
    assert "a time that could not be measured" in capsys.readouterr().out


def test_any_suite_fetches_what_it_lacks_unless_told_not_to(suite, tmp_path, publish, server):
    publish("mnist")
    with pytest.raises(DataError, match="mnist is not there"):
        ran(suite, tmp_path, profile="cpu", fetch=False)
    assert server.ranges == []
    result, said = ran(suite, tmp_path, profile="cpu")
    assert said[0].startswith("To fetch: mnist") and said[1].startswith("fetching mnist: ")
    assert set(result.missing) == {"pictures", "faces"} and len(result.statuses) == 4


FAULTS = {
    "truncated": (("cut", 100), "ended after"),
    "wrong bytes": ("wrong bytes", "sent another file than the published one"),
    "login page": ("login page", "offers 26 bytes instead of"),
    "hanging": ("hang", "sent nothing for"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_download_that_fails_leaves_the_next_profile(suite, tmp_path, publish, server, case):
    server.always, reason = FAULTS[case]
    publish("cifar10")
    result, said = ran(suite, tmp_path)
    assert said[0].startswith("profile cpu: no GPU. To fetch: cifar10 (")
    assert said[2].startswith("not fetched: cifar10: ") and reason in said[2] and "\n" not in said[2]
    assert said[3].startswith("profile offline: no GPU, and mnist, cifar10, casia_webface, lfw are not in ")
    assert "could not be fetched" in said[3] and said[3].endswith(NOTE)
    assert set(result.statuses.values()) == {"done"} and not result.missing


def test_a_publisher_in_trouble_is_not_even_asked_for_the_file(suite, tmp_path, publish, server):
    server.always = 500
    publish("mnist")
    _, said = ran(suite, tmp_path)
    assert said[0].startswith("profile offline: ")
    assert not any(sentence.startswith("fetching") for sentence in said)


def test_a_slow_download_is_waited_for(suite, tmp_path, publish, server):
    server.always = "slow"
    publish("mnist")
    result, said = ran(suite, tmp_path)
    assert said[0].startswith("profile cpu: ")
    assert set(result.statuses.values()) == {"done"}


def test_one_failed_download_costs_only_its_own_experiments(suite, tmp_path, publish, server):
    publish("mnist")
    publish("cifar10")
    server.bodies["cifar-10-binary.tar.gz"] = bytes(SOURCES["cifar10"].files[0].size)
    result, said = ran(suite, tmp_path)
    assert set(result.statuses.values()) == {"done"} and len(result.statuses) == 4
    assert set(result.missing) == {"pictures", "faces"}
    assert "it could not be fetched now: cifar10: http://127.0.0.1" in result.missing["pictures"]
    assert str(tmp_path) not in result.missing["pictures"]
    assert any(sentence.startswith("not run: pictures: ") for sentence in said)


def test_an_explicit_profile_whose_downloads_all_fail_is_one_sentence(suite, tmp_path, publish, server):
    server.always = "wrong bytes"
    publish("mnist")
    with pytest.raises(DataError, match="sent another file") as error:
        ran(suite, tmp_path, profile="cpu")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_only_the_datasets_that_are_asked_for_are_fetched(suite, tmp_path, publish, server):
    publish("mnist")
    publish("cifar10")
    _, said = ran(suite, tmp_path, datasets=["mnist"])
    assert [sentence for sentence in said if sentence.startswith("fetching")] == [said[1]]
    assert not (tmp_path / "data/cifar10").exists()


def test_an_archive_put_there_by_hand_needs_no_network(suite, tmp_path, publish, server):
    publish("cifar10")
    (file,) = SOURCES["cifar10"].files
    place = tmp_path / "data" / file.place
    place.parent.mkdir(parents=True)
    place.write_bytes(server.bodies.pop(place.name))
    result, said = ran(suite, tmp_path)
    assert said[0].startswith("profile cpu: ")
    assert set(result.missing) == {"numbers", "faces"} and set(result.statuses.values()) == {"done"}


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


def test_a_profile_with_more_seeds_is_no_second_look_at_another(tmp_path, read_suite):
    text = SMALL + "[profile.more]\nall = { seeds = 5 }\n"
    store = Store(tmp_path / "run")
    for profile, looks in ((None, {}), ("more", {})):
        suite = read_suite(text, profile)
        store.prepare(suite, plan(suite))
        assert store.plan()[0].looks == looks
    fewer = read_suite(text.replace("seeds = 5", "seeds = 3"), "more")
    store.prepare(fewer, plan(fewer))
    assert store.plan()[0].looks == {"digits": [5]}


# The paper's stand-ins


@needs_namespace
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_paper_runs_without_anything_and_its_networks_are_trained(tmp_path):
    done = in_the_woods(tmp_path, "run", "paper", timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.startswith("lossbench: profile offline: no GPU, and mnist, fashion_mnist, cifar10 and ")
    stated = json.loads((tmp_path / "reports/report.json").read_text())
    assert stated["statuses"].keys() == {"done"}
    softmax = [row for row in stated["main"] if row["loss"] == "softmax" and row["n"] >= 5]
    (digits,) = [row["accuracy"] for row in softmax if row["experiment"] == "mnist"]
    assert digits >= 96
    assert all(row["accuracy"] >= 85 for row in softmax if "width" not in row["experiment"])
    for row in stated["main"]:
        chance = 50 if row["task"] == "verification" else 100 / row["classes"]
        assert row["accuracy"] > (100 + chance) / 2 or "width" in row["experiment"], row
    judged = {row["text"] for row in stated["claims"] if row["n"]}
    for said in ("Below M_min accuracy rises", "The mean angle falls", "The gain over softmax", "A step of W-Softmax"):
        assert any(text.startswith(said) for text in judged), said
