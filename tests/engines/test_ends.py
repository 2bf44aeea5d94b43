"""Whatever a cell does, it becomes a status and the others finish: one run of losses that misbehave in every way."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from conftest import SMALL, alive, write_loss
from kit.ends import CALM, ENDS, ENVIRONMENT, PLUGIN
from kit.runs import by_label, hiding, pids, processes_of, ran, records, wait_until, write_suite

from lossbench import api
from lossbench.cli.commands import cli
from lossbench.core import errors
from lossbench.core.errors import LossbenchError
from lossbench.engines import server

CHILD = "import time; held = bytearray(600 * 2**20); time.sleep(30)"
HANGS = {"hangs": ("{hiding}; time.sleep(600)", "timeout", ENVIRONMENT, "killed after 8 seconds")}
MORE = {
    "takes_at_once": ("held = torch.zeros(600 * 2**20 // 4) + 1", "oom", ENVIRONMENT, "allocate"),
    "takes_by_and_by": (
        "self.held = [(torch.ones(10 * 2**20 // 4), time.sleep(0.02)) for _ in range(60)]",
        *("oom", ENVIRONMENT, ""),
    ),
    "takes_in_a_child": (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])",
        *("oom", ENVIRONMENT, "--memory allows 524,288,000"),
    ),
    "errs_long": ("raise RuntimeError('x' * 10**7)", "failed", PLUGIN, "RuntimeError: xxx"),
    "errs_in_lines": (r"raise RuntimeError('\n'.join(map(str, range(10**5))))", "failed", PLUGIN, "RuntimeError: 0\n1"),
    "errs_oddly": (r"print('bad \udcff'); raise RuntimeError('bad \udcff name')", "failed", PLUGIN, r"bad \udcff name"),
    "is_moody": (
        "if not os.path.exists(__file__ + '.calm'): raise RuntimeError('not today')",
        "failed",
        PLUGIN,
        "not today",
    ),
    "hides": ("if self.calls == 1: {hiding}", "done", None, ""),
    "collapses": ("pass", "done", None, ""),
    "talks": ("print('this is step', self.calls)", "done", None, ""),
    "chatters": (
        "print('beginning'); [print('x' * 9999) for _ in range(1000)]; print('the end', flush=True); self.calls = 9",
        *("done", None, ""),
    ),
}
ALL = HANGS | ENDS | MORE  # the others run beside the one that is waited for
SUITE = SMALL.replace("seeds = 2", "seeds = 1").replace(
    '["softmax", "w_softmax"]', "[" + ", ".join(f'"{name}"' for name in ("softmax", *ALL)) + "]"
)
COLD = (
    SUITE.partition("[[experiment]]")[2]
    .replace('name = "digits"', 'name = "cold"', 1)
    .replace(SUITE[SUITE.index("losses = ") : SUITE.index("\nseeds")], 'losses = ["softmax", "w_softmax"]')
)
SUITE += f'\n[[experiment]]{COLD}warm_start = {{ loss = "raises", steps = 2 }}\n'


class Run(NamedTuple):
    folder: Path
    process: subprocess.CompletedProcess[str]

    @property
    def records(self) -> dict[str, dict]:
        """By label, those of the experiment that has them all."""
        found = by_label(self.folder / "runs/small")
        return found | {record["label"]: record for record in self.of("digits")}

    def of(self, experiment: str) -> list[dict]:
        return [r for r in records(self.folder / "runs/small").values() if r["cell"]["experiment"] == experiment]

    def log(self, label: str) -> str:
        return (self.folder / "runs/small/logs" / f"{self.records[label]['key']}.log").read_text(errors="replace")


def write_losses(folder: Path, ends: dict[str, tuple] = ALL) -> None:
    for name, (does, *_) in ends.items():
        path = write_loss(folder, name, CALM + does.format(hiding=hiding(folder / f"{name}.pids")))
        if name == "collapses":
            text = path.read_text()
            path.write_text(
                text.replace("return F.linear(features, self.weight)", "return 0 * features @ self.weight.T")
            )


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("ends")
    write_losses(folder)
    (folder / "lossbench").mkdir()
    (folder / "lossbench" / "__init__.py").write_text("raise RuntimeError('not me')\n")
    suite = write_suite(folder, SUITE)
    return Run(folder, ran(folder, "run", suite, "--timeout", "8s", "--memory", "500MiB", "-j", "3"))


def test_every_end_of_a_cell_is_a_status_with_its_cause(run):
    assert run.process.returncode == 1, run.process.stderr
    for name, (_, status, cause, why) in ALL.items():
        record = run.records[name]
        assert (record["status"], record["cause"]) == (status, cause), (name, record["error"])
        assert why in (record["error"] or "")
        assert f"{status:<8} digits  {name}  M=8" in run.process.stderr


def test_the_others_finish_and_the_terminal_and_the_report_count_them(run):
    assert run.records["softmax"]["status"] == "done"
    assert "Traceback" not in run.process.stderr and "log:" in run.process.stderr
    assert len(run.process.stderr) < 20_000
    statuses = [record["status"] for record in records(run.folder / "runs/small").values()]
    summary = (run.folder / "reports" / "summary.md").read_text()
    for status in ("failed", "oom", "timeout"):
        assert f"{statuses.count(status)} {status}" in summary


def test_a_folder_called_lossbench_in_the_working_folder_is_not_imported(run):
    assert (run.folder / "lossbench").is_dir() and run.records["softmax"]["status"] == "done"


def test_a_failed_warm_start_fails_those_that_need_it_and_no_others(run):
    cold = {(record["cell"]["kind"], record["label"]): record for record in run.of("cold")}
    assert {record["status"] for record in cold.values()} == {"failed"} and len(cold) == 3
    needing = [record for (kind, _), record in cold.items() if kind == "train"]
    assert all("its warm start" in record["error"] and record["cause"] == PLUGIN for record in needing)


def test_what_a_cell_has_started_ends_with_it_whatever_session_it_moved_to(run):
    for name in ("hangs", "hides"):  # one is killed, the other finishes
        assert len(pids(run.folder / f"{name}.pids")) == 2
        wait_until(lambda: not any(map(alive, pids(run.folder / f"{name}.pids"))), 10)  # noqa: B023  # called at once
    wait_until(lambda: not processes_of(run.folder), 20)


def test_a_log_without_end_is_limited_to_its_beginning_and_end(run):
    log = run.log("chatters")
    assert len(log) <= 2 * server.LOG_END + 100
    assert log.startswith("beginning\n") and log.endswith("the end\n")
    left_out = 6 * (1000 * 10_000 + len("beginning\nthe end\n")) - 2 * server.LOG_END
    assert f"[… {left_out:,} bytes left out …]" in log


def test_errors_without_end_and_errors_that_are_no_unicode_are_limited(run):
    kept = {name: run.records[name]["error"] for name in ("errs_long", "errs_in_lines", "errs_oddly")}
    assert all(len(error) <= errors.MOST_ERROR for error in kept.values())
    assert kept["errs_long"].startswith("Traceback") and "characters" in kept["errs_long"]
    assert kept["errs_in_lines"].rstrip().endswith("99999")
    assert r"errs_oddly  M=8 C=10 seed=0: RuntimeError: bad \udcff name" in run.process.stderr


def test_what_is_bounded_once_stays_as_it_is():
    for text in ("short", "x" * 10**6, "\n".join(map(str, range(10**5))), "bad \udcff", "y\n" * 10**5 + "z" * 10**5):
        kept = errors.bounded(text)
        assert len(kept) <= errors.MOST_ERROR and errors.bounded(kept) == kept
        kept.encode()
    assert errors.bounded("short\n") == "short\n"


def test_a_network_that_predicts_one_class_is_done_but_flagged(run):
    assert "collapsed" in run.records["collapses"]["flags"] and "collapsed" not in run.records["softmax"]["flags"]
    summary = (run.folder / "reports" / "summary.md").read_text()
    assert "collapses" in summary and "predict the same class for every input" in summary


def test_logs_shows_what_a_cell_printed(run, monkeypatch):
    monkeypatch.chdir(run.folder)

    def shown(*arguments: str) -> str:
        return CliRunner().invoke(cli, ["logs", *arguments], catch_exceptions=False).output

    key = run.records["talks"]["key"]
    assert "this is step 6" in shown(key[:8]) and key in shown(key[:8])
    assert "this is step 6" in shown("talks seed=0", "--run", "small")
    with pytest.raises(LossbenchError, match="'whisper'"):
        shown("whisper")


def test_retry_failed_trains_what_failed_and_nothing_that_came_to_a_result(run, tmp_path, monkeypatch, kept_servers):
    """A diverged cell is a result: it would diverge again."""
    folder = Path(shutil.copytree(run.folder, tmp_path / "again"))
    monkeypatch.chdir(folder)
    trained = []
    again = partial(
        api.run,
        "suite.toml",
        reports=None,
        losses=["talks", "turns_nan", "is_moody"],
        on_start=lambda job, todo: trained.append([cell.label for cell in todo]),
    )
    again()
    (folder / "losses/is_moody.py.calm").touch()
    again(retry_failed=True)
    assert trained == [[], ["is_moody"]]
    after = {record["label"]: record["status"] for record in records(folder / "runs/small").values()}
    assert (after["is_moody"], after["turns_nan"]) == ("done", "diverged")


def test_a_folder_whose_name_is_no_unicode_can_be_run_and_reported(tmp_path, kept_servers):
    folder = tmp_path / os.fsdecode(b"od\xffd")
    folder.mkdir()
    write_loss(folder, "mine", "if len(labels) > 2: raise RuntimeError(__file__)")
    suite = write_suite(folder, SMALL.replace("seeds = 2", "seeds = 1").replace('"w_softmax"]', '"mine"]'))
    done = api.run(suite, out=folder / "run", reports=folder / "reports")
    assert len(done.unfinished) == 1
    assert len(records(folder / "run")) == 2
    assert "\\udcff" in (folder / "reports/summary.md").read_text()  # the command that runs it again
