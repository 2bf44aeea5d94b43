"""How one claim is tested: one loss against another, a trend along an option or axis, or no change along it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.special

from lossbench import stats
from lossbench.analysis.measured import Contrast, time_contrast
from lossbench.analysis.records import RunData
from lossbench.core.format import Claim
from lossbench.core.point import Point
from lossbench.suite.claims import covers, variants

# The numbers of a claim, `judge` (Holm's p → verdict and evidence) and `needed` (size of the family → seeds).
Row = dict[str, Any]
Judge = Callable[[float], tuple[str, str]]
Side = tuple[float, Sequence[Point], str]  # a value of the option or axis, and the points and the loss that have it

NOT_RUN = "not run"  # the evidence of a claim without records


def tested(data: RunData, claim: Claim) -> Row:
    """The claim's numbers, and how they are judged."""
    if claim.along is None:
        return _two_losses(data, claim)
    return (_unchanged if claim.unchanged_with else _trend)(data, claim, claim.along)


def covered(data: RunData, claim: Claim) -> list[Point]:
    """The measured points that a claim is about."""
    return [point for point in data.points if covers(claim, point)]


# ---- one loss against another ----------------------------------------------------------------------------------------


def _two_losses(data: RunData, claim: Claim) -> Row:
    """One loss is better than another, not worse, or equivalent."""
    a, b = map(str, claim.equivalent or (claim.better or claim.not_worse, claim.than))
    margin = _margin(data, claim)
    if claim.metric == "step_seconds":
        first, second = (_rounds(data, claim, loss) for loss in (a, b))
        shared = [key for key in first if key in second]
        sides = [first[key] for key in shared], [second[key] for key in shared]
        found = time_contrast(*sides, [process for process, _ in shared], margin)
        band = math.log1p(margin / 100)
    else:
        where = covered(data, claim)
        found = data.measured.contrast(claim.metric, where, a, b, margin, than_metric=claim.than_metric or "")
        band = margin
    if claim.metric == "step_seconds" and found.n < stats.FEWEST_SEEDS:
        judged = {"judge": lambda _: ("undecided", _too_few(found.n, claim.metric)), "needed": lambda _: None}
    elif claim.better:
        judged = _better(data.metrics[claim.metric].higher_is_better, found)
    elif claim.not_worse:
        better, worse = found.sides if data.metrics[claim.metric].higher_is_better else found.sides[::-1]
        judged = _not_worse(found, stats.noninferior(better, worse, band, resolution=found.resolution), margin)
    else:
        judged = _equivalent(found, stats.beyond(*found.sides, band, resolution=found.resolution), band, margin)
    return found._asdict() | judged


def _better(higher: bool, found: Contrast) -> Row:
    """The difference is significant and has the claimed sign."""
    as_claimed = (found.delta > 0) == higher

    def judge(p_holm: float) -> tuple[str, str]:
        if found.n < stats.FEWEST_SEEDS:
            return "undecided", _too_few(found.n)
        return stats.claim_verdict(p_holm, as_claimed), stats.verdict(p_holm, found.tost_p)

    def needed(family: int) -> int | None:
        # If the two are equivalent, no number of seeds shows that one is better.
        return None if found.tost_p < stats.LEVEL else _seeds(found.dz, found.n, family)

    return {"judge": judge, "needed": needed}


def _equivalent(found: Contrast, past: float, band: float, margin: float) -> Row:
    """Supported if the interval lies inside the margin, contradicted if outside."""
    inside = found.tost_p < past if found.n >= stats.FEWEST_SEEDS else False
    p = math.nan if found.n < stats.FEWEST_SEEDS else found.tost_p if inside else past
    words = ("90 % interval within", "95 % interval outside", "interval not clearly within or outside")
    delta = math.log1p(found.delta / 100) if found.unit == "%" else found.delta  # in the unit of SD and band
    return {
        "p": p,
        "judge": _by_margin(found, p, inside, words, f"±{margin:g}"),
        "needed": lambda family: _seeds_of_margin(delta, found.sd, band, found.n, family),
    }


def _not_worse(found: Contrast, p: float, margin: float) -> Row:
    """Supported if the loss is worse by less than the margin, contradicted if by more."""
    holds = p < 0.5
    words = (
        "90 % interval: worse by less than",
        "95 % interval: worse by more than",
        "may be worse by more or less than",
    )

    def needed(family: int) -> int | None:
        quantile = float(scipy.special.stdtrit(found.n - 1, 1 - p))  # (Δ + margin)/(SD/√n), whichever way is better
        one_sided = family / 2 if holds else family  # seeds_needed() plans two-sided tests
        return _seeds(quantile / math.sqrt(found.n), found.n, one_sided)

    shown = p if holds or math.isnan(p) else min(1.0, 2 * (1 - p))
    return {"p": shown, "judge": _by_margin(found, shown, holds, words, f"{margin:g}"), "needed": needed}


def _by_margin(found: Contrast, p: float, holds: bool, words: tuple[str, str, str], bound: str) -> Judge:
    def judge(p_holm: float) -> tuple[str, str]:
        if found.n < stats.FEWEST_SEEDS:
            return "undecided", _too_few(found.n)
        return _judged_by_margin(p, p_holm, holds, words, f"{bound} {found.unit}".rstrip())

    return judge


# ---- along the values of an option of the loss, of the width or of the number of classes -----------------------------


def _unchanged(data: RunData, claim: Claim, along: str) -> Row:
    """At every further value the metric is equivalent to that at the smallest value.

    All must be equivalent for support, so the largest p counts; one difference beyond the margin contradicts, so the
    smallest of those p values counts, times their number.
    """
    at, table, resolution = _values_along(data, claim, along)
    unit, margin = data.metrics[claim.metric].unit, _margin(data, claim)
    band = margin
    if claim.metric == "step_seconds":
        table, band = np.log(table), math.log1p(margin / 100)
    n = len(table)
    if len(at) < 2 or n < stats.FEWEST_SEEDS:
        few = _too_few(n, claim.metric)
        return nothing(n, unit, few if len(at) >= 2 or not n else f"only one value of {along} was run")
    first, *others = table.T
    found = [stats.paired(column, first, resolution=resolution) for column in others]
    inside = max(stats.tost(column, first, band, resolution=resolution) for column in others)
    past = min(1.0, len(others) * min(stats.beyond(column, first, band, resolution=resolution) for column in others))
    far = max(range(len(found)), key=lambda index: abs(found[index].delta))
    numbers = {name: getattr(found[far], name) for name in ("delta", "low", "high")}
    if claim.metric == "step_seconds":
        numbers = {name: 100 * math.expm1(value) for name, value in numbers.items()}

    def judge(p_holm: float) -> tuple[str, str]:
        words = ("90 % intervals within", "a 95 % interval outside", "intervals not clearly within or outside")
        bound = f"±{margin:g} {unit}".rstrip()
        word, said = _judged_by_margin(min(inside, past), p_holm, inside < past, words, bound)
        values = ", ".join(f"{value:g}" for value in at[1:])
        return word, f"{along} = {values} against {at[0]:g}: {said}; the largest difference is at {at[1 + far]:g}"

    def needed(family: int) -> int | None:
        outside = [each for each in found if abs(each.delta) >= band]  # one of them is enough to contradict
        ways = [_seeds_of_margin(each.delta, each.sd, band, n, family) for each in outside or found if each.sd > 0]
        known = [way for way in ways if way is not None]
        if outside:
            return min(known, default=None)
        return max(known) if known and len(known) == len(ways) else None

    return {"n": n, "unit": unit, **numbers, "p": min(inside, past), "judge": judge, "needed": needed}


def _trend(data: RunData, claim: Claim, along: str) -> Row:
    """The metric increases or decreases: Page's test over the seeds, and no significant step in the other direction."""
    at, table, resolution = _values_along(data, claim, along)
    doubling = claim.follows_axis and min(at, default=0.0) > 0
    scale, per = (np.log2, f"doubling of {along}") if doubling else (np.asarray, f"unit of {along}")
    unit = data.metrics[claim.metric].unit
    if claim.metric == "step_seconds":
        table, unit = 100 * np.log(table), "%"  # of log seconds: a slope in percent, nearly
    unit = f"{unit} per {per}".strip()
    if len(at) < 3:
        n = len(table)
        return nothing(n, unit, f"only {len(at)} values of {along} were run" if n else _too_few(n))
    found = stats.trend(scale(at), table, resolution=resolution)
    p, holds = stats.trend_evidence(found, "increases" if claim.increases_with else "decreases")

    def judge(p_holm: float) -> tuple[str, str]:
        if found.n < stats.FEWEST_SEEDS:
            return "undecided", _too_few(found.n, claim.metric)
        values = ", ".join(f"{value:g}" for value in at)
        steps = f"{found.rises} steps rise and {found.falls} fall significantly"
        said = f"Page's trend over {along} = {values}, Spearman {found.spearman:+.2f}; {steps}"
        return stats.claim_verdict(p_holm, holds), said

    numbers = {"n": found.n, "delta": found.slope, "low": found.low, "high": found.high, "p": p, "unit": unit}
    return numbers | {"judge": judge, "needed": lambda family: _seeds(_slope_dz(found), found.n, family)}


def nothing(n: int, unit: str, why: str) -> Row:
    """A claim for which too little was run."""
    numbers = dict.fromkeys(("delta", "low", "high", "p"), math.nan)
    return {"n": n, "unit": unit, **numbers, "judge": lambda _: ("undecided", why), "needed": lambda _: None}


def followed(data: RunData, claim: Claim, along: str) -> list[Side]:
    """The values of the option or axis, each with the points and the loss that have it."""
    where = covered(data, claim)
    found: list[Side]
    if claim.follows_axis:
        where = _crossed(where, along, claim)
        values = sorted({point[along] for point in where})
        found = [(value, [p for p in where if p[along] == value], str(claim.loss)) for value in values]
    else:
        mine = (cell for cell in data.cells if cell.experiment == claim.experiment and cell.kind == "train")
        labels = variants(list({cell.loss.label: cell.loss for cell in mine}.values()), str(claim.loss), along)
        found = [(value, where, label) for value, label in labels.items()]
    return [side for side in found if claim.values is None or side[0] in claim.values]


def _values_along(data: RunData, claim: Claim, along: str) -> tuple[list[float], np.ndarray[Any, Any], float]:
    """The values of the option, a table of seeds (or processes) × values, and the resolution of the metric."""
    sides = followed(data, claim, along)
    at = [float(value) for value, _, _ in sides]
    columns: list[dict[int, float]]
    if claim.metric == "step_seconds":
        columns = [_by_process(_rounds(data, claim, loss)) for _, _, loss in sides]
        if claim.than:
            base = _by_process(_rounds(data, claim, claim.than))
            columns = [{key: mine[key] / base[key] for key in mine if key in base} for mine in columns]
        resolution = 0.0
    else:
        measured = data.measured
        columns = [measured.over(claim.metric, where, loss) for _, where, loss in sides]
        if claim.than:
            than = [measured.over(claim.metric, where, claim.than) for _, where, _ in sides]
            both = zip(columns, than, strict=True)
            columns = [{seed: mine[seed] - base[seed] for seed in mine if seed in base} for mine, base in both]
        resolution = max((measured.resolution(claim.metric, where, loss) for _, where, loss in sides), default=0.0)
    complete = [key for key in columns[0] if all(key in column for column in columns)] if columns else []
    table = np.array([[column[key] for column in columns] for key in complete]).reshape(len(complete), len(columns))
    return at, table, resolution


def _crossed(where: Sequence[Point], along: str, claim: Claim) -> list[Point]:
    """The points whose other axes exist at every value of `along`: else the trend would be one along several axes.

    A minimum width belongs to its number of classes.
    """
    apart = (along, "width") if along == "classes" and claim.width == "min" else (along,)
    where = [point for point in where if along in point and (claim.values is None or point[along] in claim.values)]
    found: dict[Any, set[Point]] = {}
    for point in where:
        found.setdefault(point[along], set()).add(point.without(*apart))
    shared = set.intersection(*found.values()) if found else set()
    if not shared:  # no others have all values: follow the values of the commonest one
        counts = [point.without(*apart) for point in where]
        shared = {max(counts, key=counts.count)} if counts else set()
    return [point for point in where if point.without(*apart) in shared]


def _slope_dz(found: stats.Trend) -> float:
    """The standardised effect of a slope, from its interval."""
    if not math.isfinite(found.low) or found.high == found.low:
        return math.nan
    quantile = float(scipy.special.stdtrit(found.n - 1, 1 - stats.LEVEL / 2))
    return found.slope * quantile / (math.sqrt(found.n) * (found.high - found.low) / 2)


# ---- shared by both --------------------------------------------------------------------------------------------------


def _judged_by_margin(p: float, p_holm: float, holds: bool, words: tuple[str, str, str], bound: str) -> tuple[str, str]:
    """The verdict after Holm's adjustment and what the interval alone says, with a remark where they disagree."""
    word, alone = stats.claim_verdict(p_holm, holds), stats.claim_verdict(p, holds)
    said = dict(zip(("supported", "contradicted", "undecided"), words, strict=True))[alone]
    return word, f"{said} {bound}" + ("" if word == alone else ", but not after adjustment over its family")


def _margin(data: RunData, claim: Claim) -> float:
    """The margin of equivalence; 0: none, for a metric that has no default."""
    return claim.margin or data.margin(claim.metric) or 0.0


def _rounds(data: RunData, claim: Claim, loss: str) -> dict[tuple[int, int], float]:
    """Seconds per step by process and round in it: over several timing cells the geometric mean of each round.

    Concatenated rounds of several cells would count as more replications than there are.
    """
    cells = [cell.numbered(loss) for cell in data.timed if covers(claim, cell.point) and loss in cell.rounds]
    shared = [key for key in cells[0] if all(key in cell for cell in cells)] if cells else []
    return {key: statistics.geometric_mean(cell[key] for cell in cells) for key in shared}


def _by_process(rounds: Mapping[tuple[int, int], float]) -> dict[int, float]:
    """Seconds per step of each process: rounds of one process are not independent."""
    found: dict[int, list[float]] = {}
    for (process, _), seconds in rounds.items():
        found.setdefault(process, []).append(seconds)
    return {process: statistics.geometric_mean(mine) for process, mine in found.items()}


def _seeds(dz: float, n: int, family: float) -> int | None:
    needed = stats.seeds_needed(dz, level=stats.LEVEL / family)
    return None if needed is None else max(needed, n + 1)


def _seeds_of_margin(delta: float, sd: float, band: float, n: int, family: float) -> int | None:
    """The seeds that show a difference to lie within ±band or outside it, whichever the estimate says."""
    if not sd > 0:
        return None
    room, level = band - abs(delta), stats.LEVEL / family
    plan = stats.seeds_for_equivalence if room > 0 else stats.seeds_needed
    needed = plan(room / sd, level=level)
    return None if needed is None else max(needed, n + 1)


def _too_few(n: int, metric: str = "") -> str:
    what = f"process{'es' * (n > 1)} with paired rounds" if metric == "step_seconds" else "paired seeds"
    return f"only {n} {what}" if n else NOT_RUN
