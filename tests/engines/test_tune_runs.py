"""[tune]: whole runs, what they report, and what the command line says."""

from __future__ import annotations

import csv
import json
import math
from functools import partial

import pytest
from click.testing import CliRunner
from conftest import SMALL, write_loss
from kit.suites import TUNED, VERIFIED
from kit.synthetic import Truth, write_run

from lossbench import api
from lossbench.analysis.results import analyse
from lossbench.cli.commands import cli
from lossbench.core.errors import LossbenchError
from lossbench.data import load_dataset
from lossbench.engines.preflight import preflight
from lossbench.plan.cells import unique
from lossbench.store.merge import merge
from lossbench.store.records import Store, load_records


@pytest.fixture(scope="module")
def whole(kept_servers, tmp_path_factory):
    """A tuned suite, run: its folder, and how the run ended."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "suite.toml").write_text(TUNED.replace("steps = 6", "steps = 12"))
    result = api.run(folder / "suite.toml", out=folder / "run", reports=folder / "reports")
    return folder, result


def test_one_command_runs_trials_then_tuned_cells_and_the_same_again_does_nothing(whole):
    folder, result = whole
    assert result.unfinished == []
    frame = load_records(folder / "run")
    assert frame.groupby("experiment").size().to_dict() == {"digits": 9 + 24, "digits-tuned": 9}
    assert frame.groupby("kind").size().to_dict() == {"train": 18, "trial": 24}
    assert set(frame["status"]) == {"done"}
    assert set(frame[frame["kind"] == "trial"]["total"]) == {round(0.2 * len(load_dataset("digits").train))}
    assert set(frame[frame["kind"] == "train"]["total"]) == {len(load_dataset("digits").test)}
    began = []
    plan_before = (folder / "run/plan.json").read_bytes()
    api.run(folder / "suite.toml", out=folder / "run", reports=None, on_start=lambda job, todo: began.append(todo))
    assert began == [[]]
    assert (folder / "run/plan.json").read_bytes() == plan_before


def test_the_report_says_what_the_records_say(whole):
    folder, _ = whole
    frame = load_records(folder / "run")
    plans = {cell.key: cell for cell in Store(folder / "run").plan()[1]}
    lr = {key: cell.schedule.lr for key, cell in plans.items()}
    rows = list(csv.DictReader((folder / "reports/tuning.csv").read_text().splitlines()))
    assert [row["loss"] for row in rows] == ["softmax", "w_softmax", "cosface[s=16.0]"]
    for row in rows:
        trials = frame[(frame["label"] == row["loss"]) & (frame["kind"] == "trial")]
        mine = frame[(frame["label"] == row["loss"]) & (frame["kind"] == "train")].set_index("seed")
        default = mine[mine["experiment"] == "digits"]["accuracy"]
        tuned = mine[mine["experiment"] == "digits-tuned"]["accuracy"]
        assert float(row["default"]) == pytest.approx(default.mean())
        assert float(row["tuned"]) == pytest.approx(tuned.mean())
        assert float(row["delta"]) == pytest.approx((tuned - default).mean())
        if row["trial"] == "1":
            assert (float(row["delta"]), row["low"], row["high"]) == (0.0, "", "")
        half = 4.302652729911275 * (tuned - default).std(ddof=1) / math.sqrt(3)  # t, two degrees of freedom, 97.5 %
        if row["trial"] != "1":
            assert float(row["high"]) - float(row["delta"]) == pytest.approx(half, rel=0.2, abs=0.1)
        scores = trials.groupby("trial")["accuracy"].mean()
        assert len(scores) == int(row["trials"]) == 4
        assert float(row["validation"]) == pytest.approx(scores.max())
        assert scores[int(row["trial"])] == scores.max()
        used = {lr[key] for key in mine[mine["experiment"] == "digits-tuned"]["key"]}
        assert used == {float(row["lr"])}
    summary = (folder / "reports/summary.md").read_text()
    section = summary.partition("## Tuning")[2].partition("\n## ")[0]
    assert "4 trials per point (2 seeds each" in section
    assert "20 % of the training images are held out" in section
    assert "alpha 0.1…2 (log)" in section
    assert "lr=" in section
    for row in rows:
        assert f"{float(row['tuned']):.2f}" in section
        assert f"{float(row['validation']):.2f}" in section
    assert "digits-tuned" in (folder / "reports/appendix.md").read_text().partition("## Against softmax")[2]


def test_the_numbers_of_the_tuning_are_in_report_json_as_its_schema_says(whole):
    import jsonschema

    from lossbench.report.output.schema import json_schema

    folder, _ = whole
    stated = json.loads((folder / "reports/report.json").read_text())
    jsonschema.validate(stated, json_schema())
    assert stated["tuning"]["trials"] == 4
    assert stated["tuning"]["ranges"]["w_softmax"] == {"alpha": "0.1…2 (log)"}
    assert [row["loss"] for row in stated["tuning"]["losses"]] == ["softmax", "w_softmax", "cosface[s=16.0]"]


def test_trials_are_in_no_table_of_losses(whole):
    folder, _ = whole
    results = analyse([folder / "run"])
    assert results.labels == ["softmax", "w_softmax", "cosface[s=16.0]"]
    assert set(results.main["experiment"]) == {"digits", "digits-tuned"}
    assert set(results.main["n"]) == {3}


def test_merging_keeps_trials_and_tuned_cells(whole, tmp_path):
    folder, _ = whole
    done = merge([folder / "run"], tmp_path / "merged")
    assert (done.copied, done.missing) == (len(unique(Store(folder / "run").plan()[1])), 0)
    assert analyse([tmp_path / "merged"]).tuning.equals(analyse([folder / "run"]).tuning)


def test_a_loss_that_only_fails_is_left_out_with_a_sentence_and_the_others_are_tuned(tmp_path):
    write_loss(tmp_path, "broken", "if self.calls > 1: raise RuntimeError('no')")
    text = SMALL.replace('"w_softmax"]', '"broken"]') + "\n[tune]\ntrials = 2\nlr = [0.005, 0.2]\n"
    (tmp_path / "suite.toml").write_text(text)
    said: list[str] = []
    result = api.run(tmp_path / "suite.toml", out=tmp_path / "run", reports=tmp_path / "reports", notify=said.append)
    assert any("not tuned: digits  broken  " in sentence and "M = 8" in sentence for sentence in said)
    frame = load_records(result.folder)
    assert set(frame[frame["experiment"] == "digits-tuned"]["label"]) == {"softmax"}
    row = analyse([result.folder]).tuning.set_index("loss").loc["broken"]
    assert (row["trials"], row["failed"], row["chosen"]) == (2, 2, "")
    assert "2, 2 did not finish" in (tmp_path / "reports/summary.md").read_text()


def test_tuning_waits_for_trials_that_were_killed_and_says_so(tmp_path):
    """Once they are retried, the same command trains what they choose."""
    storm = tmp_path / "storm"
    # Only a trial whose level is high is struck, and not in the preflight, which has two examples.
    kill = (
        f'if len(labels) > 2 and self.level > 1.5 and os.path.exists("{storm}"): os.kill(os.getpid(), signal.SIGKILL)'
    )
    path = write_loss(tmp_path, "mine", kill, constructor="self.level = level if features else 0")
    path.write_text(path.read_text() + 'RANGES = {"level": (1.0, 2.0)}\n')
    (tmp_path / "suite.toml").write_text(SMALL.replace('"w_softmax"]', '"mine"]') + "\n[tune]\ntrials = 4\n")
    told: list[str] = []
    run = partial(api.run, tmp_path / "suite.toml", out=tmp_path / "run", reports=None, notify=told.append)
    storm.touch()
    assert run().unfinished
    frame = load_records(tmp_path / "run")
    lost = frame[frame["status"] != "done"]
    assert [set(lost[name]) for name in ("kind", "status", "cause")] == [{"trial"}, {"failed"}, {"environment"}]
    trials = lost["trial"].nunique()
    assert 0 < trials < 4  # some trials finished, and still nothing is chosen
    words = f"{trials} trial{'s were' if trials > 1 else ' was'} killed or ran out of memory, time or disk"
    said = f"not tuned yet: 1 of 2 losses and points; {words}: run again with --retry-failed"
    assert told == [said]
    assert frame[frame["experiment"] == "digits-tuned"]["label"].unique().tolist() == ["softmax"]
    row = analyse([tmp_path / "run"]).tuning.set_index("loss").loc["mine"]
    assert (row["chosen"], row["failed"], row["left"]) == ("", 0, trials)
    storm.unlink()
    assert run().unfinished and told == [said] * 2
    assert not run(retry_failed=True).unfinished and told == [said] * 2
    frame = load_records(tmp_path / "run")
    assert frame[frame["experiment"] == "digits-tuned"].groupby("label").size().to_dict() == {"mine": 2, "softmax": 2}


def test_diverged_trials_are_answers_and_not_failures_of_a_run(read_suite, tmp_path):
    suite = read_suite(TUNED)
    run = write_run(suite, tmp_path / "run", lambda cell: Truth(status="diverged") if cell.kind == "trial" else Truth())
    from lossbench.cli.screen import show_status

    assert show_status(Store(run)) == 0
    assert analyse([run]).tuning["failed"].tolist() == [4, 4, 4]


def test_verification_is_tuned_on_held_out_classes(tmp_path):
    (tmp_path / "suite.toml").write_text(VERIFIED)
    result = api.run(tmp_path / "suite.toml", out=tmp_path / "run", reports=None)
    frame = load_records(result.folder)
    assert frame.groupby(["experiment", "kind"]).size().to_dict() == {
        ("unseen", "train"): 2,
        ("unseen", "trial"): 4,
        ("unseen-tuned", "train"): 2,
    }
    tuning = analyse([result.folder]).tuning
    assert tuning["classes"].tolist() == [120, 120]
    assert tuning["tuned"].notna().all()


def test_the_command_line_plans_what_follows_refuses_shards_and_shows_ranges(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.toml").write_text(TUNED)

    def shown(*arguments: str) -> str:
        return CliRunner().invoke(cli, arguments, catch_exceptions=False).output

    planned = shown("plan", "suite.toml", "--no-forecast")
    assert "33 of 33 cells to train" in planned
    assert "then 9 tuned cells" in planned
    assert "then 3 tuned cells" in shown("plan", "suite.toml", "--no-forecast", "-l", "w_softmax")
    assert "s: float = 64.0  tuned over 4…64 (log)" in shown("info", "loss", "cosface")
    with pytest.raises(LossbenchError) as refused:
        shown("run", "suite.toml", "--shard", "1/2")
    assert str(refused.value) == "--shard: suite.toml has [tune], and tuned cells need all trials of their loss"


def test_a_range_that_a_loss_refuses_is_found_before_anything_trains(tmp_path):
    (tmp_path / "suite.toml").write_text(TUNED.replace("[0.1, 2.0]", "[-2.0, -0.1]"))
    job = api.prepare(tmp_path / "suite.toml")
    problems = preflight(job.chosen, job.registry, job.data, begin=list)
    assert len(problems) == 3 and all("loss 'w_softmax': alpha must be at least 0" in problem for problem in problems)
