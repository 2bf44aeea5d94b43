"""Records whose metrics are not those of the plan: which can be measured again, which cells must be trained again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lossbench.core import plain
from lossbench.core.current import stale
from lossbench.core.metric import Metric, suffices
from lossbench.core.model import Cell


@dataclass
class Outdated:
    """The cells of a plan whose records lack a metric, or have it from other code."""

    measure: list[Cell] = field(default_factory=list)  # what they kept is enough
    train: list[Cell] = field(default_factory=list)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)  # metric and what it needs → cells to train
    changed: Counter[str] = field(default_factory=Counter)  # metric → cells to measure

    def sentences(self) -> list[str]:
        """What will happen to these cells, and why."""
        said = []
        for name, count in self.changed.items():
            was = "is measured again" if count == 1 else "are measured again"
            said.append(f"{plain.counted(count, 'cell')} {was}, without training: '{name}' is new or was changed")
        for (name, needs), count in self.reasons.items():
            its, it = ("its", "it") if count == 1 else ("their", "they")
            cells = plain.counted(count, "cell")
            said.append(f"{cells} did not keep {its} {needs}, which '{name}' needs: {it} will be trained again")
        return said


def outdated(cells: Iterable[Cell], records: Mapping[str, Mapping[str, Any]], metrics: Sequence[Metric]) -> Outdated:
    """The outdated ones of these cells (unique keys)."""
    by_name = {metric.name: metric for metric in metrics}
    found = Outdated()
    for cell in cells:
        record = records.get(cell.key)
        if record is None or not cell.metrics or not (wanting := stale(cell, record)):
            continue
        kept = [name.partition(".")[0] for name in record.get("kept", ())]
        lacking = [
            by_name[spec.label]
            for spec in wanting
            if by_name[spec.label].source == "test" and not suffices(kept, by_name[spec.label].needs)
        ]
        if lacking:
            found.train.append(cell)
            found.reasons[lacking[0].name, lacking[0].needs] += 1
        else:
            found.measure.append(cell)
            found.changed[wanting[0].label] += 1
    return found
