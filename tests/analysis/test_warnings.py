"""Each guard fires where it should, says so in the report, and is silent where nothing is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import SMALL
from kit import synthetic
from kit.synthetic import ENVIRONMENT, Truth, analysed, common, noise, write_run

from lossbench.analysis import warnings as guards
from lossbench.analysis.results import analyse
from lossbench.plan.cells import plan
from lossbench.report.sections.overview import warnings
from lossbench.store.records import Store

EIGHT = SMALL.replace("seeds = 2", "seeds = 8")


def sound(cell):
    """A clear difference of 3 points, over seeds that go together."""
    gain = 3 if cell.loss.name == "w_softmax" else 0
    return Truth(90 + common(cell.seed) + gain + noise(cell, 0.1))


def fired(folder, suite, truth=sound, **options):
    found = analyse([write_run(suite, folder, truth, **options)]).warnings
    return {warning.guard: warning.text for warning in found}


def test_nothing_fires_where_nothing_is_wrong(tmp_path, read_suite):
    assert fired(tmp_path, read_suite(EIGHT)).keys() <= {"multiplicity"}


def test_a_loss_that_its_warm_start_handed_no_class_weights_is_named(tmp_path, read_suite):
    def truth(cell):
        return replace(sound(cell), flags=("cold classifier",) if cell.loss.name == "w_softmax" else ())

    text = fired(tmp_path, read_suite(EIGHT), truth)["cold classifier"]
    assert text.startswith("w_softmax received no class weights from the warm start (8 cells)")


def test_balanced_batches_that_repeat_examples_are_named(tmp_path, read_suite):
    text = fired(tmp_path, read_suite(EIGHT), lambda cell: replace(sound(cell), flags=("small classes",)))[
        "small classes"
    ]
    assert text.startswith("some classes have fewer than `per_class` training examples (16 cells)")


def test_a_rate_that_the_negatives_cannot_resolve_is_named(tmp_path, read_suite):
    def truth(cell):
        counts = {"different": 500, "nonmated": 100}
        return replace(sound(cell), counts=counts, metrics={"tar@0.001": 50.0, "tar@0.01": 60.0, "tpir@0.01": 70.0})

    text = fired(tmp_path, read_suite(EIGHT), truth)["unresolved rate"]
    assert text.startswith("500 pairs of different classes cannot resolve a rate of 0.001: tar@0.001 is measured at")
    assert "0.01:" not in text  # 100 searches do resolve 0.01


def test_too_few_seeds_for_an_interval(tmp_path, read_suite):
    assert "2 paired seeds: no interval" in fired(tmp_path, read_suite(SMALL))["too few seeds"]


def datasets(count: int) -> str:
    """An experiment on each of so many datasets."""
    names = ["digits", "glyphs"][:count]
    grid = EIGHT.partition("[[experiment]]")
    return grid[0] + "".join(
        "[[experiment]]" + grid[2].replace('name = "digits"\ndataset = "digits"', f'name = "on-{name}"\ndataset = {of}')
        for name, of in zip(names, ['"digits"', '{ name = "glyphs", classes = 10, train = 200 }'], strict=False)
    )


def test_pooled_seeds(tmp_path, read_suite):
    text = fired(tmp_path, read_suite(datasets(2)))["pooled seeds"]
    assert "2 datasets with 8 seeds each are 2 observations across datasets, not 16" in text


def test_subsets_of_one_dataset_are_one_dataset(tmp_path, read_suite):
    suite = read_suite(EIGHT.replace("seeds = 8", "seeds = 8\nclasses = [4, 6, 8]"))
    results = analyse([write_run(suite, tmp_path, sound)])
    assert "pooled seeds" not in {warning.guard for warning in results.warnings}
    assert results.trained["point"].nunique() == 3


def test_mixed_environments(tmp_path, read_suite):
    def elsewhere(cell):
        found = sound(cell)
        if cell.loss.name == "w_softmax" and cell.seed < 3:
            found.environment = {**ENVIRONMENT, "fingerprint": "other"}
        return found

    results = analyse([write_run(read_suite(EIGHT), tmp_path, elsewhere)])
    texts = [warning.text for warning in results.warnings if warning.guard == "mixed environments"]
    assert texts[0].startswith("3 of 8 pairs combine cells from different environments")
    assert "abc, other" in texts[1]


def test_an_environment_that_whole_pairs_share_is_only_noted(tmp_path, read_suite):
    def elsewhere(cell):
        found = sound(cell)
        found.environment = {**ENVIRONMENT, "fingerprint": "abc" if cell.seed < 3 else "other"}
        return found

    results = analyse([write_run(read_suite(EIGHT), tmp_path, elsewhere)])
    texts = [warning.text for warning in results.warnings if warning.guard == "mixed environments"]
    assert len(texts) == 1
    assert "pairs" not in texts[0]


def test_diverged_cells_and_unequal_seeds(tmp_path, read_suite):
    def failing(cell):
        lost = cell.loss.name == "w_softmax" and cell.seed in (1, 5)
        return Truth(status="diverged" if cell.seed == 1 else "oom") if lost else sound(cell)

    found = fired(tmp_path, read_suite(EIGHT), failing)
    assert found["diverged cells"].startswith("1 diverged, 1 oom of 8 cells of w_softmax")
    assert "w_softmax (6 and 8, 6 shared)" in found["unequal seeds"]


def test_an_unpaired_comparison(tmp_path, read_suite):
    def apart(cell):
        return sound(cell) if (cell.seed < 4) == (cell.loss.name == "softmax") else None

    found = fired(tmp_path, read_suite(EIGHT), apart)
    assert "share no seed: not compared" in found["unpaired comparison"]
    assert "unequal seeds" in found


def test_pairing_that_gains_nothing(tmp_path, read_suite):
    def opposed(cell):
        sign = -1 if cell.loss.name == "w_softmax" else 1
        return Truth(90 + sign * common(cell.seed))

    assert "median r = -1.00" in fired(tmp_path, read_suite(EIGHT), opposed)["uncorrelated seeds"]


def test_a_difference_of_few_test_examples_is_undecided_however_sure_the_seeds_are(tmp_path, read_suite):
    """Every seed is better by the same three examples of 200: certain over seeds, but another test set has others."""

    def by_few(cell):
        rng = np.random.default_rng(cell.seed)
        bits = np.arange(200) < 180
        better = 3 if cell.loss.name == "w_softmax" else 0
        bits[180 : 180 + better] = True
        bits[:3] = rng.random(3) < 0.5  # the same for both losses
        return Truth(bits=bits)

    results = analyse([write_run(read_suite(EIGHT), tmp_path / "few", by_few)])
    row = results.comparisons[results.comparisons["metric"] == "accuracy"].iloc[0]
    gaps = np.repeat([100.0, 0.0], [3, 197])
    assert (row["delta"], row["verdict"]) == (pytest.approx(1.5), "undecided")
    assert row["test_se"] == pytest.approx(gaps.std(ddof=1) / np.sqrt(200))
    assert row["seed_se"] == pytest.approx(0.5 / np.sqrt(8))  # one example of 200, the least that seeds may differ by
    assert pd.isna(row["seeds_needed"])  # no number of seeds decides it


def test_a_loss_at_chance_is_named(tmp_path, read_suite):
    def truth(cell):
        return Truth(10 + noise(cell, 1)) if cell.loss.name == "w_softmax" else sound(cell)

    text = fired(tmp_path, read_suite(EIGHT), truth)["at chance"]
    assert text == "hardly better than guessing: w_softmax. Comparisons and claims with them are not testable."


def test_a_baseline_that_was_still_improving_is_named(tmp_path, read_suite):
    def truth(cell):
        return replace(sound(cell), curve=tuple({"step": step, "loss": 2 - step / 50} for step in range(1, 41)))

    text = fired(tmp_path, read_suite(EIGHT), truth)["undertrained"]
    assert text.startswith("the training loss of softmax was still falling clearly at the last step: differences")


def test_a_verdict_that_one_seed_decides_is_named(tmp_path, read_suite):
    def truth(cell):
        gain = (cell.loss.name == "w_softmax") * (1.0 if cell.seed != 2 else -1.2)
        return Truth(90 + common(cell.seed) + gain + noise(cell, 0.01))

    found = fired(tmp_path, read_suite(EIGHT), truth)["one seed decides"]
    assert found.startswith(
        "the verdict on w_softmax changes if one seed is left out, or if an extra seed, as extreme as"
    )


def test_rounds_that_shared_their_cores(tmp_path, read_suite, monkeypatch):
    quiet = synthetic.timing_record

    def disturbed(cell, times):
        record = quiet(cell, times)
        return replace(record, timing={**record.timing, "disturbed": 2})

    timed = read_suite(EIGHT.replace("seeds = 8", "seeds = 8\ntiming = { rounds = 5, steps = 2 }"))
    assert "disturbed timing" not in fired(tmp_path / "quiet", timed)
    monkeypatch.setattr(synthetic, "timing_record", disturbed)
    assert "2 rounds" in fired(tmp_path / "disturbed", timed)["disturbed timing"]


def test_seeds_added_after_a_look_are_a_second_look(tmp_path, read_suite):
    write_run(read_suite(SMALL.replace("seeds = 2", "seeds = 5")), tmp_path, sound)
    write_run(read_suite(EIGHT), tmp_path, sound)
    results = analyse([tmp_path])
    text = next(warning.text for warning in results.warnings if warning.guard == "optional stopping")
    assert "planned with 5 seeds before and 8 now: this is analysis number 2" in text


def test_the_same_plan_again_is_no_second_look(tmp_path, read_suite):
    suite = read_suite(EIGHT)
    for _ in range(3):
        Store(tmp_path).prepare(suite, plan(suite))
    assert Store(tmp_path).plan()[0].looks == {}
    more = read_suite(EIGHT.replace("seeds = 8", "seeds = 12"))
    for _ in range(3):
        Store(tmp_path).prepare(more, plan(more))
    assert Store(tmp_path).plan()[0].looks == {"digits": [8]}
    Store(tmp_path).prepare(suite, plan(suite))
    assert Store(tmp_path).plan()[0].looks == {"digits": [8, 12]}


def test_the_gap_to_the_best_epoch_is_told(tmp_path, read_suite):
    def scored(cell):
        found = sound(cell)
        correct = round(100 * found.accuracy)
        found.curve = ({"step": 3, "loss": 1.0, "correct": correct + 50}, {"step": 6, "loss": 0.5, "correct": correct})
        return found

    assert "would look 0.50 points better" in fired(tmp_path, read_suite(EIGHT), scored)["best epoch"]


@pytest.mark.parametrize(("low", "high", "said"), [(-0.54, -0.01, True), (-0.54, 0.01, False), (0.1, 0.4, False)])
def test_a_baseline_that_tuning_made_worse_is_named(tmp_path, read_suite, monkeypatch, low, high, said):
    row = {"experiment": "digits", "loss": "softmax", "delta": (low + high) / 2, "low": low, "high": high}
    other = row | {"loss": "w_softmax", "delta": -2.0, "low": -3.0, "high": -1.0}
    table = pd.DataFrame([row, other, row | {"low": None, "high": None}]).assign(unit="points")
    monkeypatch.setattr(guards, "tuned", lambda data: table)
    found = fired(tmp_path, read_suite(EIGHT))
    assert ("tuned baseline" in found) == said
    if said:
        assert found["tuned baseline"].startswith("tuning made softmax worse by 0.28 points (interval -0.54 to -0.01)")


def test_the_number_of_comparisons_is_told(tmp_path, read_suite):
    suite = read_suite(EIGHT.replace('"w_softmax"]', '"w_softmax", "center"]'))
    assert fired(tmp_path, suite)["multiplicity"].startswith("4 comparisons in 2 families")


def test_the_report_lists_the_warnings(read_suite):
    section = warnings(analysed(read_suite(SMALL), sound))
    assert section.title == "Warnings"
    rows = {row[0]: row[2] for row in section.blocks[0].rows}
    assert rows["too few seeds"].startswith("2 paired seeds: no interval")


def test_one_loss_under_two_names_is_never_called_different_beyond_the_level(read_suite):
    """An A/A test of the whole path: eight losses that are softmax but for noise."""
    losses = ", ".join(f'"w_softmax[alpha={number / 10}]"' for number in range(1, 9))
    suite = read_suite(EIGHT.replace('"w_softmax"]', f"{losses}]"))
    results = analysed(suite, lambda cell: Truth(90 + common(cell.seed) + noise(cell, 0.3)))
    accuracy = results.comparisons[results.comparisons["metric"] == "accuracy"]
    assert set(accuracy["verdict"]) <= {"equivalent", "undecided"}
    assert (accuracy["p"] < 0.05).mean() <= 0.25


def test_a_warning_names_every_axis_that_varies(tmp_path, read_suite):
    text = EIGHT.replace("widths = [8]", "widths = [8, 16]").replace("steps = ", "lr = [0.01, 0.1], steps = ")

    def truth(cell):
        lost = cell.loss.name == "w_softmax" and cell.width == 16 and cell.schedule.lr == 0.1 and cell.seed < 2
        return Truth(status="failed") if lost else sound(cell)

    found = fired(tmp_path, read_suite(text), truth)["unequal seeds"]
    assert "w_softmax at M = 16, lr = 0.1 (6 and 8, 6 shared)" in found
