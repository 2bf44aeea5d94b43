"""Two runs side by side: what an edit changed, and what continuous integration may fail on."""

from __future__ import annotations

import signal
import sys

import pytest
import scipy.stats
from conftest import SMALL
from kit.synthetic import ENVIRONMENT, Truth, common, noise, write_run

from lossbench.analysis.compare import compare
from lossbench.cli import main
from lossbench.core.errors import StoreError

SUITE = SMALL.replace("seeds = 2", "seeds = 8").replace('"w_softmax"]', '"w_softmax", "center"]')


def before(cell):
    return Truth(90 + common(cell.seed) + noise(cell, 0.05))


def changed(name, gain, spread=0.1):
    """The same run, but one loss is better by `gain`."""

    def truth(cell):
        extra = gain + 10 * noise(cell, spread / 10) if cell.loss.name == name else 0
        return Truth(90 + common(cell.seed) + noise(cell, 0.05) + extra)

    return truth


@pytest.fixture
def runs(tmp_path, read_suite):
    suite = read_suite(SUITE)

    def make(after, earlier=before):
        return (
            write_run(suite, tmp_path / "before", earlier),
            write_run(suite, tmp_path / "after", after),
        )

    return make


def row(found, loss):
    return found.frame[(found.frame["loss"] == loss) & (found.frame["metric"] == "accuracy")].iloc[0]


@pytest.mark.parametrize(
    ("gain", "verdict", "change"),
    [
        (-3, "worse", "worse"),
        (3, "better", "better"),
        (0, "equivalent", "none"),
        (-0.2, "equivalent", "none"),
    ],
)
def test_a_loss_is_judged_against_itself(gain, verdict, change, runs):
    found = compare(*runs(changed("w_softmax", gain)))
    assert (row(found, "w_softmax")["verdict"], row(found, "w_softmax")["change"]) == (verdict, change)
    assert row(found, "softmax")["change"] == "none"
    assert row(found, "softmax")["delta"] == 0
    assert len(found.failing("worse")) == (change == "worse")
    assert len(found.failing("different")) == (gain != 0)  # of any size


def test_the_difference_is_after_minus_before_paired_by_seed(runs):
    folders = runs(changed("w_softmax", 1.0))
    found = row(compare(*folders), "w_softmax")
    from lossbench.store.records import load_records

    values = [load_records(folder).query("label == 'w_softmax'").set_index("seed")["accuracy"] for folder in folders]
    half = scipy.stats.t.ppf(1 - found["level"] / 2, 7) * scipy.stats.sem((values[1] - values[0]).astype(float))
    assert found["delta"] == pytest.approx((values[1] - values[0]).mean())
    assert found["level"] == 0.05 / 3  # of three losses
    assert found["high"] - found["delta"] >= half  # and the noise of the test examples
    assert found["high"] - found["delta"] == pytest.approx(found["delta"] - found["low"])
    assert (found["before"], found["after"]) == pytest.approx((values[0].mean(), values[1].mean()))
    assert found["n"] == 8


def test_cells_that_now_fail_are_worse_whatever_the_others_say(runs):
    def failing(cell):
        return Truth(status="diverged") if cell.loss.name == "center" and cell.seed == 3 else before(cell)

    found = compare(*runs(failing))
    assert (row(found, "center")["failed_before"], row(found, "center")["failed_after"]) == (0, 1)
    assert row(found, "center")["change"] == "worse"
    assert row(found, "center")["n"] == 7


def test_a_loss_that_fails_altogether_is_worse(runs):
    def failing(cell):
        return Truth(status="failed") if cell.loss.name == "center" else before(cell)

    found = compare(*runs(failing))
    assert row(found, "center")["change"] == "worse"
    assert row(found, "center")["n"] == 0


def test_a_cell_that_fails_no_longer_is_no_fault(runs):
    def failing(cell):
        return Truth(status="diverged") if cell.loss.name == "center" and cell.seed == 3 else before(cell)

    assert len(compare(*runs(before, failing)).failing("worse")) == 0


def test_what_only_one_run_has_and_other_environments_are_told(tmp_path, read_suite):
    first = write_run(read_suite(SUITE), tmp_path / "a", before)

    def elsewhere(cell):
        found = before(cell)
        found.environment = {**ENVIRONMENT, "fingerprint": "other"}
        return found

    second = write_run(read_suite(SUITE.replace('"center"', '"hinge"')), tmp_path / "b", elsewhere)
    found = compare(first, second)
    assert found.only_before == ["digits: center (digits, cnn[channels=4,depths=(1)], C = 10, M = 8)"]
    assert found.only_after == ["digits: hinge (digits, cnn[channels=4,depths=(1)], C = 10, M = 8)"]
    assert any("environments differ" in note for note in found.notes)


def test_runs_without_anything_in_common_are_refused(tmp_path, read_suite):
    first = write_run(read_suite(SUITE), tmp_path / "a", before)
    other = read_suite(SUITE.replace('name = "digits"\ndata', 'name = "other"\ndata'))
    with pytest.raises(StoreError, match="nothing to compare"):
        compare(first, write_run(other, tmp_path / "b", before))


def test_two_seeds_decide_nothing(tmp_path, read_suite):
    suite = read_suite(SMALL)
    folders = [write_run(suite, tmp_path / "a", before), write_run(suite, tmp_path / "b", changed("w_softmax", -9))]
    assert set(compare(*folders).frame["verdict"]) == {"undecided"}


@pytest.fixture
def lossbench(monkeypatch, capfd, tmp_path):
    """The command line in this process: exit code, output, errors."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["lossbench", *map(str, arguments)])
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        with pytest.raises(SystemExit) as ended:
            main()
        said = capfd.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def test_the_command_fails_where_it_is_asked_to(runs, lossbench):
    worse = runs(changed("w_softmax", -3))
    code, out, _ = lossbench("compare", *worse)
    assert code == 0
    assert "w_softmax" in out
    assert "worse" in out
    code, _, said = lossbench("compare", *worse, "--fail-on", "worse")
    assert code == 1
    assert said.startswith("worse: digits  w_softmax  accuracy")
    assert lossbench("compare", worse[0], worse[0], "--fail-on", "worse")[0] == 0
    assert lossbench("compare", worse[0], "nowhere")[0] == 2


def test_the_report_is_checked_byte_by_byte(tmp_path, read_suite, lossbench):
    folder = write_run(read_suite(SMALL), tmp_path / "run", before)
    assert lossbench("report", folder, "--reports", "r")[0] == 0
    assert lossbench("report", folder, "--reports", "r", "--check")[::2] == (0, "")
    page = tmp_path / "r" / "summary.md"
    page.write_text(page.read_text().replace("softmax", "softmix", 1))
    assert lossbench("report", folder, "--reports", "r", "--check")[::2] == (1, "r/summary.md: differs\n")
    assert "softmix" in page.read_text()  # a check writes nothing
