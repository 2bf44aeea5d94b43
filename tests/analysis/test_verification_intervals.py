"""The intervals over pairs that records of a verification hold are averaged over seeds; older records have none."""

from __future__ import annotations

import pytest
from conftest import SMALL
from kit.synthetic import Truth, analysed


def test_the_intervals_over_pairs_are_means_over_seeds_in_percent(read_suite):
    def truth(cell):
        low, high = (0.90, 0.94) if cell.seed else (0.92, 0.98)
        estimate = {"value": 0.93, "low": low, "high": high}
        rates = [{**estimate, "far": far} for far in (0.1, 0.01, 0.001)]
        return Truth(verification={"auc": estimate, "eer": {"value": 0.07}, "tar": rates})

    results = analysed(read_suite(SMALL), truth)
    (point,) = results.points
    assert results.pair_intervals[point, "softmax", "tar@0.01"] == pytest.approx((91, 96))
    assert (point, "softmax", "eer") not in results.pair_intervals
