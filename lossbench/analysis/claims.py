"""The claims of a suite against the records: supported, contradicted or undecided, with the evidence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Set
from typing import Any

import pandas as pd

from lossbench import stats
from lossbench.analysis.claim_tests import NOT_RUN, Row, covered, followed, nothing, tested
from lossbench.analysis.comparisons import frame_of
from lossbench.analysis.records import RunData
from lossbench.core.format import Claim
from lossbench.core.metric import Metric
from lossbench.core.point import Point
from lossbench.suite.claims import covers

CLAIM_COLUMNS = [
    *("text", "experiment", "metric", "verdict", "delta", "low", "high", "n"),
    *("unit", "p_holm", "seeds_needed", "evidence", "states", "p", "family", "statement", "note"),
]
UNFINISHED = "no seed finished all cells that it compares"
OUTCOMES = ("supported", "contradicted", "undecided", NOT_RUN)


def judged(data: RunData) -> pd.DataFrame:
    """One row per claim; p values are Holm-adjusted over the claims of a family."""
    claims = data.info.claims
    rows = [_row(data, claim) for claim in claims]
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row["family"], []).append(row)
    for family in families.values():
        size = sum(not math.isnan(row["p"]) for row in family)
        for row, adjusted in zip(family, stats.holm([row["p"] for row in family]), strict=True):
            row["p_holm"] = adjusted
            row["verdict"], row["evidence"] = row.pop("judge")(adjusted)
            is_open = row["verdict"] == "undecided" and row["n"] >= stats.FEWEST_SEEDS
            row["seeds_needed"] = row.pop("needed")(size) if is_open and size else None
    recorded = set(data.records[["experiment", "kind", "label"]].itertuples(index=False, name=None))
    for row, claim in zip(rows, claims, strict=True):
        if not was_run(row) and _recorded(data, claim, recorded):
            row["evidence"] = UNFINISHED
        elif was_run(row) and claim.metric in data.to_target.values:
            row["evidence"] += f"; {_censored(data, claim)}"
    return frame_of(rows, CLAIM_COLUMNS)


def outcomes(claims: pd.DataFrame) -> dict[str, Counter[str]]:
    """By statement of the suite: how many of its cases had each outcome."""
    counts: dict[str, Counter[str]] = {}
    for row in claims.to_dict("records"):
        counts.setdefault(row["statement"], Counter())[row["verdict"] if was_run(row) else NOT_RUN] += 1
    return counts


def was_run(row: Mapping[str, Any]) -> bool:
    """Whether the cells that a claim compares have records, finished or not."""
    return bool(row["evidence"] != NOT_RUN)


def cells_behind(data: RunData, claim: Claim) -> list[tuple[Point, str | None]]:
    """The points and losses that a claim compares, its subject first; loss None stands for a timing cell."""
    if claim.metric == "step_seconds":
        return [(cell.point, None) for cell in data.timed if covers(claim, cell.point)]
    if claim.along is not None:
        sides = followed(data, claim, claim.along)
        named = [(where, loss) for _, where, loss in sides]
        named += [(where, claim.than) for _, where, _ in sides if claim.than]
    else:
        named = [(covered(data, claim), loss) for loss in _losses(claim)]
    return list(dict.fromkeys((point, loss) for where, loss in named for point in where))


def _row(data: RunData, claim: Claim) -> Row:
    stated = {name: getattr(claim, name) for name in ("text", "family", "experiment", "metric", "note")}
    stated["statement"] = claim.statement or claim.text
    named = {claim.metric, claim.than_metric or claim.metric}
    if unknown := named - data.metrics.keys():  # of a plan by an older version
        return {**stated, "states": claim.text, **nothing(0, "", f"this lossbench has no metric '{min(unknown)}'")}
    return {**stated, "states": states(claim, data.metrics), **tested(data, claim)}


def _censored(data: RunData, claim: Claim) -> str:
    """How many seeds did not reach the target, by loss."""
    counts: Counter[str] = Counter()
    seeds: Counter[str] = Counter()
    for point, loss in cells_behind(data, claim):
        seeds[str(loss)] += len(data.measured.at(claim.metric, point, str(loss)))
        counts[str(loss)] += len(data.to_target.censored.get((point, str(loss)), ()))
    return "censored (target not reached): " + ", ".join(f"{loss} {counts[loss]} of {seeds[loss]}" for loss in seeds)


def _losses(claim: Claim) -> list[str]:
    """The losses of a claim about two, in its order."""
    return list(claim.equivalent or (str(claim.better or claim.not_worse), str(claim.than)))


def _recorded(data: RunData, claim: Claim, recorded: Set[tuple[str, str, str]]) -> bool:
    """Whether everything that a claim compares has records, finished or not."""
    if claim.metric == "step_seconds":
        return any((experiment, kind) == (claim.experiment, "timing") for experiment, kind, _ in recorded)
    if claim.along is None:
        losses = _losses(claim)
    elif claim.follows_axis:
        losses = [str(claim.loss)]
    else:
        losses = [loss for *_, loss in followed(data, claim, claim.along)]
    losses += [claim.than] if claim.than else []
    return bool(losses) and all((claim.experiment, "train", loss) in recorded for loss in losses)


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
