"""`auto`: which profile of a suite is chosen on a machine, and what is said about it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from conftest import SMALL, command
from kit.layouts import write_mnist
from kit.suites import ANY, NOTE

from lossbench.core.errors import DataError, SuiteError
from lossbench.plan.cells import plan
from lossbench.plan.choose import Needs, Situation, choose
from lossbench.plan.job import prepare
from lossbench.plan.selection import Selection
from lossbench.plugins.registry import Registry
from lossbench.store.records import Store
from lossbench.suite.schema import json_schema
from lossbench.suite.source import built_in


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """No GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def suite(tmp_path) -> Path:
    path = tmp_path / "any.toml"
    path.write_text(ANY)
    return path


BROKEN = {
    "unknown": ('"cpu", "offline"]', '"cpus", "offline"]', "auto[1]: no such profile 'cpus'; did you mean 'cpu'?"),
    "twice": ('"cpu", "offline"]', '"cpu", "full"]', "auto[2]: 'full' is listed twice"),
    "empty": ('["full", "cpu", "offline"]', "[]", "auto: must be a list of at least one item"),
    "no list": ('["full", "cpu", "offline"]', '"cpu"', "auto: must be a list"),
    "reserved": ("[profile.cpu]", "[profile.none]", "profile.none: this name is reserved"),
    "note": (f'note = "{NOTE}"', "note = 3", "profile.offline.note: must be text, got 3"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_wrong_auto_list_is_one_sentence_with_its_place(read_suite, case):
    before, after, sentence = BROKEN[case]
    assert ANY.count(before) == 1
    with pytest.raises(SuiteError) as refused:
        read_suite(ANY.replace(before, after))
    assert str(refused.value).startswith(f"suite.toml: {sentence}") and "\n" not in str(refused.value)


def test_the_schema_knows_auto_and_note():
    schema = json_schema(Registry())
    paper = tomllib.loads(built_in()["paper"].read_text())
    jsonschema.validate(paper, schema)
    assert paper["auto"] == ["full", "cpu", "offline"]
    for place, key in ((paper, "auto"), (paper["profile"]["offline"], "note")):
        place[key] = 3
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(paper, schema)
        del place[key]


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
@pytest.mark.slow
def test_without_network_and_data_the_stand_ins_run_and_everyone_is_told(suite, tmp_path):
    for arguments in (["plan", "any.toml", "--no-forecast"], ["run", "any.toml", "-n"]):
        told = in_the_woods(tmp_path, *arguments)
        assert told.returncode == 0
        assert told.stdout.startswith("profile offline: no GPU, and mnist, cifar10")
    assert not (tmp_path / "runs").exists()

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

    again = in_the_woods(tmp_path, *stated["command"].split()[1:], "--no-report")
    assert again.returncode == 0
    assert f"lossbench: profile offline: {NOTE}" in again.stderr
    assert "0 to train" in again.stderr

    quiet = in_the_woods(tmp_path, "run", "any.toml", "-q", "--no-report")
    assert quiet.returncode == 0 and quiet.stdout == ""
    assert len(quiet.stderr.splitlines()) == 1 and NOTE in quiet.stderr


@needs_namespace
def test_without_network_an_explicit_profile_has_nothing_to_run(suite, tmp_path):
    started = time.monotonic()
    told = in_the_woods(tmp_path, "run", "any.toml", "--profile", "cpu")
    assert time.monotonic() - started < 60
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 1 and "mnist is not available" in told.stderr


# Local data


def at(tmp_path, **options) -> Selection:
    return Selection(data=tmp_path / "data", fetch=False, **options)


def test_with_local_data_cpu_is_chosen_and_what_is_missing_is_not_run(suite, tmp_path):
    write_mnist(tmp_path / "data")
    job = prepare(suite, at(tmp_path))
    assert job.opening("about 2 seconds") == f"profile cpu: no GPU; data in {tmp_path / 'data'}. About 2 seconds."
    pictures, faces = job.not_run()
    assert pictures.startswith("not run: pictures: cifar10 is not available")
    assert faces.startswith("not run: faces: casia_webface is not available")
    assert {cell.experiment for cell in job.chosen} == {"numbers"}


def test_without_local_data_no_fetch_chooses_the_stand_ins(suite, tmp_path):
    told = prepare(suite, at(tmp_path)).opening()
    assert told.startswith("profile offline: no GPU, and mnist, cifar10, casia_webface, lfw are not in")


def test_a_visible_gpu_chooses_full_and_an_explicit_profile_always_wins(suite, tmp_path, monkeypatch):
    write_mnist(tmp_path / "data")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert prepare(suite, at(tmp_path)).opening().startswith("profile full: a GPU is available; data in ")
    assert NOTE in prepare(suite, at(tmp_path, profile="offline")).opening()
    for profile, steps in (("cpu", 3), ("none", 4)):
        job = prepare(suite, at(tmp_path, profile=profile))
        assert job.opening() == ""
        assert [cell.schedule.steps for cell in job.chosen] == [steps] * 4
    assert job.suite.info.profile is None
    assert job.suite.info.command == f"lossbench run {suite} --profile none"


def test_shards_of_a_suite_must_be_of_one_profile(suite, tmp_path):
    with pytest.raises(SuiteError, match=r"--profile full\|cpu\|offline"):
        prepare(suite, at(tmp_path, shard="1/2"))


def test_where_no_profile_can_run_nothing_runs(suite, tmp_path):
    suite.write_text(ANY.replace('"cpu", "offline"]', '"cpu"]'))
    why = r"no profile of its auto = \['full', 'cpu'\] can run here: no GPU, and mnist, cifar10"
    with pytest.raises(DataError, match=why) as refused:
        prepare(suite, at(tmp_path))
    assert "\n" not in str(refused.value)


@pytest.mark.data("mnist", "cifar10")
@pytest.mark.slow
def test_real_data_chooses_cpu(real_data):
    assert prepare("paper").opening().startswith("profile cpu: no GPU; data in ")


def test_a_profile_with_more_seeds_is_a_second_look_at_another_only_if_it_keeps_its_cells(tmp_path, read_suite):
    text = SMALL + "[profile.more]\nall = { seeds = 5 }\n[profile.other]\nall = { seeds = 5, widths = [9] }\n"
    other = Store(tmp_path / "other")
    for profile in (None, "other"):
        suite = read_suite(text, profile)
        other.prepare(suite, plan(suite))
    assert other.plan()[0].looks == {}
    store = Store(tmp_path / "run")
    for profile, looks in ((None, {}), ("more", {"digits": [2]})):
        suite = read_suite(text, profile)
        store.prepare(suite, plan(suite))
        assert store.plan()[0].looks == looks
    fewer = read_suite(text.replace("seeds = 5 }", "seeds = 3 }"), "more")
    store.prepare(fewer, plan(fewer))
    assert store.plan()[0].looks == {"digits": [2, 5]}


# The paper's stand-ins


@needs_namespace
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_paper_runs_without_anything_and_its_networks_are_trained(tmp_path):
    """Two seeds of five."""
    done = in_the_woods(tmp_path, "run", "paper", "--set", "seeds=2", timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.startswith("lossbench: profile offline: no GPU, and mnist, fashion_mnist, cifar10 and ")
    stated = json.loads((tmp_path / "reports/report.json").read_text())
    assert stated["statuses"].keys() - {"missing"} == {"done"}
    softmax = [row for row in stated["main"] if row["loss"] == "softmax"]
    assert {row["n"] for row in softmax} == {2}
    (digits,) = [row["accuracy"] for row in softmax if row["experiment"] == "mnist"]
    assert digits >= 96
    assert all(row["accuracy"] >= 85 for row in softmax if "width" not in row["experiment"])
    for row in stated["main"]:
        chance = 50 if row["task"] == "verification" else 100 / row["classes"]
        assert row["accuracy"] > (100 + chance) / 2 or "width" in row["experiment"], row
    judged = {row["text"] for row in stated["claims"] if row["n"]}
    for said in ("Below M_min, accuracy rises", "The mean angle falls", "The gain over softmax", "A step of W-Softmax"):
        assert any(text.startswith(said) for text in judged), said
