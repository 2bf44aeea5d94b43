"""Uncertainty due to the choice of test examples, from one value per example, such as the stored correctness bits.

An error bar over seeds holds the test set fixed. Another test set of the same kind would move the accuracy of every
seed at once, so more seeds do not reduce this error.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def example_error(gaps: ArrayLike) -> float:
    """The standard error that the choice of test examples adds to a mean difference, from gaps (seeds × examples).

        d_se = Δ + α_s + β_e + γ_se,   SE = √( (MS_β − MS_γ)₊ / (S·E) ),   which estimates σ_β/√E

    MS_β and MS_γ are the mean squares of examples and of the rest in the two-way layout. β is what the losses make of
    an example whatever the seed; α and γ are in the spread over seeds already. With one seed γ cannot be told from β,
    and all of the spread over examples counts.
    """
    table = np.atleast_2d(np.asarray(gaps, dtype=np.float64))
    seeds, examples = table.shape
    if examples < 2:
        return math.nan
    columns = table.mean(axis=0)
    of_examples = seeds * float(columns.var(ddof=1))
    if seeds == 1:
        return math.sqrt(of_examples / examples)
    total = float(((table - table.mean(axis=1, keepdims=True)) ** 2).sum())  # of examples and of the rest
    rest = max(total - of_examples * (examples - 1), 0.0) / ((seeds - 1) * (examples - 1))
    return math.sqrt(max(of_examples - rest, 0.0) / table.size)
