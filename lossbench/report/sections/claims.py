"""The claims of the suite with their verdicts, and published numbers beside measured ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lossbench.analysis.claim_tests import NOT_RUN
from lossbench.analysis.claims import OUTCOMES, cells_behind, outcomes, was_run
from lossbench.analysis.published import margin
from lossbench.analysis.results import Results
from lossbench.core.format import Claim
from lossbench.report import words
from lossbench.report.blocks import Anchor, Block, Prose, Section, Table
from lossbench.report.sections.rows import anchor, table

Case = tuple[dict[str, Any], Claim]


def claims(results: Results) -> Section:
    """The verdicts: counted by statement where statements have several cases, else one row per claim."""
    counted = _statements(results)
    cases = [] if counted else _cases(results)
    blocks: list[Block] = [*counted, *([_table(results, cases)] if cases else [])]
    if counted:
        blocks.append(Prose("Every case is in the appendix, under Cases of the claims."))
    noted = dict.fromkeys((claim.said, claim.note) for claim in results.info.claims if claim.note)
    blocks += [Prose(f"“{statement}”: {note}") for statement, note in noted]
    return Section("claims", "Claims", tuple(blocks))


def claim_cases(results: Results) -> Section:
    """Every case of the statements that have several; cases that were not run are counted there, not listed."""
    cases = [case for case in _cases(results) if was_run(case[0])] if _statements(results) else []
    return Section("claim-cases", "Cases of the claims", (_table(results, cases),) if cases else (), appendix=True)


def _cases(results: Results) -> list[Case]:
    return list(zip(results.claims.to_dict("records"), results.info.claims, strict=True))


def _table(results: Results, cases: list[Case]) -> Table:
    rows = [
        {
            "claim": row["text"],
            "verdict": row["verdict"],
            "difference [interval]": words.difference(row),
            "n": str(row["n"]),
            "evidence": row["evidence"],
            "seeds needed": words.seeds_needed(row),
            "tested as": row["states"],
        }
        for row, _ in cases
    ]
    caption = (
        "Intervals are simultaneous 95 % intervals over the claims of a family. n: paired seeds, or processes for step "
        "times; values at several points are averaged within each seed. Trend claims show the slope, `unchanged_with` "
        "claims the interval that decides."
    )
    left = ["claim", "verdict", "evidence", "tested as"]
    return Table.of(rows, left=left, caption=caption, anchors=[_anchors(results, claim) for _, claim in cases])


def _anchors(results: Results, claim: Claim) -> list[Anchor]:
    return [Anchor(point, loss, "train" if loss else "timing") for point, loss in cells_behind(results, claim)]


def _statements(results: Results) -> list[Table]:
    """The verdicts of each statement, if any statement has several cases."""
    counts = outcomes(results.claims)
    if len(counts) == len(results.claims):
        return []
    some = sum(counts.values(), Counter[str]())
    shown = [word for word in OUTCOMES if word != NOT_RUN or some[word]]
    rows = [{"statement": said, **{word: str(count[word]) for word in shown}} for said, count in counts.items()]
    caption = "Number of cases by verdict. A case is one experiment, loss or value of an option."
    caption += " not run: its cells are not in this run of the suite." if some[NOT_RUN] else ""
    return [Table.of(rows, left=["statement"], caption=caption)]


def published(results: Results) -> Section:
    """Numbers from papers beside the measured ones where they are comparable; one line is about the others."""
    every = results.published.to_dict("records")
    found = [row for row in every if row["verdict"] != "not comparable"]
    others = [row for row in every if row["verdict"] == "not comparable"]
    blocks: list[Block] = [_comparable(results, found)] if found else []
    if others:
        why = Counter(reason for row in others for reason in row["differs"].split("; "))
        reasons = ", ".join(f"{reason} ({count})" for reason, count in why.most_common(3))
        who = (
            f"{len(others)} further published numbers are not"
            if found
            else (f"None of the {len(others)} published numbers is")
        )
        more = ", …" if len(why) > 3 else "."
        blocks.append(Prose(f"{who} comparable, since protocols differ: {reasons}{more} published.csv lists all."))
    return Section("published", "Published against measured", tuple(blocks))


def _comparable(results: Results, found: list[dict[str, Any]]) -> Table:
    rows = [
        {
            "experiment": row["experiment"],
            "loss": row["loss"],
            "published, %": words.number(row["published"]),
            "measured, %": words.number(row["mean"]),
            "95 % prediction interval": words.interval(row["low"], row["high"]),
            "n": str(row["n"]),
            "verdict": row["verdict"],
        }
        for row in found
    ]
    caption = (
        "The prediction interval is where another run of ours would fall with 95 % probability. reproduced: the "
        f"published number lies in it, and it is no wider than ±{margin(results):g} points; underpowered: it is "
        "wider, or there are fewer than five runs; above, below: our numbers are higher or lower."
    )
    left = ["experiment", "loss", "verdict"]
    return table(found, rows, caption, left=left, anchors=[[anchor(row)] for row in found])
