"""Pairs of known scores for tests of verification."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

# Few distinct values, so that ties within and between the kinds are the rule; both kinds are there.
TIED = st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=40).filter(
    lambda pairs: 0 < sum(same for _, same in pairs) < len(pairs)
)


def arrays(pairs):
    return np.array([score for score, _ in pairs], dtype=float), np.array([same for _, same in pairs])


def normal_scores(rng, positives, negatives, distance):
    """Positives N(distance, 1), negatives N(0, 1), mixed: the EER is Φ(−d/2) and the AUC Φ(d/√2)."""
    same = rng.permutation(np.arange(positives + negatives) < positives)
    return rng.normal(size=len(same)) + distance * same, same


def within(count, tries, share):
    """The share counted is what was promised, to three standard errors."""
    return abs(count / tries - share) <= 3 * math.sqrt(share * (1 - share) / tries)
