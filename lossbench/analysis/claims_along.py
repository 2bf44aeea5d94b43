"""Claims along the values of an option, of the width or of the number of classes: a trend, or no change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.special

from lossbench import stats
from lossbench.analysis.claims_pair import (
    Row,
    judged_by_margin,
    margin_of,
    points_of,
    rounds_of,
    seeds,
    seeds_of_margin,
    too_few,
)
from lossbench.analysis.points import Point
from lossbench.core.format import Claim
from lossbench.plugins.metrics import METRICS
from lossbench.suite.claims import GRID, variants

if TYPE_CHECKING:
    from lossbench.analysis.results import Results


def unchanged(results: Results, claim: Claim, along: str) -> Row:
    """A metric stays within the margin of what it is at the least value: each further value is tested against it.

    All must be equivalent for support, so the largest p counts; one beyond the margin contradicts, so the smallest of
    those, times their number.
    """
    at, table, resolution = _values_along(results, claim, along)
    unit, margin = METRICS[claim.metric].unit, float(margin_of(results, claim) or 0)
    band = margin
    if claim.metric == "step_seconds":
        table, band = np.log(table), math.log1p(margin / 100)
    n = len(table)
    if len(at) < 2 or n < stats.FEWEST_SEEDS:
        few = too_few(n) if len(at) >= 2 or not n else f"only one value of {along} was run"
        nothing = dict.fromkeys(("delta", "low", "high", "p"), math.nan)
        return {"n": n, "unit": unit, **nothing, "judge": lambda _: ("undecided", few), "needed": lambda _: None}
    found = [stats.paired(table[:, column], table[:, 0], resolution=resolution) for column in range(1, len(at))]
    inside = max(stats.tost(column, table[:, 0], band, resolution=resolution) for column in table.T[1:])
    past = min(stats.beyond(column, table[:, 0], band, resolution=resolution) for column in table.T[1:])
    past = min(1.0, past * len(found))
    far = max(range(len(found)), key=lambda index: abs(found[index].delta))
    shown = [found[far].delta, found[far].low, found[far].high]
    if claim.metric == "step_seconds":
        shown = [100 * math.expm1(value) for value in shown]

    def judge(p_holm: float) -> tuple[str, str]:
        words = ("90 % intervals within", "a 95 % interval outside", "intervals not clearly within or outside")
        bound = f"±{margin:g} {unit}".rstrip()
        word, told = judged_by_margin(min(inside, past), p_holm, inside < past, words, bound)
        others = ", ".join(f"{value:g}" for value in at[1:])
        return word, f"{along} = {others} against {at[0]:g}: {told}; the largest difference is at {at[1 + far]:g}"

    def needed(family: int) -> int | None:
        outside = [each for each in found if abs(each.delta) >= band]  # one of them is enough to contradict
        ways = [seeds_of_margin(each.delta, each.sd, band, n, family) for each in outside or found if each.sd > 0]
        known = [way for way in ways if way is not None]
        if outside:
            return min(known, default=None)
        return max(known) if known and len(known) == len(ways) else None

    numbers = dict(zip(("delta", "low", "high"), shown, strict=True))
    return {"n": n, "unit": unit, **numbers, "p": min(inside, past), "judge": judge, "needed": needed}


def trend(results: Results, claim: Claim, along: str) -> Row:
    """Something grows or falls along an option: Page's test over the seeds, and no step that goes back beyond doubt."""
    at, table, resolution = _values_along(results, claim, along)
    unit = METRICS[claim.metric].unit
    scale, per = (np.log2, f"doubling of {along}") if along in GRID else (np.asarray, f"unit of {along}")
    if claim.metric == "step_seconds":
        table, unit = 100 * np.log(table), "%"  # of log seconds: a slope in percent, nearly
    unit = f"{unit} per {per}".strip()
    nothing = dict.fromkeys(("delta", "low", "high", "p", "dz"), math.nan)
    if len(at) < 3:
        n = len(table)
        return {
            "n": n,
            "unit": unit,
            **nothing,
            "judge": lambda _: ("undecided", f"only {len(at)} values of {along} were run" if n else too_few(n)),
            "needed": lambda _: None,
        }
    found = stats.trend(scale(at), table, resolution=resolution)
    dz = _slope_dz(found)
    p, holds = stats.trend_evidence(found, "increases" if claim.increases_with else "decreases")

    def judge(p_holm: float) -> tuple[str, str]:
        if found.n < stats.FEWEST_SEEDS:
            return "undecided", too_few(found.n)
        word = stats.claim_verdict(p_holm, holds)
        steps = f"{found.rises} steps rise and {found.falls} fall beyond doubt"
        values = ", ".join(f"{value:g}" for value in at)
        return word, f"Page's trend over {along} = {values}, Spearman {found.spearman:+.2f}; {steps}"

    return {
        "n": found.n,
        "delta": found.slope,
        "low": found.low,
        "high": found.high,
        "p": p,
        "dz": dz,
        "unit": unit,
        "judge": judge,
        "needed": lambda family: seeds(dz, found.n, family),
    }


def sides(results: Results, claim: Claim, along: str) -> list[tuple[float, Sequence[Point], str]]:
    """The values of the option, of `width` or of `classes`, each with the points and the label that have it."""
    where: Sequence[Point] = points_of(results, claim)
    if along == "width":
        where = _crossed(where, "classes", "width", claim.values)
    elif along == "classes" and claim.width != "min":
        # A least width belongs to its number of classes; others must be there for all.
        where = _crossed(where, "width", "classes", claim.values)
    found: list[tuple[float, Sequence[Point], str]]
    if along in GRID:
        wanted = sorted({point[along] for point in where})
        found = [(value, [p for p in where if p[along] == value], str(claim.loss)) for value in wanted]
    else:
        mine = (cell for cell in results.cells if cell.experiment == claim.experiment and cell.kind == "train")
        labels = variants(list({cell.loss.label: cell.loss for cell in mine}.values()), str(claim.loss), along)
        found = [(value, where, label) for value, label in labels.items()]
    return [side for side in found if claim.values is None or side[0] in claim.values]


def _values_along(results: Results, claim: Claim, along: str) -> tuple[list[float], np.ndarray[Any, Any], float]:
    """The values of the option, seeds (or rounds) × values, and the least step of what was measured."""
    followed = sides(results, claim, along)
    if claim.metric == "step_seconds":
        rounds = [rounds_of(results, claim, label) for _, _, label in followed]
        if claim.than:
            base = rounds_of(results, claim, claim.than)
            rounds = [[value / other for value, other in zip(mine, base, strict=False)] for mine in rounds]
        shared = min((len(mine) for mine in rounds), default=0)
        table = np.array([mine[:shared] for mine in rounds]).T.reshape(shared, len(followed))
        return [side[0] for side in followed], table, 0.0
    columns = [results.measured.over(claim.metric, points, label) for _, points, label in followed]
    if claim.than:
        than = [results.measured.over(claim.metric, points, claim.than) for _, points, _ in followed]
        columns = [
            {seed: mine[seed] - base[seed] for seed in mine if seed in base}
            for mine, base in zip(columns, than, strict=True)
        ]
    whole = [seed for seed in columns[0] if all(seed in column for column in columns)] if columns else []
    table = np.array([[column[seed] for column in columns] for seed in whole]).reshape(len(whole), len(columns))
    resolution = max((results.measured.resolution(claim.metric, p, label) for _, p, label in followed), default=0.0)
    return [float(side[0]) for side in followed], table, resolution


def _crossed(where: Sequence[Point], other: str, along: str, values: Sequence[Any] | None) -> list[Point]:
    """The points whose `other` is there at every value of `along`: else a trend along one would be one along both."""
    found: dict[Any, set[Any]] = {}
    for point in where:
        if values is None or point[along] in values:
            found.setdefault(point[along], set()).add(point[other])
    shared = set.intersection(*found.values()) if found else set()
    if not shared:  # no `other` is everywhere: follow the values that the commonest has
        counts = [point[other] for point in where]
        shared = {max(counts, key=counts.count)} if counts else set()
    return [point for point in where if point[other] in shared]


def _slope_dz(found: stats.Trend) -> float:
    """The standardised effect of a slope, from its interval."""
    if not math.isfinite(found.low) or found.high == found.low:
        return math.nan
    quantile = float(scipy.special.stdtrit(found.n - 1, 1 - stats.LEVEL / 2))
    return found.slope * quantile / (math.sqrt(found.n) * (found.high - found.low) / 2)
