"""Suites that no machine could run, or that say a thing twice, are refused in one sentence within a second."""

from __future__ import annotations

import copy
import json
import random
import time
import tomllib
from pathlib import Path

import pytest
from conftest import SMALL

from lossbench import api
from lossbench.core.errors import LossbenchError, SuiteError
from lossbench.data import data_folder
from lossbench.data.download.supply import Supply
from lossbench.plan.cells import plan
from lossbench.suite.format import MOST_CELLS
from lossbench.suite.reading import read_profiles
from lossbench.suite.source import built_in, open_suite


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


def claim(body: str, text: str = "t") -> str:
    return f'\n[[claim]]\ntext = "{text}"\nexperiment = "digits"\n{body}\n'


BETTER = 'better = "w_softmax"\nthan = "softmax"'
SWEPT = changed('"w_softmax"]', '"center", { name = "w_softmax", alpha = [0.5, 1.0, 1.5] }]').replace(
    "widths = [8]", 'widths = [8, "min", 16]'
)
TUNED = SMALL + "\n[tune]\ntrials = 2\nlr = [0.01, 0.1]\n"
VALUES = list(range(1, 101))
WRONG = {
    "a claim written twice": (
        SMALL + claim(BETTER) + claim(BETTER, "u"),
        ["claim[1]", "'u'", "repeats claim[0]"],
    ),
    "a claim in another spelling": (
        SMALL + claim(BETTER) + claim('better = "w_softmax[alpha=1]"\nthan = "softmax[bias=true]"\nwidth = 8'),
        ["claim[1]", "repeats claim[0]"],
    ),
    "an equivalence turned round": (
        SMALL
        + claim('equivalent = ["softmax", "w_softmax"]')
        + claim('equivalent = ["w_softmax", "softmax"]\nmargin = 0.5'),
        ["claim[1]", "repeats claim[0]"],
    ),
    "a case written twice in a list": (
        SMALL + claim('better = ["w_softmax", "w_softmax[alpha=1.0]"]\nthan = "softmax"'),
        ["claim[0]", "repeats claim[0]"],
    ),
    "the least width by its number": (
        SWEPT.replace("16]", "9]")
        + claim('better = "center"\nthan = "softmax"\nwidth = 9')
        + claim('better = "center"\nthan = "softmax"\nwidth = "min"'),
        ["claim[1]", "repeats claim[0]"],
    ),
    "classes twice": (changed("seeds = 2", "seeds = 2\nclasses = [5, 6, 5]"), ["digits.classes", "5 is listed twice"]),
    "widths twice": (changed("[8]", "[64, 8, 64]"), ["experiment.digits.widths", "64 is listed twice"]),
    "the least width twice": (changed("[8]", '["min", "min"]'), ["experiment.digits.widths", "'min' is listed twice"]),
    "a claim without words": (SMALL + claim(BETTER, ""), ["claim[0].text", "is empty"]),
    "a claim of blanks": (SMALL + claim(BETTER, "  "), ["claim[0].text", "is empty"]),
    "nothing to tune": (TUNED + "experiments = []\n", ["tune.experiments", "at least one item"]),
    "a margin beyond accuracy": (f"margin = 1e300\n{SMALL}", ["margin", "at most 100", "1e+300"]),
    "a claim's margin beyond accuracy": (
        SMALL + claim('equivalent = ["softmax", "w_softmax"]\nmargin = 101.0'),
        ["claim[0].margin", "at most 100 points of 'accuracy', got 101"],
    ),
    "a claim's margin beyond angles": (
        SMALL + claim('metric = "angle"\nequivalent = ["softmax", "w_softmax"]\nmargin = 181.0'),
        ["claim[0].margin", "at most 180 degrees"],
    ),
    "a claim's margin beyond everything": (
        SMALL + claim('metric = "peak_bytes"\nequivalent = ["softmax", "w_softmax"]\nmargin = 1e300'),
        ["claim[0].margin", "at most"],
    ),
    "rounds without end": (SMALL + f"timing = {{ rounds = {10**12} }}\n", ["timing.rounds", "at most 10000"]),
    "rounds as a float": (SMALL + "timing = { rounds = 1e12 }\n", ["timing.rounds", "a whole number"]),
    "timing steps without end": (SMALL + f"timing = {{ steps = {10**9} }}\n", ["timing.steps", "at most 10000"]),
    "one process": (SMALL + "timing = { processes = 1 }\n", ["timing.processes", "at least 2"]),
    "processes without rounds": (
        SMALL + "timing = { rounds = 4, processes = 5 }\n",
        ["experiment.digits.timing.processes", "at most 'rounds', 4, got 5"],
    ),
    "more processes than a profile's rounds": (
        SMALL + "timing = { processes = 5 }\n\n[profile.tiny]\nall = { timing = { rounds = 4 } }\n",
        ["profile.tiny.all.timing.processes", "at most 'rounds', 4, got 5"],
    ),
    "steps without end": (changed("steps = 6", f"steps = {10**9}"), ["schedule.steps", "at most 100,000,000"]),
    "warm steps without end": (
        SMALL + f"warm_start = {{ steps = {10**9} }}\n",
        ["warm_start.steps", "at most 100,000,000"],
    ),
    "a batch without end": (changed("batch = 16", f"batch = {10**9}"), ["schedule.batch", "at most 1,000,000"]),
    "a huge learning rate": (changed("batch = 16", "lr = 1e300"), ["schedule.lr", "at most 1000"]),
    "a huge weight decay": (changed("batch = 16", "weight_decay = 1e300"), ["schedule.weight_decay", "at most 1000"]),
    "a huge tuned learning rate": (
        TUNED.replace("0.1]", "1e300]"),
        ["tune.lr: ", "1e-100 to 1e100", "got [0.01, 1e+300]"],
    ),
    "a large tuned learning rate": (TUNED.replace("0.1]", "2000.0]"), ["tune.lr: ", "at most 1000"]),
    "a range as wide as floats": (
        TUNED + "ranges = { w_softmax = { alpha = [1e-300, 1e300] } }\n",
        ["tune.ranges.w_softmax.alpha", "two numbers that are 0 or from 1e-100 to 1e100"],
    ),
    "more evaluations than steps": (
        changed("batch = 16", "evaluations = 7"),
        ["experiment.digits.schedule.evaluations", "at most 'steps', 6, got 7"],
    ),
    "more evaluations than a profile's steps": (
        changed("batch = 16", "evaluations = 6") + "\n[profile.tiny]\nall = { schedule = { steps = 5 } }\n",
        ["profile.tiny.all.schedule.evaluations", "at most 'steps', 5, got 6"],
    ),
    "a number beyond 64 bits": (f"margin = {2**63}\n{SMALL}", ["margin", "64 bits"]),
    "a number of 5000 hexadecimal digits": (f"margin = 0x{'f' * 5000}\n{SMALL}", ["margin", "64 bits"]),
    "a date": (f"margin = 1979-05-27\n{SMALL}", ["margin", "is a date"]),
    "a NUL": (
        changed('"w_softmax"]', '{ name = "w_softmax", gradient = "exact\\u0000" }]'),
        ["experiment[0].losses[1].gradient", "unprintable character U+0000"],
    ),
    "a terminal escape in a title": (changed("A small suite", "A \\u001b[31msmall"), ["title", "U+001B"]),
    "a line break in a name": (
        changed('dataset = "digits"', 'dataset = "digits\\n"'),
        ["experiment[0].dataset", "U+000A"],
    ),
    "a control character in a key": (f'"a\\u0007" = 1\n{SMALL}', ["the key 'a\\x07'", "U+0007"]),
    "a NUL in a label": (
        changed('"w_softmax"]', "'w_softmax[gradient=\"\\u0000\"]']"),
        ["losses[1].gradient", "unprintable character U+0000"],
    ),
    "a date in a label": (changed('"w_softmax"]', '"w_softmax[alpha=1979-05-27]"]'), ["losses[1].alpha", "is a date"]),
    "a name without end": (changed('dataset = "digits"', f'dataset = "{"d" * 5000}"'), ["5,000 characters", "1,000"]),
    "lists in lists": (f"x = {'[' * 100}{']' * 100}\n{SMALL}", ["x", "nested more than 32"]),
    "a sweep of a hundred million": (
        changed('"w_softmax"]', f'{{ name = "circle", s = {VALUES}, m = {VALUES}, seed = {VALUES}, x = {VALUES} }}]'),
        ["experiment.digits", "200,000,002 cells", "100,000,001 losses", "losses[1]", "100 × 100 × 100 × 100"],
    ),
    "a grid of ten million": (
        changed("seeds = 2", "seeds = 10000").replace("widths = [8]", f"widths = {list(range(1, 501))}"),
        ["10,000,000 cells", "2 losses × 500 widths × 1 classes × 10,000 seeds", "the limit is 1,000,000"],
    ),
    "seeds in a list": (
        changed("seeds = 2", f"seeds = {list(range(1000))}").replace("[8]", f"{list(range(1, 502))}"),
        ["1,002,000 cells", "1,000 seeds"],
    ),
    "too many cells in all": (
        changed("seeds = 2", "seeds = 9000").replace("[8]", f"{list(range(1, 41))}")
        + SMALL.partition('suite"\n')[2]
        .replace('"digits"\ndata', '"more"\ndata')
        .replace("seeds = 2", "seeds = 9000")
        .replace("[8]", f"{list(range(1, 41))}"),
        ["experiment.more", "1,440,000 cells"],
    ),
    "too many trials": (
        TUNED.replace("trials = 2", "trials = 4096\nseeds = 2").replace("[8]", f"{list(range(1, 201))}"),
        ["tune.trials", "3,276,800 trials", "4,096 trials × 2 losses × 200 widths × 2 seeds"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_no_suite_can_mean_is_refused_at_once(case, read_suite):
    text, expected = WRONG[case]
    started = time.process_time()
    with pytest.raises(SuiteError) as refused:
        read_suite(text)
    assert time.process_time() - started < 5
    sentence = str(refused.value)
    assert sentence.startswith("suite.toml") and "\n" not in sentence and len(sentence) < 500
    for part in expected:
        assert part in sentence, sentence


def test_claims_that_differ_in_what_they_test_stand_beside_each_other(read_suite):
    text = SWEPT + "timing = { rounds = 3 }\n"
    for body in (
        'better = "center"\nthan = "softmax"',
        'better = "softmax"\nthan = "center"',
        'not_worse = "center"\nthan = "softmax"',
        'not_worse = "center"\nthan = "softmax"\nmargin = 2.0',
        'better = "center"\nthan = "softmax"\nwidth = 8',
        'better = "center"\nthan = "softmax"\nwidth = "min"',
        'better = "center"\nthan = "softmax"\nmetric = "angle"',
        'better = "center"\nthan = "softmax"\nmetric = "step_seconds"',
        'increases_with = "alpha"\nloss = "w_softmax"',
        'decreases_with = "alpha"\nloss = "w_softmax"',
        'unchanged_with = "alpha"\nloss = "w_softmax"',
        'unchanged_with = "alpha"\nloss = "w_softmax"\nvalues = [0.5, 1.5]',
        'unchanged_with = "width"\nloss = "softmax"',
    ):
        text += claim(body)
    assert len(read_suite(text).info.claims) == 13


@pytest.mark.parametrize("name", sorted(built_in()))
def test_every_built_in_suite_is_read_at_every_profile(name, registry):
    source, supply = open_suite(name), Supply(registry, data_folder(), fetch=False)
    found = read_profiles(
        source.text,
        source.name,
        registry,
        lambda spec: supply.count_classes(spec.name, spec.options),
    )
    assert found.keys() == {None, *tomllib.loads(source.text).get("profile", {})}
    assert all(suite.experiments for suite in found.values())


def test_a_byte_order_mark_is_no_part_of_a_suite_or_plugin(lossbench, tmp_path):
    (tmp_path / "losses").mkdir()
    plugin = (Path(__file__).parents[2] / "losses" / "softmax.py").read_bytes()
    (tmp_path / "losses" / "marked.py").write_bytes(b"\xef\xbb\xbf" + plugin)
    text = changed('"w_softmax"]', '"marked"]')
    (tmp_path / "suite.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    done = lossbench("plan", "suite.toml", "--no-forecast")
    assert done.returncode == 0, done.stderr
    assert "4 of 4 cells to train" in done.stdout
    told = lossbench("info", "suite", "suite.toml")
    assert told.returncode == 0 and "\ufeff" not in told.stdout and 'name = "small"' in told.stdout


def test_twenty_thousand_cells_are_planned_in_seconds(read_suite):
    alphas = [round(0.01 * number, 2) for number in range(1, 40)]
    text = changed('"w_softmax"]', f'{{ name = "w_softmax", alpha = {alphas} }}]')
    text = text.replace("seeds = 2", "seeds = 100").replace("[8]", "[1, 2, 3, 4, 5]")
    started = time.process_time()
    cells = plan(read_suite(text))
    assert len({cell.key for cell in cells}) == 40 * 100 * 5 <= MOST_CELLS
    assert time.process_time() - started < 12  # less than a second on an idle machine


# What a slip of the pen, or another program, may put in the place of any value.
ODD = [
    *(0, -1, 3, 10**6, 10**12, 2**63, 10**400, 0.5, -1.5, 1e300, 1e-300, float("inf"), float("nan"), True, False),
    *("", " ", "x", "softmax", "min", "\x00", "a\nb", "softmax[", "softmax[bias=0xffffffffffffffffffff]", "y" * 9999),
    *([], [1, 1], [[]], ["softmax", "softmax"], list(range(999)), {}, {"a": 1}, {"name": "softmax"}, {"name": 1}),
    *({"name": "w_softmax", "alpha": [[1]]}, {"name": "digits", "train": 10**9}, {"rounds": 10**12}),
]


def places(value, path=()):
    """The paths of everything in a document."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def written(value) -> str:
    """A value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else json.dumps(value)


@pytest.mark.slow
def test_nothing_but_a_sentence_comes_of_any_value_in_any_place(tmp_path):
    """Every place of the quick suite, each with some odd values: refused or planned, never anything else."""
    document = tomllib.loads(built_in()["quick"].read_text())
    draw, path = random.Random(0), tmp_path / "suite.toml"
    refused = 0
    for place in places(document):
        for value in draw.sample(ODD, 3):
            broken = copy.deepcopy(document)
            parent = broken
            for key in place[:-1]:
                parent = parent[key]
            parent[place[-1]] = value
            path.write_text("\n".join(f"{json.dumps(key)} = {written(item)}" for key, item in broken.items()))
            try:
                api.prepare(path)
            except LossbenchError as error:
                assert all(0 < len(line) < 1500 for line in str(error).split("\n")), (place, value)
                refused += 1
    assert refused > 200
