"""Brier score: the squared distance between predicted probabilities and the label, from 0 to 2.

1/N Σ_i Σ_c (p_i(c) − [c = y_i])², with p_i the softmax of the logits, as for `nll`.
"""

from __future__ import annotations

from lossbench.metrics import Evaluation

UNIT, BETTER, TASKS = "", "lower", ("classification",)
TITLE = "Brier score"


def measure(test: Evaluation) -> float | None:
    return None if test.outputs is None else float(test.outputs.examples.brier.mean())
