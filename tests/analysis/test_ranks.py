"""Across datasets: N is the number of datasets, and the numbers are Demšar's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from conftest import SMALL
from kit.synthetic import Truth, analysed, common, noise

from lossbench import stats
from lossbench.analysis import ranks
from lossbench.core.point import Point
from lossbench.report.blocks import Prose, Table
from lossbench.report.sections.accuracy import across_datasets

KS = [3, 4, 5, 6, 7, 8, 10]
GAIN = {"softmax": 0, "w_softmax": 2, "center": 0.1, "hinge": -1}


def truth(cell):
    odd = np.random.default_rng(cell.classes).normal(0, 0.3)  # what is particular to a dataset
    return Truth(85 + cell.classes / 2 + common(cell.seed) + GAIN[cell.loss.name] + odd + noise(cell, 0.4))


@pytest.fixture(scope="module")
def one_dataset(read_suite):
    text = SMALL.replace('"w_softmax"]', '"w_softmax", "center", "hinge"]').replace("widths = [8]", "widths = [8, 16]")
    suite = read_suite(text.replace("seeds = 2", f"seeds = 5\nclasses = {KS}"))
    return analysed(suite, truth)


@pytest.fixture(scope="module")
def results(one_dataset):
    """The same records as if each number of classes were a dataset of its own."""
    return with_datasets(one_dataset, len(KS))


def with_datasets(results, count):
    frame = results.records[results.records["classes"].isin(KS[:count])]
    points = [Point({**point, "dataset": f"set{point['classes']}"}) for point in frame["point"]]
    return replace(results, records=frame.assign(point=points, dataset=[point["dataset"] for point in points]))


def shown(results):
    blocks = across_datasets(results).blocks
    return (
        [
            dict(zip(block.columns, row, strict=True))
            for block in blocks
            if isinstance(block, Table)
            for row in block.rows
        ],
        " ".join(block.text for block in blocks if isinstance(block, Prose)),
    )


def test_ranks_are_of_means_inside_each_dataset(results):
    frame = results.trained
    means = frame.groupby(["dataset", "label"])["accuracy"].mean().unstack()[list(GAIN)]
    expected = means.rank(axis=1, ascending=False).mean()
    (found,) = ranks.rankings(results)
    assert dict(zip(found.table.losses, found.test.ranks, strict=True)) == pytest.approx(dict(expected))
    assert found.test.datasets == 7
    chi2 = scipy.stats.friedmanchisquare(*(means[name] for name in GAIN)).statistic
    assert found.test.chi2 == pytest.approx(chi2)
    f = 6 * chi2 / (7 * 3 - chi2)
    assert found.test.p == pytest.approx(scipy.stats.f.sf(f, 3, 18))


def test_the_section_states_n_the_test_and_the_critical_difference(results):
    rows, text = shown(results)
    (found,) = ranks.rankings(results)
    difference = 2.569 * np.sqrt(4 * 5 / (6 * 7))
    assert "N = 7 datasets" in text
    assert f"χ² = {found.test.chi2:.2f}" in text
    assert f"at least {difference:.2f} apart" in text
    assert [float(row["mean rank"]) for row in rows] == sorted(float(row["mean rank"]) for row in rows)
    assert (rows[0]["loss"], rows[-1]["loss"]) == ("w_softmax", "hinge")
    assert rows[0]["mean rank"] == "1.00"
    together = [group for group in found.groups if {"softmax", "center"} <= set(group)]
    assert together
    assert not any({"w_softmax", "hinge"} <= set(group) for group in found.groups)


def test_few_datasets_are_ranked_but_not_tested(one_dataset):
    rows, text = shown(with_datasets(one_dataset, 4))
    assert len(rows) == 4
    assert "N = 4 datasets: a test needs at least 5, regardless of the number of seeds" in text
    assert "χ²" not in text
    assert not any("Wilcoxon" in column for row in rows for column in row)


def test_one_dataset_is_nothing_to_rank(one_dataset):
    assert across_datasets(one_dataset).blocks == ()


def test_a_loss_that_a_dataset_lacks_is_not_ranked(results):
    frame = results.records
    frame = frame[~((frame["label"] == "hinge") & (frame["dataset"] == "set5"))]
    (found,) = ranks.rankings(replace(results, records=frame))
    assert found.table.losses == ("softmax", "w_softmax", "center")


def test_only_points_that_have_every_loss_are_averaged(results):
    """Without hinge at one width, that width counts for no loss: else means over different widths would be ranked."""
    frame = results.records
    gap = (frame["label"] == "hinge") & (frame["dataset"] == "set5") & (frame["width"] == 16)
    (ranking,) = ranks.rankings(replace(results, records=frame[~gap]))
    found = ranking.table
    narrow = frame[(frame["dataset"] == "set5") & (frame["width"] == 8)].groupby("label")["accuracy"].mean()
    row = dict(zip(found.losses, found.means[found.datasets.index("set5")], strict=True))
    assert row == pytest.approx({label: narrow[label] for label in GAIN})


@pytest.mark.parametrize(
    ("dataset", "identity"),
    [
        ("digits", "digits"),
        ("digits[classes=5,train=100]", "digits"),
        ("folder[path=pets,train=100]", "folder pets"),
        ("folder[path=cars]", "folder cars"),
    ],
)
def test_a_subset_is_no_other_dataset(dataset, identity):
    assert ranks.identity(dataset) == identity


def test_wilcoxon_is_silent_where_it_could_find_nothing(results):
    """Three pairs with the baseline under Holm ask for p < 0.05/3; seven datasets give 2/2⁷ = 0.016 at the least."""
    (found,) = ranks.rankings(results)
    assert stats.pairs_needed(0.05 / 3) == 7
    assert all(np.isfinite(pair.test.p) for pair in found.pairs)


def test_the_json_of_ranks_keeps_the_schema(results):
    import jsonschema

    from lossbench.report.output.data import stated
    from lossbench.report.output.schema import json_schema

    found = stated(results, [])
    assert found["ranks"]["n"] == len(KS)
    jsonschema.validate(found, json_schema())


def test_nothing_is_averaged_over_backbones(results):
    """With two backbones on every dataset there are two rankings over the same N; the second has its own order."""
    frame = results.records
    other = [Point({**point, "backbone": "wide"}) for point in frame["point"]]
    second = frame.assign(point=other, backbone="wide", accuracy=190 - frame["accuracy"].astype(float))
    both = replace(results, records=pd.concat([frame, second], ignore_index=True))
    narrow, wide = ranks.rankings(both)
    (alone,) = ranks.rankings(results)
    assert (alone.backbone, wide.backbone) == ("", "wide")
    assert narrow.table.means == pytest.approx(alone.table.means)
    assert wide.test.ranks == pytest.approx(5 - alone.test.ranks)
    assert wide.test.datasets == len(KS)
    assert alone.averaged == narrow.averaged == ("width",)
    text = [block.caption for block in across_datasets(both).blocks if isinstance(block, Table)]
    assert text[1].startswith("Backbone wide: accuracy in percent, averaged over seeds and points (which differ in M)")
