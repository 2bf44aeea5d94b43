"""The claims of a suite against the records: supported, contradicted or undecided, with the evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.special

from lossbench import stats
from lossbench.claims import GRID, covers, variants
from lossbench.metrics import METRICS, SCORES
from lossbench.report.points import Contrast, Point, contrast, paired_values, time_contrast
from lossbench.text import Claim

if TYPE_CHECKING:
    from lossbench.report.analysis import Results

CLAIM_COLUMNS = [
    *("text", "experiment", "metric", "verdict", "delta", "low", "high", "n"),
    *("unit", "p_holm", "seeds_needed", "evidence", "states", "p"),
]
Row = dict[str, Any]


def judged(results: Results) -> pd.DataFrame:
    """A row a claim; p values are Holm-adjusted over all claims of the suite."""
    from lossbench.report.analysis import frame_of

    rows = [_row(results, claim) for claim in results.outline.claims]
    for row, adjusted in zip(rows, stats.holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = adjusted
        row["verdict"], row["evidence"] = row.pop("judge")(adjusted)
        open_question = row["verdict"] == "undecided" and row["n"] >= stats.FEWEST_SEEDS
        row["seeds_needed"] = row.pop("needed")(len(rows)) if open_question else None
    return frame_of(rows, CLAIM_COLUMNS)


def _row(results: Results, claim: Claim) -> Row:
    stated = {"text": claim.text, "experiment": claim.experiment, "metric": claim.metric, "states": states(claim)}
    if claim.along is not None:
        return stated | _trend(results, claim, claim.along)
    a, b = claim.equivalent or (claim.better, claim.than)
    margin = _margin(results, claim)
    if claim.metric == "step_seconds":
        rounds = [_rounds(results, claim, str(label)) for label in (a, b)]
        shared = min(map(len, rounds))
        first, second = (of_one[:shared] for of_one in rounds)
        found = time_contrast(first, second, margin)
        logs = [math.log(value) for value in first], [math.log(value) for value in second]
        past = stats.beyond(*logs, math.log1p((margin or 0) / 100))
        band = math.log1p((margin or 0) / 100)
    else:
        where = [point for point in results.points if covers(claim, point)]
        sides = (
            results.measured.over(claim.metric, where, str(a)),
            results.measured.over(claim.than_metric or claim.metric, where, str(b)),
        )
        resolution = results.measured.resolution(claim.metric, where, str(a))
        found = contrast(*sides, METRICS[claim.metric].unit, margin, resolution)
        past = stats.beyond(*paired_values(*sides), margin or 0.0, resolution=resolution)
        band = margin or 0.0
    if claim.equivalent:
        return stated | found._asdict() | _equivalence(found, past, band, float(margin or 0))
    return stated | found._asdict() | _better(claim, found)


def _margin(results: Results, claim: Claim) -> float | None:
    return claim.margin or (results.outline.margin if claim.metric in SCORES else None)


def _better(claim: Claim, found: Contrast) -> Row:
    """`better` beats `than`: the difference is not zero and points the right way."""
    right_way = (found.delta > 0) == METRICS[claim.metric].higher_is_better

    def judge(p_holm: float) -> tuple[str, str]:
        if found.n < stats.FEWEST_SEEDS:
            return "undecided", _too_few(found.n)
        return stats.claim_verdict(p_holm, right_way), stats.verdict(p_holm, found.tost_p)

    # Where the two are equivalent no number of seeds would show one to be better.
    return {"judge": judge, "needed": lambda family: None if found.tost_p < stats.LEVEL else _needed(found, family)}


def _equivalence(found: Contrast, past: float, band: float, margin: float) -> Row:
    """Two losses are equivalent: the interval lies inside the margin; contradicted where it lies outside."""
    inside = found.tost_p < past if found.n >= stats.FEWEST_SEEDS else False

    def judge(p: float) -> tuple[str, str]:
        if found.n < stats.FEWEST_SEEDS:
            return "undecided", _too_few(found.n)
        word = stats.claim_verdict(p, inside)
        words = {"supported": "90 % interval within", "contradicted": "95 % interval outside"}
        return word, f"{words.get(word, 'interval not clearly within or outside')} ±{margin:g} {found.unit}".rstrip()

    def needed(_: int) -> int | None:
        seeds = stats.seeds_for_equivalence(band / found.sd) if found.sd > 0 else None
        return None if seeds is None else max(seeds, found.n + 1)

    p = math.nan if found.n < stats.FEWEST_SEEDS else found.tost_p if inside else past
    return {"p": p, "judge": judge, "needed": needed}


def _trend(results: Results, claim: Claim, along: str) -> Row:
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
            "judge": lambda _: ("undecided", "not run" if not n else f"only {len(at)} values of {along} were run"),
            "needed": lambda _: None,
        }
    found = stats.trend(scale(at), table, resolution=resolution)
    dz = _slope_dz(found)
    claimed: stats.Direction = "increases" if claim.increases_with else "decreases"

    def judge(p_holm: float) -> tuple[str, str]:
        if found.n < stats.FEWEST_SEEDS:
            return "undecided", _too_few(found.n)
        word = stats.trend_verdict(found, p_holm, claimed)
        steps = f"{found.rises} steps rise and {found.falls} fall beyond doubt"
        values = ", ".join(f"{value:g}" for value in at)
        return word, f"Page's trend over {along} = {values}, Spearman {found.spearman:+.2f}; {steps}"

    return {
        "n": found.n,
        "delta": found.slope,
        "low": found.low,
        "high": found.high,
        "p": found.p,
        "dz": dz,
        "unit": unit,
        "judge": judge,
        "needed": lambda family: _seeds(dz, found.n, family),
    }


def _values_along(results: Results, claim: Claim, along: str) -> tuple[list[float], np.ndarray[Any, Any], float]:
    """The values of the option, seeds (or rounds) × values, and the least step of what was measured."""
    where: list[Point] = [point for point in results.points if covers(claim, point)]
    sides: list[tuple[float, Sequence[Point], str]] = []
    if along == "width":
        where = _crossed(where, "classes", "width", claim.values)
        wanted = sorted({point["width"] for point in where})
        sides = [(width, [p for p in where if p["width"] == width], str(claim.loss)) for width in wanted]
    elif along == "classes":
        if claim.width != "min":  # a least width belongs to its number of classes; others must be there for all
            where = _crossed(where, "width", "classes", claim.values)
        wanted = sorted({point["classes"] for point in where})
        sides = [(k, [p for p in where if p["classes"] == k], str(claim.loss)) for k in wanted]
    else:
        specs = dict.fromkeys(cell.loss.label for cell in results.cells if cell.experiment == claim.experiment)
        known = {cell.loss.label: cell.loss for cell in results.cells if cell.kind == "train"}
        labels = variants([known[label] for label in specs if label in known], str(claim.loss), along)
        sides = [(value, where, label) for value, label in labels.items()]
    if claim.values is not None:
        sides = [side for side in sides if side[0] in claim.values]
    if claim.metric == "step_seconds":
        rounds = [_rounds(results, claim, label) for _, _, label in sides]
        if claim.than:
            base = _rounds(results, claim, claim.than)
            rounds = [[value / other for value, other in zip(mine, base, strict=False)] for mine in rounds]
        shared = min((len(mine) for mine in rounds), default=0)
        return [side[0] for side in sides], np.array([mine[:shared] for mine in rounds]).T.reshape(shared, -1), 0.0
    columns = [results.measured.over(claim.metric, points, label) for _, points, label in sides]
    if claim.than:
        than = [results.measured.over(claim.metric, points, claim.than) for _, points, _ in sides]
        columns = [
            {seed: mine[seed] - base[seed] for seed in mine if seed in base}
            for mine, base in zip(columns, than, strict=True)
        ]
    whole = [seed for seed in columns[0] if all(seed in column for column in columns)] if columns else []
    table = np.array([[column[seed] for column in columns] for seed in whole]).reshape(len(whole), len(columns))
    resolution = max((results.measured.resolution(claim.metric, p, label) for _, p, label in sides), default=0.0)
    return [float(side[0]) for side in sides], table, resolution


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


def _rounds(results: Results, claim: Claim, label: str) -> list[float]:
    """Seconds a step by round: over several timing cells the geometric mean of each round, which stays one round.

    Rounds of several cells strung together would count as so many more replications than there are.
    """
    cells = [rounds[label] for point, rounds in results.timings() if covers(claim, point) and label in rounds]
    return [math.exp(sum(map(math.log, times)) / len(times)) for times in zip(*cells, strict=False)]


def _slope_dz(found: stats.Trend) -> float:
    """The standardised effect of a slope, from its interval."""
    if not math.isfinite(found.low) or found.high == found.low:
        return math.nan
    quantile = float(scipy.special.stdtrit(found.n - 1, 1 - stats.LEVEL / 2))
    return found.slope * quantile / (math.sqrt(found.n) * (found.high - found.low) / 2)


def _needed(found: Contrast, family: int) -> int | None:
    return _seeds(found.dz, found.n, family)


def _seeds(dz: float, n: int, family: int) -> int | None:
    needed = stats.seeds_needed(dz, level=stats.LEVEL / family)
    return None if needed is None else max(needed, n + 1)


def _too_few(n: int) -> str:
    return f"only {n} paired seeds" if n else "not run"


def states(claim: Claim) -> str:
    """The claim in one line, as it is tested."""
    metric = claim.metric
    if claim.equivalent:
        return f"{metric}: {claim.equivalent[0]} ≈ {claim.equivalent[1]}"
    if claim.along:
        what = f"{claim.loss} − {claim.than}" if claim.than else str(claim.loss)
        return f"{metric} of {what} {'increases' if claim.increases_with else 'decreases'} with {claim.along}"
    sign = ">" if METRICS[metric].higher_is_better else "<"
    if claim.than_metric:
        return f"{metric} of {claim.better} {sign} {claim.than_metric} of {claim.than}"
    return f"{metric}: {claim.better} {sign} {claim.than}"
