"""One comparison, one interval, one verdict, wherever it appears.

A comparison is one loss minus another in one metric, at a point or as a mean over points. It belongs to exactly one
family: that of the first claim that states it, else that of its experiment and metric. A family of m comparisons has
intervals of level 1 − 0.05/m (Bonferroni), so that all of them hold together with a chance of 0.95; verdicts are read
off these intervals. Comparisons that cannot be tested (too few seeds, a side at chance) do not count in m.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lossbench import stats
from lossbench.analysis.measured import Contrast, LossAt, contrast
from lossbench.analysis.records import RunData
from lossbench.core.point import Point

NOT_TESTABLE = "not testable"
ONE_SEED, AT_CHANCE, UNDERTRAINED = FLAGS = ("one seed decides", "at chance", "undertrained")
DECIDED = ("better", "worse", "equivalent")
LEARNED = ("test", "curves")  # the sources of metrics that depend on what a network has learned


class Term(NamedTuple):
    """A loss at a point, with its weight in a contrast."""

    weight: float
    point: Point
    loss: str


class Asked(NamedTuple):
    """A comparison: the mean over `where` of `metric` of `a`, minus that of `b` (in `than_metric`, if given)."""

    metric: str
    where: tuple[Point, ...]
    a: str
    b: str
    than_metric: str = ""

    @property
    def flipped(self) -> Asked:
        return self._replace(a=self.b, b=self.a)

    @property
    def sides(self) -> list[LossAt]:
        return [(point, loss) for loss in (self.a, self.b) for point in self.where]


@dataclass(frozen=True)
class Judged:
    """A comparison with its interval and verdict; numbers are in the unit of the metric."""

    n: int
    delta: float
    low: float
    high: float
    level: float
    p: float
    p_adjusted: float
    dz: float
    median: float
    worst: float  # the seed that is least in favour of the loss
    verdict: str
    flags: tuple[str, ...]
    seeds_needed: int | None
    seeds_needed_high: int | None
    unit: str
    seed_se: float
    test_se: float
    family: str


class Verdicts:
    """The comparisons of a run by what they ask, with their families."""

    def __init__(self, data: RunData, claimed: Iterable[tuple[str, Asked]], further: Mapping[str, int]) -> None:
        """`claimed` are comparisons that claims state, with their families; `further` counts a family's other tests."""
        self.data = data
        self._contrasts: dict[Asked, Contrast] = {}
        self._deviations: dict[tuple[str, tuple[Point, ...]], float] = {}
        self._families: dict[Asked, str] = {}
        for family, asked in claimed:
            self._families.setdefault(self._key(asked), family)
        for asked in self.of_table:
            self._families.setdefault(asked, f"{asked.where[0]['experiment']}, {asked.metric}")
        self.sizes = Counter(family for asked, family in self._families.items() if self.testable(asked))
        self.sizes.update(further)
        self._judged: dict[Asked, Judged] = {}

    @cached_property
    def of_table(self) -> list[Asked]:
        """Every loss against the baseline: by metric, point and loss."""
        return list(_of_table(self.data))

    def of(self, asked: Asked) -> Judged:
        """The verdict on a comparison of a claim or of the table."""
        if asked not in self._judged:
            family = self._families[self._key(asked)]
            self._judged[asked] = self._judge(asked, family, self.level(family))
        return self._judged[asked]

    def level(self, family: str) -> float:
        """The level of each interval of a family."""
        return stats.LEVEL / max(self.sizes[family], 1)

    def among(self, family: str, several: Iterable[Asked]) -> list[Judged]:
        """The verdicts on these comparisons: those that are known, and one more family for the others."""
        asked = list(several)
        new = {one for one in asked if self._key(one) not in self._families}
        level = stats.LEVEL / max(sum(map(self.testable, new)), 1)
        return [self._judge(one, family, level) if one in new else self.of(one) for one in asked]

    def contrast(self, asked: Asked) -> Contrast:
        """The paired values of a comparison."""
        key = self._key(asked)
        if key not in self._contrasts:
            self._contrasts[key] = _contrast(self.data, key, self._deviation(key))
        return self._contrasts[key] if key.a == asked.a else self._contrasts[key].flipped

    def _deviation(self, asked: Asked) -> float:
        """The largest deviation of a seed from the median of its loss, over the losses that are not at chance there."""
        place = asked.metric, asked.where
        if place not in self._deviations:
            barred = {loss for point, loss in self.data.at_chance if point in asked.where}
            losses = [loss for loss in self.data.labels if loss not in barred]
            found = self.data.measured.deviation(asked.metric, asked.where, losses, self.data.info.baseline)
            self._deviations[place] = found
        return self._deviations[place]

    def testable(self, asked: Asked) -> bool:
        return len(self.contrast(asked).a) >= stats.FEWEST_SEEDS and not self.barred(asked)

    def barred(self, asked: Asked) -> list[str]:
        """Why a comparison is not testable although it was measured: the losses that are at chance."""
        if self.data.metrics[asked.metric].source not in LEARNED:
            return []
        return [why for at in asked.sides if (why := self.data.at_chance.get(at))]

    def _key(self, asked: Asked) -> Asked:
        """The comparison as it is kept: its points in the order of the records; the baseline second, else by name."""
        asked = asked._replace(where=tuple(sorted(asked.where, key=self._places.__getitem__)))
        last = self.data.info.baseline
        turned = not asked.than_metric and (asked.b != last and (asked.a == last or asked.a > asked.b))
        return asked.flipped if turned else asked

    @cached_property
    def _places(self) -> dict[Point, int]:
        points = [*self.data.points, *(cell.point for cell in self.data.timed)]
        return {point: place for place, point in enumerate(dict.fromkeys(points))}

    @cached_property
    def _undertrained(self) -> frozenset[Point]:
        return frozenset(self.data.undertrained)

    def _judge(self, asked: Asked, family: str, level: float) -> Judged:
        metric = self.data.metrics[asked.metric]
        found = judged(self.contrast(asked), level, self.data.margin(asked.metric), metric.sign, family)
        if self.barred(asked):
            found = replace(found, verdict=NOT_TESTABLE, flags=(AT_CHANCE,), seeds_needed=None, seeds_needed_high=None)
        if metric.source in LEARNED and any(point in self._undertrained for point in asked.where):
            found = replace(found, flags=(*found.flags, UNDERTRAINED))
        return found


def judged(found: Contrast, level: float, margin: float, sign: int, family: str = "") -> Judged:
    """The interval, verdict and flags of a contrast at the level of its family; `sign` is −1 if less is better."""

    def read(low: float, high: float) -> str:
        return stats.verdict(low, high, margin, sign)

    numbers = stats.paired(found.a, found.b, level, resolution=found.resolution, noise=found.noise)
    gaps = found.a - found.b
    word = read(found.written(numbers.low), found.written(numbers.high)) if numbers.n else NOT_TESTABLE
    fragile = word in DECIDED and one_seed_decides(found, level, read)
    needed = None
    if word == "undecided":
        scale = {"margin": found.read(margin), "noise": found.noise}
        needed = stats.seeds_needed(numbers.delta, numbers.sd, numbers.n, level, **scale)
    return Judged(
        n=numbers.n,
        **{name: found.written(getattr(numbers, name)) for name in ("delta", "low", "high")},
        level=level,
        p=numbers.p,
        p_adjusted=min(1.0, numbers.p * stats.LEVEL / level) if not math.isnan(numbers.p) else math.nan,
        dz=numbers.dz,
        median=found.written(statistics.median(gaps.tolist())) if len(gaps) else math.nan,
        worst=found.written(sign * float((sign * gaps).min())) if len(gaps) else math.nan,
        verdict=word,
        flags=(ONE_SEED,) if fragile else (),
        seeds_needed=needed and needed.low,
        seeds_needed_high=needed and needed.high,
        unit=found.unit,
        seed_se=found.written(numbers.sd / math.sqrt(numbers.n)) if numbers.n else math.nan,
        test_se=found.noise or math.nan,
        family=family,
    )


def one_seed_decides(found: Contrast, level: float, read: Callable[[float, float], object]) -> bool:
    """Whether one seed changes what is read off the interval of a contrast, in its unit."""
    return stats.one_seed_decides(
        found.a - found.b,
        found.deviation,
        lambda low, high: read(found.written(low), found.written(high)),
        level,
        resolution=found.resolution,
        noise=found.noise,
    )


def _of_table(data: RunData) -> Iterator[Asked]:
    compared = [metric.name for metric in data.metrics.values() if metric.compared]
    if data.headline.name == "recall@1":  # another name of a retrieval's accuracy
        compared.remove("accuracy")
    baseline = data.info.baseline
    for metric in dict.fromkeys([*compared, data.headline.name]):
        values = data.measured.values[metric]
        timed = data.metrics[metric].source == "rounds"
        known = {point for point, _ in values}
        for point in [cell.point for cell in data.timed] if timed else data.points:
            if point not in known:
                continue
            for loss in data.labels[1:]:
                both = {(point, loss), (point, baseline)} <= values.keys()
                if both if timed else (point, loss) in data.measured.totals:
                    yield Asked(metric, (point,), loss, baseline)


def _contrast(data: RunData, asked: Asked, deviation: float) -> Contrast:
    measured, metric = data.measured, data.metrics[asked.metric]
    sides = (
        measured.over(asked.metric, asked.where, asked.a),
        measured.over(asked.than_metric or asked.metric, asked.where, asked.b),
    )
    if metric.source == "rounds":
        return contrast(*sides, metric.unit, logarithms=True)
    shared = [seed for seed in sides[0] if seed in sides[1]]
    share = 1 / max(len(asked.where), 1)
    terms = [Term(sign * share, point, loss) for sign, loss in ((1, asked.a), (-1, asked.b)) for point in asked.where]
    return contrast(
        *sides,
        metric.unit,
        resolution=measured.resolution(asked.metric, asked.where, asked.a),
        noise=0.0 if asked.than_metric else noise(data, asked.metric, terms, shared),
        deviation=deviation,
    )


def noise(data: RunData, metric: str, terms: Iterable[Term], seeds: list[int]) -> float:
    """The standard error that the choice of test examples adds to a sum of terms; 0 where it is not known.

    Terms of one dataset, number of classes and number of test examples have the same test examples. Others count as
    independent, which errs towards more noise where they share some.
    """
    if not seeds or data.metrics[metric].source != "test":
        return 0.0
    gaps: dict[tuple[Any, ...], NDArray[np.float64]] = {}  # weighted sums, seeds × test examples
    for term in terms:
        table = data.examples(metric, term.point, term.loss, seeds)
        if table is None:
            return 0.0
        examples = term.point["dataset"], term.point["classes"], table.shape
        gaps[examples] = np.add(gaps.get(examples, 0.0), term.weight * table)
    errors = [stats.example_error(table) for table in gaps.values()]
    return math.sqrt(sum(error**2 for error in errors if not math.isnan(error)))
