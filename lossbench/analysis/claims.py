"""The claims of a suite against the records: supported, contradicted or undecided, with the evidence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

import pandas as pd

from lossbench import stats
from lossbench.analysis.claims_along import sides, trend, unchanged
from lossbench.analysis.claims_pair import NOT_RUN, Row, pair, points_of
from lossbench.core.format import Claim
from lossbench.plugins.metrics import METRICS
from lossbench.report.blocks import Place
from lossbench.suite.claims import GRID, covers

if TYPE_CHECKING:
    from lossbench.analysis.results import Results

CLAIM_COLUMNS = [
    *("text", "experiment", "metric", "verdict", "delta", "low", "high", "n"),
    *("unit", "p_holm", "seeds_needed", "evidence", "states", "p", "family", "statement", "note"),
]
UNFINISHED = "no seed has finished all that it compares"
OUTCOMES = ("supported", "contradicted", "undecided", NOT_RUN)


def outcomes(results: Results) -> dict[str, Counter[str]]:
    """How many cases of each statement of the suite came out how."""
    counts: dict[str, Counter[str]] = {}
    for row in results.claims.to_dict("records"):
        counts.setdefault(row["statement"], Counter())[row["verdict"] if was_run(row) else NOT_RUN] += 1
    return counts


def was_run(row: Mapping[str, Any]) -> bool:
    """Whether what a claim compares was tried, whatever came of it."""
    return bool(row["evidence"] != NOT_RUN)


def judged(results: Results) -> pd.DataFrame:
    """A row a claim; p values are Holm-adjusted over the claims of its family."""
    from lossbench.analysis.results import frame_of

    rows = [_row(results, claim) for claim in results.outline.claims]
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row["family"], []).append(row)
    for family in families.values():
        size = sum(not math.isnan(row["p"]) for row in family)
        for row, adjusted in zip(family, stats.holm([row["p"] for row in family]), strict=True):
            row["p_holm"] = adjusted
            row["verdict"], row["evidence"] = row.pop("judge")(adjusted)
            open_question = row["verdict"] == "undecided" and row["n"] >= stats.FEWEST_SEEDS
            row["seeds_needed"] = row.pop("needed")(size) if open_question and size else None
    tried = set(results.records[["experiment", "kind", "label"]].itertuples(index=False, name=None))
    for row, claim in zip(rows, results.outline.claims, strict=True):
        if not was_run(row) and _tried(results, claim, tried):
            row["evidence"] = UNFINISHED
    return frame_of(rows, CLAIM_COLUMNS)


def _row(results: Results, claim: Claim) -> Row:
    stated = {name: getattr(claim, name) for name in ("text", "family", "experiment", "metric", "note")}
    stated |= {"states": states(claim), "statement": claim.statement or claim.text}
    if claim.unchanged_with is not None:
        return stated | unchanged(results, claim, claim.unchanged_with)
    if claim.along is not None:
        return stated | trend(results, claim, claim.along)
    return stated | pair(results, claim)


def _tried(results: Results, claim: Claim, tried: Set[tuple[str, str, str]]) -> bool:
    """Whether all that a claim compares has records, finished or not."""
    if claim.metric == "step_seconds":
        return any((experiment, kind) == (claim.experiment, "timing") for experiment, kind, _ in tried)
    if claim.along is not None:
        labels = [str(claim.loss)]
        if claim.along not in GRID:
            labels = [label for *_, label in sides(results, claim, claim.along)]
    else:
        labels = list(claim.equivalent or [str(claim.better or claim.not_worse)])
    labels += [claim.than] if claim.than else []
    return bool(labels) and all((claim.experiment, "train", label) in tried for label in labels)


def places(results: Results, claim: Claim) -> list[Place]:
    """The cells behind a claim: what is said to be better, then what it is compared with; a trend in its order."""
    if claim.metric == "step_seconds":
        timed = [point for point, _ in results.timings() if covers(claim, point)]
        return [Place.of({**point, "loss": None}, kind="timing") for point in timed]
    if claim.along is not None:
        followed = sides(results, claim, claim.along)
        pairs = [(points, label) for _, points, label in followed]
        pairs += [(points, claim.than) for _, points, _ in followed if claim.than]
    else:
        named = claim.equivalent or (str(claim.better or claim.not_worse), str(claim.than))
        pairs = [(points_of(results, claim), label) for label in named]
    return list(dict.fromkeys(Place.of({**point, "loss": label}) for points, label in pairs for point in points))


def states(claim: Claim) -> str:
    """The claim in one line, as it is tested."""
    metric = claim.metric
    if claim.equivalent:
        return f"{metric}: {claim.equivalent[0]} ≈ {claim.equivalent[1]}"
    sign = ">" if METRICS[metric].higher_is_better else "<"
    if claim.not_worse:
        return f"{metric}: {claim.not_worse} {'≥' if sign == '>' else '≤'} {claim.than}, but for the margin"
    if claim.along:
        what = f"{claim.loss} − {claim.than}" if claim.than else str(claim.loss)
        if claim.unchanged_with:
            return f"{metric} of {what} does not change with {claim.along}"
        return f"{metric} of {what} {'increases' if claim.increases_with else 'decreases'} with {claim.along}"
    if claim.than_metric:
        return f"{metric} of {claim.better} {sign} {claim.than_metric} of {claim.than}"
    return f"{metric}: {claim.better} {sign} {claim.than}"
