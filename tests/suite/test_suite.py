"""A suite file means what it says, or is refused in one sentence that helps."""

from __future__ import annotations

import json
import re
import string

import pytest
from conftest import SMALL
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lossbench.core.errors import SuiteError
from lossbench.core.labels import label, parse_label
from lossbench.suite.schema import json_schema


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


CLAIM = '\n[[claim]]\ntext = "t"\nexperiment = "digits"\nbetter = "w_softmax"\nthan = "softmax"\n'

WRONG = {
    "unknown top key": (f'naem = "x"\n{SMALL}', ["suite.toml: naem", "unknown key 'naem'", "'name'"]),
    "unknown experiment key": (changed("seeds = 2", "seed = 2"), ["experiment.digits.seed", "did you mean 'seeds'"]),
    "unknown schedule key": (changed("steps = 6", "stesp = 6"), ["experiment.digits.schedule", "stesp", "'steps'"]),
    "unknown loss": (changed('"w_softmax"]', '"w_sofmax"]'), ["losses[1]", "'w_sofmax'", "did you mean 'w_softmax'"]),
    "unknown backbone": (changed('name = "cnn"', 'name = "cn"'), ["experiment.digits.backbone", "did you mean 'cnn'"]),
    "unknown dataset": (changed('"digits"\nback', '"digit"\nback'), ["experiment.digits.dataset", "'digits'"]),
    "unknown loss option": (
        changed('"w_softmax"]', '{ name = "w_softmax", alhpa = 1.0 }]'),
        ["experiment.digits.losses[1].alhpa", "unknown option 'alhpa'", "did you mean 'alpha'"],
    ),
    "unknown option in a label": (changed('"w_softmax"]', '"w_softmax[alhpa=1]"]'), ["losses[1].alhpa", "'alpha'"]),
    "unknown backbone option": (changed("channels = 4", "chanels = 4"), ["backbone.chanels", "'channels'"]),
    "wrong type": (changed("steps = 6", 'steps = "six"'), ["schedule.steps", "a whole number", "'six'"]),
    "wrong option type": (
        changed('"w_softmax"]', '{ name = "w_softmax", alpha = "big" }]'),
        ["losses[1].alpha", "must be float", "'big'"],
    ),
    "wrong choice": (
        changed('"w_softmax"]', '{ name = "w_softmax", gradient = "exakt" }]'),
        ["losses[1].gradient", "exact", "'exakt'"],
    ),
    "empty sweep": (
        changed('"w_softmax"]', '{ name = "w_softmax", alpha = [] }]'),
        ["losses[1].alpha", "is an empty list"],
    ),
    "no losses": (changed('["softmax", "w_softmax"]', "[]"), ["experiment.digits.losses", "at least one"]),
    "duplicate experiment": (SMALL + SMALL.partition('suite"\n')[2], ["two experiments are named 'digits'"]),
    "the same loss twice": (changed('"w_softmax"]', '"softmax[bias=true]"]'), ["losses", "listed twice", "'softmax'"]),
    "width below one": (changed("widths = [8]", "widths = [0]"), ["widths[0]", "at least 1", "'min'", "got 0"]),
    "steps below one": (changed("steps = 6", "steps = 0"), ["schedule.steps", "at least 1", "got 0"]),
    "seed repeated": (changed("seeds = 2", "seeds = [1, 2, 1]"), ["experiment.digits.seeds", "twice"]),
    "negative seed": (changed("seeds = 2", "seeds = [-1]"), ["seeds[0]", "at least 0"]),
    "missing key": (changed('dataset = "digits"\n', ""), ["experiment.digits", "needs the key 'dataset'"]),
    "table without a name": (changed('name = "cnn", ', ""), ["experiment.digits.backbone", "needs the key 'name'"]),
    "baseline absent": (changed('"softmax", ', ""), ["experiment.digits.losses", "baseline 'softmax'"]),
    "claim on an unknown loss": (SMALL + CLAIM.replace('"w_softmax"', '"center"'), ["claim[0].better", "'center'"]),
    "claim on an option no cell has": (
        SMALL + CLAIM.replace('"w_softmax"', '"w_softmax[alpha=2]"'),
        ["claim[0].better", "no cell produces 'w_softmax[alpha=2]'", "'w_softmax'"],
    ),
    "claim on an unknown experiment": (
        SMALL + CLAIM.replace('"digits"', '"digit"'),
        ["claim[0].experiment", "did you mean 'digits'"],
    ),
    "claim on an unknown metric": (SMALL + CLAIM + 'metric = "acuracy"\n', ["claim[0].metric", "'accuracy'"]),
    "claim on time without timing": (SMALL + CLAIM + 'metric = "step_seconds"\n', ["claim[0].metric", "no timing"]),
    "claim at a width that is not there": (SMALL + CLAIM + "width = 9\n", ["claim[0].width", "known: 8"]),
    "published number of nothing": (
        changed("seeds = 2", 'seeds = 2\npublished = { "center" = 99.0 }'),
        ["published", "no cell produces 'center'"],
    ),
    "profile with an unknown key": (
        SMALL + "\n[profile.tiny]\nall = { sedes = 1 }\n",
        ["profile.tiny.all.sedes", "did you mean 'seeds'"],
    ),
    "profile of an unknown experiment": (
        SMALL + "\n[profile.tiny]\nskip = ['digit']\n",
        ["profile.tiny.skip", "did you mean 'digits'"],
    ),
    "profile that leaves nothing": (SMALL + "\n[profile.tiny]\nskip = ['digits']\n", ["skips every experiment"]),
    "too many classes": (changed("seeds = 2", "seeds = 2\nclasses = [5, 11]"), ["classes[1]", "only 10 classes"]),
    "classes of a dataset": (
        changed('dataset = "digits"', 'dataset = { name = "digits", classes = 1 }'),
        ["experiment.digits.dataset", "between 2 and 10"],
    ),
    "a name that would leave its folder": (
        changed('name = "digits"\ndata', 'name = "../x"\ndata'),
        ["name", "letters"],
    ),
    "a number that is none": (
        changed('"w_softmax"]', '{ name = "w_softmax", alpha = nan }]'),
        ["losses[1].alpha", "must be float, got nan"],
    ),
    "an endless margin": (f"margin = inf\n{SMALL}", ["margin", "finite"]),
    "seeds without end": (changed("seeds = 2", "seeds = 1000000000000"), ["seeds", "at most 10000"]),
    "a number of 5000 digits": (f"margin = {'9' * 5000}\n{SMALL}", ["not valid TOML"]),
    "one name for all": (
        changed('[[experiment]]\nname = "digits"', '[defaults]\nname = "x"\n[[experiment]]')
        + SMALL.partition('suite"\n')[2].replace('name = "digits"\n', "", 1),
        ["two experiments are named 'x'"],
    ),
    "classes in two places": (
        changed('dataset = "digits"', 'dataset = { name = "digits", classes = [5, 6, 7] }').replace(
            "seeds = 2", "seeds = 2\nclasses = [2]"
        ),
        ["experiment.digits.classes", "one place"],
    ),
    "not TOML": ("name = ]", ["suite.toml", "not valid TOML", "line 1"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_suite_is_refused_with_place_and_remedy(case, read_suite):
    text, expected = WRONG[case]
    with pytest.raises(SuiteError) as refused:
        read_suite(text)
    sentence = str(refused.value)
    assert sentence.startswith("suite.toml")
    assert "\n" not in sentence
    for part in expected:
        assert part in sentence, sentence


def test_an_unknown_profile_names_the_nearest(read_suite):
    with pytest.raises(SuiteError, match="did you mean 'tiny'"):
        read_suite(SMALL + "\n[profile.tiny]\n", profile="tny")


def test_a_list_value_is_swept_in_all_combinations(read_suite):
    text = changed('"w_softmax"]', '{ name = "w_softmax", alpha = [0.5, 1], gradient = ["exact", "fixed_bias"] }]')
    labels = [spec.label for spec in read_suite(text).experiments[0].losses]
    assert labels == [
        "softmax",
        "w_softmax[alpha=0.5,gradient=exact]",
        "w_softmax[alpha=0.5,gradient=fixed_bias]",
        "w_softmax[alpha=1.0,gradient=exact]",
        "w_softmax[alpha=1.0,gradient=fixed_bias]",
    ]


def test_seeds_may_be_a_number_or_a_list(read_suite):
    assert read_suite(SMALL).experiments[0].seeds == (0, 1)
    assert read_suite(changed("seeds = 2", "seeds = [7, 3]")).experiments[0].seeds == (7, 3)


def test_claims_are_matched_by_meaning_not_by_spelling(read_suite):
    text = changed('"w_softmax"]', '{ name = "w_softmax", alpha = [0.5, 1.0] }]') + CLAIM.replace(
        '"w_softmax"', '"w_softmax[alpha=1]"'
    )
    assert read_suite(text).info.claims[0].better == "w_softmax[alpha=1.0]"


def test_a_profile_is_laid_over_defaults_and_experiments(read_suite):
    text = (
        changed("schedule = { steps = 6, batch = 16 }", "schedule = { batch = 16 }").replace(
            "[[experiment]]", "[defaults]\nschedule = { steps = 99, lr = 0.5 }\n[[experiment]]"
        )
        + "\n[profile.tiny]\nall = { schedule = { steps = 3 }, backbone = { channels = 2 } }\n"
        + 'experiment.digits = { dataset = { train = 100 }, widths = ["min"] }\n'
    )
    plain, tiny = read_suite(text).experiments[0], read_suite(text, "tiny").experiments[0]
    schedules = [experiment.schedules[0].schedule for experiment in (plain, tiny)]
    assert [(each.steps, each.batch, each.lr) for each in schedules] == [(99, 16, 0.5), (3, 16, 0.5)]
    backbones = [experiment.backbones[0].backbone.options for experiment in (plain, tiny)]
    assert [options["channels"] for options in backbones] == [4, 2]
    assert backbones[1]["depths"] == [1]
    assert tiny.datasets[0].dataset.label == "digits[train=100]"
    assert tiny.widths == ("min",)


def test_a_table_with_another_name_replaces_the_old_one(read_suite):
    text = SMALL + '\n[profile.tiny]\nall = { dataset = { name = "digits", train = 50 } }\n'
    text += 'experiment.digits = { warm_start = { loss = { name = "softmax", bias = false }, steps = 2 } }\n'
    text = text.replace("[[experiment]]", '[defaults]\nwarm_start = { loss = "w_softmax", steps = 4 }\n[[experiment]]')
    experiment = read_suite(text, "tiny").experiments[0]
    assert experiment.warm.loss.label == "softmax[bias=false]"
    assert experiment.warm.steps == 2


OPTION_VALUES = st.one_of(
    st.booleans(),
    st.integers(-1000, 1000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["exact", "fixed_bias"]),
    st.lists(st.integers(0, 99), min_size=1, max_size=4),
)
NAMES = st.text(string.ascii_lowercase + "_", min_size=1).filter(
    lambda name: name not in ("true", "false", "inf", "nan")
)


@given(name=NAMES, options=st.dictionaries(NAMES, OPTION_VALUES, max_size=4))
def test_labels_can_be_read_back(name, options):
    assert parse_label(label(name, options)) == (name, options)


@pytest.mark.parametrize("text", ["", "w[alpha]", "w[alpha=]", "w[=1]", "w[alpha=1", "w[a=1,a=2]", "a b"])
def test_a_malformed_label_is_a_value_error(text):
    with pytest.raises(ValueError, match=re.escape(repr(text)[1:-1]) if text else "form"):
        parse_label(text)


@given(
    seeds=st.lists(st.integers(0, 20), min_size=1, max_size=4, unique=True),
    widths=st.lists(st.integers(1, 99), min_size=1, unique=True),
)
def test_any_valid_grid_is_read_as_written(read_suite, seeds, widths):
    text = changed("seeds = 2", f"seeds = {seeds}").replace("widths = [8]", f"widths = {widths}")
    experiment = read_suite(text).experiments[0]
    assert list(experiment.seeds) == seeds
    assert list(experiment.widths) == widths


def test_the_json_schema_accepts_our_suites_and_refuses_a_typo(registry):
    jsonschema = pytest.importorskip("jsonschema")
    import tomllib

    from lossbench.suite.source import built_in

    schema = json.loads(json.dumps(json_schema(registry)))
    for path in built_in().values():
        jsonschema.validate(tomllib.loads(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(changed("seeds = 2", "sedes = 2")), schema)
    assert "w_softmax" in json.dumps(schema)


def test_the_baseline_has_one_label_however_an_experiment_writes_it(read_suite):
    again = SMALL.partition('suite"\n')[2].replace('name = "digits"', 'name = "again"')
    suite = read_suite(SMALL + again.replace('"softmax"', '{ name = "softmax", bias = true }'))
    assert [experiment.losses[0].label for experiment in suite.experiments] == ["softmax", "softmax"]


def test_a_dataset_written_as_a_label_keeps_its_options_in_a_sweep_of_classes(read_suite):
    text = changed('dataset = "digits"', 'dataset = "digits[train=500]"').replace(
        "seeds = 2", "seeds = 2\nclasses = [5]"
    )
    assert read_suite(text).experiments[0].datasets[0].dataset.options.items() >= {"train": 500, "classes": 5}.items()


def test_a_verification_needs_a_dataset_with_pairs(read_suite):
    with pytest.raises(
        SuiteError, match=r"dataset 'digits' does not support verification; these do: .*glyphs.*lfw.*omniglot"
    ):
        read_suite(changed('dataset = "digits"', 'task = "verification"\ndataset = "digits"'))


def test_the_task_is_written_beside_the_dataset_not_in_it(read_suite):
    text = changed('dataset = "digits"', 'dataset = { name = "glyphs", task = "verification" }')
    with pytest.raises(SuiteError, match="is a key of the experiment"):
        read_suite(text)


def test_a_claim_on_a_verification_metric_needs_a_verification(read_suite):
    claim = '\n[[claim]]\ntext = "x"\nexperiment = "digits"\nmetric = "auc"\nbetter = "w_softmax"\nthan = "softmax"\n'
    with pytest.raises(SuiteError, match=r"claim\[0\]\.metric: .*only available for verification"):
        read_suite(SMALL + claim)


def test_changed_data_changes_the_keys_of_its_cells(tmp_path, registry):
    from lossbench import data
    from lossbench.plan.cells import plan
    from lossbench.plan.job import with_data
    from lossbench.suite import reading as suite

    (tmp_path / "pets").mkdir()

    def keys():
        parsed = suite.parse(
            changed('dataset = "digits"', 'dataset = { name = "folder", path = "pets" }'),
            "suite.toml",
            registry,
            lambda spec: data.count_classes(spec.name, dict(spec.options), registry, tmp_path),
        )
        return [cell.key for cell in plan(with_data(parsed, registry, tmp_path))]

    for name in "ab":
        (tmp_path / "pets" / name).mkdir()
        for number in range(5):
            Image.new("RGB", (8, 8), (40 * number, 0, 0)).save(tmp_path / "pets" / name / f"{number}.png")
    before = keys()
    assert keys() == before
    Image.new("RGB", (8, 8), (0, 200, 0)).save(tmp_path / "pets" / "a" / "5.png")
    assert not set(keys()) & set(before)
