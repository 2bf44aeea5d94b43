"""[tune]: the same trials for every loss, chosen on images held out of the training set, and what comes of it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from conftest import SMALL
from kit.suites import RANGES, TUNED, VERIFIED
from kit.synthetic import noise

from lossbench import api
from lossbench.core.errors import SuiteError
from lossbench.core.model import Cell, Suite, SuiteInfo
from lossbench.data import data_folder, load_dataset
from lossbench.plan.cells import plan
from lossbench.plan.selection import Selection, select
from lossbench.suite import settings as tune
from lossbench.training import cell as train


def trials_of(cells: list[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.kind == "trial"]


# ---- what a trial is -------------------------------------------------------------------------------------------------


def test_no_trial_is_without_held_out_images_and_nothing_else_has_any(read_suite):
    for text in (TUNED, VERIFIED):
        cells = plan(read_suite(text))
        share = 0.2 if text is TUNED else 0.25
        assert {cell.dataset.options["validation"] for cell in trials_of(cells)} == {share}
        assert {cell.dataset.options["validation"] for cell in cells if cell.kind == "train"} == {None}


def test_images_of_the_test_set_never_reach_a_trial(tmp_path):
    """The backbone refuses white images, which only the test set has."""
    for folder in ("datasets", "backbones"):
        (tmp_path / folder).mkdir()
    (tmp_path / "datasets/trap.py").write_text(
        '''"""A test set of white images."""
import numpy as np
from lossbench.data import Dataset, Split

def load(root):
    labels = np.arange(60) % 3
    dark = np.random.default_rng(0).integers(0, 100, (60, 8, 8, 1), dtype=np.uint8)
    return Dataset(Split.of(dark, labels), Split.of(np.full_like(dark, 255), labels), 3)
'''
    )
    (tmp_path / "backbones/wary.py").write_text(
        '''"""Refuses white images."""
from torch import nn

class Backbone(nn.Module):
    def __init__(self, in_shape, width):
        super().__init__()
        self.fc = nn.Linear(64, width)

    def forward(self, images):
        assert images.max() < 0.9, "this is an image of the test set"
        return self.fc(images.flatten(1))
'''
    )
    text = TUNED.replace('dataset = "digits"', 'dataset = "trap"').replace(
        '{ name = "cnn", channels = 4, depths = [1] }', '"wary"'
    )
    (tmp_path / "suite.toml").write_text(text.replace("schedule = {", "schedule = { evaluations = 2,"))
    job = api.prepare(tmp_path / "suite.toml")
    tested = next(cell for cell in job.cells if cell.kind == "train")
    with pytest.raises(AssertionError, match="of the test set"):
        train.run(tested, job.registry, job.data)
    for cell in trials_of(job.cells):
        assert train.run(cell, job.registry, job.data).record.status == "done"


def test_a_trial_of_a_verification_learns_fewer_classes_and_is_tested_on_the_others(read_suite):
    cells = plan(read_suite(VERIFIED))
    assert {cell.classes for cell in trials_of(cells)} == {90}
    assert {cell.classes for cell in cells if cell.kind == "train"} == {120}
    options = trials_of(cells)[0].dataset.options
    held_out = load_dataset("glyphs", data=data_folder(), **options)
    whole = load_dataset("glyphs", data=data_folder(), **{**options, "validation": None})
    assert held_out.test.whole is held_out.train.whole or np.shares_memory(held_out.test.whole, held_out.train.whole)
    assert len(held_out.train) + len(held_out.test) == len(whole.train)


def test_all_trials_of_a_seed_share_one_warm_start_whatever_their_learning_rate(read_suite):
    suite = read_suite(TUNED.replace("\n[tune]", "warm_start = { steps = 4 }\n\n[tune]"))
    cells = plan(suite)
    trials, trained = trials_of(cells), [cell for cell in cells if cell.kind == "train"]
    assert len({cell.schedule.lr for cell in trials}) > 5
    assert len({cell.warm_cell().key for cell in trials}) == 2  # seeds
    assert {cell.warm_cell().schedule.lr for cell in trials} == {0.01}
    assert not {cell.warm_cell().key for cell in trials} & {cell.warm_cell().key for cell in trained}
    assert {cell.warm_cell().key for cell in cells if cell.warm} == {cell.key for cell in cells if cell.kind == "warm"}
    again = [Cell.from_json(json.loads(json.dumps(cell.to_json()))) for cell in cells]
    assert again == cells
    assert [cell.computed_key() for cell in again] == [cell.key for cell in cells]
    # The tuned cells refine what the default ones do.
    records = {cell.key: {"status": "done", "score": 1.0} for cell in trials}
    tuned = [cell for cell in plan(only_tuned(suite, records)) if cell.kind == "train"]
    assert {cell.warm_cell().key for cell in tuned} == {cell.warm_cell().key for cell in trained}


def test_filters_choose_the_trials_of_a_loss_by_its_label(read_suite):
    cells = plan(read_suite(TUNED))
    chosen = select(cells, Selection(losses=["w_softmax"], seeds=[1, 2]))
    assert {cell.loss.name for cell in chosen} == {"w_softmax"}
    assert sorted((cell.kind, cell.seed) for cell in chosen) == [
        *[("train", 1), ("train", 2)],
        *[("trial", 1)] * 4,
    ]


# ---- what is chosen --------------------------------------------------------------------------------------------------


def only_tuned(suite: Suite, records: dict) -> Suite:
    """The suite with the experiments alone that its trials have decided."""
    return replace(suite, experiments=tune.tuned_experiments(suite.experiments, plan(suite), records))


def made_up(suite, truth) -> dict[str, dict]:
    found = {cell.key: truth(cell) for cell in trials_of(plan(suite))}
    return {key: record for key, record in found.items() if record is not None}


def test_the_trial_with_the_best_mean_on_the_held_out_images_wins_at_every_point(read_suite):
    suite = read_suite(
        TUNED.replace("widths = [8]", 'widths = [8, "min", 3]').replace("seeds = 3", "seeds = 3\nclasses = [5, 10]")
    )
    cells = plan(suite)
    records = made_up(suite, lambda cell: {"status": "done", "score": 80 + noise(cell, 5)})
    scores = defaultdict(list)
    for cell in trials_of(cells):
        scores[cell.classes, cell.width, cell.loss.label, cell.trial].append((records[cell.key]["score"], cell))
    (tuned,) = only_tuned(suite, records).experiments
    assert tuned.name == "digits-tuned"
    checked = 0
    for cell in plan(only_tuned(suite, records)):
        mine = {
            number: np.mean([accuracy for accuracy, _ in found])
            for (classes, width, label, number), found in scores.items()
            if (classes, width, label) == (cell.classes, cell.width, cell.loss.label)
        }
        best = max(mine, key=mine.get)
        _, winner = scores[cell.classes, cell.width, cell.loss.label, best][0]
        assert (cell.loss.options, cell.schedule.lr) == (winner.loss.options, winner.schedule.lr)
        assert cell.dataset.options["validation"] is None
        checked += 1
    assert checked == 2 * 3 * 3 * 3  # classes, widths, losses, seeds


def test_of_equal_trials_the_earliest_wins(read_suite):
    suite = read_suite(TUNED)
    records = made_up(suite, lambda cell: {"status": "done", "score": 90.0})
    assert {cell.key for cell in plan(only_tuned(suite, records))} == {
        cell.key for cell in plan(suite) if cell.kind == "train"
    }  # the default setting: its cells are already planned


def test_a_trial_counts_only_if_all_its_seeds_finished_and_a_loss_without_any_is_left_out(read_suite):
    suite = read_suite(TUNED)

    def truth(cell: Cell) -> dict | None:
        label, number = cell.loss.label, cell.trial
        lost = (label == "w_softmax" and number == 2 and cell.seed == 1) or label == "softmax"
        return {
            "status": "diverged" if lost else "done",
            "score": None if lost else 90.0 + 5 * (number == 2) + number,
        }

    records = made_up(suite, truth)
    (tuned,) = only_tuned(suite, records).experiments
    chosen = {label: setting for (_, label), setting in tuned.settings.items()}
    settings_of = suite.experiments[0].trials.settings
    assert set(chosen) == {"w_softmax", "cosface[s=16.0]"}
    assert chosen["w_softmax"].schedule == settings_of["w_softmax"][3].schedule
    assert chosen["cosface[s=16.0]"].schedule == settings_of["cosface[s=16.0]"][1].schedule
    (sentence,) = tune.notices(plan(suite), records)
    assert "softmax" in sentence
    assert "none of its 4 trials finished" in sentence


def test_nothing_is_chosen_for_a_loss_before_all_its_trials_have_ended(read_suite):
    suite = read_suite(TUNED)
    held_back = next(cell for cell in trials_of(plan(suite)) if cell.loss.name == "w_softmax")
    records = made_up(suite, lambda cell: {"status": "done", "score": 1.0})
    del records[held_back.key]
    (tuned,) = only_tuned(suite, records).experiments
    assert {label for _, label in tuned.settings} == {"softmax", "cosface[s=16.0]"}
    assert list(tune.notices(plan(suite), records)) == [
        "not tuned yet: 1 of 3 losses and points still have trials to run"
    ]
    assert only_tuned(suite, {}).experiments == ()


# ---- suites ----------------------------------------------------------------------------------------------------------

WRONG = {
    "too few trials": ("trials = 4", "trials = 1", ["tune.trials", "at least 2"]),
    "unknown key": ("trials = 4", "trails = 4", ["tune", "'trials'"]),
    "a share of everything": ("seeds = 2\nlr", "validation = 1.0\nlr", ["tune.validation", "less than 1"]),
    "more seeds than there are": ("seeds = 2\nlr", "seeds = 9\nlr", ["tune.seeds", "has only 3 seeds, got 9"]),
    "unknown experiment": ("seeds = 2\nlr", 'experiments = ["digit"]\nlr', ["tune.experiments[0]", "'digits'"]),
    "falling rates": ("[0.005, 0.2]", "[0.2, 0.005]", ["tune.lr", "must have low < high"]),
    "a rate of zero": ("[0.005, 0.2]", "[0.0, 0.2]", ["tune.lr:", "greater than 0"]),
    "three ends": ("[0.1, 2.0]", "[0.1, 1.0, 2.0]", ["tune.ranges.w_softmax.alpha: must be [low, high] or {"]),
    "falling range": ("[0.1, 2.0]", "[2.0, 0.1]", ["tune.ranges.w_softmax.alpha", "must have low < high", "2 and 0.1"]),
    "unknown option": ("alpha = [", "alhpa = [", ["tune.ranges.w_softmax", "unknown option 'alhpa'", "'alpha'"]),
    "unknown loss": ("{ w_softmax", "{ w_softmx", ["tune.ranges.w_softmx", "'w_softmax'"]),
    "a loss that is not tuned": ("{ w_softmax = { alpha", "{ l_softmax = { m", ["no tuned experiment has"]),
    "choices of another type": (
        "alpha = [0.1, 2.0]",
        'gradient = { choices = ["exact", "vague"] }',
        ["tune.ranges.w_softmax.gradient", "'vague'"],
    ),
    "one choice": ("[0.1, 2.0]", "{ choices = [1.0] }", ["tune.ranges.w_softmax.alpha.choices", "at least 2 items"]),
    "images held out already": (
        'dataset = "digits"',
        'dataset = { name = "digits", validation = 0.1 }',
        ["tune.validation", "already holds images out"],
    ),
    "more images than are left": (
        'dataset = "digits"',
        'dataset = { name = "digits", train = 1150 }',
        ["tune.validation", "train must be between", "got 1150"],
    ),
    "the name of a tuned experiment": (
        "[tune]",
        SMALL.partition('suite"\n')[2].replace('name = "digits"', 'name = "digits-tuned"') + "\n[tune]",
        ["experiment.digits-tuned", "once it is tuned"],
    ),
    "a trend along what is tuned": (
        "[tune]",
        '[[claim]]\ntext = "t"\nexperiment = "digits-tuned"\nmetric = "angle"\nincreases_with = "alpha"\n'
        'loss = "w_softmax"\n\n[tune]',
        ["claim[0]", "tuning chooses the options of 'digits-tuned'"],
    ),
    "step times of what is tuned": (
        "[tune]",
        '[[claim]]\ntext = "t"\nexperiment = "digits-tuned"\nmetric = "step_seconds"\nbetter = "w_softmax"\n'
        'than = "softmax"\n\n[tune]',
        ["claim[0].metric", "'digits-tuned' has no timing cells"],
    ),
    "a profile of nothing": (TUNED.partition("\n[tune]")[2], "", ["needs the key 'trials'"]),
    "a wrong profile": (RANGES, RANGES + "[profile.short]\ntune = { trials = 0 }\n", ["profile.short.tune.trials"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_tune_is_refused_with_place_and_remedy(case, read_suite):
    old, new, expected = WRONG[case]
    assert TUNED.count(old) == 1, old
    with pytest.raises(SuiteError) as refused:
        read_suite(TUNED.replace(old, new))
    sentence = str(refused.value)
    assert sentence.startswith("suite.toml")
    assert "\n" not in sentence
    for part in expected:
        assert part in sentence, sentence


def test_nothing_to_tune_is_refused(read_suite):
    with pytest.raises(SuiteError, match="nothing to tune"):
        read_suite(SMALL + "\n[tune]\ntrials = 3\n")
    with pytest.raises(SuiteError, match=r"profile\.short\.tune: the suite has no \[tune\]"):
        read_suite(SMALL + "\n[profile.short]\ntune = { trials = 3 }\n")


def test_a_profile_tunes_at_another_scale_and_may_skip_what_is_tuned(read_suite):
    other = SMALL.partition('suite"\n')[2].replace('name = "digits"', 'name = "other"')
    text = TUNED.replace("\n[tune]", other + '\n[tune]\nexperiments = ["digits"]')
    text += '[profile.short]\ntune = { trials = 2, seeds = 1 }\n[profile.without]\nskip = ["digits"]\n'
    assert read_suite(text).info.tuning.experiments == {"digits": "digits-tuned"}
    short = read_suite(text, "short")
    assert len(trials_of(plan(short))) == 3 * 2
    assert short.info.tuning.schedule == {"lr": "0.005…0.2 (log)"}
    assert read_suite(text, "without").info.tuning is None
    assert trials_of(plan(read_suite(text, "without"))) == []


def test_a_claim_may_be_about_the_tuned_experiment(read_suite):
    claim = '[[claim]]\ntext = "t"\nexperiment = "digits-tuned"\nbetter = "cosface[s=16]"\nthan = "softmax"\n\n[tune]'
    (found,) = read_suite(TUNED.replace("[tune]", claim)).info.claims
    assert (found.experiment, found.better) == ("digits-tuned", "cosface[s=16.0]")


def test_the_info_of_a_suite_survives_its_way_through_a_file(read_suite):
    info = read_suite(TUNED).info
    assert SuiteInfo.from_json(json.loads(json.dumps(info.to_json()))) == info
