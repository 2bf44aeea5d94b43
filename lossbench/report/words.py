"""Numbers as text, formatted the same way in every table, sentence and figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lossbench.core.geometry import minimum_width
from lossbench.core.metric import Metric
from lossbench.core.point import Point, shown

DASH = "–"


def finite(value: Any) -> bool:
    """Whether it is a number that can be printed."""
    return value is not None and not pd.isna(value) and math.isfinite(float(value))


def number(value: Any, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if finite(value) else DASH


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, a minus as wide as the plus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def interval(low: Any, high: Any, digits: int = 2) -> str:
    return f"[{low:.{digits}f}, {high:.{digits}f}]" if finite(low) and finite(high) else DASH


def p_value(value: Any) -> str:
    return DASH if not finite(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def equals(value: Any) -> str:
    """A p value after the letter p: `= 0.041`, `< 0.001`."""
    shown = p_value(value)
    return shown if shown.startswith("<") else f"= {shown}"


def seeds_needed(row: Mapping[str, Any]) -> str:
    """How many seeds would decide an undecided comparison: `24–60`; empty where it is not known."""
    if not finite(row.get("seeds_needed")):
        return ""
    low, high = (row[name] for name in ("seeds_needed", "seeds_needed_high"))
    return f"{low}–{high}" if finite(high) else f"{low} or more"


def span(counts: Sequence[int]) -> str:
    """A number that all agree on, or the least and the largest; a dash for none."""
    return "–".join(f"{count:,}" for count in sorted({min(counts), max(counts)})) if counts else DASH


def axis(point: Point, name: str) -> str:
    """The value of an axis in a table; a point need not have every axis."""
    if name not in point:
        return DASH
    least = name == "width" and point["width"] == minimum_width(point["classes"])
    return shown(point[name]) + (" (min)" if least else "")


def size(value: Any) -> str:
    if not finite(value):
        return DASH
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:.0f} B"


DIGITS = {"points": 2, "degrees": 2, "steps": 1, "seconds": 1, "bytes": 0, "%": 1}  # after the point, by unit


def digits_of(unit: str) -> int:
    return DIGITS.get(unit.partition(" per ")[0], 4)  # a slope has the digits of its metric


def column(metric: Metric) -> str:
    """The heading of a column of values: `accuracy, %`."""
    unit = "%" if metric.is_score else metric.unit
    return f"{metric.title}, {unit}" if unit else metric.title


def measured(metric: Metric) -> str:
    """A metric with its unit in a sentence: `accuracy in percent`."""
    unit = "percent" if metric.is_score else metric.unit
    return f"{metric.title} in {unit}" if unit else metric.title


def capital(text: str) -> str:
    """The text with a capital letter."""
    return text[:1].upper() + text[1:]


def delta_column(metric: Metric) -> str:
    """The heading of a column of differences with intervals: `Δ points [interval]`."""
    return f"Δ {metric.unit} [interval]" if metric.unit else "Δ [interval]"


def within(margin: float, unit: str) -> str:
    """A margin of equivalence: `±0.5 points`."""
    return f"±{margin:g} {unit}".rstrip()


def difference(row: Mapping[str, Any], unit: bool = True) -> str:
    """A difference with its interval: `+0.25 points [+0.04, +0.47]`."""
    if not finite(row["delta"]):
        return DASH
    digits = digits_of(row["unit"])
    delta = f"{row['delta']:+.{digits}f}" + (f" {row['unit']}" if unit and row["unit"] else "")
    if not finite(row["low"]):
        return delta
    return f"{delta} [{row['low']:+.{digits}f}, {row['high']:+.{digits}f}]"


def ratio(row: Mapping[str, Any]) -> str:
    """A difference in percent as a ratio with its interval: `1.115 [1.064, 1.167]`."""
    delta, low, high = (1 + row[name] / 100 for name in ("delta", "low", "high"))
    return f"{delta:.3f} [{low:.3f}, {high:.3f}]" if finite(low) else f"{delta:.3f}"
