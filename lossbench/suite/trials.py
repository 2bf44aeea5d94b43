"""The settings of a loss that are tried when it is tuned: as many for every loss, and always the same ones. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from typing import Any

from lossbench.core.model import Setting, Spec
from lossbench.core.streams import derive
from lossbench.core.values import frozen
from lossbench.plugins.ranges import Choices, Range, Space

LR = "schedule.lr"  # the learning rate beside the options of a loss, of which none can have this name
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
RESOLUTION = 2**-40  # of a point: digits below it change nothing
MOST_POINTS = 4096  # that are looked at: a space of few points is exhausted long before


def settings(loss: Spec, space: Space, lr: float, lr_range: Range | None, trials: int) -> tuple[Setting, ...]:
    """Up to `trials` different settings of a loss, the first being the loss as it is written.

    The others are quasi-random points of its space, in an order of their own: more trials are the same ones and some
    more. A space with fewer points than trials gives fewer settings.
    """
    axes: dict[str, Range | Choices] = dict(space)
    written: dict[str, Any] = {name: loss.options[name] for name in axes}
    if lr_range:
        axes[LR], written[LR] = lr_range, lr
    found, seen = [written], {frozen(written)}
    points = islice(_points(list(axes), loss.label), MOST_POINTS if axes else 0)
    for point in points:
        if len(found) == trials:
            break
        values = {name: axis.at(share) for (name, axis), share in zip(axes.items(), point, strict=True)}
        if (point_of := frozen(values)) not in seen:
            seen.add(point_of)
            found.append(values)
    return tuple(_setting(loss, number, values, lr) for number, values in enumerate(found, start=1))


def _setting(loss: Spec, number: int, values: Mapping[str, Any], lr: float) -> Setting:
    options = {**loss.options, **{name: value for name, value in values.items() if name != LR}}
    return Setting(replace(loss, options=options).as_trial(number), values.get(LR, lr))


def _points(names: list[str], label: str) -> Iterator[tuple[float, ...]]:
    """A Halton sequence, one prime an axis, its digits permuted by the loss's own stream.

    Written out here: a library's sequence may change with its version, and with it the key of every trial.
    """
    axes = [_axis(PRIMES[place % len(PRIMES)], label, name) for place, name in enumerate(names)]
    return zip(*axes, strict=True)


def _axis(base: int, label: str, name: str) -> Iterator[float]:
    """The numbers 0, 1, 2, … in digits of `base`, each place's digits permuted, mirrored at the point."""
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
