"""The axes of an experiment's grid: every list in a dataset, a backbone or the schedule is one. Pure."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lossbench.core.point import COLUMNS

AxisNames = Mapping[tuple[str, str], str]  # (part of the experiment, option or key) → name of the axis


@dataclass(frozen=True)
class Swept:
    """A plugin (or the schedule, without a name) with the values of each option; `swept` are those given as lists."""

    name: str
    axes: Mapping[str, Sequence[Any]]
    swept: tuple[str, ...]
    path: Sequence[Any]  # where the suite writes it

    @property
    def size(self) -> int:
        return math.prod(map(len, self.axes.values()))

    def combinations(self) -> Iterator[dict[str, Any]]:
        """One value for every option."""
        return (dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values()))


def axis_names(parts: Mapping[str, Sequence[Swept]]) -> AxisNames:
    """An axis is named by its key, dotted (`dataset.size`) where two parts sweep it or every experiment has it."""
    swept = {(part, key) for part, ones in parts.items() for one in ones for key in one.swept}
    count = Counter(key for _, key in swept)
    return {at: ".".join(at) if count[at[1]] > 1 or at[1] in COLUMNS else at[1] for at in swept}
