"""How long cells will take and how much memory each needs, from the cost of a few real steps. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lossbench.core.model import Cell

START_SECONDS = 0.3  # per cell: its process, data and record
FRESH_SECONDS = 5.0  # per process of a timing cell, which imports torch itself
CODE_SECONDS = 1.0  # per process of a compiled cell, to read its code


@dataclass(frozen=True)
class Forecast:
    """Wall seconds of all cells, bytes of the largest, and how many kinds of cells were measured."""

    seconds: float
    bytes: int
    measured: int  # kinds of cells
    kinds: int
    uncounted: int = 0  # cells whose epochs cannot be counted before their data is here
    saved: float | None = None  # wall seconds that `compile = true` saves; None: nothing is compiled


def kind_of(cell: Cell) -> str:
    """What decides the cost of a step; losses are left out, as they differ by a few percent."""
    return (
        f"{cell.dataset.label} {cell.classes} {cell.backbone.label} {cell.width} {cell.schedule.batch} "
        f"{cell.schedule.optimizer} {cell.threads} {cell.device} {cell.autocast} "
        f"{cell.channels_last} {cell.compile}"
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
    mean = {name: _mean(costs, name) for name in ("step", "score", "compile", "eager")}
    lanes = max(1, min(jobs, len(cells)))
    seconds, saved = 0.0, None
    for cell in cells:
        cost = known.get(kind_of(cell), mean)
        steps, each = cell.schedule.steps, START_SECONDS
        code = CODE_SECONDS if cell.compile else 0.0
        share = 1 / lanes
        if cell.timing:
            rounds = cell.timing.rounds + cell.timing.processes  # each process has a round to warm up
            steps = rounds * cell.timing.steps * len(cell.losses)
            each += cell.timing.processes * FRESH_SECONDS
            code *= cell.timing.processes
            share = 1.0
        elif cell.kind != "warm":
            each += cost["score"] * (1 + cell.schedule.evaluations)
        seconds += share * (each + code + cost["step"] * steps)
        if cell.compile:
            saved = (saved or 0.0) + share * ((cost["eager"] - cost["step"]) * steps - code)
    cold = [cell for cell in kinds(cells) if cell.compile and kind_of(cell) not in known]
    compiling = mean["compile"] * len(cold) / max(1, min(jobs, len(cold)))  # a kind is compiled once, by one cell
    return Forecast(
        seconds + compiling,
        max(cost["bytes"] for cost in costs),
        len(known),
        len(kinds(cells)),
        sum(cell.schedule.steps == 0 for cell in cells),
        None if saved is None else saved - compiling,
    )


def _mean(costs: Sequence[Mapping[str, Any]], name: str) -> float:
    found = [cost[name] for cost in costs if name in cost]
    return sum(found) / len(found) if found else 0.0


def in_words(expected: Forecast) -> str:
    """`about 12 minutes, up to 310 MiB per cell`."""
    if not expected.measured:
        return "an unknown time (no step could be timed)"
    for unit, size in (("hours", 3600), ("minutes", 60), ("seconds", 1)):
        if expected.seconds >= 2 * size or size == 1:
            told = f"about {expected.seconds / size:.0f} {unit}, up to {expected.bytes / 2**20:.0f} MiB per cell"
            more = (
                f", without {expected.uncounted} cells whose number of steps is unknown until their data is available"
            )
            lost = f"; compile = true makes it {-(expected.saved or 0):.0f} seconds longer, as its cells are short"
            return told + (more if expected.uncounted else "") + (lost if (expected.saved or 0) <= -1 else "")
    raise AssertionError
