"""Trends: whether something increases (or decreases) with an option, the width or the number of classes."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray

from lossbench.stats.pairs import FEWEST_SEEDS, LEVEL, holm, paired

Direction = Literal["increases", "decreases"]


@dataclass(frozen=True)
class Trend:
    """A measure over the values of an option, paired by seed.

    `p` is two-sided (Page); `direction` is that of the ranks, None if they have none. `slope` is the mean over seeds of
    each seed's least-squares slope, with its t interval; `spearman` is the mean over seeds. `rises` and `falls` count
    the steps between neighbouring values that go up or down significantly; `p_rise` and `p_fall` are the smallest p of
    a step that goes up or down, 1 where none does.
    """

    n: int
    p: float
    direction: Direction | None
    slope: float
    low: float
    high: float
    spearman: float
    rises: int
    falls: int
    p_rise: float = math.nan
    p_fall: float = math.nan


def trend(x: ArrayLike, y: ArrayLike, level: float = LEVEL, *, resolution: float = 0.0) -> Trend:
    """Page's trend test of y (seeds × values) over the ordered values x, with the size of the trend.

        L = Σ_seeds Σⱼ j·rank(yⱼ within the seed);   p = min(1, 2·min(P(L ≥ l), P(L ≤ l)))

    Under no trend all orders of a seed's values are equally likely: exact up to 8 values and 12 seeds, else normal;
    ties make it conservative. Page's test uses the order of x alone; the slope is per unit of x, so pass log x where
    the option is a scale. A significant trend need not be monotone: `rises` and `falls` come from paired t tests of
    the steps, Holm-adjusted over the steps. p and intervals are NaN below three seeds. `resolution` as in `paired`.
    """
    at, table = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if at.ndim != 1 or table.ndim != 2 or table.shape[1] != len(at):
        raise ValueError(f"a trend takes k values and seeds × k measurements, got {at.shape} and {table.shape}")
    if len(at) < 3 or len(np.unique(at)) < len(at):
        raise ValueError(f"a trend needs three or more different values, got {at.tolist()}; compare two as a pair")
    if not (np.isfinite(at).all() and np.isfinite(table).all()):
        raise ValueError("a trend needs finite numbers; leave out seeds that are not complete")
    order = np.argsort(at)
    at, table = at[order], table[:, order]
    scale = float(np.abs(table).max(initial=0.0)) or 1.0
    table = np.round(table / scale, 12) * scale  # differences that are only rounding are ties
    centred = at - at.mean()
    slopes = table @ centred / (centred @ centred)
    step = resolution * float(np.abs(centred).max() / (centred @ centred))  # the slope of one step at an end
    slope = paired(slopes, np.zeros_like(slopes), level, resolution=step)
    rho = float(np.nan_to_num(_rank_correlations(at, table)).mean()) if len(table) else math.nan  # a flat seed: zero
    if len(table) < FEWEST_SEEDS:
        return Trend(len(table), math.nan, None, slope.delta, math.nan, math.nan, rho, 0, 0)
    p, direction = _page(table)
    steps = [paired(after, before, level, resolution=resolution) for before, after in itertools.pairwise(table.T)]
    adjusted = holm([found.p for found in steps])
    up, down = ([sure for sure, one in zip(adjusted, steps, strict=True) if sign * one.delta > 0] for sign in (1, -1))
    return Trend(
        n=len(table),
        p=p,
        direction=direction,
        slope=slope.delta,
        low=slope.low,
        high=slope.high,
        spearman=rho,
        rises=sum(one < level for one in up),
        falls=sum(one < level for one in down),
        p_rise=min(up, default=1.0),
        p_fall=min(down, default=1.0),
    )


def trend_evidence(found: Trend, claimed: Direction, level: float = LEVEL) -> tuple[float, bool]:
    """The p of a claim that something increases (decreases) with an option, and whether it supports the claim.

    The trend supports the claim unless a step goes significantly the other way. A trend the other way and any single
    step the other way contradict it: two tests, so the smaller p is doubled.
    """
    along = found.direction == claimed
    if math.isnan(found.p):
        return math.nan, along
    back = found.p_fall if claimed == "increases" else found.p_rise
    against = min(1.0, 2 * min(1.0 if along else found.p, back))
    return (found.p, True) if along and back >= level and found.p <= against else (against, False)


def _rank_correlations(x: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spearman's ρ of x with each row, ties sharing their mean rank; NaN where either side does not vary."""
    first, second = scipy.stats.rankdata(x), scipy.stats.rankdata(rows, axis=1)
    first, second = first - first.mean(), second - second.mean(axis=1, keepdims=True)
    scale = np.sqrt((first @ first) * (second**2).sum(axis=1))
    rhos = np.full(len(rows), math.nan)
    np.divide(second @ first, scale, out=rhos, where=scale > 0)
    return rhos


def _page(table: NDArray[np.float64]) -> tuple[float, Direction | None]:
    seeds, values = table.shape
    statistic = float((scipy.stats.rankdata(table, axis=1) @ np.arange(1, values + 1)).sum())
    excess = statistic - seeds * values * (values + 1) ** 2 / 4
    if excess == 0:
        return 1.0, None
    # L is symmetric about its mean, so the tail on the side of the statistic is the smaller one.
    tail = scipy.stats.page_trend_test(table if excess > 0 else table[:, ::-1])
    return min(1.0, 2 * float(tail.pvalue)), "increases" if excess > 0 else "decreases"
