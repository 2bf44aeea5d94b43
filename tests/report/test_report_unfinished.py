"""A report can be written at any time: while trials are unfinished, and of runs that another lossbench made."""

from __future__ import annotations

import json
from hashlib import sha256

import numpy as np
import pytest
from conftest import SMALL
from kit.suites import TUNED
from kit.synthetic import Truth, analysed, noise, write_run

from lossbench.analysis import series
from lossbench.analysis.results import analyse
from lossbench.core.errors import StoreError
from lossbench.plan.cells import plan
from lossbench.report.blocks import Table
from lossbench.report.figures import step_time_forest
from lossbench.report.output.data import stated
from lossbench.report.sections import SECTIONS
from lossbench.report.sections.cost import cost
from lossbench.report.sections.overview import validity
from lossbench.store.records import Store

STAGES = {
    "nothing": lambda cell: False,
    "the losses as written": lambda cell: cell.kind == "train",
    "one trial": lambda cell: cell.trial == 1,
    "some losses": lambda cell: cell.kind == "train" or cell.loss.label == "softmax",
    "all but one trial": lambda cell: (cell.loss.label, cell.trial) != ("w_softmax", 2),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_report_can_be_written_while_trials_are_unfinished(read_suite, stage):
    found = analysed(read_suite(TUNED), lambda cell: Truth(90 + noise(cell, 1)) if STAGES[stage](cell) else None)
    parts = {section.slug: section for section in (build(found) for build in SECTIONS)}
    losses = {row["loss"]: row for row in stated(found, list(parts.values()))["tuning"]["losses"]}
    assert losses["w_softmax"]["lr"] is None
    assert losses["w_softmax"]["left"] > 0
    (table,) = (block for block in parts["tuning"].blocks if isinstance(block, Table))
    assert "not run" in " ".join(table.rows[1])


# ---- records and plans that another lossbench made, or that do not say what they should ------------------------------


@pytest.fixture
def folder(tmp_path, read_suite):
    """A run of two losses and three seeds, all done."""
    suite = read_suite(SMALL.replace("seeds = 2", "seeds = 3\ntiming = { rounds = 5 }"))
    return write_run(suite, tmp_path / "runs" / "small", lambda cell: Truth(90 + noise(cell, 1)), total=200)


def rewrite(folder, change, kind="train"):
    """Change the first record of a kind and sign it again, as a program that knows the format would."""
    store = Store(folder)
    key = next(cell.key for cell in store.plan()[1] if cell.kind == kind)
    record = json.loads((store.cells / key / "record.json").read_text())
    del record["checksum"]
    change(record)
    body = json.dumps(record, indent=1).encode().removesuffix(b"\n}")
    signed = body + b',\n "checksum": ' + f'"{sha256(body).hexdigest()}"\n}}'.encode()
    (store.cells / key / "record.json").write_bytes(signed)
    return key


def without(name):
    return lambda record: record.pop(name)


def with_(**values):
    return lambda record: record.update(values)


UNSOUND = {
    "a newer version": (with_(version=2), "has version 2, and this lossbench reads version 1"),
    "no version": (without("version"), "has no version, and this lossbench reads version 1"),
    "a version in words": (with_(version="new"), "has version 'new', and this lossbench reads version 1"),
    "a newer version with other fields": (lambda record: (record.clear(), record.update(version=9)), "has version 9"),
    **{f"no {name}": (without(name), f"'{name}' is missing") for name in (
        "status", "error", "correct", "accuracy", "seconds", "bytes", "angles", "geometry", "verification", "curve",
        "rounds", "features", "timing", "flags", "environment", "plan", "cell", "files", "key",
    )},
    "a status that is none": (with_(status="fine"), "'status'"),
    "an accuracy in words": (with_(accuracy="high"), "'accuracy'"),
    "angles in words": (with_(angles={"train": ["wide"], "test": []}), "'angles.train.0'"),
    "a curve without losses": (with_(curve=[{"step": 1}]), "'curve.0.loss' is missing"),
    "a geometry without a key": (with_(geometry={}), "'geometry.weight_angle' is missing"),
    "a verification without a key": (with_(verification={"auc": {"value": 0.5}}), "'eer' is missing"),
    "a fingerprint that is a list": (with_(environment={"fingerprint": []}), "'environment.fingerprint'"),
    "flags in one word": (with_(flags="collapsed"), "'flags'"),
    "another accuracy": (with_(accuracy=99.9), "its accuracy (99.9) is not"),
    "an accuracy of nothing": (with_(correct=None, total=None), "'correct' or 'total' is missing"),
    "more correct than there are": (with_(correct=201, accuracy=100.5), "its accuracy (100.5) is not 201 of 200"),
    "other bits": (with_(correct=100, accuracy=50.0), "its record 100 of 200"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSOUND)
def test_a_signed_record_that_is_not_sound_is_left_out_with_the_reason(folder, case):
    change, reason = UNSOUND[case]
    key = rewrite(folder, change)
    sound, damaged = Store(folder).scan()
    assert key not in sound
    assert list(damaged) == [key]
    assert reason in damaged[key]
    assert Store(folder).read(key) is None
    results = analyse([folder])
    assert results.damaged == damaged
    assert results.statuses == {"done": 6, "missing": 1}


UNSOUND_TIMES = {
    "a loss that was not timed": (lambda record: record["rounds"].update(hinge=[1.0] * 5), "not a loss of the cell"),
    "rounds of another number": (lambda record: record["rounds"].update(softmax=[1.0] * 4), "number of rounds"),
    "a time of zero": (lambda record: record["rounds"].update(softmax=[0.0] * 5), "'rounds.softmax.0'"),
    "rounds of unknown processes": (
        lambda record: record["timing"].update(process=[0, 0, 0, 1]),
        "'timing.process' does not have one entry per round",
    ),
    "a process that is no number": (
        lambda record: record["timing"].update(process=["first"] * 5),
        "'timing.process.0'",
    ),
    "no rounds of a phase": (
        lambda record: record["timing"]["phases"]["softmax"].update(forward=[]),
        "'timing.phases.softmax.forward'",
    ),
}


@pytest.mark.parametrize("case", UNSOUND_TIMES)
def test_a_signed_timing_record_that_is_not_sound_is_left_out_too(folder, case):
    change, reason = UNSOUND_TIMES[case]
    key = rewrite(folder, change, kind="timing")
    assert reason in Store(folder).scan()[1][key]
    assert analyse([folder]).phases.empty


def older(record):
    """As it was when all rounds of a timing cell were of one process."""
    del record["timing"]["process"], record["plan"]["timing"]["processes"]


def test_an_older_timing_record_gives_ratios_without_intervals(folder):
    rewrite(folder, older, kind="timing")
    results = analyse([folder])
    assert results.damaged == {}
    (row,) = results.comparisons[results.comparisons["metric"] == "step_seconds"].to_dict("records")
    (cell,) = results.timed
    ratio = np.exp(np.mean(np.log(cell.rounds["w_softmax"]) - np.log(cell.rounds["softmax"])))
    assert (row["n"], row["delta"]) == (1, pytest.approx(100 * (ratio - 1)))
    assert np.isnan([row["low"], row["high"], row["p"]]).all() and row["verdict"] == "undecided"
    (table,) = [block for block in cost(results).blocks if isinstance(block, Table) and "processes" in block.columns]
    shown = dict(zip(table.columns, table.rows[1], strict=True))
    assert shown["step time / softmax [interval]"] == f"{ratio:.3f}"
    assert (shown["rounds"], shown["processes"]) == ("5", "1")
    assert step_time_forest(results) is None  # it shows intervals
    front = series.front(results, "digits").set_index("loss")
    assert front.loc["w_softmax", "ratio"] == pytest.approx(ratio) and np.isnan(front.loc["w_softmax", "ratio_low"])
    assert list(front.loc["softmax", ["ratio", "ratio_low", "ratio_high"]]) == [1, 1, 1]


def test_a_claim_on_older_timing_records_is_undecided(read_suite, tmp_path):
    claim = '\n[[claim]]\ntext = "t"\nexperiment = "digits"\nmetric = "step_seconds"\n'
    sides = ('better = "w_softmax"\nthan = "softmax"', 'equivalent = ["w_softmax", "softmax"]\nmargin = 5.0')
    suite = read_suite(SMALL + "timing = { rounds = 5 }\n" + "".join(claim + side for side in sides))
    folder = write_run(suite, tmp_path / "run", lambda cell: Truth(90.0))
    rewrite(folder, older, kind="timing")
    claims = analyse([folder]).claims
    assert list(claims["verdict"]) == ["undecided"] * 2
    assert set(claims["evidence"]) == {"n = 1: at least 3 are needed"}
    assert claims["seeds_needed"].isna().all()


def test_a_report_names_what_was_left_out_and_why(folder):
    key = rewrite(folder, with_(version=2))
    rewrite(folder, without("rounds"), kind="timing")
    results = analyse([folder])
    assert len(stated(results, [])["damaged"]) == 2
    texts = [block.text for block in validity(results).blocks]
    assert any(text.startswith(f"Excluded as damaged: {key}: record.json has version 2") for text in texts)


@pytest.mark.slow  # tests/store has the quick ones
def test_a_record_of_another_version_is_set_aside_and_trained_again(folder, tmp_path, lossbench):
    (tmp_path / "suite.toml").write_text(SMALL.replace("seeds = 2", "seeds = 3\ntiming = { rounds = 5 }"))
    key = rewrite(folder, with_(version=2))
    ran = lossbench("run", "suite.toml", "-q")
    assert ran.returncode == 0, ran.stderr
    assert f"{key}: record.json has version 2, and this lossbench reads version 1" in ran.stderr
    assert "set aside as" in ran.stderr
    assert Store(folder).read(key)["status"] == "done"
    assert [path.name.partition("-")[0] for path in (folder / "set_aside").iterdir()] == [key]


@pytest.mark.parametrize("version", [2, None, "new"])
def test_a_plan_of_another_version_is_refused_in_a_sentence(folder, version):
    written = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(written | {"version": version}))
    with pytest.raises(StoreError, match="reads version 1; use the lossbench that wrote it, or run the suite again"):
        analyse([folder])


@pytest.mark.parametrize("content", ["[]", "{}", '"plan"', '{"version": 1, "suite": [], "cells": 3}'])
def test_a_plan_that_is_none_is_refused_in_a_sentence(folder, content):
    (folder / "plan.json").write_text(content)
    with pytest.raises(StoreError, match="run the suite again with the same --out"):
        analyse([folder])


def test_a_plan_that_cannot_be_read_is_kept_aside_when_a_new_one_is_written(folder, read_suite):
    (folder / "plan.json").write_text('{"version": 7}')
    suite = read_suite(SMALL)
    Store(folder).prepare(suite, plan(suite))
    (kept,) = (folder / "set_aside").iterdir()
    assert kept.read_text() == '{"version": 7}'
    assert len(Store(folder).plan()[1]) == 4
