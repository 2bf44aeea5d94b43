"""All mistakes of a suite are reported at once: each in one sentence, each once, in the order of the file."""

from __future__ import annotations

import pickle
import random
import re

import pytest
from kit.commands import invoke

from lossbench.core.errors import MOST_MISTAKES, SuiteError
from lossbench.suite.overrides import parse_set
from lossbench.suite.reading import read_profiles

# A place for a mistake is written <right|wrong|the path and words of its sentence>.
TEMPLATE = """
name = <"many"|"ma ny"|name: must be made of>
margin = <0.5|0|margin: must be greater than 0>
title = <"t"|1|title: must be text>
auto = ["one", <"two"|"too"|auto[1]: no such profile 'too'; did you mean 'two'?>]

[defaults]
dataset = <"digits"|"digit"|defaults.dataset: unknown dataset 'digit'>
backbone.name = "cnn"
backbone.channels = <4|"x"|defaults.backbone.channels: >
backbone.depths = <[1]|0.5|defaults.backbone.depths: >
seeds = <3|0|defaults.seeds: must be at least 1>
schedule = { steps = <6|"six"|defaults.schedule.steps: >, batch = 8, <lr|rl|defaults.schedule.rl: unknown key> = 0.1 }
<threads|treads|defaults.treads: unknown key 'treads'; did you mean 'threads'?> = 1

[[experiment]]
name = "a"
widths = [8, <9|0|experiment.a.widths[1]: must be at least 1>]
losses = [
  "softmax",
  <"w_softmax"|"w_sofmax"|experiment.a.losses[1]: unknown loss>,
  { name = "arcface", s = <8.0|"x"|experiment.a.losses[2].s: >, m = <0.5|"y"|experiment.a.losses[2].m: > },
]
published = { values = { softmax = <90.0|900.0|experiment.a.published.values.softmax: must be at most 100> } }

[[experiment]]
name = "b"
widths = <[8]|8|experiment.b.widths: must be a list>
losses = [
  "softmax",
  { name = "w_softmax", alpha = <[1.0, 2.0, 3.0]|[]|experiment.b.losses[1].alpha: is an empty list> },
]
seeds = [0, 1, 2, <3|2|experiment.b.seeds: 2 is listed twice>]
warm_start = { loss = <"softmax"|"sofmax"|experiment.b.warm_start.loss: unknown loss>, steps = 3 }

[[experiment]]
name = "good"
widths = [8]
losses = ["softmax", "w_softmax"]

[[claim]]
text = "the first"
experiment = "a"
better = "w_softmax"
than = "softmax"

[[claim]]
text = "the second"
experiment = <"good"|"goood"|claim[1].experiment: no such experiment 'goood'; did you mean 'good'?>
better = "w_softmax"
than = "softmax"

[[claim]]
text = "the third"
experiment = "good"
better = <"softmax"|"nothing"|claim[2].better: unknown loss 'nothing'>
than = "w_softmax"

[[claim]]
text = "the fourth"
experiment = "good-tuned"
equivalent = <["softmax", "w_softmax"]|["softmax"]|claim[3].equivalent: must be a list of at least 2>

[[claim]]
text = "along alpha"
experiment = "b"
<increases_with|increase_with|claim[4].increase_with: unknown key> = "alpha"
loss = "w_softmax"

[tune]
trials = <3|1|tune.trials: must be at least 2>
experiments = ["good"]
lr = [0.01, 0.1]

[profile.one]
all = { seeds = <2|"two"|profile.one.all.seeds: must be> }
experiment.a = { widths = <[4]|["mni"]|profile.one.experiment.a.widths[0]: > }

[profile.two]
skip = [<"a"|"aa"|profile.two.skip[0]: no such experiment 'aa'>]
note = <"n"|5|profile.two.note: must be text>
"""
SLOT = re.compile(r"<([^|<>]*)\|([^|<>]*)\|([^|<>]*)>")
SLOTS = SLOT.findall(TEMPLATE)


def written(wrong):
    """The suite with the mistakes in these slots."""
    chosen = iter(range(len(SLOTS)))
    return SLOT.sub(lambda found: found[2] if next(chosen) in wrong else found[1], TEMPLATE)


@pytest.fixture
def mistakes(registry):
    def mistakes(text):
        try:
            read_profiles(text, "suite.toml", registry, lambda _: 10)
        except SuiteError as error:
            return list(error.mistakes)
        return []

    return mistakes


def expected(wrong):
    """The sentences, without those about what cannot be understood because of another mistake."""
    sentences = [SLOTS[slot][2] for slot in sorted(wrong)]
    hidden = []
    if any(sentence.startswith("defaults.") for sentence in sentences):
        hidden.append("claim[2].better")  # is about an experiment with a mistake
    if any(sentence.startswith("profile.two.note") for sentence in sentences):
        hidden.append("profile.two.skip")  # is in a profile that is not understood
    return [sentence for sentence in sentences if not sentence.startswith(tuple(hidden))]


def same(found, wanted):
    return len(found) == len(wanted) and all(
        one.startswith(f"suite.toml: {other}") for one, other in zip(found, wanted, strict=True)
    )


def test_the_suite_without_mistakes_has_none(mistakes):
    assert len(SLOTS) == 29
    assert mistakes(written(())) == []


@pytest.mark.parametrize("slot", range(len(SLOTS)))
def test_one_mistake_is_one_sentence(slot, mistakes):
    found = mistakes(written({slot}))
    assert same(found, expected({slot})), found


@pytest.mark.parametrize("seed", range(40))
def test_k_mistakes_are_k_sentences_in_the_order_of_the_file(seed, mistakes):
    draw = random.Random(seed)
    wrong = set(draw.sample(range(len(SLOTS)), draw.randint(2, len(SLOTS))))
    found = mistakes(written(wrong))
    assert same(found, expected(wrong)), found


def test_names_are_compared_with_those_of_experiments_that_have_mistakes(mistakes):
    text = (
        written(())
        .replace("seeds = 3", "seeds = 0")
        .replace('"good"\nbetter = "w_softmax"', '"goood"\nbetter = "w_softmax"')
    )
    assert mistakes(text) == [
        "suite.toml: defaults.seeds: must be at least 1 or a list, got 0",
        "suite.toml: claim[1].experiment: no such experiment 'goood'; did you mean 'good'?",
    ]


FOLLOW_UPS = {
    "a misspelt table": ("[defaults]", "[defautls]", ["defautls: unknown key 'defautls'; did you mean 'defaults'?"]),
    "a key of experiments": ("[defaults]", "seeds = 3\n[defaults]", ["seeds: unknown key 'seeds'"]),
    "a misspelt required key": (
        'widths = [8]\nlosses = ["softmax", "w_',
        'width = [8]\nlosses = ["softmax", "w_',
        ["experiment.good.width: unknown key"],
    ),
    "a name that is none": ('name = "good"', "name = 5", ["experiment[2].name: must be text"]),
    "no name": ('name = "good"\n', "", ["experiment[2]: needs the key 'name'"]),
    "the baseline": ("margin =", 'baseline = "sofmax"\nmargin =', ["baseline: unknown loss 'sofmax'"]),
    "the baseline's type": ("margin =", "baseline = 5\nmargin =", ["baseline: must be text"]),
    "the baseline in the losses": (
        'losses = ["softmax", "w_softmax"]',
        'losses = ["sofmax", "w_softmax"]',
        ["experiment.good.losses[0]: unknown loss"],
    ),
}


@pytest.mark.parametrize("case", FOLLOW_UPS)
def test_what_follows_from_a_mistake_is_not_reported(case, mistakes):
    old, new, wanted = FOLLOW_UPS[case]
    assert old in written(())
    found = mistakes(written(()).replace(old, new, 1))
    assert same(found, wanted), found


def test_an_error_has_all_mistakes_and_shows_the_first_twenty(mistakes):
    many = mistakes(
        written(()).replace('losses = ["softmax", "w_softmax"]', f"losses = {[f'no_{n}' for n in range(33)]}")
    )
    assert len(many) == 33 and all(f"losses[{n}]: unknown loss 'no_{n}'" in line for n, line in enumerate(many))
    error = pickle.loads(pickle.dumps(SuiteError(*many)))
    assert error.mistakes == tuple(many)
    assert str(error).split("\n") == [*many[:MOST_MISTAKES], "and 13 more"]
    assert str(SuiteError("one")) == "one" and str(SuiteError(*many[:20])).count("\n") == 19


def test_a_mistake_in_a_sweep_is_reported_once(mistakes):
    """Every combination of the other axes has it."""
    text = written(()).replace("batch = 8, lr = 0.1", "batch = [8, 0], lr = [0.1, -1.0, 0.2]")
    assert same(mistakes(text), ["defaults.schedule.batch[1]: ", "defaults.schedule.lr[1]: "])


def test_the_command_line_prints_one_line_per_mistake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many.toml").write_text(written({1, 4}))
    ran = invoke("plan", "many.toml")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "lossbench: many.toml: margin: must be greater than 0, got 0\n"
        "lossbench: many.toml: defaults.dataset: unknown dataset 'digit'; did you mean 'digits'?\n"
    )


def test_unprintable_characters_are_reported_together(mistakes):
    text = written(()).replace('name = "many"', 'name = "ma\\u0007ny"').replace('"the first"', '"the \\u0000 first"')
    assert same(mistakes(text), ["name: has the unprintable", "claim[0].text: has the unprintable"])


def test_overrides_and_their_mistakes_are_reported_together(registry):
    given = parse_set(["schedule.steps=0", "experiment.a.widths=[0]", "experiment.c.seeds=1"])
    with pytest.raises(SuiteError) as refused:
        read_profiles(written(()), "suite.toml", registry, lambda _: 10, profile="none", overrides=given)
    assert refused.value.mistakes == (
        "--set experiment.c: no such experiment 'c'; known: a, b, good",
        "--set experiment.a.widths[0]: must be at least 1 or 'min', got 0",
        "--set schedule.steps: must be at least 1, got 0",
    )


# What people write, and what helps them.
USUAL = [
    (
        'name = "many"',
        'name = "many"\nseeds = 3',
        "seeds: unknown key 'seeds'; it belongs in [[experiment]] or [defaults]",
    ),
    ("widths = [8, 9]", "widths = [8, 9]\nlr = 0.1", "experiment.a.lr: unknown key 'lr'; it belongs in 'schedule'"),
    (
        "widths = [8, 9]",
        "widths = [8, 9]\nmargin = 1",
        "experiment.a.margin: unknown key 'margin'; it belongs at the top level",
    ),
    (
        "lr = 0.1",
        "learning_rate = 0.1",
        "defaults.schedule.learning_rate: unknown key 'learning_rate'; did you mean 'lr'?",
    ),
    (
        "all = {",
        "seeds = 3\nall = {",
        "profile.one.seeds: unknown key 'seeds'; it belongs in 'all' or 'experiment.NAME'",
    ),
    ("threads = 1", 'channels_last = "yes"', "defaults.channels_last: must be true or false, got 'yes'"),
    ('dataset = "digits"', 'dataset = "DIGITS"', "defaults.dataset: unknown dataset 'DIGITS'; did you mean 'digits'?"),
    ('loss = "softmax"', 'loss = "cross_entropy"', "unknown loss 'cross_entropy'; did you mean 'softmax'?"),
    ("[tune]", "[[tune]]", "tune: must be a table ([tune]), got ["),
    (
        'dataset = "digits"',
        "dataset = digits",
        "is not valid TOML: Invalid value (at line 8, column 11): 'dataset = digits'",
    ),
]


@pytest.mark.parametrize(("old", "new", "sentence"), USUAL)
def test_usual_mistakes_are_understood(old, new, sentence, mistakes):
    assert old in written(())
    found = mistakes(written(()).replace(old, new, 1))
    assert len(found) == 1 and sentence in found[0], found


def test_one_claim_in_single_brackets_is_told_to_have_two(mistakes):
    text = written(()).partition("[[claim]]")[0] + '[claim]\ntext = "t"\n'
    assert same(mistakes(text.replace('auto = ["one", "two"]\n', "")), ["claim: must be a list ([[claim]]), got {"])
