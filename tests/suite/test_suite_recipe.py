"""The schedule in a suite file: what is refused, what is the same cell, and what a warm start shares."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import replace

import pytest
from conftest import SMALL
from kit.suites import TUNED, VERIFIED

from lossbench.core.errors import SuiteError
from lossbench.core.model import Cell, SuiteInfo
from lossbench.plan.cells import plan
from lossbench.plugins import optimizers
from lossbench.suite.schema import json_schema

SIZE = 1201  # training images of digits


def recipe(keys: str, more: str = "") -> str:
    """The small suite with another schedule."""
    return SMALL.replace("{ steps = 6, batch = 16 }", f"{{ {keys} }}") + more


WRONG = {
    "an unknown optimizer": ('steps = 6, optimizer = "adamv"', ["schedule.optimizer", "'adamv'", "mean 'adam"]),
    "an unknown option": (
        'steps = 6, optimizer = { name = "adamw", beta = [0.9, 0.95] }',
        ["schedule.optimizer", "unknown option 'beta' of optimizer 'adamw'", "did you mean 'betas'?"],
    ),
    "a key as an option": (
        'steps = 6, optimizer = "lion[lr=0.1]"',
        ["schedule.optimizer", "'lr' is a key of the schedule"],
    ),
    "an optimizer with second derivatives": (
        'steps = 6, optimizer = "adahessian"',
        ["schedule.optimizer", "'adahessian' cannot be used", "second derivatives"],
    ),
    "a random optimizer": ('steps = 6, optimizer = "lookahead_kron"', ["'lookahead_kron' cannot be used", "random"]),
    "an optimizer of another package": ('steps = 6, optimizer = "fusedlamb"', ["cannot be used", "apex"]),
    "not a name": ("steps = 6, optimizer = 3", ["schedule.optimizer", "a name, or a table with a name"]),
    "a nested option": (
        'steps = 6, optimizer = { name = "adamw", betas = { a = 1 } }',
        ["schedule.optimizer", "cannot be written as a label"],
    ),
    "momentum of AdamW": (
        'steps = 6, optimizer = "adamw", momentum = 0.9',
        ["schedule.momentum", "'adamw' has no momentum", 'name = "sgd", momentum = 0.9'],
    ),
    "momentum twice": (
        'steps = 6, optimizer = { name = "sgd", momentum = 0.8 }, momentum = 0.9',
        ["schedule.momentum", "in one place"],
    ),
    "an unknown decay": ('steps = 6, decay = "cosin"', ["schedule.decay", "'cosin'", "did you mean 'cosine'?"]),
    "a decay without its steps": (
        "steps = 6, decay = { factor = 0.1 }",
        ["schedule.decay", "needs one of the keys 'every', 'at' and 'shape'"],
    ),
    "one value for a pair": ('steps = 6, optimizer = "adamw[betas=0.9]"', ["optimizer", "must be a list of 2 values"]),
    "three values for a pair": (
        "steps = 6, optimizer = { name = 'adamw', betas = [0.9, 0.9, 0.9] }",
        [
            "schedule.optimizer",
            "'betas' of optimizer 'adamw' must be a list of 2 values such as [0.9, 0.999], got [0.9,",
        ],
    ),
    "a list for one value": (
        "steps = 6, optimizer = { name = 'lion', betas = [0.9, 0.9], caution = [true, false] }",
        ["schedule.optimizer", "'caution'", "one value, got [True, False]; to sweep it, make 'optimizer' a list"],
    ),
    "falling milestones": (
        "steps = 6, decay = { factor = 0.1, at = [4, 2] }",
        ["schedule.decay.at", "rising", "[4, 2]"],
    ),
    "a power of cosine": (
        'steps = 6, decay = { shape = "cosine", power = 2.0 }',
        ["schedule.decay.power", "belongs to 'poly'"],
    ),
    "a long warm-up": ("steps = 6, warmup = 7", ["schedule.warmup", "at most the steps of training, 6, got 7"]),
    "a warm-up longer than the epochs": ("epochs = 1, batch = 200, warmup = 8", ["schedule.warmup", "7, got 8"]),
    "more evaluations than the epochs have steps": (
        "epochs = 0.5, batch = 601, evaluations = 2",
        ["schedule.evaluations", "at most 'steps', 1, got 2"],
    ),
    "steps and epochs": ("steps = 6, epochs = 1", ["schedule.epochs", "'steps' or 'epochs', not both"]),
    "neither steps nor epochs": ("batch = 16", ["schedule", "needs the key 'steps' or 'epochs'"]),
    "far too many epochs": ("epochs = 1e6, batch = 1", ["schedule.epochs", "100,000,000 steps"]),
    "a clip of zero": ("steps = 6, clip = 0.0", ["schedule.clip", "greater than 0"]),
    "a batch that is not divided": (
        "steps = 6, batch = 16, per_class = 5",
        ["schedule.per_class", "must divide 'batch', 16, got 5"],
    ),
    "more classes in a batch than there are": (
        "steps = 6, batch = 32, per_class = 2",
        ["schedule.per_class", "has 16 classes; the dataset has only 10"],
    ),
    "the version of timm": ('steps = 6, timm = "1.0"', ["schedule", "unknown key 'timm'"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_in_a_schedule_is_one_sentence_with_its_key(case, read_suite):
    keys, expected = WRONG[case]
    with pytest.raises(SuiteError) as error:
        read_suite(recipe(keys))
    assert "\n" not in str(error.value)
    for part in expected:
        assert part in str(error.value)


def test_the_optimizers_and_their_options_are_those_of_timm():
    import inspect

    import timm.optim

    ours = optimizers.known()
    assert set(ours) == set(timm.optim.list_optimizers())
    for name in ours:
        if name != "sgd" and not ours[name].unusable:
            info = timm.optim.get_optimizer_info(name)
            parameters = inspect.signature(info.opt_class).parameters
            assert set(ours[name].options) == set(parameters) - {*optimizers.SCHEDULE, *optimizers.INTERNAL}, name
            assert ours[name].momentum == info.has_momentum, name
    assert set(optimizers.find("sgd").options) == {"momentum", "dampening", "nesterov", "foreach", "fused"}


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("epochs = 2, batch = 50", f"steps = {math.ceil(2 * SIZE / 50)}, batch = 50"),
        ("epochs = 0.1, batch = 16", "steps = 8, batch = 16"),
        (
            'steps = 6, decay = "constant", warmup = 0, loss_lr = 1.0, decay_norms = true',
            "steps = 6",
        ),
        ('steps = 6, optimizer = { name = "sgd" }', "steps = 6"),
        ('steps = 6, decay = "cosine"', 'steps = 6, decay = { shape = "cosine", end = 0.0 }'),
        ('steps = 6, decay = "poly"', 'steps = 6, decay = { shape = "poly", power = 0.9 }'),
        (
            'steps = 6, optimizer = { name = "adamw", eps = 1e-6, betas = [0.9, 0.95] }',
            'steps = 6, optimizer = "adamw[betas=(0.9 0.95),eps=1e-06]"',
        ),
    ],
)
def test_however_a_schedule_is_written_the_cell_is_the_same(one, same, read_suite):
    first, second = (plan(read_suite(recipe(keys)))[0] for keys in (one, same))
    assert first.key == second.key
    assert first.to_json()["schedule"] == second.to_json()["schedule"]


KEYS = [
    'optimizer = "adamw"',
    'optimizer = "adamw[eps=1e-06]"',
    'decay = "cosine"',
    'decay = { shape = "cosine", end = 0.1 }',
    "decay = { factor = 0.1, at = [3] }",
    "warmup = 2",
    "clip = 1.0",
    "loss_lr = 2.0",
    "decay_norms = false",
    "per_class = 2",
]


def test_every_key_of_the_recipe_changes_the_key_of_a_cell_and_survives_json(read_suite):
    cells = [plan(read_suite(recipe(f"steps = 6, batch = 16, {keys}")))[0] for keys in ("lr = 0.01", *KEYS)]
    assert len({cell.key for cell in cells}) == len(cells)
    for cell in cells:
        again = Cell.from_json(json.loads(json.dumps(cell.to_json())))
        assert (again.key, again.computed_key(), again.schedule) == (cell.key, cell.key, cell.schedule)


def test_the_version_of_timm_is_in_the_key_of_cells_that_use_its_optimizers(read_suite, monkeypatch):
    texts = [recipe('steps = 6, optimizer = "adamw"'), SMALL]
    before = [plan(read_suite(text))[0].key for text in texts]
    monkeypatch.setattr(optimizers, "version", lambda name: "99.0")
    after = [plan(read_suite(text))[0].key for text in texts]
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_an_override_replaces_a_decay_of_another_form_and_steps_by_epochs(read_suite):
    text = recipe(
        "steps = 6, batch = 16, decay = { factor = 0.5, every = 3 }",
        "[profile.a]\nall = { schedule = { decay = { every = 2 } } }\n"
        "[profile.b]\nall = { schedule = { decay = { factor = 0.1, at = [3] } } }\n"
        '[profile.c]\nall = { schedule = { decay = "cosine", epochs = 1 } }\n',
    )
    schedules = {name: read_suite(text, name).experiments[0].schedules[0].schedule for name in "abc"}
    assert schedules["a"].decay.model_dump() == {"factor": 0.5, "every": 2}
    assert schedules["b"].decay.model_dump() == {"factor": 0.1, "at": [3]}
    assert schedules["c"].decay.shape == "cosine"
    assert plan(read_suite(text, "c"))[0].schedule.steps == math.ceil(SIZE / 16)


def test_epochs_are_those_of_each_dataset(read_suite):
    text = recipe("epochs = 2, batch = 32", "\n[tune]\ntrials = 2\nvalidation = 0.25\nlr = [0.01, 0.1]\n")
    text = text.replace('dataset = "digits"', 'dataset = { name = "digits", train = [100, 300] }')
    cells = plan(read_suite(text))
    steps = {(cell.axes["train"], cell.kind): cell.schedule.steps for cell in cells}
    # Images are held out before some are chosen, so a trial has as many here.
    assert steps == {(100, "train"): 7, (300, "train"): 19, (100, "trial"): 7, (300, "trial"): 19}


WARM = "warm_start = { steps = 4 }\n"


def test_a_warm_start_is_shared_by_lengths_unless_its_learning_rate_depends_on_them(read_suite):
    def warm_keys(keys: str) -> set[str]:
        cells = plan(read_suite(recipe(f"steps = [6, 9], {keys}", WARM)))
        assert {cell.warm_cell().key for cell in cells if cell.warm} == {
            cell.key for cell in cells if cell.kind == "warm"
        }
        return {cell.key for cell in cells if cell.kind == "warm" and cell.seed == 0}

    for keys in ("warmup = 3", "decay = { factor = 0.5, every = 3 }", "decay = { factor = 0.5, at = [2] }"):
        assert len(warm_keys(keys)) == 1
    for shape in ("cosine", "linear", "poly"):
        assert len(warm_keys(f'decay = "{shape}"')) == 2


def test_a_warm_start_knows_the_length_of_both_phases(read_suite):
    cells = plan(read_suite(recipe('steps = 6, decay = "linear"', WARM)))
    assert [cell.total_steps for cell in cells[:3]] == [10, 10, 10]
    again = Cell.from_json(json.loads(json.dumps(cells[0].to_json())))
    assert (again.kind, again.horizon, again.computed_key()) == ("warm", 10, cells[0].key)


TUNE = """
[tune]
trials = 12
schedule = { lr = [1e-3, 1e-1], weight_decay = [1e-4, 5e-4], batch = { choices = [16, 32] }, \
optimizer = { choices = ["sgd", "adamw", "lion"] }, decay = { choices = ["constant", "cosine"] } }
"""


def test_any_key_of_the_schedule_is_tuned_in_the_same_range_for_every_loss(read_suite):
    suite = read_suite(recipe("epochs = 0.2, batch = 16", TUNE))
    assert suite.info.tuning.schedule == {
        "lr": "0.001…0.1 (log)",
        "weight_decay": "0.0001…0.0005 (log)",
        "batch": "one of 16, 32",
        "optimizer": "one of sgd, adamw, lion",
        "decay": "one of constant, cosine",
    }
    info = SuiteInfo.from_json(json.loads(json.dumps(suite.info.to_json())))
    assert info.tuning == suite.info.tuning
    for label in ("softmax", "w_softmax"):
        trials = [cell for cell in plan(suite) if cell.kind == "trial" and cell.loss.label == label]
        schedules = [cell.schedule for cell in trials]
        assert len({cell.key for cell in trials}) == 12
        assert {each.optimizer for each in schedules} == {"sgd", "adamw", "lion"}
        assert {each.batch for each in schedules} == {16, 32}
        assert {each.decay is None for each in schedules} == {True, False}
        assert all(0.001 <= each.lr <= 0.1 for each in schedules)
        assert all((each.timm is None) == (each.optimizer == "sgd") for each in schedules)
        assert all(each.steps == math.ceil(0.2 * 961 / each.batch) for each in schedules)  # 240 images are held out


def test_the_short_form_of_a_tuned_learning_rate_gives_the_same_trials(read_suite):
    long = TUNED.replace("lr = [0.005, 0.2]", "schedule = { lr = [0.005, 0.2] }")
    assert [cell.key for cell in plan(read_suite(TUNED))] == [cell.key for cell in plan(read_suite(long))]


def test_losses_share_one_warm_start_whatever_recipe_their_trials_have(read_suite):
    cells = plan(read_suite(recipe("epochs = 0.2, batch = 16, decay = 'linear'", WARM + TUNE)))
    trials = [cell for cell in cells if cell.kind == "trial"]
    (warm,) = {cell.warm_cell().key for cell in trials}
    assert warm in {cell.key for cell in cells if cell.kind == "warm"}
    through_json = [Cell.from_json(json.loads(json.dumps(cell.to_json()))) for cell in trials]
    assert {cell.warm_cell().key for cell in through_json} == {warm}
    (own,) = (cell.schedule for cell in cells if cell.key == warm)
    assert (own.optimizer, own.batch, own.steps, own.decay.shape) == ("sgd", 16, 4, "linear")


WRONG_TUNING = {
    "an unknown key": ("schedule = { lrr = [0.1, 0.2] }", ["tune.schedule", "'lrr'", "'lr'"]),
    "a key that trials share": ("schedule = { steps = [5, 9] }", ["tune.schedule.steps: cannot be tuned"]),
    "a wrong value": ("schedule = { batch = { choices = [16, 0] } }", ["tune.schedule.batch", "at least 1", "got 0"]),
    "an unknown optimizer": (
        'schedule = { optimizer = { choices = ["sgd", "adamv"] } }',
        ["tune.schedule", "'adamv'", "did you mean 'adam"],
    ),
    "falling ends": ("schedule = { clip = [2.0, 1.0] }", ["tune.schedule.clip", "low < high"]),
    "two ranges of one key": ("lr = [0.1, 0.2]\nschedule = { lr = [0.1, 0.3] }", ["tune.lr", "in one place"]),
}


@pytest.mark.parametrize("case", WRONG_TUNING)
def test_a_mistake_in_a_tuned_key_is_one_sentence(case, read_suite):
    lines, expected = WRONG_TUNING[case]
    with pytest.raises(SuiteError) as error:
        read_suite(SMALL + f"\n[tune]\ntrials = 9\n{lines}\n")
    for part in expected:
        assert part in str(error.value)


def test_a_key_is_swept_or_tuned_but_not_both(read_suite):
    with pytest.raises(SuiteError, match=r"tune.lr: experiment 'digits' sweeps 'lr'; sweep it or tune it"):
        read_suite(recipe("steps = 6, lr = [0.1, 0.2]", "\n[tune]\ntrials = 2\nlr = [0.005, 0.2]\n"))


def test_an_older_plan_has_the_learning_rate_of_its_warm_start_and_of_its_budget(read_suite):
    suite = read_suite(TUNED.replace("\n[tune]", WARM + "[tune]"))
    cell = next(cell for cell in plan(suite) if cell.warm and cell.warm.schedule)
    assert cell.warm.schedule == {"lr": 0.01}
    old = cell.to_json()
    old["warm"]["lr"] = old["warm"].pop("schedule")["lr"]
    assert Cell.from_json(old) == cell
    assert Cell.from_json({**old, "key": ""}).key == cell.key
    budget = suite.info.to_json()["tuning"]
    info = {**suite.info.to_json(), "tuning": {k: v for k, v in budget.items() if k != "schedule"}}
    for lr, schedule in (("0.005…0.2 (log)", {"lr": "0.005…0.2 (log)"}), ("", {})):
        older = SuiteInfo.from_json({**info, "tuning": {**info["tuning"], "lr": lr}})
        assert older.tuning == replace(suite.info.tuning, schedule=schedule)


def test_a_batch_of_a_trial_has_no_more_classes_than_its_images(read_suite):
    text = VERIFIED.replace("batch = 16", "batch = 200, per_class = 2")
    with pytest.raises(SuiteError, match="a trial of 'unseen': per_class: a batch of 200 with 2 per class has 100"):
        read_suite(text)


def test_the_json_schema_knows_the_recipe(registry):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(json.dumps(json_schema(registry)))
    everything = (
        "epochs = 2.5, batch = [16, 32], optimizer = { name = 'adamw', betas = [0.9, 0.95] }, clip = 1.0, warmup = 3,"
        "decay = ['cosine', { factor = 0.1, at = [5] }], loss_lr = 10.0, decay_norms = false, per_class = 4"
    )
    jsonschema.validate(tomllib.loads(recipe(everything, TUNE)), schema)
    for wrong in ("decay = 'cosin'", "epochs = 0", "timm = '1.0'", "optimizer = 3"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(tomllib.loads(recipe(f"steps = 6, {wrong}")), schema)
