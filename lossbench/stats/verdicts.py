"""The words of a report, each with one meaning."""

from __future__ import annotations

from typing import Literal

from lossbench.stats.pairs import LEVEL

Verdict = Literal["different", "equivalent", "different but negligible", "undecided"]
ClaimVerdict = Literal["supported", "contradicted", "undecided"]
PublishedVerdict = Literal["reproduced", "above", "below", "underpowered", "not comparable"]


def verdict(p_adjusted: float, tost_p: float, level: float = LEVEL) -> Verdict:
    """One word for a pair: whether the data tell the two apart, and whether the difference matters."""
    different, equivalent = p_adjusted < level, tost_p < level  # NaN compares false: undecided
    if different:
        return "different but negligible" if equivalent else "different"
    return "equivalent" if equivalent else "undecided"


def claim_verdict(p_adjusted: float, right_way: bool, level: float = LEVEL) -> ClaimVerdict:
    """One word for a claim, from the two-sided p of what it is about and whether the data point the claim's way."""
    if not p_adjusted < level:  # NaN compares false: undecided
        return "undecided"
    return "supported" if right_way else "contradicted"
