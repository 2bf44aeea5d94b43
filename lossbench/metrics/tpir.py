"""True positive identification rate at a fixed false positive identification rate, in the open set.

The largest share of mated searches that are accepted and find the right identity while no more than `fpir` of the
searches without a mate are accepted: an operating point, no interpolation.
"""

from __future__ import annotations

import numpy as np

from lossbench.metrics import Evaluation, tar

UNIT, BETTER, TASKS = "points", "higher", ("verification",)
AT, TITLE = "fpir", "TPIR at FPIR {fpir:g}"
NAMES = {
    "tpir@0.1": ("TPIR at FPIR 10 %", {"fpir": 0.1}),
    "tpir@0.01": ("TPIR at FPIR 1 %", {"fpir": 0.01}),
}


def measure(test: Evaluation, *, fpir: float) -> float | None:
    found = test.searches
    if found is None:
        return None
    wrong = found.mated & ~found.right
    return 100 * tar.at(np.where(wrong, -2.0, found.highest), found.mated, fpir)  # below every cosine: never accepted
