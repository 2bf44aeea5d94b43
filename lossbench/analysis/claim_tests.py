"""How one claim is tested: one loss against another, a trend along an option or axis, or no change along it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lossbench import stats
from lossbench.analysis.comparisons import row_of
from lossbench.analysis.measured import Contrast
from lossbench.analysis.records import RunData
from lossbench.analysis.verdicts import (
    AT_CHANCE,
    LEARNED,
    NOT_TESTABLE,
    ONE_SEED,
    UNDERTRAINED,
    Asked,
    Term,
    Verdicts,
    judged,
    noise,
)
from lossbench.core.format import Claim
from lossbench.core.point import Point
from lossbench.suite.claims import covers, variants

Row = dict[str, Any]
Side = tuple[float, Sequence[Point], str]  # a value of the option or axis, and the points and the loss that have it

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
NOT_RUN = "not run"  # the evidence of a claim without records


def family_of(claim: Claim) -> str:
    return f"claims {claim.family}".rstrip()


def covered(data: RunData, claim: Claim) -> list[Point]:
    """The measured points that a claim is about."""
    points = [cell.point for cell in data.timed] if claim.metric == "step_seconds" else data.points
    return [point for point in points if covers(claim, point)]


# ---- one loss against another ----------------------------------------------------------------------------------------


def losses(claim: Claim) -> tuple[str, str]:
    """The losses of a claim about two, in its order."""
    a, b = claim.equivalent or (claim.better or claim.not_worse, claim.than)
    return str(a), str(b)


def asked(data: RunData, claim: Claim) -> Asked:
    """The comparison that a claim about two losses states."""
    return Asked(claim.metric, tuple(covered(data, claim)), *losses(claim), claim.than_metric or "")


def two_losses(data: RunData, verdicts: Verdicts, claim: Claim) -> Row:
    """One loss is better than another, not worse, or equivalent: read off the interval of their comparison."""
    question = asked(data, claim)
    if why := verdicts.barred(question):
        return row_of(verdicts.of(question)) | {"evidence": _at_chance(why)}
    found = verdicts.of(question)
    if found.n < stats.FEWEST_SEEDS:
        return row_of(found) | {"verdict": UNDECIDED, "evidence": _too_few(found.n)}
    margin = claim.margin or data.margin(claim.metric)
    sign = data.metrics[claim.metric].sign
    low, high = (found.low, found.high) if sign > 0 else (-found.high, -found.low)  # larger is better
    if claim.better:
        word, said = _better(low, high, margin, found.unit)
    elif claim.not_worse:
        word, said = _not_worse(low, high, margin, found.unit)
    else:
        word, said = _equivalent(low, high, margin, found.unit)
    return row_of(found) | {"verdict": word, "evidence": "; ".join([said, *found.flags])}


def _better(low: float, high: float, margin: float, unit: str) -> tuple[str, str]:
    match stats.verdict(low, high, margin):
        case "better":
            return SUPPORTED, "better"
        case "worse":
            return CONTRADICTED, "worse"
        case "equivalent":
            return CONTRADICTED, f"the difference is within ±{margin:g} {unit}".rstrip()
    return UNDECIDED, "the interval includes zero"


def _not_worse(low: float, high: float, margin: float, unit: str) -> tuple[str, str]:
    bound = f"{margin:g} {unit}".rstrip()
    if low > -margin:
        return SUPPORTED, f"worse by less than {bound}, if at all"
    if high < -margin:
        return CONTRADICTED, f"worse by more than {bound}"
    return UNDECIDED, f"may be worse by more or by less than {bound}"


def _equivalent(low: float, high: float, margin: float, unit: str) -> tuple[str, str]:
    bound = f"±{margin:g} {unit}".rstrip()
    if -margin < low and high < margin:
        return SUPPORTED, f"the interval lies within {bound}"
    if low > margin or high < -margin:
        return CONTRADICTED, f"the interval lies outside {bound}"
    return UNDECIDED, f"the interval is neither within nor outside {bound}"


# ---- along the values of an option of the loss, or of an axis --------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """A metric (or its gain over another loss) along the values of an option or axis, for the seeds that have all."""

    at: list[float]
    table: NDArray[np.float64]  # seeds × values
    seeds: list[int]
    sides: list[Side]
    resolution: float
    barred: list[str]  # why it cannot be tested
    flags: tuple[str, ...]

    @property
    def intervals(self) -> int:
        """How many intervals it has if nothing changes along it: one for each further value."""
        return len(self.at) - 1 if self.testable else 0

    @property
    def testable(self) -> bool:
        return len(self.at) > 1 and len(self.table) >= stats.FEWEST_SEEDS and not self.barred


def along(data: RunData, claim: Claim, axis: str) -> Series:
    """The values that a claim follows."""
    sides = followed(data, claim, axis)
    measured = data.measured
    columns = [measured.over(claim.metric, where, loss) for _, where, loss in sides]
    if claim.than:
        than = [measured.over(claim.metric, where, claim.than) for _, where, _ in sides]
        both = zip(columns, than, strict=True)
        columns = [{seed: mine[seed] - base[seed] for seed in mine if seed in base} for mine, base in both]
    seeds = [seed for seed in columns[0] if all(seed in column for column in columns)] if columns else []
    table = np.array([[column[seed] for column in columns] for seed in seeds]).reshape(len(seeds), len(columns))
    learned = data.metrics[claim.metric].source in LEARNED
    used = [(point, name) for _, where, loss in sides for point in where for name in (loss, claim.than) if name]
    return Series(
        at=[float(value) for value, _, _ in sides],
        table=table,
        seeds=seeds,
        sides=sides,
        resolution=max((measured.resolution(claim.metric, where, loss) for _, where, loss in sides), default=0.0),
        barred=[data.at_chance[at] for at in used if at in data.at_chance] if learned else [],
        flags=(UNDERTRAINED,) if learned and any(point in data.undertrained for point, _ in used) else (),
    )


def trend(data: RunData, claim: Claim, axis: str, series: Series, level: float) -> Row:
    """The metric increases or decreases: its slope does, and no step goes back by more than the margin."""
    doubling = claim.follows_axis and min(series.at, default=0.0) > 0
    scale, per = (np.log2, f"doubling of {axis}") if doubling else (np.asarray, f"unit of {axis}")
    metric = data.metrics[claim.metric]
    factor = 100.0 if metric.source == "rounds" else 1.0  # of log seconds: a slope in percent, nearly
    unit = f"{metric.unit} per {per}".strip()
    if not series.testable:
        return _untestable(series, unit, axis, level)
    x, table = scale(series.at), factor * series.table
    spread = {"resolution": series.resolution, "noise": factor * _noise(data, claim, series, stats.coefficients(x))}
    found = stats.trend(x, table, level, **spread)
    margin = claim.margin or data.margin(claim.metric)
    way = 1 if claim.increases_with else -1
    low, high = (found.low, found.high) if way > 0 else (-found.high, -found.low)
    whole = float(max(x) - min(x))
    values = ", ".join(f"{value:g}" for value in series.at)
    over = f"over {axis} = {values}"
    steps = "{:g} to {:g}".format(*sorted(series.at)[found.back : found.back + 2])
    if -margin < low * whole and high * whole < margin:
        word, said = CONTRADICTED, f"changes by less than {margin:g} {metric.unit} {over}"
    elif low > 0 and found.back_bound < max(margin, 1e-300):
        word, said = SUPPORTED, f"every step {over} follows, up to the margin"
    elif low > 0:
        back = f"may go back by {found.back_bound:.3g} {metric.unit}".rstrip()
        word, said = UNDECIDED, f"{'rises' if way > 0 else 'falls'} overall {over}, but {back} from {axis} = {steps}"
    elif high < 0:
        word, said = CONTRADICTED, f"the slope {over} has the other direction"
    else:
        word, said = UNDECIDED, f"the slope {over} may be zero"
    slopes = table @ stats.coefficients(x)
    fragile = word != UNDECIDED and stats.one_seed_decides(slopes, 0.0, level, **spread)
    flags = (*((ONE_SEED,) if fragile else ()), *series.flags)
    undecided = word == UNDECIDED and low <= 0 <= high
    needed = stats.seeds_needed(found.slope, found.sd, found.n, level, noise=spread["noise"]) if undecided else None
    return {
        **_numbers(found.n, unit, level, found.slope, found.low, found.high, found.p),
        "verdict": word,
        "evidence": "; ".join([said, *flags]),
        "flags": "; ".join(flags),
        "seeds_needed": needed and needed.low,
        "seeds_needed_high": needed and needed.high,
    }


def unchanged(data: RunData, claim: Claim, axis: str, series: Series, level: float) -> Row:
    """At every further value the metric is equivalent to that at the smallest value: all intervals lie in the margin.

    One interval outside the margin contradicts. The numbers are those of the interval that decides: the one that
    reaches furthest, or that is furthest outside.
    """
    metric = data.metrics[claim.metric]
    if not series.testable:
        return _untestable(series, metric.unit, axis, level)
    margin = claim.margin or data.margin(claim.metric)
    first, *others = series.table.T
    found = []
    for place, column in enumerate(others, 1):
        weights = np.zeros(len(series.at))
        weights[[0, place]] = -1, 1
        spread = {"resolution": series.resolution, "noise": _noise(data, claim, series, weights)}
        contrast = Contrast(column, first, metric.unit, logarithms=metric.source == "rounds", **spread)
        found.append(judged(contrast, level, margin, 1))
    outside = [one.low > margin or one.high < -margin for one in found]
    reach = [max(one.low, -one.high) if any(outside) else max(-one.low, one.high) for one in found]
    far = int(np.argmax(reach))
    word, said = _equivalent(found[far].low, found[far].high, margin, metric.unit)
    values = ", ".join(f"{value:g}" for value in series.at[1:])
    flags = (*found[far].flags, *series.flags)
    said = f"{axis} = {values} against {series.at[0]:g}: at {series.at[1 + far]:g} {said}"
    return row_of(found[far]) | {"verdict": word, "evidence": "; ".join([said, *flags]), "flags": "; ".join(flags)}


def followed(data: RunData, claim: Claim, axis: str) -> list[Side]:
    """The values of the option or axis, each with the points and the loss that have it."""
    where = covered(data, claim)
    found: list[Side]
    if claim.follows_axis:
        where = _crossed(where, axis, claim)
        values = sorted({point[axis] for point in where})
        found = [(value, [p for p in where if p[axis] == value], str(claim.loss)) for value in values]
    else:
        mine = (cell for cell in data.cells if cell.experiment == claim.experiment and cell.kind == "train")
        labels = variants(list({cell.loss.label: cell.loss for cell in mine}.values()), str(claim.loss), axis)
        found = [(value, where, label) for value, label in labels.items()]
    return [side for side in found if claim.values is None or side[0] in claim.values]


def _crossed(where: Sequence[Point], axis: str, claim: Claim) -> list[Point]:
    """The points whose other axes exist at every value of `axis`: else the trend would be one along several axes.

    A minimum width belongs to its number of classes.
    """
    apart = (axis, "width") if axis == "classes" and claim.width == "min" else (axis,)
    where = [point for point in where if axis in point and (claim.values is None or point[axis] in claim.values)]
    found: dict[Any, set[Point]] = {}
    for point in where:
        found.setdefault(point[axis], set()).add(point.without(*apart))
    shared = set.intersection(*found.values()) if found else set()
    if not shared:  # no others have all values: follow the values of the commonest one
        counts = [point.without(*apart) for point in where]
        shared = {max(counts, key=counts.count)} if counts else set()
    return [point for point in where if point.without(*apart) in shared]


def _noise(data: RunData, claim: Claim, series: Series, weights: NDArray[np.float64]) -> float:
    """The noise of the test examples in a weighted sum of the values."""
    return noise(data, claim.metric, _terms(claim, series, weights), series.seeds)


def _terms(claim: Claim, series: Series, weights: NDArray[np.float64]) -> Iterator[Term]:
    for weight, (_, where, loss) in zip(weights, series.sides, strict=True):
        for point in where if weight else ():
            yield Term(float(weight) / len(where), point, loss)
            if claim.than:
                yield Term(-float(weight) / len(where), point, claim.than)


# ---- what cannot be tested -------------------------------------------------------------------------------------------


def nothing(n: int, unit: str, word: str, why: str, level: float = stats.LEVEL) -> Row:
    """A claim for which too little was run."""
    numbers = _numbers(n, unit, level, math.nan, math.nan, math.nan, math.nan)
    rest = {"flags": "", "seeds_needed": None, "seeds_needed_high": None}
    return {**numbers, "verdict": word, "evidence": why, **rest}


def _untestable(series: Series, unit: str, axis: str, level: float) -> Row:
    n = len(series.table)
    if series.barred:
        return nothing(n, unit, NOT_TESTABLE, _at_chance(series.barred), level) | {"flags": AT_CHANCE}
    if len(series.at) < 2 and n:
        return nothing(n, unit, NOT_TESTABLE, f"only {len(series.at)} value of {axis} was run", level)
    return nothing(n, unit, UNDECIDED if n else NOT_TESTABLE, _too_few(n), level)


def _numbers(n: int, unit: str, level: float, delta: float, low: float, high: float, p: float) -> Row:
    adjusted = math.nan if math.isnan(p) else min(1.0, p * stats.LEVEL / level)
    names = ("n", "unit", "level", "delta", "low", "high", "p", "p_adjusted")
    return dict(zip(names, (n, unit, level, delta, low, high, p, adjusted), strict=True))


def _at_chance(why: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(why))
    return distinct[0] + (f" (and {len(distinct) - 1} more)" if len(distinct) > 1 else "")


def _too_few(n: int) -> str:
    return f"n = {n}: at least {stats.FEWEST_SEEDS} are needed" if n else NOT_RUN
