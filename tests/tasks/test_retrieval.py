"""A retrieval trains on some classes and is tested on others; its suite is planned, run, tuned and reported as any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from kit.neighbours import by_loops
from kit.suites import RETRIEVED

from lossbench import api
from lossbench.analysis.results import analyse
from lossbench.core.errors import SuiteError
from lossbench.data import load_dataset
from lossbench.plan.cells import plan
from lossbench.store.records import Store, load_records
from lossbench.training.batches import as_input
from lossbench.training.evaluation import evaluate
from lossbench.training.state import build

CLAIM = """
[[claim]]
text = "CosFace retrieves better"
experiment = "unseen"
metric = "map@r"
better = "cosface"
than = "softmax"
"""
DEEPER = CLAIM.replace('better"', 'better among the nearest twenty"').replace("map@r", "recall@20")
METRICS = ("recall@1", "recall@5", "recall@10", "map@r", "r_precision")


@pytest.fixture(scope="module")
def ran(kept_servers, tmp_path_factory):
    """A retrieval on glyphs, tuned, run: its folder, and how the run ended."""
    folder = tmp_path_factory.mktemp("retrieved")
    (folder / "suite.toml").write_text(RETRIEVED + CLAIM + DEEPER)
    return folder, api.run(folder / "suite.toml", out=folder / "run", reports=folder / "reports")


def test_every_query_has_a_bit_and_recall_at_1_is_their_mean(ran):
    folder, result = ran
    assert result.unfinished == []
    frame = load_records(folder / "run")
    trained = frame[frame["kind"] == "train"]
    assert set(trained["total"]) == {40 * 6}
    assert trained["recall@1"].tolist() == pytest.approx((100 * trained["correct"] / trained["total"]).tolist())
    bits = Store(folder / "run").correct(trained["key"].iloc[0])
    assert (len(bits), int(bits.sum())) == (240, trained["correct"].iloc[0])
    expected = {"queries": 240, "gallery": 239, "alone": 0, "relevant": 240 * 5}
    assert all(counts == expected for counts in trained["counts"])
    assert (trained["recall@1"] <= trained["recall@5"]).all() and (trained["recall@5"] <= trained["recall@10"]).all()


def test_the_same_command_again_trains_nothing(ran):
    folder, _ = ran
    began = []
    api.run(folder / "suite.toml", out=folder / "run", reports=None, on_start=lambda job, todo: began.append(todo))
    assert began == [[]]


def test_retrieval_is_tuned_on_held_out_classes(ran):
    folder, _ = ran
    frame = load_records(folder / "run")
    trials = frame[frame["kind"] == "trial"]
    assert set(trials["total"]) == {30 * 5}  # a quarter of the training classes
    tuning = analyse([folder / "run"]).tuning
    assert tuning["classes"].tolist() == [120, 120] and tuning["tuned"].notna().all()
    best = trials[trials["label"] == "softmax"]["recall@1"].max()
    assert tuning["validation"].iloc[0] == pytest.approx(best)


def test_the_report_has_every_metric_with_its_difference_and_the_claim(ran):
    folder, _ = ran
    results = analyse([folder / "run"])
    compared = results.comparisons[results.comparisons["experiment"] == "unseen"]
    assert set(METRICS) <= set(compared["metric"]) and "accuracy" not in set(compared["metric"])
    assert results.headline.name == "recall@1"  # and accuracy is no second name of it
    assert np.isfinite(results.main["test_se"]).all()
    assert results.claims["metric"].tolist() == ["map@r", "recall@20"] and results.claims["n"].tolist() == [1, 1]
    frame = load_records(folder / "run")
    assert (frame["recall@20"] >= frame["recall@10"])[frame["kind"] == "train"].all()
    text = (folder / "reports/appendix.md").read_text()
    assert (
        "## Recall@1" in text
        and "## Retrieval" in text
        and "240 test images are queries, each against the 239 other test images" in text
    )
    for title in ("Recall@1", "Recall@5", "Recall@10", "MAP@R", "R-precision"):
        assert f"Δ {title}" in text
    row = results.main.iloc[0]
    assert f"{row['map@r']:.2f}" in text.partition("## Retrieval")[2]


def test_the_scores_are_those_of_features_in_evaluation_mode(read_suite, registry):
    cell = plan(read_suite(RETRIEVED))[0]
    dataset = load_dataset("glyphs", **{**cell.dataset.options, "validation": None})
    dataset = replace(dataset, test=dataset.test.take(np.arange(91)))  # the last image is alone in its class
    state = build(cell, cell.loss, registry, dataset.in_shape)
    test = evaluate(state, dataset, "retrieval")
    with torch.no_grad():
        features = state.backbone.eval()(as_input(dataset.test.images.copy()))
    wanted = by_loops(features, dataset.test.labels)
    assert 100 * test.correct.mean() == pytest.approx(wanted["recall@1"], abs=0.5)  # of equal but for rounding
    assert 100 * test.retrieved.map_at_r.mean() == pytest.approx(wanted["map@r"], abs=0.5)
    assert test.counts == {"queries": 90, "gallery": 90, "alone": 1, "relevant": 90 * 5}
    assert test.angles == []  # its classes have no weights


def test_a_dataset_without_unseen_classes_is_refused_with_those_that_have_some(read_suite):
    text = (
        RETRIEVED.partition("[tune]")[0]
        .replace("glyphs", "digits")
        .replace(", classes = 120, per_class = 5, unseen = 40, test_per_class = 6", "")
    )
    with pytest.raises(SuiteError, match=r"'digits' does not support retrieval; these do: .*folder_unseen.*glyphs"):
        read_suite(text)


def test_a_claim_on_a_metric_of_another_task_is_refused(read_suite):
    with pytest.raises(SuiteError, match="'auc' is only available for verification"):
        read_suite(RETRIEVED + CLAIM.replace("map@r", "auc"))


def test_beside_other_tasks_the_headline_is_the_accuracy(read_suite):
    alone = RETRIEVED.partition("[tune]")[0]
    _, _, experiment = alone.partition("[[experiment]]")
    other = "[[experiment]]" + experiment.replace('unseen"', 'pairs"').replace("retrieval", "verification")
    assert read_suite(alone).info.headline == "recall@1"
    assert read_suite(alone + other).info.headline == "accuracy"
    with pytest.raises(SuiteError, match="recall@1"):
        read_suite(alone.replace("[[experiment]]", 'headline = "recall@1"\n[[experiment]]') + other)


def test_a_claim_may_be_at_any_false_accept_rate(read_suite):
    claim = CLAIM.replace("map@r", "tar[far=1e-4]")
    suite = read_suite(RETRIEVED.partition("[tune]")[0].replace("retrieval", "verification") + claim)
    assert suite.info.claims[0].metric == "tar@0.0001"
    assert "tar@0.0001" in [spec.label for spec in suite.experiments[0].metrics]
