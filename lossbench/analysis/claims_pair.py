"""Claims about two losses: better, not worse, or equivalent. And what claims of every kind share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import scipy.special

from lossbench import stats
from lossbench.analysis.points import Contrast, Point, contrast, paired_values, time_contrast
from lossbench.core.format import Claim
from lossbench.plugins.metrics import METRICS, SCORES
from lossbench.suite.claims import covers

if TYPE_CHECKING:
    from lossbench.analysis.results import Results

# A claim on its way to a verdict: numbers, `judge` (Holm's p → verdict, evidence), `needed` (family → seeds).
Row = dict[str, Any]
Judge = Callable[[float], tuple[str, str]]

NOT_RUN = "not run"  # what is said of a claim that has no records in place of a verdict


def pair(results: Results, claim: Claim) -> Row:
    """One loss against another: better, not worse, or equivalent."""
    a, b = claim.equivalent or (claim.better or claim.not_worse, claim.than)
    margin = margin_of(results, claim)
    if claim.metric == "step_seconds":
        rounds = [rounds_of(results, claim, str(label)) for label in (a, b)]
        shared = min(map(len, rounds))
        first, second = (of_one[:shared] for of_one in rounds)
        found = time_contrast(first, second, margin)
        sample = [math.log(value) for value in first], [math.log(value) for value in second]
        resolution, band = 0.0, math.log1p((margin or 0) / 100)
    else:
        where = points_of(results, claim)
        sides = (
            results.measured.over(claim.metric, where, str(a)),
            results.measured.over(claim.than_metric or claim.metric, where, str(b)),
        )
        resolution, band = results.measured.resolution(claim.metric, where, str(a)), margin or 0.0
        found = contrast(*sides, METRICS[claim.metric].unit, margin, resolution)
        sample = paired_values(*sides)
    if claim.better:
        judged_as = _better(claim, found)
    elif claim.not_worse:
        better, worse = sample if METRICS[claim.metric].higher_is_better else sample[::-1]
        p = stats.noninferior(better, worse, band, resolution=resolution)
        judged_as = _not_worse(found, p, float(margin or 0))
    else:
        past = stats.beyond(*sample, band, resolution=resolution)
        judged_as = _equivalence(found, past, band, float(margin or 0))
    return found._asdict() | judged_as


def _better(claim: Claim, found: Contrast) -> Row:
    """`better` beats `than`: the difference is not zero and points the right way."""
    right_way = (found.delta > 0) == METRICS[claim.metric].higher_is_better

    def judge(p_holm: float) -> tuple[str, str]:
        if found.n < stats.FEWEST_SEEDS:
            return "undecided", too_few(found.n)
        return stats.claim_verdict(p_holm, right_way), stats.verdict(p_holm, found.tost_p)

    # Where the two are equivalent no number of seeds would show one to be better.
    return {
        "judge": judge,
        "needed": lambda family: None if found.tost_p < stats.LEVEL else seeds(found.dz, found.n, family),
    }


def _equivalence(found: Contrast, past: float, band: float, margin: float) -> Row:
    """Two losses are equivalent: the interval lies inside the margin; contradicted where it lies outside."""
    inside = found.tost_p < past if found.n >= stats.FEWEST_SEEDS else False
    p = math.nan if found.n < stats.FEWEST_SEEDS else found.tost_p if inside else past
    words = ("90 % interval within", "95 % interval outside", "interval not clearly within or outside")
    delta = math.log1p(found.delta / 100) if found.unit == "%" else found.delta  # in the unit of SD and band
    return {
        "p": p,
        "judge": _by_margin(found, p, inside, words, f"±{margin:g}"),
        "needed": lambda family: seeds_of_margin(delta, found.sd, band, found.n, family),
    }


def _not_worse(found: Contrast, p: float, margin: float) -> Row:
    """One loss is as good as another but for the margin: contradicted where it is worse by more than that."""
    holds = p < 0.5
    words = (
        "90 % interval: worse by less than",
        "95 % interval: worse by more than",
        "may be worse by more or less than",
    )

    def needed(family: int) -> int | None:
        quantile = float(scipy.special.stdtrit(found.n - 1, 1 - p))  # (Δ + margin)/(SD/√n), whichever way is better
        one_sided = family / 2 if holds else family  # what seeds_needed() plans is two-sided
        return seeds(quantile / math.sqrt(found.n), found.n, one_sided)

    shown = p if holds or math.isnan(p) else min(1.0, 2 * (1 - p))
    return {"p": shown, "judge": _by_margin(found, shown, holds, words, f"{margin:g}"), "needed": needed}


def _by_margin(found: Contrast, p: float, holds: bool, words: tuple[str, str, str], bound: str) -> Judge:
    """Whether a margin is kept, and the words for it: supported, contradicted, undecided."""

    def judge(p_holm: float) -> tuple[str, str]:
        if found.n < stats.FEWEST_SEEDS:
            return "undecided", too_few(found.n)
        return judged_by_margin(p, p_holm, holds, words, f"{bound} {found.unit}".rstrip())

    return judge


def judged_by_margin(p: float, p_holm: float, holds: bool, words: tuple[str, str, str], bound: str) -> tuple[str, str]:
    """The verdict after Holm's adjustment and what the interval alone says, with a remark where they part."""
    word, alone = stats.claim_verdict(p_holm, holds), stats.claim_verdict(p, holds)
    said = dict(zip(("supported", "contradicted", "undecided"), words, strict=True))[alone]
    return word, f"{said} {bound}" + ("" if word == alone else ", but not after adjustment over its family")


def seeds_of_margin(delta: float, sd: float, band: float, n: int, family: float) -> int | None:
    """The seeds that would show a difference to lie within ±band, or beyond it, whichever it looks like."""
    if not sd > 0:
        return None
    room, level = band - abs(delta), stats.LEVEL / family
    fewest = (
        stats.seeds_for_equivalence(room / sd, level=level) if room > 0 else stats.seeds_needed(room / sd, level=level)
    )
    return None if fewest is None else max(fewest, n + 1)


def points_of(results: Results, claim: Claim) -> list[Point]:
    return [point for point in results.points if covers(claim, point)]


def margin_of(results: Results, claim: Claim) -> float | None:
    return claim.margin or (results.outline.margin if claim.metric in SCORES else None)


def rounds_of(results: Results, claim: Claim, label: str) -> list[float]:
    """Seconds a step by round: over several timing cells the geometric mean of each round, which stays one round.

    Rounds of several cells strung together would count as so many more replications than there are.
    """
    cells = [rounds[label] for point, rounds in results.timings() if covers(claim, point) and label in rounds]
    return [math.exp(sum(map(math.log, times)) / len(times)) for times in zip(*cells, strict=False)]


def seeds(dz: float, n: int, family: float) -> int | None:
    needed = stats.seeds_needed(dz, level=stats.LEVEL / family)
    return None if needed is None else max(needed, n + 1)


def too_few(n: int) -> str:
    return f"only {n} paired seeds" if n else NOT_RUN
