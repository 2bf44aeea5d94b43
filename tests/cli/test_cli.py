"""The command line as a person meets it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import SMALL, command, write_loss
from kit.terminal import on_terminal


@pytest.fixture
def here(lossbench):
    """Run a command in this process, in a folder of its own."""
    return lossbench


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "suite.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder with a suite that the real command has run, and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "suite.toml").write_text(SMALL.replace("seeds = 2", "seeds = 3"))
    ran = subprocess.run(command("run", "suite.toml"), cwd=folder, capture_output=True, text=True, check=False)
    return folder, ran


def test_the_installed_command_answers():
    told = subprocess.run(command("--version"), capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    assert re.fullmatch(r"lossbench \S+\n", told.stdout)


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["list"], ["schema"], ["schema", "report"]])
def test_commands_that_only_tell_succeed(here, arguments):
    told = here(*arguments)
    assert told.returncode == 0
    assert told.stdout
    assert told.stderr == ""


def test_list_shows_every_plugin_with_its_summary(here, registry):
    told = here("list", "losses").stdout
    for name in registry.names("loss"):
        assert re.search(rf"^{name} +\S", told, flags=re.MULTILINE), name


def test_info_shows_the_equation_the_paper_and_the_options(here):
    told = here("info", "loss", "w_softmax").stdout
    for part in ("Li & Wang", "√(1 + α² + 2α G_yj)", "alpha: float = 1.0", "gradient: Literal['exact'"):
        assert part in told


def test_width_tells_the_minimum_its_angle_and_what_more_costs(here):
    told = here("width", "--classes", "100", "--compare", "4096", "--compare", "50", "--inputs", "512").stdout
    assert "M_min = 99" in told
    assert "90.58°" in told
    assert re.search(r"99 \(min\)\s+198.4 KiB\s+38.7 KiB\s+237.1 KiB\s+1.00\s+yes", told)
    assert re.search(r"4096\s+8.0 MiB\s+1.6 MiB\s+9.6 MiB\s+41.37\s+yes", told)
    assert re.search(r"50\s.*\s0.51\s+no", told)


def test_a_run_ends_with_a_table_and_the_paths_it_wrote(finished):
    folder, ran = finished
    assert ran.returncode == 0, ran.stderr
    assert "Classification on digits (3 seeds, default settings):" in ran.stdout
    assert re.search(r"w_softmax\s+(× at chance|[+−]\d)", ran.stdout)  # a few steps teach it little
    assert max(map(len, ran.stdout.splitlines())) <= 100
    for path in ("reports/summary.md", "reports/report.html", "runs/small"):
        assert path in ran.stdout
        assert (folder / path).exists()
    assert "[6/6] done" in ran.stderr


def test_the_same_command_again_trains_nothing_and_says_the_same(finished, here, monkeypatch):
    folder, ran = finished
    monkeypatch.chdir(folder)
    again = here("run", "suite.toml")
    assert "6 cells, 6 already done, 0 to train" in again.stderr
    assert again.stdout == ran.stdout
    quiet = here("run", "suite.toml", "-q")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


def test_report_writes_again_from_the_records_alone(finished, here, monkeypatch):
    folder, _ = finished
    monkeypatch.chdir(folder)
    (folder / "suite.toml").rename(folder / "elsewhere.toml")
    told = here("report", "small", "--reports", "again")
    (folder / "elsewhere.toml").rename(folder / "suite.toml")
    assert told.returncode == 0
    assert (folder / "again/summary.md").read_bytes() == (folder / "reports/summary.md").read_bytes()


def test_logs_finds_a_cell_by_words_of_its_title(finished, here, monkeypatch):
    monkeypatch.chdir(finished[0])
    found = here("logs", "w_softmax seed=1")
    assert found.returncode == 0 and "status  done" in found.stdout
    assert "'seed=1' matches 2 cells; choose one:" in here("logs", "seed=1").stderr
    assert "no cell matches 'arcface'" in here("logs", "arcface").stderr


def test_plan_and_dry_run_show_cells_and_write_nothing(here, suite, tmp_path):
    suite.write_text(SMALL + "warm_start = { steps = 5 }\ntiming = { rounds = 3 }\n")
    planned, dry = here("plan", suite, "--no-forecast"), here("run", suite, "-n")
    assert planned.returncode == dry.returncode == 0
    assert dry.stdout.partition("forecast:")[0] == planned.stdout and "forecast: about" in dry.stdout
    assert "7 of 7 cells to train, 34 steps" in planned.stdout
    assert re.search(r"digits +digits; cnn; C=10; M=", planned.stdout)
    assert "2 warm starts are shared by 4 cells, which saves 10 steps" in planned.stdout
    assert list(tmp_path.iterdir()) == [suite]


def test_filters_train_only_what_they_name_and_status_explains_what_failed(here, suite, tmp_path):
    write_loss(tmp_path, "bad", "if len(labels) > 2: raise RuntimeError('because')")
    suite.write_text(SMALL.replace('"w_softmax"]', '{ name = "bad", level = [1.0, 2.0] }]'))
    ran = here("run", suite, "--no-report", "-l", "softmax", "-l", "bad[level=2]", "--seed", "0")
    assert ran.returncode == 1 and "2 cells" in ran.stderr
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/small/cells/*/record.json")]
    assert sorted((record["label"], record["cell"]["seed"]) for record in records) == [
        ("bad[level=2.0]", 0),
        ("softmax", 0),
    ]
    told = here("status", "small")
    assert told.returncode == 1
    assert re.search(r"digits\s+1\s+1\s+4", told.stdout)  # done, failed, missing
    assert "RuntimeError: because" in told.stdout
    assert "log: " in told.stdout


WRONG = {
    "missing file": (["run", "nowhere.toml"], "no such file"),
    "misspelt built-in": (["run", "quik"], "did you mean 'quick'"),
    "a folder": (["run", "."], "is a folder"),
    "unknown command": (["rnu"], "No such command"),
    "unknown option": (["run", "suite.toml", "--jbos", "2"], "No such option"),
    "no jobs": (["run", "suite.toml", "-j", "0"], "0 is not in the range"),
    "a bad duration": (["run", "suite.toml", "--timeout", "soon"], "not a duration"),
    "unknown profile": (["run", "suite.toml", "--profile", "x"], "no such profile 'x'"),
    "a filter that leaves nothing": (["run", "suite.toml", "-w", "99"], "--width: no cell has the width 99; known: 8"),
    "an unknown loss": (["run", "suite.toml", "-l", "sofmax"], "did you mean 'softmax'"),
    "a loss not in the suite": (["run", "suite.toml", "-l", "center"], "no cell of this suite has the loss 'center'"),
    "force and retry": (["run", "suite.toml", "-f", "--retry-failed"], "are mutually exclusive"),
    "no such run": (["report", "nothing"], "no such run"),
    "not a run": (["status", "."], "is not a run folder"),
    "no such plugin folder": (["list", "--plugins", "nowhere"], "is not a folder"),
    "one class": (["width", "--classes", "1"], "not in the range"),
    "unknown plugin": (["info", "loss", "arc"], "unknown loss 'arc'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_one_sentence_and_exit_code_two(here, suite, tmp_path, case):
    arguments, sentence = WRONG[case]
    told = here(*arguments)
    assert told.returncode == 2
    assert sentence in told.stderr
    assert "Traceback" not in told.stderr
    assert told.stdout == ""
    assert list(tmp_path.iterdir()) == [suite]


def test_a_plugin_that_refuses_its_options_or_width_is_found_before_anything_trains(here, suite, tmp_path):
    wants = 'if features < 8: raise ValueError(f"features must be at least 8, got {features}")'
    write_loss(tmp_path, "mine", "pass", constructor=wants)
    losses = '"mine", { name = "w_softmax", alpha = -1 }]'
    suite.write_text(SMALL.replace('"w_softmax"]', losses).replace("widths = [8]", "widths = [4, 8]"))
    told = here("run", suite)
    assert (told.returncode, told.stdout) == (2, "")
    place = f"lossbench: {suite}: experiment.digits.losses[1]: loss 'mine'"
    assert told.stderr == f"{place}: features must be at least 8, got 4 (and 1 more)\n"
    assert not (tmp_path / "runs").exists()


def test_a_plugin_that_breaks_in_its_constructor_is_refused_before_anything_trains(here, suite, tmp_path):
    write_loss(tmp_path, "bad", "pass", constructor="os._exit(3)")
    suite.write_text(SMALL.replace('"w_softmax"]', '"bad"]'))
    told = here("run", suite)
    assert told.returncode == 2
    assert "exit code 3" in told.stderr
    assert not (tmp_path / "runs").exists()


def test_a_read_only_folder_is_one_sentence(here, suite, tmp_path):
    if os.geteuid() == 0:  # root writes anywhere: a file where the folder should be stops even root
        (tmp_path / "runs").write_text("")
        told = here("run", suite)
    else:
        tmp_path.chmod(0o500)
        told = here("run", suite)
        tmp_path.chmod(0o700)
    assert told.returncode == 2
    assert "cannot be" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.slow
def test_a_terminal_gets_a_bar_and_the_running_cells(suite, tmp_path):
    suite.write_text(SMALL.replace("steps = 6", "steps = 300"))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    run = command("run", suite, "--no-report")
    code, screen = on_terminal(
        lambda terminal: subprocess.Popen(run, cwd=tmp_path, stdout=terminal, stderr=terminal, env=environment)
    )
    assert code == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode())
    assert "4/4" in text
    assert re.search(r"digits  w_softmax  M=8 C=10 seed=\d  \d+ s", text)


TWO_SETS = (
    SMALL
    + """
[[experiment]]
name = "pictures"
dataset = "cifar100"
backbone = { name = "cnn", channels = 4, depths = [1] }
widths = [8]
losses = ["softmax", "w_softmax"]
seeds = 2
schedule = { steps = 6, batch = 16 }
"""
)


def test_missing_data_is_said_and_everything_else_runs(here, tmp_path):
    (tmp_path / "two.toml").write_text(TWO_SETS)
    done = here("run", "two.toml", "--data", tmp_path / "data", "--no-fetch")
    assert done.returncode == 1
    sentence = f"not run: pictures: cifar100 is not available: {tmp_path / 'data' / 'cifar100'}"
    assert sentence in done.stderr and "lossbench data get cifar100" in done.stderr
    summary = (tmp_path / "reports" / "summary.md").read_text()
    assert "Not run: pictures: cifar100 is not available: $LOSSBENCH_DATA/cifar100" in summary.replace("\\", "")
    assert str(tmp_path) not in summary  # whoever reads it has other folders
    status = here("status", "small")
    assert status.returncode == 1 and "not run: pictures" in status.stdout
    plan = here("plan", "two.toml", "--data", tmp_path / "data", "--no-fetch")
    assert plan.returncode == 0 and "0 of 4 cells to train" in plan.stdout and "not run: pictures" in plan.stdout


def test_a_plan_names_options_only_where_two_plugins_share_a_name(here, tmp_path):
    backbone = 'backbone = { name = "cnn", channels = 4, depths = [1] }'
    assert backbone in SMALL
    for name, text in (
        ("one", backbone),
        ("two", 'backbone = ["cnn[channels=4,depths=(1)]", "cnn[channels=6,depths=(1)]"]'),
    ):
        (tmp_path / f"{name}.toml").write_text(SMALL.replace(backbone, text))
    one, two = (here("plan", f"{name}.toml", "--no-forecast").stdout for name in ("one", "two"))
    assert "cnn" in one and "channels" not in one
    assert "channels=4" in two and "channels=6" in two


def test_a_suite_without_any_data_is_refused(here, tmp_path):
    (tmp_path / "one.toml").write_text(SMALL.replace('"digits"', '"cifar100"', 2).replace('"cifar100"', '"x"', 1))
    done = here("run", "one.toml", "--data", tmp_path / "data", "--no-fetch")
    assert done.returncode == 2 and "cifar100 is not available" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
