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
<threads|treads|defaults.treads: unknown key 'treads'; did you mean 'threads'?> = 1

[defaults.schedule]
steps = <6|"six"|defaults.schedule.steps: >
batch = <8|[]|defaults.schedule.batch: is an empty list>
lr = 0.1

[[experiment]]
name = "a"
widths = [8, <9|0|experiment.a.widths[1]: must be at least 1>]
losses = [
  <"cosface"|"softmax"|experiment.a.losses: 'softmax' is listed twice>,
  "softmax",
  <"w_softmax"|"w_sofmax"|experiment.a.losses[2]: unknown loss>,
  { name = "arcface", s = <8.0|"x"|experiment.a.losses[3].s: >, m = <0.5|"y"|experiment.a.losses[3].m: > },
  "center",
]
classes = [5, <6|11|experiment.a.classes[1]: 'digits' has only 10 classes, got 11>]
metrics = [<"nll"|"nnl"|experiment.a.metrics[0]: unknown metric>, <"ece"|"eer"|experiment.a.metrics[1]: 'eer' is only>]
[experiment.published]
values = { <softmax|sofmax|experiment.a.published.values: unknown loss> = 90.0, center = 91.0 }
classes = <5|7|experiment.a.published.classes: 7 is not among>

[[experiment]]
name = "b"
widths = <[8]|8|experiment.b.widths: must be a list>
losses = [
  "softmax",
  { name = "w_softmax", alpha = <[1.0, 2.0, 3.0]|[]|experiment.b.losses[1].alpha: is an empty list> },
]
seeds = [0, 1, 2, <3|2|experiment.b.seeds: 2 is listed twice>]
warm_start = { loss = <"softmax"|"sofmax"|experiment.b.warm_start.loss: unknown loss>, steps = 3 }
[experiment.schedule]
batch = [8, <16|0|experiment.b.schedule.batch[1]: must be at least 1>]
<lr|rl|experiment.b.schedule.rl: unknown key> = 0.1
optimizer = <"sgd"|"sdg"|experiment.b.schedule.optimizer: unknown optimizer>
decay = { factor = 0.1, at = <[2, 4]|[4, 2]|experiment.b.schedule.decay.at: must be rising> }

[[experiment]]
name = "good"
widths = [8]
losses = ["softmax", "w_softmax"]

[[claim]]
text = <"the first"|" "|claim[0].text: is empty>
experiment = ["a", <"good"|"a"|claim[0].experiment: 'a' is listed twice>]
better = "w_softmax"
than = "softmax"

[[claim]]
text = "the second"
experiment = <"good"|"goood"|claim[1].experiment: no such experiment 'goood'; did you mean 'good'?>
metric = <"nll"|"nlll"|claim[1].metric: unknown metric>
better = <"w_softmax"|"no"|claim[1].better: unknown loss>
than = <"softmax"|"sofmax"|claim[1].than: unknown loss>

[[claim]]
text = "the third"
experiment = "good"
better = "softmax"
than = "w_softmax"
width = <8|7|claim[2].width: experiment 'good' has no width 7; known: 8>
classes = <10|9|claim[2].classes: experiment 'good' has no cells with 9 classes; known: 10>
at = { <dataset|data|claim[2].at.data: experiment 'good' has no axis 'data'> = "digits", backbone = "cnn" }

[[claim]]
text = "the fourth"
experiment = "good-tuned"
equivalent = <["softmax", "w_softmax"]|["softmax"]|claim[3].equivalent: must be a list of at least 2>
margin = <1.0|1000.0|claim[3].margin: must be at most 100 points>

[[claim]]
text = "along alpha"
experiment = "b"
<increases_with|increase_with|claim[4].increase_with: unknown key> = "alpha"
loss = <"w_softmax"|"v_softmax"|claim[4].loss: unknown loss>
than = <"softmax"|"sofmax"|claim[4].than: unknown loss>

[tune]
trials = <3|1|tune.trials: must be at least 2>
validation = <0.2|1.5|tune.validation: must be less than 1>
experiments = ["good", <"b"|"bb"|tune.experiments[1]: no such experiment 'bb'>]
lr = [0.01, 0.1]
schedule.weight_decay = [0.0, <0.1|-0.1|tune.schedule.weight_decay: must be at least 0>]
schedule.momentum = <[0.5, 0.9]|[0.9, 0.5]|tune.schedule.momentum: must have low>
ranges.w_softmax = { <alpha|alhpa|tune.ranges.w_softmax: unknown option> = [1.0, 2.0] }

[profile.one]
all = { seeds = <2|"two"|profile.one.all.seeds: must be> }
experiment.a = { widths = <[4]|["mni"]|profile.one.experiment.a.widths[0]: > }

[profile.two]
base = <"one"|"on"|profile.two.base: no such profile 'on'; did you mean 'one'?>
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
    """The sentences, without those about what cannot be known because of another mistake."""
    sentences = [SLOTS[slot][2] for slot in sorted(wrong)]
    parts = {sentence.split(".")[1].partition(":")[0] for sentence in sentences if sentence.startswith("defaults.")}
    hidden = []
    if "dataset" in parts:
        hidden += ["experiment.a.classes", "claim[2].classes"]  # how many classes it has
    if parts & {"dataset", "backbone", "schedule"}:
        hidden += ["claim[2].at"]  # which axes there are
    return [sentence for sentence in sentences if not sentence.startswith(tuple(hidden))]


def same(found, wanted):
    return len(found) == len(wanted) and all(
        one.startswith(f"suite.toml: {other}") for one, other in zip(found, wanted, strict=True)
    )


def test_the_suite_without_mistakes_has_none(mistakes):
    assert len(SLOTS) == 54
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


def changed(*pairs):
    """The suite without mistakes, changed in some places."""
    text = written(())
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def test_names_are_compared_with_those_of_experiments_that_have_mistakes(mistakes):
    text = changed(("seeds = 3", "seeds = 0"), ('experiment = "good"\nmetric', 'experiment = "goood"\nmetric'))
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
    "steps that others depend on": (
        "steps = 6",
        'steps = "six"\nevaluations = 9\nwarmup = 9',
        ["defaults.schedule.steps: must be a whole number, got 'six'"],
    ),
    "a misspelt key that others depend on": (
        "steps = 6",
        "stesp = 6\nevaluations = 9",
        ["defaults.schedule.stesp: unknown key 'stesp'; did you mean 'steps'?"],
    ),
    "a warm start that the warm-up depends on": (
        'warm_start = { loss = "softmax", steps = 3 }',
        'warm_start = { loss = "nothing", steps = 3 }',
        "decay = {",
        "warmup = 8\ndecay = {",
        ["experiment.b.warm_start.loss: unknown loss"],
    ),
    "the task of the metrics": (
        'dataset = "digits"',
        'task = "clasification"\ndataset = "digits"',
        '"ece"]',
        '"ece", "eer"]',
        ["defaults.task: must be 'classification'"],
    ),
    "the headline of a claim": (
        "margin = 0.5",
        'headline = "nlll"\nmargin = 0.5',
        "margin = 1.0",
        "margin = 1000.0",
        ["headline: unknown metric 'nlll'; did you mean 'nll'?"],
    ),
    "the grid that is too large": (
        'name = "good"\n',
        f'name = "good"\nseeds = 10000\nschedule.clip = {[0.1 + 1e-6 * n for n in range(100)]}\n',
        ["experiment.good: has 2,000,000 cells"],
    ),
    "what is tuned": (
        "lr = [0.01, 0.1]\nschedule.weight_decay = [0.0, 0.1]\nschedule.momentum = [0.5, 0.9]\nranges.",
        'lr = "high"\n#',
        ["tune.lr: must be [low, high] or { choices = [...] }, got 'high'"],
    ),
    "which experiments are tuned": (
        'experiments = ["good", "b"]',
        "experiments = 5\nseeds = 4",
        ["tune.experiments: must be a list, got 5"],
    ),
    "the baseline in the losses": (
        'losses = ["softmax", "w_softmax"]',
        'losses = ["sofmax", "w_softmax"]',
        ["experiment.good.losses[0]: unknown loss"],
    ),
}


@pytest.mark.parametrize("case", FOLLOW_UPS)
def test_what_follows_from_a_mistake_is_not_reported(case, mistakes):
    *pairs, wanted = FOLLOW_UPS[case]
    found = mistakes(changed(*zip(pairs[::2], pairs[1::2], strict=True)))
    assert same(found, wanted), found


INDEPENDENT = {
    "values of a swept option": (
        "alpha = [1.0, 2.0, 3.0]",
        'alpha = [1.0, "x", "y"]',
        [
            f"experiment.b.losses[1].alpha: option 'alpha' of loss 'w_softmax' must be float, got '{one}'"
            for one in "xy"
        ],
    ),
    "numbers of classes": (
        "classes = [5, 6]",
        "classes = [5, 11, 12]",
        ["experiment.a.classes[1]: 'digits' has only 10", "experiment.a.classes[2]: 'digits' has only 10"],
    ),
    "an option of a dataset without the task": (
        'dataset = "digits"',
        'task = "retrieval"\ndataset = { name = "digits", trian = 5 }',
        [
            "defaults.task: dataset 'digits' does not support retrieval",
            "defaults.dataset.trian: unknown option",
            "experiment.a.metrics[0]: 'nll' is only available for classification",
            "experiment.a.metrics[1]: 'ece' is only available for classification",
        ],
    ),
    "keys of a claim": (
        'better = "softmax"\nthan = "w_softmax"',
        'not_worse = "softmax"\nvalues = [1, 2]\nloss = "softmax"',
        [
            "claim[2]: needs the key 'than' beside 'not_worse'",
            "claim[2].values: cannot be combined with 'not_worse'",
            "claim[2].loss: cannot be combined with 'not_worse'",
        ],
    ),
    "values of a trend": (
        'increases_with = "alpha"',
        'increases_with = "alpha"\nvalues = [1.0, 4.0, 5.0]',
        ["claim[4].values[1]: experiment 'b' has no alpha 4.0", "claim[4].values[2]: experiment 'b' has no alpha 5.0"],
    ),
    "what a headline needs, and another experiment": (
        "margin = 0.5",
        'headline = "ece_scaled"',
        ["headline: 'ece_scaled' needs the option 'holdout'", "experiment.b.warm_start.loss: unknown loss"],
        'warm_start = { loss = "softmax"',
        'dataset = "digits[holdout=0.2]"\nwarm_start = { loss = "nothing"',
        'name = "a"',
        'name = "a"\ndataset = "digits[holdout=0.2]"',
    ),
    "a metric that is no score, and a metric of another task": (
        "margin = 0.5",
        'headline = "angle"',
        ["headline: needs the key 'margin'", "experiment.a.metrics[1]: 'eer' is only available for verification"],
        '"ece"',
        '"eer"',
    ),
    "seeds and keys of trials": (
        "trials = 3",
        "trials = 3\nseeds = 5",
        [
            "tune.seeds: experiment 'b' has only 4 seeds, got 5",
            "tune.seeds: experiment 'good' has only 3 seeds, got 5",
            "tune.lr: experiment 'good' sweeps 'lr'; sweep it or tune it",
        ],
        'name = "good"',
        'name = "good"\nschedule.lr = [0.1, 0.2]',
    ),
    "variants in two claims of a profile": (
        'increases_with = "alpha"\nloss = "w_softmax"\nthan = "softmax"',
        'increases_with = "alpha"\nloss = "w_softmax"\n[[claim]]\ntext = "too"\nexperiment = "b"\n'
        'decreases_with = "alpha"\nloss = "w_softmax"',
        [
            "profile.one: claim 'along alpha': variants of 'w_softmax' also differ in 'gradient'",
            "profile.one: claim 'too': variants of 'w_softmax' also differ in 'gradient'",
        ],
        "experiment.a = { widths = [4] }",
        "experiment.b.losses = ['softmax', {name='w_softmax', alpha=[1.0, 2.0], gradient=['exact', 'fixed_bias']}]",
    ),
}


@pytest.mark.parametrize("case", INDEPENDENT)
def test_independent_mistakes_do_not_hide_each_other(case, mistakes):
    old, new, wanted, *more = INDEPENDENT[case]
    found = mistakes(changed((old, new), *zip(more[::2], more[1::2], strict=True)))
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
    text = changed(("batch = 8\nlr = 0.1", "batch = [8, 0]\nlr = [0.1, -1.0, 0.2]"))
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


def test_all_keys_that_cannot_be_set_are_reported_together():
    with pytest.raises(SuiteError) as refused:
        parse_set(["sedes=3", "schedule.steps", "skip=5", "losses=[softmax]"])
    sentences = [sentence.split(":")[0] for sentence in refused.value.mistakes]
    assert sentences == ["--set sedes", "--set schedule.steps", "--set losses", "--set skip"]


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
        'name = "good"',
        'name = "good"\nschedule = [{ steps = 6 }, { steps = 9 }]',
        "experiment.good.schedule: must be a table, got [{'steps': 6}, {'steps': 9}]; to sweep one of its keys, give",
    ),
    ("auto = [", "baseline = ['softmax']\nauto = [", "baseline: must be text, got ['softmax']"),
    (
        "lr = 0.1",
        'lr = 0.1\nlr_scheduler = "cosine"',
        "defaults.schedule.lr_scheduler: unknown key 'lr_scheduler'; did you mean 'decay'?",
    ),
    ("lr = 0.1", "stesp = [3, 4]", "defaults.schedule.stesp: unknown key 'stesp'; did you mean 'steps'?"),
    (
        "lr = 0.1",
        "decay = true",
        "must be 'constant', 'cosine', 'linear', 'poly' or a table such as { factor = 0.1, every = 500 }, got True",
    ),
    ("lr = 0.1", "decay = { factor = 0.1 }", "schedule.decay: needs one of the keys 'every', 'at' and 'shape'"),
    ("lr = 0.1", "decay = { every = 5 }", "defaults.schedule.decay: needs the key 'factor'"),
    (
        "lr = 0.1",
        "optimizer = { betas = [0.9, 0.9] }",
        "optimizer: must be a name, or a table with a name, got {'betas'",
    ),
    ("lr = 0.1", "decay_norms = [true, true]", "defaults.schedule.decay_norms: True is listed twice"),
    ("alpha = [1.0, 2.0, 3.0]", "alpha = [1.0, 2, 2.0]", "experiment.b.losses[1].alpha: 2 is listed twice"),
    ('"softmax",\n  "w_softmax"', '"softmax",\n  "softmax"', "experiment.a.losses: 'softmax' is listed twice"),
    ('backbone.name = "cnn"\n', 'backbone.name = "resnet18"\n', "a model of timm is written timm[model=resnet18]"),
    ('"nll", "ece"', '"nll", "tar"', "known: tar@0.1, tar@0.01, tar@0.001, or another far after the @"),
    ('dataset = "digits"', 'task = ["retrieval"]\ndataset = "digits"', "defaults.task: must be 'classification'"),
    ('at = { dataset = "digits",', 'at = { dataset = ["digits"],', "claim[2].at.dataset: must be one value, got ["),
    (
        "at = { dataset =",
        'at = { "schedule.width" = 8, dataset =',
        "has no axis 'schedule.width'; did you mean 'width'?",
    ),
    ("lr = [0.01, 0.1]", "batch = [8, 16]", "tune.batch: unknown key 'batch'; it belongs in 'tune.schedule'"),
    ("lr = [0.01, 0.1]", "steps = [8, 16]", "tune.steps: unknown key 'steps'; it cannot be tuned: it is the same for"),
    (
        "schedule.momentum = [0.5, 0.9]",
        'schedule.decay = ["constant", "cosine"]',
        "tune.schedule.decay: must be [low, high] or { choices = [...] }, got ['constant', 'cosine']",
    ),
    (
        "schedule.momentum = [0.5, 0.9]",
        "schedule.momentun = [0.5, 0.9]",
        "tune.schedule.momentun: unknown key 'momentun'; did you mean 'momentum'?",
    ),
    (
        "all = {",
        "lr = 0.3\nall = {",
        "profile.one.lr: unknown key 'lr'; it belongs in 'all.schedule'",
    ),
    (
        'dataset = "digits"',
        "dataset = digits",
        "is not valid TOML: Invalid value (at line 8, column 11): 'dataset = digits'",
    ),
]


@pytest.mark.parametrize(("old", "new", "sentence"), USUAL)
def test_usual_mistakes_are_understood(old, new, sentence, mistakes):
    found = mistakes(changed((old, new)))
    assert len(found) == 1 and sentence in found[0], found


def test_a_trend_at_a_wrong_place_is_one_mistake(mistakes):
    """That there are no values at this place follows from it."""
    trend = '[[claim]]\ntext = "t"\nexperiment = "a"\nincreases_with = "width"\nloss = "softmax"\nat = { steps = 9 }\n'
    found = mistakes(changed(("widths = [8, 9]", "widths = [7, 8, 9]"), ("[tune]", f"{trend}[tune]")))
    assert same(found, ["claim[5].at.steps: experiment 'a' has no axis 'steps'"]), found


def test_true_and_one_are_different_values(mistakes):
    found = mistakes(changed(("lr = 0.1", "decay_norms = [true, 1]")))
    assert same(found, ["defaults.schedule.decay_norms[1]: must be true or false, got 1"]), found


def test_a_rate_may_be_tuned_among_choices(mistakes):
    assert mistakes(changed(("lr = [0.01, 0.1]", "lr = { choices = [0.01, 0.1, 0.2] }"))) == []


def test_one_claim_in_single_brackets_is_told_to_have_two(mistakes):
    text = written(()).partition("[[claim]]")[0] + '[claim]\ntext = "t"\n'
    assert same(mistakes(text.replace('auto = ["one", "two"]\n', "")), ["claim: must be a list ([[claim]]), got {"])
