"""The claims of the suite with their verdicts, and published numbers beside measured ones."""

from __future__ import annotations

from lossbench.analysis.claims import OUTCOMES, cells_behind, outcomes, was_run
from lossbench.analysis.results import Results
from lossbench.core.format import Claim
from lossbench.report import words
from lossbench.report.blocks import Anchor, Block, Prose, Section, Table
from lossbench.report.sections.rows import anchor, table


def claims(results: Results) -> Section:
    """The claims of the suite with their verdicts; cases that were not run are counted, not listed."""
    counted = _statements(results)
    judged = zip(results.claims.to_dict("records"), results.info.claims, strict=True)
    listed = [(row, claim) for row, claim in judged if was_run(row) or not counted]
    rows = [
        {
            "claim": row["text"],
            "verdict": row["verdict"],
            "difference [95 % interval]": words.difference(row),
            "n": str(row["n"]),
            "p (Holm)": words.p_value(row["p_holm"]),
            "evidence": row["evidence"],
            "seeds needed": words.whole(row["seeds_needed"]),
            "tested as": row["states"],
        }
        for row, _ in listed
    ]
    caption = (
        "n: paired seeds, or processes with paired rounds for step times; values at several points are averaged within "
        "each seed first. Trend claims show the slope; unchanged_with claims show the largest deviation. p is "
        "Holm-adjusted over the claims of a family. Seeds needed: for 80 % power, if the estimates hold."
    )
    blocks: list[Block] = [*counted]
    if rows:
        left = ["claim", "verdict", "evidence", "tested as"]
        anchors = [_anchors(results, claim) for _, claim in listed]
        blocks.append(Table.of(rows, left=left, caption=caption, anchors=anchors))
    noted = dict.fromkeys((claim.statement or claim.text, claim.note) for claim in results.info.claims if claim.note)
    blocks += [Prose(f"“{statement}”: {note}") for statement, note in noted]
    return Section("claims", "Claims", tuple(blocks) or (Prose("The suite states no claims."),))


def _anchors(results: Results, claim: Claim) -> list[Anchor]:
    return [Anchor(point, loss, "train" if loss else "timing") for point, loss in cells_behind(results, claim)]


def _statements(results: Results) -> list[Table]:
    """The outcomes of each statement, if any statement has several cases."""
    counts = outcomes(results.claims)
    if len(counts) == len(results.claims):
        return []
    rows = [{"statement": said, **{word: str(count[word]) for word in OUTCOMES}} for said, count in counts.items()]
    caption = (
        "Number of cases of each statement by outcome. A case is one experiment, loss or value of an option; the cases "
        "that were run are listed below."
    )
    return [Table.of(rows, left=["statement"], caption=caption)]


def published(results: Results) -> Section:
    """Numbers from papers beside the measured ones."""
    found = results.published.to_dict("records")
    rows = [
        {
            "experiment": row["experiment"],
            "loss": row["loss"],
            "published, %": words.number(row["published"]),
            "measured, %": words.number(row["mean"]),
            "95 % prediction interval": words.interval(row["low"], row["high"]),
            "n": str(row["n"]),
            "verdict": row["verdict"],
            "differs": row["differs"] or words.DASH,
        }
        for row in found
    ]
    if not rows:
        nothing = Prose("The suite states no published numbers for the measured losses.")
        return Section("published", "Published against measured", (nothing,))
    caption = (
        "The prediction interval is where another run of ours would fall with 95 % probability. reproduced: the "
        f"published number lies in it, and it is no wider than ±{results.info.margin:g} points; underpowered: it is "
        "wider; above, below: our numbers are higher or lower; not comparable: the protocols differ as listed."
    )
    left = ["experiment", "loss", "verdict", "differs"]
    block = table(found, rows, caption, left=left, anchors=[[anchor(row)] for row in found])
    return Section("published", "Published against measured", (block,))
