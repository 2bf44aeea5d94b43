"""The share of test examples that are classified correctly, mean over classes.

1/C Σ_c #{i: y_i = c, ŷ_i = c} / #{i: y_i = c}, over the classes that have test examples. Every class counts the same,
however many examples it has.
"""

from __future__ import annotations

from lossbench.metrics import Evaluation, _classes

UNIT, BETTER, TASKS = "points", "higher", ("classification",)
TITLE = "balanced accuracy"
STEP = 100.0  # where all classes have as many examples


def measure(test: Evaluation) -> float:
    return 100 * float(_classes.accuracies(test).mean())
