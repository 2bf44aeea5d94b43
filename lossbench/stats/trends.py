"""Trends: whether something increases (or decreases) with an option, the width or another axis."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lossbench.stats.pairs import FEWEST_SEEDS, LEVEL, half_width, paired, spread


@dataclass(frozen=True)
class Trend:
    """A measure over the values of an option, paired by seed.

    `slope` is the mean over seeds of each seed's least-squares slope, with its interval, two-sided p and standardised
    effect. `steps` are the mean changes between neighbouring values. `back` is the step that may go furthest against
    the direction of the slope (the place of its first value), and `back_bound` the one-sided (1 − level) bound of how
    far: at most 0 where every step follows the slope.
    """

    n: int
    slope: float
    low: float
    high: float
    p: float
    dz: float
    sd: float
    steps: tuple[float, ...]
    back: int
    back_bound: float


def coefficients(x: ArrayLike) -> NDArray[np.float64]:
    """The weights of the values in their least-squares slope over x: (x − x̄)/Σ(x − x̄)².

    Products are summed without `@` here and below: its last bits depend on the CPU.
    """
    at = np.asarray(x, dtype=np.float64)
    centred = at - at.mean()
    weights: NDArray[np.float64] = centred / (centred**2).sum()
    return weights


def trend(
    x: ArrayLike,
    y: ArrayLike,
    level: float = LEVEL,
    *,
    resolution: float = 0.0,
    noise: float = 0.0,
    step_noise: ArrayLike = 0.0,
) -> Trend:
    """The trend of y (seeds × values) over the ordered values x.

    The slope is per unit of x, so pass log x where the option is a scale. `noise` is the standard error that the choice
    of test examples adds to the slope, `step_noise` what it adds to each step, in the order of x. A slope does not say
    that every step follows it: a claim of a trend holds if the slope has its direction *and* no step goes back beyond a
    margin, `back_bound < margin`. That is an intersection of one-sided tests, each at `level`, so it needs no further
    adjustment. NaN below three seeds. `resolution` as in `paired`.
    """
    at, table = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if at.ndim != 1 or table.ndim != 2 or table.shape[1] != len(at):
        raise ValueError(f"a trend takes k values and seeds × k measurements, got {at.shape} and {table.shape}")
    if len(at) < 2 or len(np.unique(at)) < len(at):
        raise ValueError(f"a trend needs two or more different values, got {at.tolist()}")
    if not (np.isfinite(at).all() and np.isfinite(table).all()):
        raise ValueError("a trend needs finite numbers; leave out seeds that are not complete")
    order = np.argsort(at)
    at, table = at[order], table[:, order]
    weights = coefficients(at)
    slopes = (table * weights).sum(axis=1)
    found = paired(
        slopes, np.zeros_like(slopes), level, resolution=resolution * float(np.abs(weights).max()), noise=noise
    )
    gaps = [after - before for before, after in itertools.pairwise(table.T)]
    steps = tuple(float(gap.mean()) for gap in gaps) if len(table) else ()
    back, bound = 0, math.nan
    if len(table) >= FEWEST_SEEDS:
        direction = math.copysign(1.0, found.delta)
        noises = np.broadcast_to(np.asarray(step_noise, dtype=np.float64), len(gaps))
        bounds = [
            # One-sided: the upper end of the two-sided interval of twice the level.
            float(half_width(spread(gap, resolution), len(gap), 2 * level, more)) - direction * float(gap.mean())
            for gap, more in zip(gaps, noises, strict=True)
        ]
        back = int(np.argmax(bounds))
        bound = bounds[back]
    return Trend(
        found.n, found.delta, found.low, found.high, found.p, found.dz, found.sd, steps, back=back, back_bound=bound
    )
