"""The Pareto front of accuracy against cost, and the chance of each loss to be on it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

FEWEST_FOR_FRONT = 10  # seeds; fewer have too few distinct resamples


def pareto_front(accuracy: ArrayLike, cost: ArrayLike) -> NDArray[np.bool_]:
    """Which losses no other dominates (as accurate and as cheap, and better in one). Losses are the last axis."""
    high, low = np.asarray(accuracy, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    # Axis −2 is the rival, axis −1 the loss that it may dominate.
    no_worse = (high[..., :, None] >= high[..., None, :]) & (low[..., :, None] <= low[..., None, :])
    better = (high[..., :, None] > high[..., None, :]) | (low[..., :, None] < low[..., None, :])
    return np.logical_not((no_worse & better).any(axis=-2))


def pareto_chance(
    accuracy: ArrayLike, cost: ArrayLike, rng: np.random.Generator, *, rounds: bool = False, resamples: int = 5_000
) -> NDArray[np.float64]:
    """P(on the front) of each loss, accuracy up and cost down, by a joint bootstrap over seeds.

    `accuracy` is seeds × losses. `cost` is one number per loss (bytes, which no seed changes), or seeds × losses,
    resampled together with the accuracies; with `rounds` its rows are rounds of a timing cell, resampled independently.
    Rows are drawn whole, so what losses share (the seed, the speed of the machine) stays shared. Valid from ten seeds
    (and rounds) on, NaN below. A share of resamples, not a p value: two equal losses have about ½ each.
    """
    high, low = np.asarray(accuracy, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    if high.ndim != 2 or low.ndim not in (1, 2) or low.shape[-1] != high.shape[1]:
        raise ValueError(f"expected seeds × losses and a cost that matches it, got {high.shape} and {low.shape}")
    if low.ndim == 2 and not rounds and len(low) != len(high):
        raise ValueError(f"{len(high)} seeds of accuracy and {len(low)} of cost; pass rounds=True if these are rounds")
    if min(len(high), len(low) if low.ndim == 2 else len(high)) < FEWEST_FOR_FRONT:
        return np.full(high.shape[1], math.nan)
    weights = _weights(len(high), resamples, rng)
    accuracies = _means(weights, high)
    costs = low if low.ndim == 1 else _means(_weights(len(low), resamples, rng) if rounds else weights, low)
    chances: NDArray[np.float64] = pareto_front(accuracies, np.broadcast_to(costs, accuracies.shape)).mean(axis=0)
    return chances


def _weights(rows: int, resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """How often each row is drawn in each resample, as shares."""
    counts: NDArray[np.float64] = rng.multinomial(rows, np.full(rows, 1 / rows), resamples) / rows
    return counts


def _means(weights: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """weights @ values, added row by row: the last bits of a matrix product, which decide ties, depend on the CPU."""
    total = np.zeros((len(weights), values.shape[1]))
    for column, row in zip(weights.T, values, strict=True):
        total += column[:, None] * row
    return total
