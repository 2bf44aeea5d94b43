"""The share of test examples whose class is among the five with the largest logits.

#{i: rank of y_i < 5} / N, the rank being the number of classes with a larger logit, or with an equal one and a smaller
label. It does not exist with five classes or fewer, where it would always be 100.
"""

from __future__ import annotations

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "points", "higher", ("classification",)
TITLE = "top-5"
STEP = 100.0
BEST = 5


def measure(test: Evaluation) -> float | None:
    if test.outputs is None or test.outputs.examples.classes <= BEST:
        return None
    return float((100.0 * (test.outputs.examples.rank < BEST)).mean())
