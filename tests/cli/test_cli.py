"""The command line as a person meets it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess

import pytest
from conftest import SMALL, command, write_loss


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "suite.toml"
    path.write_text(SMALL)
    return path


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["list"], ["schema"]])
def test_commands_that_only_tell_succeed(lossbench, arguments):
    told = lossbench(*arguments)
    assert told.returncode == 0
    assert told.stdout
    assert told.stderr == ""


def test_list_shows_every_plugin_with_its_summary(lossbench, registry):
    told = lossbench("list", "losses").stdout
    for name in registry.names("loss"):
        assert re.search(rf"^{name} +\S", told, flags=re.MULTILINE), name


def test_info_shows_the_equation_the_paper_and_the_options(lossbench):
    told = lossbench("info", "loss", "w_softmax").stdout
    for part in ("Li & Wang", "√(1 + α² + 2α G_yj)", "alpha: float = 1.0", "gradient: Literal['exact'"):
        assert part in told


def test_width_tells_the_minimum_its_angle_and_what_more_costs(lossbench):
    told = lossbench("width", "--classes", "100", "--compare", "4096", "--compare", "50", "--inputs", "512").stdout
    assert "M_min = 99" in told
    assert "90.58°" in told
    assert re.search(r"99 \(min\)\s+198.4 KiB\s+38.7 KiB\s+237.1 KiB\s+1.00\s+yes", told)
    assert re.search(r"4096\s+8.0 MiB\s+1.6 MiB\s+9.6 MiB\s+41.37\s+yes", told)
    assert re.search(r"50\s.*\s0.51\s+no", told)


def test_a_run_ends_with_a_table_and_the_paths_it_wrote(lossbench, suite, tmp_path):
    suite.write_text(SMALL.replace("seeds = 2", "seeds = 3"))
    ran = lossbench("run", suite)
    assert ran.returncode == 0, ran.stderr
    assert "each loss minus softmax" in ran.stdout
    assert re.search(r"w_softmax\s+8\s+\d+\.\d\d\s+[+-]", ran.stdout)
    for path in ("reports/summary.md", "reports/report.html", "runs/small"):
        assert path in ran.stdout
        assert (tmp_path / path).exists()
    assert "[6/6] done" in ran.stderr
    again = lossbench("run", suite)
    assert "6 cells, 6 already done, 0 to train" in again.stderr
    assert again.stdout == ran.stdout


def test_quiet_prints_nothing_when_all_is_well(lossbench, suite):
    ran = lossbench("run", suite, "-q")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_plan_and_dry_run_show_cells_and_write_nothing(lossbench, suite, tmp_path):
    suite.write_text(SMALL + "warm_start = { steps = 5 }\ntiming = { rounds = 3 }\n")
    planned, dry = lossbench("plan", suite), lossbench("run", suite, "-n")
    assert planned.returncode == dry.returncode == 0
    told, told_dry = (ran.stdout.partition("forecast:") for ran in (planned, dry))
    assert told[0] == told_dry[0] and told[1] == told_dry[1] == "forecast:"
    assert "7 of 7 cells to train, 34 steps" in planned.stdout
    assert "cnn[channels=4,depths=(1)]" in planned.stdout
    assert "2 warm starts are shared by 4 cells, which saves 10 steps" in planned.stdout
    assert list(tmp_path.iterdir()) == [suite]


def test_filters_train_only_what_they_name(lossbench, suite, tmp_path):
    ran = lossbench("run", suite, "--no-report", "-l", "w_softmax[alpha=1]", "--seed", "1")
    assert "1 cells" in ran.stderr
    records = list(tmp_path.glob("runs/small/cells/*/record.json"))
    assert [json.loads(path.read_text())["cell"]["seed"] for path in records] == [1]


def test_status_counts_and_explains(lossbench, suite, tmp_path):
    write_loss(tmp_path, "bad", "if len(labels) > 2: raise RuntimeError('because')")
    suite.write_text(SMALL.replace('"w_softmax"]', '"bad"]'))
    lossbench("run", suite, "--no-report", "--seed", "0")
    told = lossbench("status", "small")
    assert told.returncode == 1
    assert re.search(r"digits\s+1\s+1\s+2", told.stdout)  # done, failed, missing
    assert "RuntimeError: because" in told.stdout
    assert "log: " in told.stdout


def test_report_writes_again_from_the_records_alone(lossbench, suite, tmp_path):
    lossbench("run", suite)
    first = (tmp_path / "reports/summary.md").read_bytes()
    suite.unlink()
    told = lossbench("report", "small", "--reports", "again")
    assert told.returncode == 0
    assert (tmp_path / "again/summary.md").read_bytes() == first


WRONG = {
    "missing file": (["run", "nowhere.toml"], "no such file"),
    "misspelt built-in": (["run", "quik"], "did you mean 'quick'"),
    "a folder": (["run", "."], "is a folder"),
    "unknown command": (["rnu"], "No such command"),
    "unknown option": (["run", "suite.toml", "--jbos", "2"], "No such option"),
    "no jobs": (["run", "suite.toml", "-j", "0"], "0 is not in the range"),
    "a bad duration": (["run", "suite.toml", "--timeout", "soon"], "not a duration"),
    "unknown profile": (["run", "suite.toml", "--profile", "x"], "no profile 'x'"),
    "a filter that leaves nothing": (["run", "suite.toml", "-w", "99"], "no cell matches widths 99"),
    "an unknown loss": (["run", "suite.toml", "-l", "sofmax"], "did you mean 'softmax'"),
    "a loss not in the suite": (["run", "suite.toml", "-l", "center"], "no cell of this suite has the loss 'center'"),
    "force and retry": (["run", "suite.toml", "-f", "--retry-failed"], "exclude each other"),
    "no such run": (["report", "nothing"], "no such run"),
    "not a run": (["status", "."], "is not a run folder"),
    "no such plugin folder": (["list", "--plugins", "nowhere"], "is not a folder"),
    "one class": (["width", "--classes", "1"], "not in the range"),
    "unknown plugin": (["info", "loss", "arc"], "unknown loss 'arc'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_one_sentence_and_exit_code_two(lossbench, suite, tmp_path, case):
    arguments, sentence = WRONG[case]
    told = lossbench(*arguments)
    assert told.returncode == 2
    assert sentence in told.stderr
    assert "Traceback" not in told.stderr
    assert told.stdout == ""
    assert list(tmp_path.iterdir()) == [suite]


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        (
            '{ name = "w_softmax", alpha = -1 }',
            "losses[1]: loss 'w_softmax[alpha=-1.0]': alpha must be at least 0, got -1.0",
        ),
        ('{ name = "l_softmax", m = 7 }', "m must be 1, 2, 3 or 4, got 7"),
    ],
)
def test_a_value_out_of_range_is_refused_before_anything_trains(lossbench, suite, tmp_path, loss, sentence):
    suite.write_text(SMALL.replace('"w_softmax"]', f"{loss}]"))
    told = lossbench("run", suite)
    assert told.returncode == 2
    assert sentence in told.stderr
    assert "suite.toml: experiment.digits." in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == [suite]


def test_a_width_that_a_loss_refuses_is_found_before_anything_trains(lossbench, tmp_path):
    wants = 'if features < 8: raise ValueError(f"features must be at least 8, got {features}")'
    write_loss(tmp_path, "mine", "pass", constructor=wants)
    text = SMALL.replace('"w_softmax"]', '"mine"]').replace("widths = [8]", "widths = [8, 16, 4]")
    (tmp_path / "suite.toml").write_text(text)
    refused = lossbench("run", "suite.toml")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "loss 'mine': features must be at least 8, got 4" in refused.stderr
    assert not (tmp_path / "runs").exists()


def test_a_plugin_that_breaks_in_its_constructor_is_refused_before_anything_trains(lossbench, suite, tmp_path):
    write_loss(tmp_path, "bad", "pass", constructor="os._exit(3)")
    suite.write_text(SMALL.replace('"w_softmax"]', '"bad"]'))
    told = lossbench("run", suite)
    assert told.returncode == 2
    assert "exit code 3" in told.stderr
    assert not (tmp_path / "runs").exists()


def test_a_new_loss_beside_the_suite_just_works(lossbench, suite, tmp_path):
    write_loss(tmp_path, "mine", "pass")
    suite.write_text(SMALL.replace('"w_softmax"]', '{ name = "mine", level = [1.0, 2.0] }]'))
    ran = lossbench("run", suite)
    assert ran.returncode == 0, ran.stderr
    assert "mine[level=2.0]" in (tmp_path / "reports/summary.md").read_text()


def test_a_read_only_folder_is_one_sentence(lossbench, suite, tmp_path):
    if os.geteuid() == 0:  # root writes anywhere: a file where the folder should be stops even root
        (tmp_path / "runs").write_text("")
        told = lossbench("run", suite)
    else:
        tmp_path.chmod(0o500)
        told = lossbench("run", suite)
        tmp_path.chmod(0o700)
    assert told.returncode == 2
    assert "cannot be" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_terminal_gets_a_bar_and_the_running_cells(suite, tmp_path):
    suite.write_text(SMALL.replace("steps = 6", "steps = 300"))
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command("run", suite, "--no-report"),
        cwd=tmp_path,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
    )
    os.close(slave)
    screen = b""
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:
            break
        if not chunk:
            break
        screen += chunk
    os.close(master)
    assert process.wait() == 0
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


def test_missing_data_is_said_and_everything_else_runs(lossbench, tmp_path):
    (tmp_path / "two.toml").write_text(TWO_SETS)
    done = lossbench("run", "two.toml", "--data", tmp_path / "data", "--no-fetch")
    assert done.returncode == 1
    sentence = f"not run: pictures: cifar100 is not there: {tmp_path / 'data' / 'cifar100'}"
    assert sentence in done.stderr and "lossbench data get cifar100" in done.stderr
    summary = (tmp_path / "reports" / "summary.md").read_text()
    assert "Not run: pictures: cifar100 is not there: $LOSSBENCH_DATA/cifar100" in summary.replace("\\", "")
    assert str(tmp_path) not in summary  # whoever reads it has other folders
    status = lossbench("status", "small")
    assert status.returncode == 1 and "not run: pictures" in status.stdout
    plan = lossbench("plan", "two.toml", "--data", tmp_path / "data", "--no-fetch")
    assert plan.returncode == 0 and "0 of 4 cells to train" in plan.stdout and "not run: pictures" in plan.stdout


def test_a_suite_of_which_no_data_is_here_is_refused(lossbench, tmp_path):
    (tmp_path / "one.toml").write_text(SMALL.replace('"digits"', '"cifar100"', 2).replace('"cifar100"', '"x"', 1))
    done = lossbench("run", "one.toml", "--data", tmp_path / "data", "--no-fetch")
    assert done.returncode == 2 and "cifar100 is not there" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
