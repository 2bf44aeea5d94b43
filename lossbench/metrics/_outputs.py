"""What the logits of a classification say about each example, from one pass over blocks of rows.

The softmax of z (C,) is p_c = exp(z_c) / Σ_k exp(z_k). Metrics need a few numbers per example and not the N×C logits:
those of 10,000 examples and 10,575 classes are 423 MB, more than training takes, and would decide `peak_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 128  # rows: what they take in float64 stays in a CPU's cache

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Examples(NamedTuple):
    """The number of classes C, and of each example (N,), with y its label:"""

    classes: int
    predicted: Ints  # argmax_c z_c
    confidence: Floats  # max_c p_c
    log_likelihood: Floats  # log p_y
    brier: Floats  # Σ_c (p_c − [c = y])²
    rank: Ints  # how many classes come before y: those with a larger logit, and those before it with an equal one


@dataclass(frozen=True, eq=False)
class Outputs:
    """The logits of N examples, computed when they are asked for: `logits` takes rows and gives theirs (B×C).

    Those of a tensor of logits are `Outputs(tensor.__getitem__, labels)`.
    """

    logits: Callable[[slice], Tensor]
    labels: Ints

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The logits (B×C) of blocks of rows, with their labels (B,)."""
        for start in range(0, len(self.labels), BLOCK):
            rows = slice(start, start + BLOCK)
            block = self.logits(rows)
            yield block, torch.from_numpy(self.labels[rows]).to(block.device)

    @cached_property
    def examples(self) -> Examples:
        """What all metrics share; every row of logits is computed once."""
        classes, parts = 0, []
        for block, labels in self.blocks():
            classes = block.shape[1]
            parts.append(_columns(block, labels))
        columns: list[NDArray[Any]] = [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]
        predicted, confidence, log_likelihood, brier, rank = columns
        return Examples(classes, predicted, confidence, log_likelihood, brier, rank)

    def confidence(self, temperature: float) -> Floats:
        """max_c p_c of each example, with the softmax of z / temperature."""
        scaled = (block.double() / temperature for block, _ in self.blocks())
        return np.concatenate([(z.amax(1) - z.logsumexp(1)).exp().cpu().numpy() for z in scaled])

    def nll(self, temperature: float) -> float:
        """−1/N Σ_i log p_i(y_i), with the softmax of z / temperature."""
        total = 0.0
        for block, labels in self.blocks():
            scaled = block.double() / temperature
            total += float((scaled.logsumexp(1) - scaled.gather(1, labels[:, None]).squeeze(1)).sum())
        return total / len(self.labels)


def _columns(block: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """The columns of `Examples`; one exponential per logit, which is what takes the time."""
    own = labels[:, None]
    logit = block.gather(1, own)
    shifted = block.double() - block.amax(1, keepdim=True)  # the largest is 0
    powers = shifted.exp()
    total = powers.sum(1)
    log_likelihood = shifted.gather(1, own).squeeze(1) - total.log()
    squares = powers.square_().sum(1) / total.square() - 2 * log_likelihood.exp() + 1
    before = torch.arange(block.shape[1], device=block.device) < own
    rank = ((block > logit) | ((block == logit) & before)).sum(1)
    return block.argmax(1), 1 / total, log_likelihood, squares, rank
