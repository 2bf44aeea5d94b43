"""One comparison, one verdict: wherever a comparison appears, over random suites and records.

The same comparison is the same metric, points and two losses, in either order. It is in the table, in claims and in the
pairs of the heat map; the files for programs state all of them again.
"""

from __future__ import annotations

import io
import itertools
import json
import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from conftest import SMALL
from kit.claims import claim
from kit.synthetic import Truth, analysed, write_run

from lossbench import stats
from lossbench.analysis import series
from lossbench.analysis.claim_tests import asked
from lossbench.analysis.results import analyse
from lossbench.analysis.verdicts import FLAGS

LOSSES = ("softmax", "w_softmax", "center", "hinge")
TURNED = {"better": "worse", "worse": "better"}
CASES = range(24)


class Case(NamedTuple):
    text: str  # of the suite
    truth: Any
    total: int  # test examples
    bits: bool  # whether they are written, so that their noise counts


def drawn(seed: int) -> Case:
    """A random suite with claims, and records in which all kinds of things go wrong."""
    rng = np.random.default_rng(seed)
    seeds, total = int(rng.integers(2, 8)), int(rng.choice([100, 1000, 10_000]))
    widths = [[8], [4, 8], [4, 8, 16]][rng.integers(3)]
    margin = float(rng.choice([0.1, 0.5, 2.0]))
    text = SMALL.replace('"w_softmax"]', '"w_softmax", "center", "hinge"]').replace("[8]", str(widths))
    text = text.replace("seeds = 2", f"seeds = {seeds}\ntiming = {{ rounds = 10 }}")
    text = text.replace('title = "A small suite"', f"margin = {margin}")
    text += "".join(claim(body) for body in rng.choice(list(_claims(widths)), size=6, replace=False))
    gains = dict(zip(LOSSES, rng.normal(0, rng.choice([0.05, 1.0]), 4), strict=True))
    spread, shared = float(rng.choice([0.0, 0.05, 0.5])), float(rng.choice([0.0, 1.0]))
    broken = {name: float(rng.choice([0.0, 0.0, 0.1, 0.5])) for name in LOSSES}
    lost = rng.choice(LOSSES) if rng.random() < 0.3 else ""  # a loss that learns nothing
    height, slope = float(rng.choice([30.0, 90.0])), float(rng.choice([0.0, 0.5]))

    def truth(cell):
        mine = np.random.default_rng([seed, cell.seed, cell.width, *cell.loss.name.encode()])
        if mine.random() < broken[cell.loss.name]:
            return Truth(status="diverged") if mine.random() < 0.5 else None
        common = shared * np.random.default_rng([seed, cell.seed]).normal()
        accuracy = height + common + gains[cell.loss.name] + slope * math.log2(cell.width) + spread * mine.normal()
        accuracy = 10 + mine.normal() if cell.loss.name == lost else accuracy
        bits = mine.permutation(total) < round(total * accuracy / 100)
        falls = tuple({"step": step, "loss": 2 - 0.05 * step * (height < 50)} for step in range(1, 21))
        return Truth(accuracy, angle=40 + gains[cell.loss.name] + mine.normal(), bits=bits, curve=falls)

    return Case(text, truth, total, bits=seed % 4 == 0)


def _claims(widths):
    """Claims that may be stated together; none means the same as another."""
    for a, b in itertools.permutations(LOSSES[:3], 2):
        yield f'better = "{a}"\nthan = "{b}"'
        yield f'not_worse = "{a}"\nthan = "{b}"\nmargin = 0.3'
        yield f'metric = "angle"\nbetter = "{a}"\nthan = "{b}"'
        yield f'metric = "step_seconds"\nnot_worse = "{a}"\nthan = "{b}"\nmargin = 3.0'
        if len(widths) > 1:
            yield f'better = "{a}"\nthan = "{b}"\nwidth = {widths[0]}'
    for a, b in itertools.combinations(LOSSES[:3], 2):
        yield f'equivalent = ["{b}", "{a}"]\nwidth = {widths[-1]}\nfamily = "other"'
        yield f'equivalent = ["{a}", "{b}"]\nmargin = 1.0'
        yield f'metric = "step_seconds"\nequivalent = ["{a}", "{b}"]\nmargin = 1.0'
    if len(widths) == 3:
        for loss in LOSSES:
            yield f'increases_with = "width"\nloss = "{loss}"'
            yield f'unchanged_with = "width"\nloss = "{loss}"'


@pytest.fixture(scope="module")
def studies(read_suite, tmp_path_factory):
    """The results of every case."""

    def made(case):
        suite, times = read_suite(case.text), {"w_softmax": 1.005, "center": 1.02}
        if not case.bits:
            return analysed(suite, case.truth, total=case.total, times=times)
        return analyse([write_run(suite, tmp_path_factory.mktemp("run"), case.truth, total=case.total, times=times)])

    return {number: made(drawn(number)) for number in CASES}


@pytest.fixture(params=CASES)
def results(request, studies):
    return studies[request.param]


class Seen(NamedTuple):
    """A comparison as it appears somewhere, as one loss minus the other in the order of their names."""

    where: str
    n: int
    low: float
    high: float
    level: float
    verdict: str | None


def seen(where: str, row: Any, turned: bool, verdict: str | None) -> Seen:
    ends = (-row["high"], -row["low"]) if turned else (row["low"], row["high"])
    return Seen(where, int(row["n"]), *ends, row["level"], TURNED.get(verdict, verdict) if turned else verdict)


def in_percent(results, metric, row):
    """A row whose interval can be turned round: of times in percent, that of their logarithms."""
    if results.metrics[metric].source != "rounds":
        return row
    return dict(row) | {end: math.log1p(row[end] / 100) for end in ("low", "high")}


def appearances(results):
    """By metric, points and losses: all that is stated about a comparison."""
    found: dict[Any, list[Seen]] = {}

    def add(where, metric, points, a, b, row, verdict):
        key = metric, frozenset(points), frozenset((a, b))
        found.setdefault(key, []).append(seen(where, in_percent(results, metric, row), a > b, verdict))

    for row in results.comparisons.to_dict("records"):
        add("table", row["metric"], [row["point"]], row["loss"], row["baseline"], row, row["verdict"])
    for at in ({}, {"dataset": "digits"}, *({"width": width} for width in {p["width"] for p in results.points})):
        for row in series.pairs(results, "digits", at).to_dict("records"):
            add(f"pairs {at}", results.headline.name, row["points"], row["a"], row["b"], row, row["verdict"])
    for stated, row in zip(results.info.claims, results.claims.to_dict("records"), strict=True):
        if stated.along is None:
            question = asked(results, stated)
            add("claim", stated.metric, question.where, question.a, question.b, row, None)
    return found


def inside(low, high, margin) -> bool:
    return -margin < low <= high < margin or low == high == 0


def test_a_comparison_has_one_interval_and_one_verdict_wherever_it_appears(results):
    for key, (first, *others) in appearances(results).items():
        for other in others:
            same = (first.n, first.level, first.low, first.high)
            assert same == pytest.approx((other.n, other.level, other.low, other.high), nan_ok=True), (
                key,
                first,
                other,
            )
        assert len({one.verdict for one in (first, *others) if one.verdict}) <= 1, (key, first, others)


def test_the_verdict_is_that_of_the_interval_beside_it(results):
    frames = [results.comparisons, series.pairs(results, "digits").assign(metric=results.headline.name)]
    for row in itertools.chain.from_iterable(frame.to_dict("records") for frame in frames):
        sign, margin = results.metrics[row["metric"]].sign, results.margin(row["metric"])
        low, high = (row["low"], row["high"]) if sign > 0 else (-row["high"], -row["low"])
        within = inside(low, high, margin)
        match row["verdict"]:
            case "better":
                assert low > 0 and not within, row
            case "worse":
                assert high < 0 and not within, row
            case "equivalent":
                assert within, row
            case "undecided":
                assert row["n"] < 3 or (low <= 0 <= high and not within), row
            case word:
                assert word == "not testable" and (row["n"] == 0 or "at chance" in row["flags"]), row
        if row["n"] < 3:
            assert math.isnan(low) and row["verdict"] in ("undecided", "not testable")


def expected(stated, row, sign, margin) -> str:
    """The verdict of a claim about two losses by what `claim_tests` says of its form."""
    low, high = (row["low"], row["high"]) if sign > 0 else (-row["high"], -row["low"])
    if row["n"] < 3:
        return "undecided" if row["n"] else "not testable"
    if stated.better:
        right, wrong = low > 0 and not inside(low, high, margin), high < 0 or inside(low, high, margin)
    elif stated.not_worse:
        right, wrong = low > -margin, high < -margin
    else:
        right, wrong = inside(low, high, margin), low > margin or high < -margin
    return "supported" if right else "contradicted" if wrong else "undecided"


def test_claims_agree_with_the_interval_beside_them(results):
    for stated, row in zip(results.info.claims, results.claims.to_dict("records"), strict=True):
        sign = results.metrics[stated.metric].sign
        margin = stated.margin or results.margin(stated.metric)
        if "at chance" in row["flags"]:
            assert row["verdict"] == "not testable"
        elif stated.along is None:
            assert row["verdict"] == unless_undertrained(expected(stated, row, sign, margin), row), row
        elif row["n"] >= 3 and not math.isnan(row["low"]):
            if stated.unchanged_with:
                outside = row["low"] > margin or row["high"] < -margin
                within = inside(row["low"], row["high"], margin)
                word = "supported" if within else "contradicted" if outside else "undecided"
                assert row["verdict"] == unless_undertrained(word, row), row
            else:
                assert row["verdict"] != "supported" or row["low"] > 0, row
                assert row["verdict"] == unless_undertrained("contradicted", row) or row["high"] >= 0, row


def unless_undertrained(word, row):
    """Undertrained networks cannot contradict a claim."""
    return "not testable" if word == "contradicted" and "undertrained" in row["flags"] else word


def test_p_values_flags_and_plans_agree_with_the_verdict(results):
    for frame in (results.comparisons, results.claims):
        for row in frame.to_dict("records"):
            if not math.isnan(row["p"]) and row["low"] != row["high"]:
                excluded = row["low"] > 0 or row["high"] < 0
                assert (row["p"] < row["level"]) == excluded or row["p"] == pytest.approx(row["level"]), row
                assert row["p_adjusted"] == pytest.approx(min(1, row["p"] * stats.LEVEL / row["level"]))
            if row["verdict"] != "undecided" or row["n"] < 5:
                assert pd.isna(row["seeds_needed"]), row
            elif not pd.isna(row["seeds_needed"]) and not pd.isna(row["seeds_needed_high"]):
                assert row["n"] < row["seeds_needed"] <= row["seeds_needed_high"]
            if row["verdict"] in ("undecided", "not testable"):
                assert "one seed decides" not in row["flags"]


def test_the_level_is_shared_by_the_testable_comparisons_of_a_family(results):
    for family, group in results.comparisons.groupby("family"):
        counted = ((group["n"] >= 3) & (group["verdict"] != "not testable")).sum()
        if not family.startswith("claims"):
            assert set(group["level"]) == {stats.LEVEL / max(counted, 1)}
        assert (group["level"] <= stats.LEVEL / max(counted, 1) * (1 + 1e-12)).all()


@pytest.fixture
def files(results):
    from lossbench.report.output import data

    return data.files(results, [])


def test_files_state_the_same_verdicts(results, files):
    stated = json.loads(files["report.json"])
    for name in ("comparisons", "claims"):
        frame = getattr(results, name)
        csv = pd.read_csv(io.BytesIO(files[f"{name}.csv"]), keep_default_na=False)
        assert list(csv["verdict"]) == list(frame["verdict"])
        assert [row["verdict"] for row in stated[name]] == list(frame["verdict"])
        assert list(csv["flags"]) == [row["flags"] for row in stated[name]] == list(frame["flags"])
        for end in ("low", "high", "level"):
            written = pd.to_numeric(csv[end]).to_numpy()
            assert written == pytest.approx(frame[end].to_numpy(dtype=float), nan_ok=True)
            kept = np.array([math.nan if row[end] is None else row[end] for row in stated[name]])
            assert kept == pytest.approx(frame[end].to_numpy(dtype=float), nan_ok=True)


def test_the_random_records_have_every_verdict_and_flag(studies):
    """Or the tests above would say little."""
    tables = pd.concat(results.comparisons for results in studies.values())
    claims = pd.concat(results.claims for results in studies.values())
    assert set(tables["verdict"]) == {"better", "worse", "equivalent", "undecided", "not testable"}
    assert set(claims["verdict"]) == {"supported", "contradicted", "undecided", "not testable"}
    assert {flag for flags in tables["flags"] for flag in flags.split("; ")} >= set(FLAGS)
    assert (tables["test_se"] > 0).any()
    shared = [len(many) for results in studies.values() for many in appearances(results).values()]
    assert sum(count > 1 for count in shared) > 100
