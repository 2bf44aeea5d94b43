"""The settings that the trials of a loss use: the same number for every loss, deterministic. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any

from lossbench.core.format import Schedule
from lossbench.core.model import Setting, Spec
from lossbench.core.streams import derive
from lossbench.core.values import frozen
from lossbench.plugins.ranges import Space

SCHEDULE = "schedule."  # before the keys of the schedule, beside the options of a loss; no option can have such a name
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
RESOLUTION = 2**-40  # of a coordinate
MOST_POINTS = 4096  # that are looked at: a space with few points is exhausted long before


def settings(loss: Spec, space: Space, schedule: Schedule, keys: Space, trials: int) -> tuple[Setting, ...]:
    """Up to `trials` different settings of a loss; the first is its default.

    The others are quasi-random points of its space and of the `keys` of the schedule in a fixed order, so more trials
    extend fewer ones. A space with fewer points than trials gives fewer settings.
    """
    axes = {**space, **{SCHEDULE + key: axis for key, axis in keys.items()}}
    values = schedule.model_dump()
    written = {name: loss.options[name] for name in space} | {SCHEDULE + key: values[key] for key in keys}
    found: list[dict[str, Any]] = [written]
    seen = {frozen(written)}
    for point in islice(_points(list(axes), loss.label), MOST_POINTS if axes else 0):
        if len(found) == trials:
            break
        values = {name: axis.at(share) for (name, axis), share in zip(axes.items(), point, strict=True)}
        if (point_of := frozen(values)) not in seen:
            seen.add(point_of)
            found.append(values)
    return (
        Setting(loss, {}),
        *(
            Setting(
                replace(loss, options={**loss.options, **{name: values[name] for name in space}}),
                {key: values[SCHEDULE + key] for key in keys},
            )
            for values in found[1:]
        ),
    )


def _points(names: list[str], label: str) -> Iterator[tuple[float, ...]]:
    """A Halton sequence, one prime per axis, its digits permuted by the loss's own random stream.

    Implemented here because a library's sequence may change with its version, and with it the key of every trial.
    """
    axes = [_axis(PRIMES[place % len(PRIMES)], label, name) for place, name in enumerate(names)]
    return zip(*axes, strict=True)


def _axis(base: int, label: str, name: str) -> Iterator[float]:
    """0, 1, 2, … in base `base`, each digit permuted by its place, mirrored at the radix point."""
    permutations: list[list[int]] = []
    unit = 1.0
    while unit > RESOLUTION:
        unit /= base
        digits = list(range(base))
        random.Random(derive(0, "trials", label, name, len(permutations))).shuffle(digits)
        permutations.append(digits)
    for number in count():
        rest, value, unit = number, 0.0, 1.0
        for digits in permutations:
            rest, digit = divmod(rest, base)
            unit /= base
            value += unit * digits[digit]
        yield value
