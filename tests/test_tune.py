"""[tune]: the same trials for every loss, chosen on images held out of the training set, and what comes of it."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from conftest import SMALL, write_loss
from hypothesis import given
from hypothesis import strategies as st
from synthetic import Truth, noise, write_run

from lossbench import api, train, tune
from lossbench.data import data_folder, load_dataset
from lossbench.errors import LossbenchError, PluginError, SuiteError
from lossbench.merge import merge
from lossbench.plan import plan, select, unique
from lossbench.ranges import Choices, Range
from lossbench.registry import Plugin, Registry
from lossbench.report.analysis import analyse
from lossbench.schema import Cell, Outline, Spec
from lossbench.store import Store, load_records
from lossbench.trials import settings

RANGES = "ranges = { w_softmax = { alpha = [0.1, 2.0] } }\n"
TUNED = SMALL.replace('"w_softmax"]', '"w_softmax", "cosface[s=16.0]"]').replace("seeds = 2", "seeds = 3") + (
    "\n[tune]\ntrials = 4\nseeds = 2\nlr = [0.005, 0.2]\n" + RANGES
)
VERIFIED = """
name = "verified"

[[experiment]]
name = "unseen"
task = "verification"
dataset = { name = "glyphs", classes = 120, per_class = 5, unseen = 40, pairs_per_fold = 20 }
backbone = { name = "cnn", channels = 4, depths = [1] }
widths = [8]
losses = ["softmax", "cosface"]
seeds = 1
schedule = { steps = 3, batch = 16 }

[tune]
trials = 2
validation = 0.25
lr = [0.005, 0.2]
"""
LOSS = Spec("arcface", {"s": 64.0, "m": 0.5}, "arcface", "hash")
LR = Range(0.005, 0.2, logarithmic=True)


def trials_of(cells: list[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.kind == "trial"]


# ---- which settings are tried ----------------------------------------------------------------------------------------


def test_every_loss_is_tried_as_often_and_first_as_it_is_written(read_suite):
    (experiment,) = read_suite(TUNED).experiments
    found = experiment.trials.settings
    assert {label: len(mine) for label, mine in found.items()} == {"softmax": 4, "w_softmax": 4, "cosface[s=16.0]": 4}
    for loss in experiment.losses:
        first = found[loss.label][0]
        assert (first.loss.options, first.lr) == (loss.options, experiment.schedule.lr)
        assert len({(tuple(each.loss.options.items()), each.lr) for each in found[loss.label]}) == 4


def test_an_option_that_the_suite_writes_down_is_not_tuned(read_suite):
    mine = read_suite(TUNED).experiments[0].trials.settings["cosface[s=16.0]"]
    assert {each.loss.options["s"] for each in mine} == {16.0}
    assert len({each.loss.options["m"] for each in mine}) == 4
    assert len({each.lr for each in mine}) == 4


@given(trials=st.integers(2, 40), label=st.sampled_from(["arcface", "arcface[k=1]", "other"]))
def test_trials_lie_within_their_ranges_have_three_digits_and_are_always_the_same(trials, label):
    space = {"s": Range(4.0, 64.0, logarithmic=True), "m": Range(0.1, 0.6)}
    loss = replace(LOSS, label=label)
    found = settings(loss, space, 0.02, LR, trials)
    assert found == settings(loss, space, 0.02, LR, trials)
    assert found == settings(loss, space, 0.02, LR, trials + 7)[:trials]  # a larger budget keeps what was tried
    assert len(found) == trials
    for each in found[1:]:
        assert 4 <= each.loss.options["s"] <= 64
        assert 0.1 <= each.loss.options["m"] <= 0.6
        assert 0.005 <= each.lr <= 0.2
        for value in (*each.loss.options.values(), each.lr):
            assert value == float(f"{value:.3g}")


def test_two_losses_are_tried_at_different_points():
    one, other = (settings(replace(LOSS, label=name), {}, 0.02, LR, 5) for name in ("arcface", "cosface"))
    assert not {each.lr for each in one[1:]} & {each.lr for each in other[1:]}


def test_the_trials_of_a_loss_stay_what_they_are_from_version_to_version():
    found = settings(LOSS, {"s": Range(4.0, 64.0, logarithmic=True), "m": Range(0.1, 0.6)}, 0.02, LR, 4)
    assert [(each.loss.options["s"], each.loss.options["m"], each.lr) for each in found] == PINNED


PINNED = [(64.0, 0.5, 0.02), (23.8, 0.271, 0.0345), (5.96, 0.438, 0.0722), (47.7, 0.105, 0.0165)]


@pytest.mark.parametrize(("axis", "middle"), [(Range(1.0, 100.0, logarithmic=True), 10.0), (Range(0.0, 5.0), 2.5)])
def test_values_are_spread_evenly_over_a_range_or_over_its_magnitudes(axis, middle):
    found = [each.loss.options["s"] for each in settings(LOSS, {"s": axis}, 0.02, None, 257)[1:]]
    assert abs(np.mean(np.array(found) < middle) - 0.5) < 0.02
    quarter = axis.at(0.25)
    assert abs(np.mean(np.array(found) < quarter) - 0.25) < 0.02


def test_two_axes_do_not_go_together():
    space = {"s": Range(0.0, 1.0), "m": Range(0.0, 1.0), "r": Range(0.0, 1.0), "t": Range(0.0, 1.0)}
    loss = replace(LOSS, options=dict.fromkeys(space, 0.5))
    found = [list(each.loss.options.values()) for each in settings(loss, space, 0.02, None, 65)[1:]]
    correlation = np.corrcoef(np.array(found).T) - np.eye(4)
    assert np.abs(correlation).max() < 0.35


def test_a_range_of_an_int_gives_all_its_whole_numbers_equally_often():
    counts = np.bincount([Range(1, 4, whole=True).at((share + 0.5) / 400) for share in range(400)])
    assert counts.tolist() == [0, 100, 100, 100, 100]
    assert isinstance(Range(1, 4, whole=True).at(0.3), int)


def test_a_space_with_fewer_points_than_trials_gives_each_once():
    loss = Spec("l_softmax", {"m": 4, "form": "a"}, "l_softmax", "hash")
    found = settings(loss, {"m": Range(1, 4, whole=True), "form": Choices(("a", "b"))}, 0.02, None, 50)
    assert len(found) == 8
    assert {(each.loss.options["m"], each.loss.options["form"]) for each in found} == {
        (m, form) for m in (1, 2, 3, 4) for form in "ab"
    }
    assert settings(loss, {}, 0.02, None, 50) == (found[0],)


def test_ranges_are_read_from_the_file_alone_and_know_ints_magnitudes_and_choices(tmp_path):
    path = write_loss(tmp_path, "mine", "pass")
    text = path.read_text().replace("level: float = 1.0", 'level: float = 1.0, k: int = 2, form: str = "a"')
    path.write_text(text + 'RANGES = {"level": (0.1, 2), "k": (1, 9), "form": ["a", "b"]}\nraise SystemExit\n')
    assert Plugin("loss", "mine", path).ranges == {
        "level": Range(0.1, 2.0, logarithmic=True),
        "k": Range(1, 9, whole=True),
        "form": Choices(("a", "b")),
    }


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{"levle": (0.1, 2.0)}', "RANGES: unknown option 'levle'; did you mean 'level'?"),
        ('{"level": (2.0, 0.1)}', "RANGES['level']: must rise from its low to its high end, got 2 and 0.1"),
        ('{"level": (0.1, 1.0, 2.0)}', "RANGES['level']: must be a range of two numbers"),
        ('{"level": 0.1}', "RANGES['level']: must be a range (low, high) or a list of choices, got 0.1"),
        ('{"level": [1.0, 1.0]}', "RANGES['level']: must be two or more different choices"),
        ('{"level": ["a", "b"]}', "RANGES['level']: must be float, got 'a'"),
        ("[1, 2]", "RANGES: must map options to ranges"),
        ('{"level": (0.1, float("2"))}', "RANGES must be a literal"),
    ],
)
def test_ranges_that_make_no_sense_are_one_sentence(tmp_path, written, expected):
    path = write_loss(tmp_path, "mine", "pass")
    path.write_text(path.read_text() + f"RANGES = {written}\n")
    with pytest.raises(PluginError) as refused:
        _ = Plugin("loss", "mine", path).ranges
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", Registry().names("loss"))
def test_every_built_in_loss_accepts_the_ends_of_its_ranges(name, registry):
    plugin = registry.find("loss", name)
    for option, axis in plugin.ranges.items():
        for end in (axis.low, axis.high) if isinstance(axis, Range) else axis.values:
            plugin.load()(4, 3, **{option: end})
    lows = {option: axis.at(0.0) for option, axis in plugin.ranges.items()}
    highs = {option: axis.at(1.0) for option, axis in plugin.ranges.items()}
    plugin.load()(4, 3, **lows)
    plugin.load()(4, 3, **highs)


def test_check_finds_a_range_whose_corner_the_loss_refuses(tmp_path):
    from lossbench.check import check

    path = write_loss(tmp_path, "mine", "pass", constructor='if level > 5: raise ValueError("level is at most 5")')
    path.write_text(path.read_text() + 'RANGES = {"level": (1.0, 6.0)}\n')
    found = {finding.property: finding for finding in check(Plugin("loss", "mine", path))}["ranges"]
    assert (found.status, found.sentence) == ("fail", "level=6.0, within RANGES, is refused: level is at most 5")


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
    settled = tune.with_tuned(suite, cells, {cell.key: {"status": "done", "accuracy": 1.0} for cell in trials})
    tuned = [cell for cell in plan(settled) if cell.experiment == "digits-tuned" and cell.kind == "train"]
    assert {cell.warm_cell().key for cell in tuned} == {cell.warm_cell().key for cell in trained}


def test_filters_choose_the_trials_of_a_loss_by_its_label(read_suite):
    cells = plan(read_suite(TUNED))
    chosen = select(cells, losses=["w_softmax"], seeds=[1, 2])
    assert {cell.loss.name for cell in chosen} == {"w_softmax"}
    assert sorted((cell.kind, cell.seed) for cell in chosen) == [
        *[("train", 1), ("train", 2)],
        *[("trial", 1)] * 4,
    ]


# ---- what is chosen --------------------------------------------------------------------------------------------------


def made_up(suite, truth) -> dict[str, dict]:
    found = {cell.key: truth(cell) for cell in trials_of(plan(suite))}
    return {key: record for key, record in found.items() if record is not None}


def test_the_trial_with_the_best_mean_on_the_held_out_images_wins_at_every_point(read_suite):
    suite = read_suite(
        TUNED.replace("widths = [8]", 'widths = [8, "min", 3]').replace("seeds = 3", "seeds = 3\nclasses = [5, 10]")
    )
    cells = plan(suite)
    records = made_up(suite, lambda cell: {"status": "done", "accuracy": 80 + noise(cell, 5)})
    scores = defaultdict(list)
    for cell in trials_of(cells):
        label, _, number = cell.loss.label.rpartition(" trial ")
        scores[cell.classes, cell.width, label, int(number)].append((records[cell.key]["accuracy"], cell))
    tuned = tune.with_tuned(suite, cells, records).experiments[-1]
    assert tuned.name == "digits-tuned"
    checked = 0
    for cell in plan(replace(suite, experiments=(tuned,))):
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
    records = made_up(suite, lambda cell: {"status": "done", "accuracy": 90.0})
    tuned = tune.with_tuned(suite, plan(suite), records).experiments[-1]
    assert {cell.key for cell in plan(replace(suite, experiments=(tuned,)))} == {
        cell.key for cell in plan(suite) if cell.kind == "train"
    }  # the loss as it is written: nothing is left to train


def test_a_trial_counts_only_if_all_its_seeds_finished_and_a_loss_without_any_is_left_out(read_suite):
    suite = read_suite(TUNED)

    def truth(cell: Cell) -> dict | None:
        label, number = cell.tried
        lost = (label == "w_softmax" and number == 2 and cell.seed == 1) or label == "softmax"
        return {
            "status": "diverged" if lost else "done",
            "accuracy": None if lost else 90.0 + 5 * (number == 2) + number,
        }

    records = made_up(suite, truth)
    tuned = tune.with_tuned(suite, plan(suite), records).experiments[-1]
    chosen = {label: setting for (_, _, label), setting in tuned.settings.items()}
    settings_of = suite.experiments[0].trials.settings
    assert set(chosen) == {"w_softmax", "cosface[s=16.0]"}
    assert chosen["w_softmax"].lr == settings_of["w_softmax"][3].lr
    assert chosen["cosface[s=16.0]"].lr == settings_of["cosface[s=16.0]"][1].lr
    (sentence,) = tune.without_setting(plan(suite), records)
    assert "softmax" in sentence
    assert "none of its 4 trials finished" in sentence


def test_nothing_is_chosen_for_a_loss_before_all_its_trials_have_ended(read_suite):
    suite = read_suite(TUNED)
    held_back = next(cell for cell in trials_of(plan(suite)) if cell.loss.name == "w_softmax")
    records = made_up(suite, lambda cell: {"status": "done", "accuracy": 1.0})
    del records[held_back.key]
    tuned = tune.with_tuned(suite, plan(suite), records).experiments[-1]
    assert {label for _, _, label in tuned.settings} == {"softmax", "cosface[s=16.0]"}
    assert tune.waiting(plan(suite), records) == "1 of 3 losses and points have trials left to run: not tuned yet"
    assert tune.with_tuned(suite, plan(suite), {}) == suite


# ---- suites ----------------------------------------------------------------------------------------------------------

WRONG = {
    "too few trials": ("trials = 4", "trials = 1", ["tune.trials", "at least 2"]),
    "unknown key": ("trials = 4", "trails = 4", ["tune", "'trials'"]),
    "a share of everything": ("seeds = 2\nlr", "validation = 1.0\nlr", ["tune.validation", "less than 1"]),
    "more seeds than there are": ("seeds = 2\nlr", "seeds = 9\nlr", ["tune.seeds", "has only 3, got 9"]),
    "unknown experiment": ("seeds = 2\nlr", 'experiments = ["digit"]\nlr', ["tune.experiments[0]", "'digits'"]),
    "falling rates": ("[0.005, 0.2]", "[0.2, 0.005]", ["tune.lr", "must rise"]),
    "a rate of zero": ("[0.005, 0.2]", "[0.0, 0.2]", ["tune.lr[0]", "greater than 0"]),
    "three ends": ("[0.1, 2.0]", "[0.1, 1.0, 2.0]", ["tune.ranges.w_softmax.alpha", "at most 2 items"]),
    "falling range": ("[0.1, 2.0]", "[2.0, 0.1]", ["tune.ranges.w_softmax.alpha", "must rise", "2 and 0.1"]),
    "unknown option": ("alpha = [", "alhpa = [", ["tune.ranges.w_softmax", "unknown option 'alhpa'", "'alpha'"]),
    "unknown loss": ("{ w_softmax", "{ w_softmx", ["tune.ranges.w_softmx", "'w_softmax'"]),
    "a loss that is not tuned": ("{ w_softmax = { alpha", "{ l_softmax = { m", ["no experiment that is tuned has"]),
    "choices of another type": (
        "alpha = [0.1, 2.0]",
        'gradient = { choices = ["exact", "vague"] }',
        ["tune.ranges.w_softmax.gradient", "'vague'"],
    ),
    "one choice": ("[0.1, 2.0]", "{ choices = [1.0] }", ["tune.ranges.w_softmax.alpha.choices", "at least 2 items"]),
    "images held out already": (
        'dataset = "digits"',
        'dataset = { name = "digits", validation = 0.1 }',
        ["tune.validation", "holds images out already"],
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
    with pytest.raises(SuiteError, match="there is nothing to tune"):
        read_suite(SMALL + "\n[tune]\ntrials = 3\n")
    with pytest.raises(SuiteError, match=r"profile\.short\.tune: there is no \[tune\]"):
        read_suite(SMALL + "\n[profile.short]\ntune = { trials = 3 }\n")


def test_a_profile_tunes_at_another_scale_and_may_skip_what_is_tuned(read_suite):
    other = SMALL.partition('suite"\n')[2].replace('name = "digits"', 'name = "other"')
    text = TUNED.replace("\n[tune]", other + '\n[tune]\nexperiments = ["digits"]')
    text += '[profile.short]\ntune = { trials = 2, seeds = 1 }\n[profile.without]\nskip = ["digits"]\n'
    assert read_suite(text).outline.tuning.experiments == {"digits": "digits-tuned"}
    short = read_suite(text, "short")
    assert len(trials_of(plan(short))) == 3 * 2
    assert short.outline.tuning.lr == "0.005…0.2 (log)"
    assert read_suite(text, "without").outline.tuning is None
    assert trials_of(plan(read_suite(text, "without"))) == []


def test_a_claim_may_be_about_the_tuned_experiment(read_suite):
    claim = '[[claim]]\ntext = "t"\nexperiment = "digits-tuned"\nbetter = "cosface[s=16]"\nthan = "softmax"\n\n[tune]'
    (found,) = read_suite(TUNED.replace("[tune]", claim)).outline.claims
    assert (found.experiment, found.better) == ("digits-tuned", "cosface[s=16.0]")


def test_the_outline_survives_its_way_through_a_file(read_suite):
    outline = read_suite(TUNED).outline
    assert Outline.from_json(json.loads(json.dumps(outline.to_json()))) == outline


# ---- a whole run -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A tuned suite, run: its folder, and how the run ended."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "suite.toml").write_text(TUNED.replace("steps = 6", "steps = 12"))
    result = api.run(folder / "suite.toml", out=folder / "run", reports=folder / "reports")
    return folder, result


def test_one_command_runs_trials_then_tuned_cells_and_the_same_again_does_nothing(whole):
    folder, result = whole
    assert result.unfinished == []
    frame = load_records(folder / "run")
    assert frame.groupby("experiment").size().to_dict() == {"digits": 9 + 24, "digits-tuned": 9}
    assert frame.groupby("kind").size().to_dict() == {"train": 18, "trial": 24}
    assert set(frame["status"]) == {"done"}
    assert set(frame[frame["kind"] == "trial"]["total"]) == {round(0.2 * len(load_dataset("digits").train))}
    assert set(frame[frame["kind"] == "train"]["total"]) == {len(load_dataset("digits").test)}
    began = []
    plan_before = (folder / "run/plan.json").read_bytes()
    api.run(folder / "suite.toml", out=folder / "run", reports=None, on_start=lambda job, todo: began.append(todo))
    assert began == [[]]
    assert (folder / "run/plan.json").read_bytes() == plan_before


def test_the_report_says_what_the_records_say(whole):
    folder, _ = whole
    frame = load_records(folder / "run")
    plans = {cell.key: cell for cell in Store(folder / "run").plan()[1]}
    lr = {key: cell.schedule.lr for key, cell in plans.items()}
    rows = list(csv.DictReader((folder / "reports/tuning.csv").read_text().splitlines()))
    assert [row["loss"] for row in rows] == ["softmax", "w_softmax", "cosface[s=16.0]"]
    for row in rows:
        mine = frame[frame["label"] == row["loss"]].set_index("seed")
        default = mine[mine["experiment"] == "digits"]["accuracy"]
        tuned = mine[mine["experiment"] == "digits-tuned"]["accuracy"]
        assert float(row["default"]) == pytest.approx(default.mean())
        assert float(row["tuned"]) == pytest.approx(tuned.mean())
        assert float(row["delta"]) == pytest.approx((tuned - default).mean())
        if row["trial"] == "1":
            assert (float(row["delta"]), row["low"], row["high"]) == (0.0, "", "")
        half = 4.302652729911275 * (tuned - default).std(ddof=1) / math.sqrt(3)  # t, two degrees of freedom, 97.5 %
        if row["trial"] != "1":
            assert float(row["high"]) - float(row["delta"]) == pytest.approx(half, rel=0.2, abs=0.1)
        trials = frame[frame["label"].str.startswith(f"{row['loss']} trial ")].groupby("label")["accuracy"].mean()
        assert len(trials) == int(row["trials"]) == 4
        assert float(row["validation"]) == pytest.approx(trials.max())
        assert trials[f"{row['loss']} trial {row['trial']}"] == trials.max()
        used = {lr[key] for key in mine[mine["experiment"] == "digits-tuned"]["key"]}
        assert used == {float(row["lr"])}
    summary = (folder / "reports/summary.md").read_text()
    section = summary.partition("## Tuning")[2].partition("\n## ")[0]
    assert "4 trials at every point (2 seeds each" in section
    assert "20 % of the training images were held out" in section
    assert "alpha 0.1…2 (log)" in section
    assert "lr=" in section
    for row in rows:
        assert f"{float(row['tuned']):.2f}" in section
        assert f"{float(row['validation']):.2f}" in section
    assert "digits-tuned" in summary.partition("## Against softmax")[2]


def test_the_numbers_of_the_tuning_are_in_report_json_as_its_schema_says(whole):
    import jsonschema

    from lossbench.report.data_schema import json_schema

    folder, _ = whole
    stated = json.loads((folder / "reports/report.json").read_text())
    jsonschema.validate(stated, json_schema())
    assert stated["tuning"]["trials"] == 4
    assert stated["tuning"]["ranges"]["w_softmax"] == {"alpha": "0.1…2 (log)"}
    assert [row["loss"] for row in stated["tuning"]["losses"]] == ["softmax", "w_softmax", "cosface[s=16.0]"]


def test_trials_are_in_no_table_of_losses(whole):
    folder, _ = whole
    results = analyse([folder / "run"])
    assert results.labels == ["softmax", "w_softmax", "cosface[s=16.0]"]
    assert set(results.main["experiment"]) == {"digits", "digits-tuned"}
    assert set(results.main["n"]) == {3}


def test_merging_keeps_trials_and_tuned_cells(whole, tmp_path):
    folder, _ = whole
    done = merge([folder / "run"], tmp_path / "merged")
    assert (done.copied, done.missing) == (len(unique(Store(folder / "run").plan()[1])), 0)
    assert analyse([tmp_path / "merged"]).tuning.equals(analyse([folder / "run"]).tuning)


def test_a_loss_that_only_fails_is_left_out_with_a_sentence_and_the_others_are_tuned(tmp_path):
    write_loss(tmp_path, "broken", "if self.calls > 1: raise RuntimeError('no')")
    text = SMALL.replace('"w_softmax"]', '"broken"]') + "\n[tune]\ntrials = 2\nlr = [0.005, 0.2]\n"
    (tmp_path / "suite.toml").write_text(text)
    said: list[str] = []
    result = api.run(tmp_path / "suite.toml", out=tmp_path / "run", reports=tmp_path / "reports", notify=said.append)
    assert any("not tuned: digits  broken  M=8" in sentence for sentence in said)
    frame = load_records(result.folder)
    assert set(frame[frame["experiment"] == "digits-tuned"]["label"]) == {"softmax"}
    row = analyse([result.folder]).tuning.set_index("loss").loc["broken"]
    assert (row["trials"], row["failed"], row["chosen"]) == (2, 2, "")
    assert "2, 2 failed" in (tmp_path / "reports/summary.md").read_text()


def test_diverged_trials_are_answers_and_not_failures_of_a_run(read_suite, tmp_path):
    suite = read_suite(TUNED)
    run = write_run(suite, tmp_path / "run", lambda cell: Truth(status="diverged") if cell.kind == "trial" else Truth())
    from lossbench.screen import show_status

    assert show_status(Store(run)) == 0
    assert analyse([run]).tuning["failed"].tolist() == [4, 4, 4]


def test_verification_is_tuned_on_held_out_classes(tmp_path):
    (tmp_path / "suite.toml").write_text(VERIFIED)
    result = api.run(tmp_path / "suite.toml", out=tmp_path / "run", reports=None)
    frame = load_records(result.folder)
    assert frame.groupby(["experiment", "kind"]).size().to_dict() == {
        ("unseen", "train"): 2,
        ("unseen", "trial"): 4,
        ("unseen-tuned", "train"): 2,
    }
    tuning = analyse([result.folder]).tuning
    assert tuning["classes"].tolist() == [120, 120]
    assert tuning["tuned"].notna().all()


def test_the_command_line_plans_what_follows_refuses_shards_and_shows_ranges(tmp_path, lossbench):
    (tmp_path / "suite.toml").write_text(TUNED)
    planned = lossbench("plan", "suite.toml", "--no-forecast")
    assert planned.returncode == 0
    assert "33 of 33 cells to train" in planned.stdout
    assert "then 9 tuned cells" in planned.stdout
    assert "then 3 tuned cells" in lossbench("plan", "suite.toml", "--no-forecast", "-l", "w_softmax").stdout
    refused = lossbench("run", "suite.toml", "--shard", "1/2")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "lossbench: --shard: suite.toml has [tune], and a tuned cell needs all trials of its loss; run it whole\n"
    )
    assert "s: float = 64.0  tuned over 4…64 (log)" in lossbench("info", "loss", "cosface").stdout


def test_a_range_that_a_loss_refuses_is_found_before_anything_trains(tmp_path):
    (tmp_path / "suite.toml").write_text(TUNED.replace("[0.1, 2.0]", "[-2.0, -0.1]"))
    with pytest.raises(LossbenchError, match=r"loss 'w_softmax trial \d': alpha must be at least 0"):
        api.run(tmp_path / "suite.toml", out=tmp_path / "run", reports=None)
    assert not (tmp_path / "run").exists()
