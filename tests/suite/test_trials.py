"""[tune]: which settings of a loss are tried."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import write_loss
from hypothesis import given
from hypothesis import strategies as st
from kit.suites import TUNED

from lossbench.core.errors import PluginError
from lossbench.core.format import Schedule
from lossbench.core.model import Spec
from lossbench.plugins.ranges import Choices, Range
from lossbench.plugins.registry import Plugin, Registry
from lossbench.suite.trials import settings

LOSS = Spec("arcface", {"s": 64.0, "m": 0.5}, "arcface", "hash")
SCHEDULE = Schedule(steps=10, lr=0.02)
LR = {"lr": Range(0.005, 0.2, logarithmic=True)}


def test_every_loss_is_tried_as_often_and_first_as_it_is_written(read_suite):
    (experiment,) = read_suite(TUNED).experiments
    found = experiment.trials.settings
    assert {label: len(mine) for label, mine in found.items()} == {"softmax": 4, "w_softmax": 4, "cosface[s=16.0]": 4}
    for loss in experiment.losses:
        first = found[loss.label][0]
        assert (first.loss.options, first.schedule) == (loss.options, {})
        assert len({(*each.loss.options.items(), *each.schedule.items()) for each in found[loss.label]}) == 4


def test_an_option_that_the_suite_writes_down_is_not_tuned(read_suite):
    mine = read_suite(TUNED).experiments[0].trials.settings["cosface[s=16.0]"]
    assert {each.loss.options["s"] for each in mine} == {16.0}
    assert len({each.loss.options["m"] for each in mine}) == 4
    assert len({each.schedule.get("lr") for each in mine}) == 4


@given(trials=st.integers(2, 40), label=st.sampled_from(["arcface", "arcface[k=1]", "other"]))
def test_trials_lie_within_their_ranges_have_three_digits_and_are_always_the_same(trials, label):
    space = {"s": Range(4.0, 64.0, logarithmic=True), "m": Range(0.1, 0.6)}
    loss = replace(LOSS, label=label)
    found = settings(loss, space, SCHEDULE, LR, trials)
    assert found == settings(loss, space, SCHEDULE, LR, trials)
    assert found == settings(loss, space, SCHEDULE, LR, trials + 7)[:trials]  # a larger budget keeps what was tried
    assert len(found) == trials
    for each in found[1:]:
        assert 4 <= each.loss.options["s"] <= 64
        assert 0.1 <= each.loss.options["m"] <= 0.6
        assert 0.005 <= each.schedule["lr"] <= 0.2
        for value in (*each.loss.options.values(), each.schedule["lr"]):
            assert value == float(f"{value:.3g}")


def test_two_losses_are_tried_at_different_points():
    one, other = (settings(replace(LOSS, label=name), {}, SCHEDULE, LR, 5) for name in ("arcface", "cosface"))
    assert not {each.schedule["lr"] for each in one[1:]} & {each.schedule["lr"] for each in other[1:]}


def test_the_trials_of_a_loss_stay_what_they_are_from_version_to_version():
    found = settings(LOSS, {"s": Range(4.0, 64.0, logarithmic=True), "m": Range(0.1, 0.6)}, SCHEDULE, LR, 4)
    lr = [SCHEDULE.changed(each.schedule).lr for each in found]
    assert [(each.loss.options["s"], each.loss.options["m"], at) for each, at in zip(found, lr, strict=True)] == PINNED


PINNED = [(64.0, 0.5, 0.02), (23.8, 0.271, 0.0345), (5.96, 0.438, 0.0722), (47.7, 0.105, 0.0165)]


@pytest.mark.parametrize(("axis", "middle"), [(Range(1.0, 100.0, logarithmic=True), 10.0), (Range(0.0, 5.0), 2.5)])
def test_values_are_spread_evenly_over_a_range_or_over_its_magnitudes(axis, middle):
    found = [each.loss.options["s"] for each in settings(LOSS, {"s": axis}, SCHEDULE, {}, 257)[1:]]
    assert abs(np.mean(np.array(found) < middle) - 0.5) < 0.02
    quarter = axis.at(0.25)
    assert abs(np.mean(np.array(found) < quarter) - 0.25) < 0.02


def test_two_axes_do_not_go_together():
    space = {"s": Range(0.0, 1.0), "m": Range(0.0, 1.0), "r": Range(0.0, 1.0), "t": Range(0.0, 1.0)}
    loss = replace(LOSS, options=dict.fromkeys(space, 0.5))
    found = [list(each.loss.options.values()) for each in settings(loss, space, SCHEDULE, {}, 65)[1:]]
    correlation = np.corrcoef(np.array(found).T) - np.eye(4)
    assert np.abs(correlation).max() < 0.35


def test_a_range_of_an_int_gives_all_its_whole_numbers_equally_often():
    counts = np.bincount([Range(1, 4, whole=True).at((share + 0.5) / 400) for share in range(400)])
    assert counts.tolist() == [0, 100, 100, 100, 100]
    assert isinstance(Range(1, 4, whole=True).at(0.3), int)


def test_a_space_with_fewer_points_than_trials_gives_each_once():
    loss = Spec("l_softmax", {"m": 4, "form": "a"}, "l_softmax", "hash")
    found = settings(loss, {"m": Range(1, 4, whole=True), "form": Choices(("a", "b"))}, SCHEDULE, {}, 50)
    assert len(found) == 8
    assert {(each.loss.options["m"], each.loss.options["form"]) for each in found} == {
        (m, form) for m in (1, 2, 3, 4) for form in "ab"
    }
    assert settings(loss, {}, SCHEDULE, {}, 50) == (found[0],)


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
        ('{"level": (2.0, 0.1)}', "RANGES['level']: must have low < high, got 2 and 0.1"),
        ('{"level": (0.1, 1.0, 2.0)}', "RANGES['level']: must be two numbers"),
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
    from lossbench.plugins.check import check

    path = write_loss(tmp_path, "mine", "pass", constructor='if level > 5: raise ValueError("level is at most 5")')
    path.write_text(path.read_text() + 'RANGES = {"level": (1.0, 6.0)}\n')
    found = {finding.property: finding for finding in check(Plugin("loss", "mine", path))}["ranges"]
    assert (found.status, found.sentence) == (
        "fail",
        "level=6.0, within RANGES, is refused (level is at most 5): narrow RANGES, or accept it",
    )
