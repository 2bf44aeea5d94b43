"""Nothing is averaged, left out or taken from one of several runs without a word."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL
from kit.claims import claim
from kit.synthetic import Truth, analysed, common, noise, write_run

from lossbench.analysis.claims import cells_behind
from lossbench.analysis.results import Results, analyse
from lossbench.core.errors import StoreError, SuiteError
from lossbench.report.sections.answer import sentences
from lossbench.report.sections.claims import published
from lossbench.store.merge import merge

SIX = SMALL.replace("seeds = 2", "seeds = 6")
BETTER = claim('better = "w_softmax"\nthan = "softmax"')
GLYPHS = (
    SIX.partition("[[experiment]]")[2].replace('"digits"', '"glyphs[classes=20]"').replace("glyphs[classes=20]", "g", 1)
)
TWO_DATASETS = SIX.replace('dataset = "digits"', 'dataset = ["digits", "glyphs[classes=10]"]')


def gaining(gain):
    """The truth in which w_softmax gains what `gain` says of a cell."""

    def truth(cell):
        mine = gain(cell) if cell.loss.name == "w_softmax" else 0.0
        return Truth(85 + common(cell.seed) + mine + noise(cell, 0.05))

    return truth


def verdicts(results: Results) -> dict[str, str]:
    return dict(zip(results.claims["text"], results.claims["verdict"], strict=True))


# ---- claims ----------------------------------------------------------------------------------------------------------


def test_a_dataset_and_a_subset_of_it_are_two_cases(read_suite):
    text = SIX.replace('dataset = "digits"', 'dataset = ["digits", "digits[train=200]"]')
    results = analysed(
        read_suite(text + BETTER), gaining(lambda cell: -2.0 if cell.dataset.options.get("train") else 2.0)
    )
    assert verdicts(results) == {"t (digits)": "supported", "t (digits[train=200])": "contradicted"}


def test_an_optimizer_with_and_without_options_are_two_cases(read_suite):
    text = SIX.replace("batch = 16", 'batch = 16, optimizer = ["sgd", "sgd[nesterov=true]"]')
    results = analysed(
        read_suite(text + BETTER), gaining(lambda cell: -2.0 if "nesterov" in cell.schedule.optimizer else 2.0)
    )
    assert list(verdicts(results).values()) == ["supported", "contradicted"]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_runs_with_different_datasets_keep_their_own_cases(order, tmp_path, read_suite):
    text = TWO_DATASETS + BETTER + '\n[profile.a.all]\ndataset = "digits"\n'
    truth = gaining(lambda cell: 2.0 if cell.dataset.name == "digits" else -2.0)
    runs = {
        name: write_run(read_suite(text, profile), tmp_path / name, truth)
        for name, profile in (("a", "a"), ("b", None))
    }
    found = verdicts(analyse([runs[name] for name in order]))
    assert found == {"t (digits)": "supported", "t (glyphs[classes=10])": "contradicted"}


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_run_without_an_experiment_adds_no_case_of_its_claims(order, tmp_path, read_suite):
    more = SIX.partition("[[experiment]]")[2].replace('name = "digits"', 'name = "more"')
    text = f'{TWO_DATASETS}\n[[experiment]]{more}{BETTER}\n[profile.a]\nskip = ["digits"]\n'
    profiles = {"a": "a", "b": None}
    truth = gaining(lambda cell: 2.0)
    runs = {name: write_run(read_suite(text, at), tmp_path / name, truth) for name, at in profiles.items()}
    found = verdicts(analyse([runs[name] for name in order]))
    assert list(found) == ["t (digits)", "t (glyphs[classes=10])"]


def test_a_trend_along_widths_is_followed_for_every_number_of_classes(read_suite):
    text = SIX.replace("widths = [8]", 'widths = [4, 8, 16, "min"]\nclasses = [4, 10]')
    suite = read_suite(text + claim('increases_with = "width"\nloss = "w_softmax"'))

    def truth(cell):  # rises by 1 a doubling with four classes, falls by 3 with ten
        slope = 1.0 if cell.classes == 4 else -3.0
        return Truth(85 + common(cell.seed) + slope * math.log2(cell.width) + noise(cell, 0.05))

    results = analysed(suite, truth)
    assert results.claims["delta"][0] == pytest.approx(-1, abs=0.1)
    behind = {(point["classes"], point["width"]) for point, _ in cells_behind(results, results.info.claims[0])}
    assert behind == {(classes, width) for classes in (4, 10) for width in (4, 8, 16)}


@pytest.mark.parametrize("status", [None, "diverged"])
def test_a_mean_over_widths_is_not_tested_without_some_of_them(status, read_suite):
    suite = read_suite(SIX.replace("widths = [8]", "widths = [4, 8, 16]") + BETTER)
    sound = gaining(lambda cell: 2.0)

    def truth(cell):
        return sound(cell) if cell.width == 16 else Truth(status=status) if status else None

    (row,) = analysed(suite, truth).claims.to_dict("records")
    assert (row["verdict"], row["evidence"]) == ("not testable", "no result at M = 4; M = 8")


def test_a_trend_says_which_of_its_values_have_no_result(read_suite):
    text = SIX.replace("widths = [8]", "widths = [4, 8, 16, 32]")
    suite = read_suite(text + claim('increases_with = "width"\nloss = "w_softmax"'))

    def truth(cell):
        return Truth(85 + common(cell.seed) + math.log2(cell.width) + noise(cell, 0.05)) if cell.width < 32 else None

    (row,) = analysed(suite, truth).claims.to_dict("records")
    assert row["verdict"] == "supported"
    assert row["evidence"].endswith("over width = 4, 8, 16 reverses by more than the margin; no result at M = 32")


def test_test_sets_of_different_sizes_are_noise_in_a_trend_too(tmp_path, read_suite):
    """Losses that differ from example to example, the same for all seeds: no number of seeds removes this noise."""
    dataset = 'task = "retrieval"\ndataset = { name = "glyphs", classes = 20, unseen = [10, 20, 30] }'
    suite = read_suite(
        SIX.replace('dataset = "digits"', dataset) + claim('increases_with = "unseen"\nloss = "w_softmax"')
    )

    def width_of_interval(same: bool, folder: Path) -> float:
        def truth(cell):
            unseen = cell.axes["unseen"]
            total = 400 if same else 20 * unseen
            easy = np.random.default_rng(unseen).random(total)
            drawn = np.random.default_rng([cell.seed, unseen, len(cell.loss.name)])
            bits = easy + drawn.normal(0, 0.01, total) < 0.7
            counts = {"queries": total, "gallery": total - 1, "relevant": 19 * total}
            return Truth(bits=bits, metrics={"recall@1": 100 * bits.mean()}, counts=counts)

        (row,) = analyse([write_run(suite, folder, truth)]).claims.to_dict("records")
        return row["high"] - row["low"]

    equal, unequal = width_of_interval(True, tmp_path / "equal"), width_of_interval(False, tmp_path / "unequal")
    assert unequal > 0.5 * equal


# ---- several runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [("margin = 3.0", "differ in 'margin' (0.5, 3.0)"), ('headline = "nll"\nmargin = 0.5', "differ in 'headline'")],
)
def test_runs_that_are_judged_differently_are_not_reported_together(changed, said, tmp_path, read_suite):
    other = SIX.replace("[[experiment]]", f"{changed}\n[[experiment]]", 1)
    truth = gaining(lambda cell: 2.0)
    runs = [write_run(read_suite(text), tmp_path / name, truth) for name, text in (("one", SIX), ("other", other))]
    with pytest.raises(StoreError) as caught:
        analyse(runs)
    assert said in str(caught.value) and "one by one" in str(caught.value)


def test_what_another_run_has_is_not_said_to_be_missing(tmp_path, read_suite):
    more = SIX.partition("[[experiment]]")[2].replace('name = "digits"', 'name = "more"')
    suite = read_suite(f"{SIX}\n[[experiment]]{more}")
    without = replace(
        suite,
        experiments=suite.experiments[:1],
        info=replace(suite.info, missing={"more": "no data"}, note="Numbers of a test."),
    )
    truth = gaining(lambda cell: 2.0)
    runs = [write_run(without, tmp_path / "a", truth), write_run(suite, tmp_path / "b", truth)]
    for order in (runs, runs[::-1]):
        info = analyse(order).info
        assert (info.missing, info.note) == ({}, "Numbers of a test.")


def test_runs_that_tune_different_experiments_are_reported_together(tmp_path, read_suite):
    more = SIX.partition("[[experiment]]")[2].replace('name = "digits"', 'name = "more"').replace("[8]", "[9]")
    tuned = f"{SIX}\n[[experiment]]{more}\n[tune]\ntrials = 2\nlr = [0.01, 0.1]\n"
    text = tuned + '\n[profile.a]\nskip = ["more"]\n[profile.b]\ntune = { trials = 3 }\n'
    run = {
        name: write_run(read_suite(text, name), tmp_path / str(name), gaining(lambda cell: 2.0))
        for name in ("a", "b", None)
    }
    both = analyse([run["a"], run[None]])
    assert set(both.tuning["experiment"]) == {"digits", "more"}
    with pytest.raises(StoreError, match=r"differ in 'tune.trials' \(2, 3\)"):
        analyse([run["a"], run["b"]])


def test_runs_whose_variants_differ_in_two_options_are_refused_in_a_sentence(tmp_path, read_suite):
    swept = '{ name = "w_softmax", alpha = [0.5, 1.0, 2.0] }'
    text = SIX.replace('"w_softmax"', swept) + claim('increases_with = "alpha"\nloss = "w_softmax"')
    fixed = swept.replace(" }", ', gradient = "fixed_bias" }')
    text += f'\n[profile.a.all]\nlosses = ["softmax", {fixed}]\n'
    runs = [write_run(read_suite(text, name), tmp_path / str(name), gaining(lambda cell: 0.0)) for name in ("a", None)]
    with pytest.raises(StoreError, match="also differ in 'gradient'"):
        analyse(runs).claims  # noqa: B018  # computed when it is asked for


def test_a_merged_run_keeps_its_earlier_looks_and_the_examples_of_all_runs(tmp_path, read_suite):
    truth = gaining(lambda cell: 2.0)
    folder = tmp_path / "a"
    write_run(read_suite(SMALL.replace("seeds = 2", "seeds = 3")), folder, truth)
    write_run(read_suite(SIX), folder, truth)
    other = read_suite(SIX)
    write_run(replace(other, info=replace(other.info, examples={"other": 7})), tmp_path / "b", truth)
    merge([folder, tmp_path / "b"], tmp_path / "m")
    results = analyse([tmp_path / "m"])
    assert results.info.looks == {"digits": [3]}
    assert "optional stopping" in {warning.guard for warning in results.warnings}
    assert results.info.examples["other"] == 7


# ---- first screen, ranks, tuning, published numbers ------------------------------------------------------------------


def test_a_loss_without_a_shared_seed_is_not_compared_rather_than_at_chance(read_suite):
    suite = read_suite(SIX.replace('"w_softmax"]', '"w_softmax", "center"]'))

    def truth(cell):
        lost = (cell.loss.name == "softmax" and cell.seed > 2) or (cell.loss.name == "w_softmax" and cell.seed < 3)
        return Truth(status="diverged") if lost else Truth(85 + common(cell.seed) + noise(cell, 0.05))

    results = analysed(suite, truth)
    (said,) = (block.text for block in sentences(results))
    assert "w_softmax is not compared, as no seed has results of both losses" in said
    assert "chance" not in said


def test_a_loss_without_a_value_comes_last_where_lower_is_better(read_suite):
    text = SIX.replace('"w_softmax"]', '"w_softmax", "center"]')
    suite = read_suite(text.replace("[[experiment]]", 'headline = "nll"\nmargin = 0.01\n[[experiment]]', 1))

    def truth(cell):
        value = None if cell.loss.name == "w_softmax" else 0.3 + noise(cell, 0.01)
        return Truth(85 + common(cell.seed), metrics={"nll": value})

    (task,) = analysed(suite, truth).answer.tasks
    assert [standing.loss for standing in task.standings] == ["center", "w_softmax"]


def test_no_ranking_averages_two_tasks_of_a_dataset(read_suite):
    verified = GLYPHS.replace('name = "g"', 'name = "v"\ntask = "verification"')
    suite = read_suite("[[experiment]]".join([SIX, GLYPHS, verified]))
    results = analysed(suite, gaining(lambda cell: 5.0 if cell.task == "verification" else -3.0))
    (ranking,) = results.rankings  # the verification has one dataset only
    assert (ranking.task, ranking.name) == ("classification", "classification")
    assert ranking.test.ranks.tolist() == [1.0, 2.0]


def test_a_ranking_says_that_it_averages_over_experiments(read_suite):
    digits = SIX.partition("[[experiment]]")[2]
    again = digits.replace('name = "digits"', 'name = "again"').replace("steps = 6", "steps = 7")
    results = analysed(read_suite("[[experiment]]".join([SIX, again, GLYPHS])), gaining(lambda cell: 1.0))
    (ranking,) = results.rankings
    assert ranking.averaged == ("experiment",)


def test_a_trial_without_a_value_has_lost_in_the_report_as_in_the_run(read_suite):
    text = SIX.replace("[[experiment]]", 'headline = "nll"\nmargin = 0.01\n[[experiment]]', 1)
    suite = read_suite(text + "\n[tune]\ntrials = 2\nlr = [0.01, 0.1]\n")

    def truth(cell):
        return Truth(85 + common(cell.seed), metrics={"nll": None if cell.trial == 2 else 0.3 + noise(cell, 0.01)})

    for row in analysed(suite, truth).tuning.to_dict("records"):
        assert (row["trial"], row["failed"], row["left"]) == (1, 1, 0)


def test_the_table_of_published_numbers_states_the_margin_that_judges_them(read_suite):
    text = SIX.replace("[[experiment]]", 'headline = "nll"\nmargin = 0.01\n[[experiment]]', 1)
    suite = read_suite(text + 'published = { values = { softmax = 85.0 }, source = "a paper", protocol = "same" }\n')
    results = analysed(suite, lambda cell: Truth(85 + noise(cell, 0.05), metrics={"nll": 0.3 + noise(cell, 0.01)}))
    captions = [block.caption for block in published(results).blocks if hasattr(block, "caption")]
    assert any("no wider than ±0.5 points" in caption for caption in captions)


def test_an_option_that_no_label_can_state_is_refused_with_its_place(read_suite, tmp_path):
    folder = tmp_path / "cats,dogs"
    text = SIX.replace('dataset = "digits"', f'dataset = {{ name = "folder", path = "{folder}" }}')
    with pytest.raises(SuiteError) as caught:
        read_suite(text)
    (said,) = str(caught.value).splitlines()
    assert "experiment.digits.dataset" in said and "without commas and brackets" in said
