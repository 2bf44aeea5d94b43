"""How one claim is tested: one loss against another, a trend along an option or axis, or no change along it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    one_seed_decides,
)
from lossbench.core.errors import StoreError
from lossbench.core.format import Claim
from lossbench.core.point import Point
from lossbench.suite.claims import covers, variants

Row = dict[str, Any]
Side = tuple[float, Sequence[Point], str]  # a value of the option or axis, and the points and the loss that have it

Said = tuple[str, str]  # a verdict, and why

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
SHAPES = {"follows": SUPPORTED, "flat": CONTRADICTED, "opposed": CONTRADICTED, "turns": UNDECIDED, "open": UNDECIDED}
NOT_RUN = "not run"  # the evidence of a claim without records
MOST_PLACES = 3  # points that the evidence of a claim names


def family_of(claim: Claim) -> str:
    return f"claims {claim.family}".rstrip()


def covered(data: RunData, claim: Claim) -> list[Point]:
    """The measured points that a claim is about."""
    points = [cell.point for cell in data.timed] if claim.metric == "step_seconds" else data.points
    return [point for point in points if covers(claim, point)]


def gap(data: RunData, claim: Claim) -> tuple[str, bool]:
    """The points that a claim is about and that no loss has finished, as text; whether it can be tested without them.

    A trend can do without some values of its axis. A mean over points needs all of them.
    """
    known = dict.fromkeys(covered(data, claim))
    planned = data.planned["timing" if claim.metric == "step_seconds" else "train"]
    lost = [point for point in planned if point not in known and covers(claim, point)]
    if claim.follows_axis and claim.along:
        lost = [p for p in lost if claim.along in p and (claim.values is None or p[claim.along] in claim.values)]
    if not lost or not known:
        return "", True
    places = list(dict.fromkeys(point.told(data.axes) for point in lost))
    more = f" and {len(places) - MOST_PLACES} more points" if len(places) > MOST_PLACES else ""
    apart = _apart(claim)
    kept = {point.without(*apart) for point in known}
    return f"no result at {'; '.join(places[:MOST_PLACES])}{more}", all(point.without(*apart) in kept for point in lost)


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
    found = verdicts.of(question)
    if why := verdicts.barred(question):
        return row_of(found) | {"evidence": _at_chance(why)}
    if found.n < stats.FEWEST_SEEDS:
        return row_of(found) | {"evidence": _too_few(found.n)}
    margin = claim.margin or data.margin(claim.metric)
    sign = data.metrics[claim.metric].sign
    test = _better if claim.better else _not_worse if claim.not_worse else _equivalent

    def read(low: float, high: float) -> Said:
        low, high = (low, high) if sign > 0 else (-high, -low)  # larger is better
        return test(low, high, margin, found.unit)

    word, said = read(found.low, found.high)
    contrast = verdicts.contrast(question)
    fragile = word != UNDECIDED and one_seed_decides(contrast, found.level, lambda low, high: read(low, high)[0])
    needed = _needed(contrast, found.level, margin, sign, test) if word == UNDECIDED else None
    return row_of(found) | _told(word, said, _flags(fragile, found.flags)) | _seeds(needed)


def _better(low: float, high: float, margin: float, unit: str) -> Said:
    match stats.verdict(low, high, margin):
        case "better":
            return SUPPORTED, "better"
        case "worse":
            return CONTRADICTED, "worse"
        case "equivalent":
            return CONTRADICTED, f"the difference is within ±{margin:g} {unit}".rstrip()
    return UNDECIDED, "the interval includes zero"


def _not_worse(low: float, high: float, margin: float, unit: str) -> Said:
    bound = f"{margin:g} {unit}".rstrip()
    if low > -margin:
        return SUPPORTED, f"at most {bound} worse"
    if high < -margin:
        return CONTRADICTED, f"worse by more than {bound}"
    return UNDECIDED, f"the interval includes −{bound}"


def _equivalent(low: float, high: float, margin: float, unit: str) -> Said:
    bound = f"±{margin:g} {unit}".rstrip()
    if -margin < low and high < margin:
        return SUPPORTED, f"the interval lies within {bound}"
    if low > margin or high < -margin:
        return CONTRADICTED, f"the interval lies outside {bound}"
    return UNDECIDED, f"the interval is neither within nor outside {bound}"


def _needed(
    contrast: Contrast, level: float, margin: float, sign: int, test: Callable[..., Said]
) -> stats.SeedsNeeded | None:
    """The seeds that would decide an undecided claim, one way or the other."""
    found = stats.paired(contrast.a, contrast.b, level, resolution=contrast.resolution, noise=contrast.noise)
    band = contrast.read(margin)
    delta, inside, outside = found.delta, band, 0.0
    if test is _not_worse:
        delta, inside = sign * found.delta + band, 0.0
    elif test is _equivalent:
        outside = band
    return stats.seeds_needed(delta, found.sd, found.n, level, inside, beyond=outside, noise=contrast.noise)


def _seeds(needed: stats.SeedsNeeded | None) -> Row:
    return {"seeds_needed": needed and needed.low, "seeds_needed_high": needed and needed.high}


def _flags(fragile: bool, others: Sequence[str]) -> list[str]:
    """The flags of a claim: those of the comparison, but whether one seed decides is asked of the claim's verdict."""
    return [*([ONE_SEED] if fragile else []), *(flag for flag in others if flag != ONE_SEED)]


def _told(word: str, said: str, flags: Sequence[str]) -> Row:
    """Undertrained networks cannot contradict a claim: what they do not show may appear with more steps."""
    if word == CONTRADICTED and UNDERTRAINED in flags:
        word, flags = NOT_TESTABLE, [UNDERTRAINED]
    return {"verdict": word, "evidence": "; ".join([said, *flags]), "flags": "; ".join(flags)}


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


class Followed(NamedTuple):
    """A claimed trend: its numbers, its shape (a key of `SHAPES`), and whether one seed decides the verdict."""

    numbers: stats.Trend
    shape: str
    fragile: bool

    @property
    def word(self) -> str:
        return SHAPES[self.shape]


def judged_trend(
    x: ArrayLike,
    table: NDArray[np.float64],
    way: int,
    level: float,
    margin: float,
    *,
    resolution: float = 0.0,
    **noises: Any,
) -> Followed:
    """The claim that a metric (`table`: seeds × values) increases with x, or decreases (`way` −1).

    flat: the slope amounts to less than the margin over all of x. follows: the slope has the direction of the claim and
    no step goes back by more than the margin. turns: the slope has it, but some step may go back. opposed: the slope
    has the other direction. open: none of these. `resolution` and `noises` as in `stats.trend`.
    """

    def followed_by(rows: NDArray[np.float64]) -> stats.Trend:
        return stats.trend(x, rows, level, resolution=resolution, **noises)

    def shape_of(found: stats.Trend) -> str:
        low, high = (found.low, found.high) if way > 0 else (-found.high, -found.low)
        whole = float(np.ptp(x))
        if -margin < low * whole and high * whole < margin:
            return "flat"
        if low > 0:
            return "follows" if found.back_bound < margin or found.back_bound <= 0 else "turns"
        return "opposed" if high < 0 else "open"

    numbers = followed_by(table)
    shape = shape_of(numbers)
    varies = resolution > 0 or bool(np.ptp(table, axis=0).any())  # else no seed changes anything
    fragile = (SHAPES[shape] != UNDECIDED and varies) and any(
        SHAPES[shape_of(followed_by(rows))] != SHAPES[shape] for rows in _one_seed_off(table)
    )
    return Followed(numbers, shape, fragile)


def _one_seed_off(table: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The table without each of its seeds, and with one more, one of whose values deviates as far as any was seen to.

    The other values of that seed are the medians over seeds.
    """
    for seed in range(len(table)):
        yield np.delete(table, seed, axis=0)
    off = _deviation(table) * np.eye(table.shape[1])
    for row in np.vstack([-off, off]):
        yield np.vstack([table, np.median(table, axis=0) + row])


def _deviation(table: NDArray[np.float64]) -> float:
    """How far off a seed was seen to be at one of the values (`table`: seeds × values)."""
    columns = [dict(enumerate(column)) for column in table.T.tolist()]
    return stats.largest_deviation(columns, columns[0])


def trend(data: RunData, claim: Claim, axis: str, series: Series, level: float) -> Row:
    """The metric increases or decreases: its slope does, and no step goes back by more than the margin."""
    doubling = claim.follows_axis and min(series.at, default=0.0) > 0
    per = f"doubling of {axis}" if doubling else f"unit of {axis}"
    metric = data.metrics[claim.metric]
    factor = 100.0 if metric.source == "rounds" else 1.0  # of log seconds: a slope in percent, nearly
    unit = f"{metric.unit} per {per}".strip()
    if not series.testable:
        return _untestable(series, unit, axis, level)
    # Not np.log2: its last bits depend on the CPU, and a report has the same bytes wherever it is written.
    x = np.array([math.log2(value) for value in series.at] if doubling else series.at)
    of_slope = factor * _noise(data, claim, series, stats.coefficients(x))
    of_steps = [factor * _noise(data, claim, series, step) for step in np.diff(np.eye(len(x)), axis=0)]
    margin = data.margin(claim.metric)
    way = 1 if claim.increases_with else -1
    found = judged_trend(
        x,
        factor * series.table,
        way,
        level,
        margin,
        resolution=series.resolution,
        noise=of_slope,
        step_noise=of_steps,
    )
    numbers = found.numbers
    over = f"over {axis} = {', '.join(f'{value:g}' for value in series.at)}"
    match found.shape:
        case "flat":
            said = f"the slope amounts to less than {margin:g} {metric.unit} {over}"
        case "follows":
            said = f"no step {over} reverses by more than the margin"
        case "turns":
            back = f"may go back by {numbers.back_bound:.3g} {metric.unit}".rstrip()
            where = "{:g} to {:g}".format(*sorted(series.at)[numbers.back : numbers.back + 2])
            said = f"{'rises' if way > 0 else 'falls'} overall {over}, but {back} from {axis} = {where}"
        case "opposed":
            said = f"the slope {over} has the other direction"
        case _:
            said = f"the slope {over} may be zero"
    needed = None
    if found.shape == "open":
        needed = stats.seeds_needed(numbers.slope, numbers.sd, numbers.n, level, noise=of_slope)
    return {
        **_numbers(numbers.n, unit, level, numbers.slope, numbers.low, numbers.high, numbers.p),
        **_told(found.word, said, _flags(found.fragile, series.flags)),
        **_seeds(needed),
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
    contrasts = []
    for place, column in enumerate(others, 1):
        weights = np.zeros(len(series.at))
        weights[[0, place]] = -1, 1
        spread = {"resolution": series.resolution, "noise": _noise(data, claim, series, weights)}
        spread["deviation"] = _deviation(series.table)
        contrasts.append(Contrast(column, first, metric.unit, logarithms=metric.source == "rounds", **spread))
    found = [judged(contrast, level, margin, 1) for contrast in contrasts]
    outside = [one.low > margin or one.high < -margin for one in found]
    reach = [max(one.low, -one.high) if any(outside) else max(-one.low, one.high) for one in found]
    far = int(np.argmax(reach))
    word, said = _equivalent(found[far].low, found[far].high, margin, metric.unit)
    deciding = {SUPPORTED: contrasts, CONTRADICTED: [contrasts[far]]}.get(word, [])
    fragile = any(
        one_seed_decides(one, level, lambda low, high: _equivalent(low, high, margin, "")[0]) for one in deciding
    )
    values = ", ".join(f"{value:g}" for value in series.at[1:])
    said = f"{axis} = {values} against {series.at[0]:g}: at {series.at[1 + far]:g} {said}"
    needed = _needed(contrasts[far], level, margin, 1, _equivalent) if word == UNDECIDED else None
    return row_of(found[far]) | _told(word, said, _flags(fragile, series.flags)) | _seeds(needed)


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
        specs = list({cell.loss.label: cell.loss for cell in mine}.values())
        try:
            labels = variants(specs, str(claim.loss), axis)
        except ValueError as error:  # of several runs: one suite would have been refused
            raise StoreError(f"claim '{claim.text}': {error}; or report these runs one by one") from error
        found = [(value, where, label) for value, label in labels.items()]
    return [side for side in found if claim.values is None or side[0] in claim.values]


def _crossed(where: Sequence[Point], axis: str, claim: Claim) -> list[Point]:
    """The points of a complete grid of `axis` and the other axes: else it would be a trend along several axes.

    Minimum widths belong to one number of classes. A trend along the classes leaves them out, unless it is about them;
    another one follows the values that all numbers of classes have.
    """
    apart = _apart(claim)
    where = [point for point in where if axis in point and (claim.values is None or point[axis] in claim.values)]
    others: dict[Point, set[Any]] = {}
    for point in where:
        others.setdefault(point.without(*apart), set()).add(point[axis])
    if axis == "classes":
        every = set().union(*others.values())
        return [point for point in where if others[point.without(*apart)] == every]
    shared = set.intersection(*others.values()) if others else set()
    return [point for point in where if point[axis] in shared]


def _apart(claim: Claim) -> tuple[str, ...]:
    """The axes along which a claim may do without some points; a minimum width belongs to its number of classes."""
    if not claim.follows_axis or claim.along is None:
        return ()
    return (claim.along, "width") if claim.along == "classes" and claim.width == "min" else (claim.along,)


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
