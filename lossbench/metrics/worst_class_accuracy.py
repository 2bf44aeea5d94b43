"""The share of test examples of the worst class that are classified correctly.

min_c #{i: y_i = c, ŷ_i = c} / #{i: y_i = c}, over the classes that have test examples.
"""

from __future__ import annotations

from lossbench.metrics import Evaluation, _classes

UNIT, BETTER, TASKS = "points", "higher", ("classification",)
TITLE = "worst class"
STEP = 100.0
STEP_OF = "class"


def measure(test: Evaluation) -> float:
    return 100 * float(_classes.accuracies(test).min())
