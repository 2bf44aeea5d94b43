"""How long cells will take and how much memory each needs, from the cost of a few real steps. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lossbench.core.model import Cell

START_SECONDS = 0.3  # per cell: its process, data and record
FRESH_SECONDS = 5.0  # per process of a timing cell, which imports torch itself


@dataclass(frozen=True)
class Forecast:
    """Wall seconds of all cells, bytes of the largest, and how many kinds of cells were measured."""

    seconds: float
    bytes: int
    measured: int  # kinds of cells
    kinds: int
    uncounted: int = 0  # cells whose epochs cannot be counted before their data is here


def kind_of(cell: Cell) -> str:
    """What decides the cost of a step; losses are left out, as they differ by a few percent."""
    return (
        f"{cell.dataset.label} {cell.classes} {cell.backbone.label} {cell.width} {cell.schedule.batch} "
        f"{cell.schedule.optimizer} {cell.threads} {cell.device} {cell.autocast}"
    )


def kinds(cells: Sequence[Cell]) -> list[Cell]:
    """One cell per kind, the widest, which needs most memory, first."""
    found: dict[str, Cell] = {}
    for cell in cells:
        found.setdefault(kind_of(cell), cell)
    return sorted(found.values(), key=lambda cell: -cell.width)


def forecast(cells: Sequence[Cell], costs: Sequence[Mapping[str, Any]], jobs: int) -> Forecast:
    """`jobs` cells at a time, then the timing cells one by one; a kind without a cost gets the mean of the others."""
    if not costs:
        return Forecast(0.0, 0, 0, len(kinds(cells)))
    known = {cost["kind"]: cost for cost in costs}
    mean = {name: sum(cost[name] for cost in costs) / len(costs) for name in ("step", "score")}
    together = alone = 0.0
    for cell in cells:
        cost = known.get(kind_of(cell), mean)
        if cell.timing:
            rounds = cell.timing.rounds + cell.timing.processes  # each process has a round to warm up
            alone += START_SECONDS + cell.timing.processes * FRESH_SECONDS
            alone += cost["step"] * rounds * cell.timing.steps * len(cell.losses)
            continue
        scores = 0 if cell.kind == "warm" else 1 + cell.schedule.evaluations
        together += START_SECONDS + cost["step"] * cell.schedule.steps + cost["score"] * scores
    return Forecast(
        together / max(1, min(jobs, len(cells))) + alone,
        max(cost["bytes"] for cost in costs),
        len(known),
        len(kinds(cells)),
        sum(cell.schedule.steps == 0 for cell in cells),
    )


def in_words(expected: Forecast) -> str:
    """`about 12 minutes, up to 310 MiB per cell`."""
    if not expected.measured:
        return "an unknown time (no step could be timed)"
    for unit, size in (("hours", 3600), ("minutes", 60), ("seconds", 1)):
        if expected.seconds >= 2 * size or size == 1:
            told = f"about {expected.seconds / size:.0f} {unit}, up to {expected.bytes / 2**20:.0f} MiB per cell"
            more = f", without {expected.uncounted} cells whose epochs are unknown before their data is here"
            return told + (more if expected.uncounted else "")
    raise AssertionError
