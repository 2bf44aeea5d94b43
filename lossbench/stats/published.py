"""A published number against our own runs: does it lie in their prediction interval?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.special
from numpy.typing import ArrayLike

from lossbench.stats.pairs import LEVEL, spread

FEWEST_FOR_PREDICTION = 5  # seeds; at 3 the interval is ±5 SD wide and contains anything

PublishedVerdict = Literal["reproduced", "above", "below", "underpowered", "not comparable"]


def prediction_interval(values: ArrayLike, level: float = LEVEL, *, resolution: float = 0.0) -> tuple[float, float]:
    """Where one more run falls with chance 1 − level: mean ± t(1 − level/2; s − 1) · SD · √(1 + 1/s).

    For s normal runs; unlike the interval of a mean it does not shrink to zero with s. Valid from five runs on; NaN
    below. `resolution` as in `paired`.
    """
    sample = np.asarray(values, dtype=np.float64)
    s = len(sample)
    if s < FEWEST_FOR_PREDICTION:
        return math.nan, math.nan
    half = float(scipy.special.stdtrit(s - 1, 1 - level / 2)) * spread(sample, resolution) * math.sqrt(1 + 1 / s)
    return float(sample.mean()) - half, float(sample.mean()) + half


@dataclass(frozen=True)
class Reproduction:
    """A published number against n runs: their mean, the interval for one more run, and the verdict."""

    n: int
    published: float
    mean: float
    low: float
    high: float
    verdict: PublishedVerdict


def reproduction(
    values: ArrayLike,
    published: float,
    margin: float,
    level: float = LEVEL,
    *,
    differs: Sequence[str] = (),
    resolution: float = 0.0,
) -> Reproduction:
    """Whether a published number agrees with our runs.

    not comparable: the protocols differ (`differs` names how). above, below: the published number is outside the
    prediction interval, and our runs are above or below it. Inside the interval: reproduced if it is at most ±margin
    wide, else underpowered (a wide interval contains anything), as are fewer than five runs.
    """
    sample = np.asarray(values, dtype=np.float64)
    mean = float(sample.mean()) if len(sample) else math.nan
    low, high = prediction_interval(sample, level, resolution=resolution)
    word: PublishedVerdict
    if differs:
        word = "not comparable"
    elif published < low:
        word = "above"
    elif published > high:
        word = "below"
    else:
        word = "reproduced" if (high - low) / 2 <= margin else "underpowered"  # NaN compares false
    return Reproduction(len(sample), published, mean, low, high, word)
