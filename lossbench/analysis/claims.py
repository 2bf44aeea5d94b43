"""The claims of a suite against the records: supported, contradicted, undecided or not testable, with the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

import pandas as pd

from lossbench.analysis import claim_tests
from lossbench.analysis.claim_tests import (
    CONTRADICTED,
    NOT_RUN,
    SUPPORTED,
    UNDECIDED,
    Row,
    Series,
    along,
    asked,
    covered,
    family_of,
    followed,
    losses,
    nothing,
)
from lossbench.analysis.comparisons import frame_of
from lossbench.analysis.records import RunData
from lossbench.analysis.verdicts import NOT_TESTABLE, Asked, Verdicts
from lossbench.core.format import Claim
from lossbench.core.metric import Metric
from lossbench.core.point import Point

CLAIM_COLUMNS = [
    *("text", "experiment", "metric", "verdict", "delta", "low", "high", "n", "unit", "level", "p", "p_adjusted"),
    *("flags", "seeds_needed", "seeds_needed_high", "evidence", "states", "family", "statement", "note"),
]
UNFINISHED = "no seed finished all cells that it compares"
OUTCOMES = (SUPPORTED, CONTRADICTED, UNDECIDED, NOT_TESTABLE, NOT_RUN)  # the verdicts, and what has none


def stated(data: RunData) -> Iterator[tuple[str, Asked]]:
    """The comparisons that claims about two losses state, with the family of the claim."""
    for claim in data.info.claims:
        if claim.along is None and not _unknown(data, claim):
            yield family_of(claim), asked(data, claim)


def followed_by(data: RunData) -> list[Series | None]:
    """For each claim the values that it follows; None for claims about two losses."""
    return [
        along(data, claim, claim.along) if claim.along and not _unknown(data, claim) else None
        for claim in data.info.claims
    ]


def further(data: RunData, series: Sequence[Series | None]) -> Counter[str]:
    """How many intervals trends and claims of no change add to each family."""
    counts: Counter[str] = Counter()
    for claim, found in zip(data.info.claims, series, strict=True):
        if found:
            counts[family_of(claim)] += found.intervals if claim.unchanged_with else int(found.testable)
    return counts


def judged(data: RunData, verdicts: Verdicts, series: Sequence[Series | None]) -> pd.DataFrame:
    """One row per claim."""
    recorded = set(data.records[["experiment", "kind", "label"]].itertuples(index=False, name=None))
    rows = []
    for claim, found in zip(data.info.claims, series, strict=True):
        row = _row(data, verdicts, claim, found)
        if not was_run(row) and _recorded(data, claim, recorded):
            row["evidence"] = UNFINISHED
        elif was_run(row) and claim.metric in data.to_target.values:
            row["evidence"] += f"; {_censored(data, claim)}"
        rows.append(row)
    return frame_of(rows, CLAIM_COLUMNS)


def outcomes(claims: pd.DataFrame) -> dict[str, Counter[str]]:
    """By statement of the suite: how many of its cases had each verdict, or were not run."""
    counts: dict[str, Counter[str]] = {}
    for row in claims.to_dict("records"):
        counts.setdefault(row["statement"], Counter())[outcome(row)] += 1
    return counts


def outcome(row: Mapping[str, object]) -> str:
    """The verdict on a claim; not run, if that is why it is not testable."""
    return str(row["verdict"]) if was_run(row) else NOT_RUN


def was_run(row: Mapping[str, object]) -> bool:
    """Whether the cells that a claim compares have records, finished or not."""
    return row["evidence"] != NOT_RUN


def cells_behind(data: RunData, claim: Claim) -> list[tuple[Point, str | None]]:
    """The points and losses that a claim compares, its subject first; loss None stands for a timing cell."""
    if claim.metric == "step_seconds":
        return [(point, None) for point in covered(data, claim)]
    if claim.along is not None:
        sides = followed(data, claim, claim.along)
        named = [(where, loss) for _, where, loss in sides]
        named += [(where, claim.than) for _, where, _ in sides if claim.than]
    else:
        named = [(covered(data, claim), loss) for loss in losses(claim)]
    return list(dict.fromkeys((point, loss) for where, loss in named for point in where))


def _row(data: RunData, verdicts: Verdicts, claim: Claim, series: Series | None) -> Row:
    said = {name: getattr(claim, name) for name in ("text", "experiment", "metric", "note")}
    said |= {"statement": claim.said}
    if unknown := _unknown(data, claim):  # of a plan by an older version
        why = f"this lossbench has no metric '{min(unknown)}'"
        return {**nothing(0, "", NOT_TESTABLE, why), **said, "states": claim.text, "family": claim.family}
    lost, testable = claim_tests.gap(data, claim)
    if not testable:
        found = nothing(0, "", NOT_TESTABLE, lost)
    elif claim.along is None or series is None:
        found = claim_tests.two_losses(data, verdicts, claim)
    else:
        test = claim_tests.unchanged if claim.unchanged_with else claim_tests.trend
        found = test(data, claim, claim.along, series, verdicts.level(family_of(claim)))
        found["evidence"] += f"; {lost}" if lost and was_run(found) else ""
    return {**found, **said, "states": states(claim, data.metrics), "family": claim.family}


def _unknown(data: RunData, claim: Claim) -> set[str]:
    return {claim.metric, claim.than_metric or claim.metric} - data.metrics.keys()


def _censored(data: RunData, claim: Claim) -> str:
    """How many seeds did not reach the target, by loss."""
    counts: Counter[str] = Counter()
    seeds: Counter[str] = Counter()
    for point, loss in cells_behind(data, claim):
        seeds[str(loss)] += len(data.measured.at(claim.metric, point, str(loss)))
        counts[str(loss)] += len(data.to_target.censored.get((point, str(loss)), ()))
    return "censored (target not reached): " + ", ".join(f"{loss} {counts[loss]} of {seeds[loss]}" for loss in seeds)


def _recorded(data: RunData, claim: Claim, recorded: Set[tuple[str, str, str]]) -> bool:
    """Whether everything that a claim compares has records, finished or not."""
    if claim.along is None:
        named = list(losses(claim))
    elif claim.follows_axis:
        named = [str(claim.loss)]
    else:
        named = [loss for *_, loss in followed(data, claim, claim.along)]
    named += [claim.than] if claim.than else []
    if claim.metric == "step_seconds":
        place = claim.experiment, "timing"
        timed = [c for c in data.cells if (c.experiment, c.kind) == place and (*place, c.label) in recorded]
        known = {loss.label for cell in timed for loss in cell.losses}
    else:
        known = {loss for experiment, kind, loss in recorded if (experiment, kind) == (claim.experiment, "train")}
    return bool(named) and known.issuperset(named)


def states(claim: Claim, metrics: Mapping[str, Metric]) -> str:
    """The claim as it is tested, in one line."""
    metric = claim.metric
    if claim.equivalent:
        return f"{metric}: {claim.equivalent[0]} ≈ {claim.equivalent[1]}"
    up = metrics[metric].higher_is_better
    if claim.not_worse:
        return f"{metric}: {claim.not_worse} {f'≥ {claim.than} −' if up else f'≤ {claim.than} +'} margin"
    if claim.along:
        what = f"{claim.loss} − {claim.than}" if claim.than else str(claim.loss)
        if claim.unchanged_with:
            return f"{metric} of {what} does not change with {claim.along}"
        return f"{metric} of {what} {'increases' if claim.increases_with else 'decreases'} with {claim.along}"
    sign = ">" if up else "<"
    if claim.than_metric:
        return f"{metric} of {claim.better} {sign} {claim.than_metric} of {claim.than}"
    return f"{metric}: {claim.better} {sign} {claim.than}"
