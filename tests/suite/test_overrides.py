"""`--set key=value` does what a profile with that key would do, after the profile, and can be repeated."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise

import pytest
from conftest import SMALL
from kit.commands import invoke
from kit.runs import write_suite

from lossbench import api
from lossbench.core.errors import StoreError, SuiteError
from lossbench.plan.cells import plan
from lossbench.plan.job import prepare
from lossbench.plan.selection import Selection
from lossbench.store.merge import merge
from lossbench.store.records import Store
from lossbench.suite.overrides import KEYS, parse_set
from lossbench.suite.reading import read_profiles

TWO = """
name = "two"
baseline = "softmax"

[defaults]
dataset = "digits"
backbone = "cnn[channels=4,depths=(1)]"
widths = [8]
losses = ["softmax", "w_softmax"]
seeds = 2
schedule = { steps = 6, batch = 16, evaluations = 2 }

[[experiment]]
name = "a"
published = { values = { softmax = 90.0 }, protocol = "same" }

[[experiment]]
name = "b.c"
widths = [8, 9, 10]

[[claim]]
text = "wider is better"
experiment = "b.c"
increases_with = "width"
loss = "softmax"

[tune]
trials = 3
lr = [0.01, 0.1]

[profile.long]
all = { schedule = { steps = 60, evaluations = 50 } }

[profile.last]
skip = ["a"]
note = "the last one"
"""


@pytest.fixture
def read(registry):
    def read(*given, text=TWO, profile=None, mapping=None):
        overrides = parse_set(mapping if mapping is not None else given)
        found = read_profiles(text, "suite.toml", registry, lambda _: 12, profile=profile, overrides=overrides)
        return found[profile]

    return read


def cells(suite):
    return [(cell.experiment, cell.key) for cell in plan(suite)]


# --set, and the same keys in a profile
SAME = {
    "every experiment": (["schedule.steps=100"], "all.schedule.steps = 100"),
    "one experiment": (["experiment.a.widths=[9]"], "experiment.a.widths = [9]"),
    "a name with a dot": (['experiment."b.c".widths=[9]'], 'experiment."b.c".widths = [9]'),
    "a bare word": (["dataset=glyphs[classes=12]"], 'all.dataset = "glyphs[classes=12]"'),
    "an option of a label": (["backbone.channels=8"], 'all.backbone = "cnn[channels=8,depths=(1)]"'),
    "a list of bare words": (
        ["losses=(softmax w_softmax[alpha=2.0])"],
        'all.losses = ["softmax", "w_softmax[alpha=2.0]"]',
    ),
    "tables merge": (["schedule={steps=9, lr=0.5}"], "all.schedule = { steps = 9, lr = 0.5 }"),
    "a sweep": (["schedule.batch=[8, 16]"], "all.schedule.batch = [8, 16]"),
    "several datasets": (['dataset=["digits", "glyphs"]'], 'all.dataset = ["digits", "glyphs"]'),
    "the last wins": (["seeds=5", "seeds=1"], "all.seeds = 1"),
    "two keys of one table": (["schedule.steps=9", "schedule.lr=1"], "all.schedule = { steps = 9, lr = 1.0 }"),
    "spaces": ([" schedule . steps = 9 "], "all.schedule.steps = 9"),
    "experiments left out": (['skip=["a"]'], 'skip = ["a"]'),
    "tuning": (["tune.trials=2"], "tune.trials = 2"),
}


@pytest.mark.parametrize("case", SAME)
def test_a_key_that_is_set_is_that_of_a_profile(case, read):
    given, profile = SAME[case]
    asked = read(*given)
    assert cells(asked) == cells(read(text=f"{TWO}\n[profile.same]\n{profile}\n", profile="same"))
    assert cells(asked) != cells(read())


def test_a_key_that_is_set_overrides_the_profile(read):
    planned = plan(read("schedule.steps=55", profile="long"))
    schedules = {cell.schedule for cell in planned if cell.kind == "train"}
    assert {(each.steps, each.evaluations) for each in schedules} == {(55, 50)}
    assert [each.name for each in read("skip=[]", profile="last").experiments] == ["a", "b.c"]
    assert read("note=another", profile="last").info.note == "another"
    assert read("seeds=1", profile="last").info.note == "the last one"


def test_the_note_of_a_profile_replaces_that_of_the_suite(read):
    text = f'note = "small tasks"\n{TWO}'
    assert [read(text=text, profile=name).info.note for name in (None, "long", "last")] == [
        "small tasks",
        "small tasks",
        "the last one",
    ]


BASED = """
[profile.longer]
base = "long"
all = { seeds = 4, schedule = { evaluations = 30 } }

[profile.longest]
base = "longer"
experiment.a = { schedule = { steps = 90 } }
note = "the longest"

[profile.again]
base = "longest"
skip = ["b.c"]
tune = { trials = 2 }
"""


def test_a_profile_is_laid_over_its_base(read):
    for name, expected in {
        "longer": {"a": (60, 30, 4), "b.c": (60, 30, 4)},
        "longest": {"a": (90, 30, 4), "b.c": (60, 30, 4)},
        "again": {"a": (90, 30, 4)},
    }.items():
        suite = read(text=TWO + BASED, profile=name)
        found = {
            e.name: (e.schedules[0].schedule.steps, e.schedules[0].schedule.evaluations, len(e.seeds))
            for e in suite.experiments
        }
        assert found == expected
    assert suite.info.note == "the longest"
    assert suite.info.tuning.trials == 2
    overridden = read("schedule.steps=5", "schedule.evaluations=1", text=TWO + BASED, profile="again")
    assert overridden.experiments[0].schedules[0].schedule.steps == 5


def test_the_cells_of_a_base_are_cells_of_the_profile(read):
    more = f'{TWO}\n[profile.more]\nbase = "long"\nall = {{ seeds = 9 }}\n'
    assert {*cells(read(text=more, profile="long"))} < {*cells(read(text=more, profile="more"))}


@pytest.mark.parametrize("last", ["one", "two", "three"])
def test_a_profile_cannot_be_its_own_base(read, last):
    text = f'{TWO}\n[profile.one]\nbase = "two"\n[profile.two]\nbase = "three"\n[profile.three]\nbase = "{last}"\n'
    back = {"one": ("one", "two", "three"), "two": ("two", "three"), "three": ("three",)}[last]
    with pytest.raises(SuiteError) as error:
        read(text=text)
    assert [*error.value.mistakes] == [
        f"suite.toml: profile.{name}.base: leads back to profile '{name}'; leave it out" for name in back
    ]


def test_an_empty_base_is_no_profile(read):
    with pytest.raises(SuiteError, match=r"profile\.one\.base: no such profile ''"):
        read(text=f'{TWO}\n[profile.one]\nbase = ""\n')


def test_keys_of_the_suite_itself_can_be_set(read):
    info = read("margin=0.3", "title=A title", "name=other", "baseline=w_softmax").info
    assert (info.margin, info.title, info.name, info.baseline) == (0.3, "A title", "other", "w_softmax")
    assert read("claim=[]").info.claims == ()


def test_tuning_can_be_added_to_a_suite_without_it(read):
    assert read("tune.trials=2", "tune.lr=[0.01, 0.1]", text=SMALL).info.tuning.trials == 2


@pytest.mark.parametrize(
    "mapping",
    [
        {"schedule.steps": 7, "experiment.a.widths": [9]},
        {"losses": ["softmax", "w_softmax[alpha=2.0]"], 'experiment."b.c".seeds': [4]},
        {"dataset": {"name": "glyphs", "classes": 12}, "schedule.lr": 1e-05},
        {"title": "quotes \" and ' and = and $x", "channels_last": True},
    ],
)
def test_the_command_of_a_report_repeats_the_run(mapping, read):
    suite = read(mapping=mapping)
    words = shlex.split(suite.info.command)
    given = [text for option, text in pairwise(words) if option == "--set"]
    assert given == suite.info.overrides
    assert read(*given) == suite


def test_claims_stay_as_the_suite_states_them(read):
    """As with a profile: a claim that the remaining cells cannot answer is not testable, no mistake."""
    assert read('experiment."b.c".widths=[8]').info.claims == read().info.claims


def test_published_numbers_are_not_comparable_with_another_scale(read):
    assert read("margin=0.1").experiments[0].published[0].protocol == "same"
    other = read("schedule.steps=70", profile="long").experiments[0].published[0].protocol.other
    assert other == ["another scale here: profile long --set schedule.steps=70"]


def test_an_override_need_not_fit_profiles_that_do_not_run(read):
    assert {cell.schedule.steps for cell in plan(read("schedule.steps=4"))} == {4}  # `long` has 50 evaluations
    with pytest.raises(SuiteError, match=r"^--set schedule.evaluations: must be at most 'steps', 4, got 50$"):
        read("schedule.steps=4", profile="long")


SEVERAL = TWO.replace('"digits"', '["digits[train=500]", { name = "glyphs", classes = 12 }]').replace(
    '"cnn[channels=4,depths=(1)]"', '["cnn[channels=4]", "mlp"]'
)


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("dataset.train=99", 'dataset=["digits[train=99]", "glyphs[classes=12,train=99]"]'),
        (
            "dataset.train=[9, 99]",
            'dataset=[{name="digits", train=[9, 99]}, {name="glyphs", classes=12, train=[9, 99]}]',
        ),
        ("dataset.name=digits", "dataset=digits"),
        (
            'experiment."b.c".dataset.train=99',
            'experiment."b.c".dataset=["digits[train=99]", "glyphs[classes=12,train=99]"]',
        ),
    ],
)
def test_an_option_is_set_for_every_item_of_a_list(given, instead, read):
    assert cells(read(given, text=SEVERAL)) == cells(read(instead, text=SEVERAL)) != cells(read(text=SEVERAL))
    key = given.replace("=digits", "='digits'")
    profile = f"{SEVERAL}\n[profile.same]\n{key if key.startswith('experiment') else 'all.' + key}\n"
    assert cells(read(text=profile, profile="same")) == cells(read(given, text=SEVERAL))


def test_an_option_that_one_item_of_a_list_lacks_is_refused_with_the_whole_list(read):
    with pytest.raises(SuiteError) as refused:
        read("backbone.channels=8", "backbone.depths=[1]", text=SEVERAL)
    problem = "'{0}' is set for every item of the list, and backbone 'mlp' has no such option"
    instead = """write the whole list: --set 'backbone=["cnn[channels=8,depths=(1)]", "mlp"]'"""
    assert refused.value.mistakes == tuple(
        f"--set backbone.{option}: {problem.format(option)}; {instead}" for option in ("channels", "depths")
    )


WRONG = {
    "unknown key": (["shedule.steps=1"], "--set shedule: unknown key 'shedule'; did you mean 'schedule'?"),
    "a key of a table": (["lr=0.1"], "--set lr: unknown key 'lr'; did you mean 'schedule.lr'?"),
    "another library's name": (["optim=adamw"], "--set optim: unknown key 'optim'; did you mean 'schedule.optimizer'?"),
    "an option of every dataset": (["train=9"], "--set train: unknown key 'train'; did you mean 'dataset.train'?"),
    "one loss": (["loss=center"], "--set loss: unknown key 'loss'; did you mean 'losses'?"),
    "a key of a timing": (["rounds=9"], "--set rounds: unknown key 'rounds'; did you mean 'timing.rounds'?"),
    "a profile": (["profile=long"], "--set profile: a profile is chosen with --profile long"),
    "the base of a profile": (["base=long"], "--set base: a profile is chosen with --profile long"),
    "a value twice": (["schedule.lr=[0.1, 0.1]"], "--set schedule.lr: 0.1 is listed twice"),
    "a typo in one": (["stesp=10"], "--set stesp: unknown key 'stesp'; did you mean 'schedule.steps'?"),
    "unknown inner key": (["schedule.stesp=1"], "--set schedule.stesp: unknown key 'stesp'; did you mean 'steps'?"),
    "unknown experiment": (
        ["experiment.b.widths=[9]"],
        "--set experiment.b: no such experiment 'b'; did you mean 'b.c'?",
    ),
    "unknown key of one": (
        ["experiment.a.widht=[9]"],
        "--set experiment.a.widht: unknown key 'widht'; did you mean 'widths'?",
    ),
    "skipped experiment": (["skip=[a]"], "--set skip: [a] is not valid TOML"),
    "unknown skipped one": (['skip=["d"]'], "--set skip[0]: no such experiment 'd'"),
    "nothing left": (['skip=["a", "b.c"]'], "--set skip: skips every experiment"),
    "unknown dataset": (["dataset=digit"], "--set dataset: unknown dataset 'digit'; did you mean 'digits'?"),
    "unknown option": (["dataset.trian=5"], "--set dataset.trian: unknown option 'trian' of dataset 'digits'"),
    "unknown baseline": (["baseline=sofmax"], "--set baseline: unknown loss 'sofmax'; did you mean 'softmax'?"),
    "out of range": (["schedule.steps=0"], "--set schedule.steps: must be at least 1, got 0"),
    "of the suite": (["margin=0"], "--set margin: must be greater than 0, got 0"),
    "of the tuning": (["tune.trials=1"], "--set tune.trials: must be at least 2, got 1"),
    "wrong type": (["schedule=5"], "--set schedule: must be a table, got 5"),
    "no name": (["experiment=5"], "--set experiment: must be a table, got 5"),
    "a key without an experiment": (
        ["experiment.seeds=5"],
        "names no key of an experiment; write --set experiment.NAME.seeds=… for one experiment, --set seeds=… for all",
    ),
    "an experiment without a key": (
        ["experiment.a=5"],
        "--set experiment.a: names no key of an experiment; write --set experiment.a.KEY=…",
    ),
    "no value": (["schedule.steps"], "--set schedule.steps: is not of the form key=value"),
    "no key": (["=5"], "is not a key such as schedule.steps"),
    "an index": (
        ["losses[0]=softmax"],
        "--set losses[0]: an item of a list cannot be set by its number; write the whole list: --set 'losses=[…]'",
    ),
    "the number of an experiment": (["experiment[0].seeds=1"], "use its name: --set experiment.NAME.seeds=2"),
    "an option of one loss": (
        ["losses.alpha=2.0"],
        "--set losses.alpha: 'alpha' is set for every item of the list, and loss 'softmax' has no such option; "
        """write the whole list: --set 'losses=["softmax", "w_softmax[alpha=2.0]"]'""",
    ),
    "an option of no loss": (
        ["losses.alhpa=2.0"],
        "--set losses.alhpa: none of softmax, w_softmax has an option 'alhpa'; did you mean 'alpha'?",
    ),
    "an item by its name": (
        ["losses.w_softmax.alpha=2.0"],
        """write the whole list: --set 'losses=["softmax", "w_softmax"]'""",
    ),
    "a list without quotes": (["losses=[softmax,arcface]"], "--set losses: [softmax,arcface] is not valid TOML"),
    "a quote without end": (['title="half'], '--set title: "half is not valid TOML'),
    "endless nesting": ([f"seeds={'[' * 900}"], "is not valid TOML"),
    "deep nesting": ([f"seeds={'[' * 90}{']' * 90}"], "nested more than"),
    "a date": (["seeds=2024-01-01"], "--set seeds: is a date"),
    "two lines": (["seeds=1\nwidths=[9]"], "unprintable character U+000A"),
    "variants that differ": (
        ["losses=['softmax', {name='w_softmax', alpha=[1.0, 2.0], gradient=['exact', 'fixed_bias']}]"],
        "--set: claim 'alpha matters': variants of 'w_softmax' also differ in 'gradient'",
    ),
}
ALONG = """
[[claim]]
text = "alpha matters"
experiment = "b.c"
increases_with = "alpha"
loss = "w_softmax"
"""


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_override_is_refused_in_one_sentence(case, read):
    given, expected = WRONG[case]
    text = TWO
    if case == "variants that differ":
        text = TWO.replace('"w_softmax"]', '{ name = "w_softmax", alpha = [1.0, 2.0, 3.0] }]') + ALONG
    with pytest.raises(SuiteError) as refused:
        read(*given, text=text)
    sentence = str(refused.value)
    assert sentence.startswith("--set") and expected in sentence and "\n" not in sentence


@pytest.mark.parametrize("mapping", [{"seeds": {1, 2}}, {"seeds": object()}])
def test_only_plain_values_can_be_set_in_python(mapping, read):
    with pytest.raises(SuiteError, match=r"^--set seeds: is a (set|object); a suite may contain"):
        read(mapping=mapping)


def test_a_mistake_of_the_file_is_not_blamed_on_an_override(read):
    with pytest.raises(SuiteError, match=r"^suite.toml: defaults.schedule.batch: must be at least 1, got 0$"):
        read("schedule.steps=100", text=TWO.replace("batch = 16", "batch = 0"))


def test_a_choice_of_auto_takes_overrides_into_account(tmp_path):
    text = SMALL.replace('title = "A', 'auto = ["gpu", "cpu"]\ntitle = "A')
    suite = write_suite(tmp_path, text + '\n[profile.gpu]\nall = { device = "cuda" }\n[profile.cpu]\n')
    assert prepare(suite, gpu=False).suite.info.profile == "cpu"
    found = prepare(suite, Selection(set=["device=cpu"]), gpu=False).suite.info
    assert (found.profile, found.command) == ("gpu", f"lossbench run {suite} --profile gpu --set device=cpu")


def test_the_command_line_takes_overrides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_suite(tmp_path, SMALL)
    planned = invoke("plan", "suite.toml", "--no-forecast", "--set", "seeds=3", "--set", "schedule.steps=50")
    assert "6 of 6 cells to train, 300 steps" in planned.stdout
    refused = invoke("run", "suite.toml", "--set", "sedes=3")
    assert refused.returncode == 2
    assert refused.stderr == "lossbench: --set sedes: unknown key 'sedes'; did you mean 'seeds'?\n"


def test_keys_are_completed():
    from lossbench.cli.commands import cli

    option = next(each for each in cli.commands["run"].params if each.name == "set")
    found = [item.value for item in option.shell_complete(None, "schedule.st")]
    assert found == ["schedule.steps="]
    assert {"seeds", "margin", "tune.trials", "schedule.lr", "dataset"} <= set(KEYS)


def test_a_run_describes_its_overrides(tmp_path, monkeypatch):
    """One folder holds runs with and without overrides, as with profiles: the last plan is reported."""
    monkeypatch.chdir(tmp_path)
    suite = write_suite(tmp_path, SMALL)
    first = api.run(suite, set={"schedule.steps": 2, "seeds": 1}, jobs=1)
    command = f"lossbench run {suite} --set schedule.steps=2 --set seeds=1"
    stated = json.loads((tmp_path / "reports" / "report.json").read_text())
    assert (stated["overrides"], stated["command"]) == (["schedule.steps=2", "seeds=1"], command)
    assert command in (tmp_path / "reports" / "summary.md").read_text()
    assert f"run again with: {command}\n" in invoke("status", "small").stdout
    store = Store(first.folder)
    assert [cell.schedule.steps for cell in store.plan()[1]] == [2, 2]

    def looks(**options):
        planned = api.prepare(suite, **options)
        store.prepare(planned.suite, planned.cells)
        return store.plan()[0].looks

    # More seeds of the same cells are a second look, however they were asked for; other cells are none.
    assert looks(set=["schedule.steps=2", "seeds=3"]) == {"digits": [1]}
    assert looks(set=["schedule.steps=3", "seeds=4"]) == {}
    other = Store(tmp_path / "other")
    planned = api.prepare(suite)
    other.prepare(planned.suite, planned.cells)
    with pytest.raises(StoreError, match="they differ in 'overrides'"):
        merge([store.root, other.root], tmp_path / "merged")
