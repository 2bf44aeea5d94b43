"""Published numbers against measured ones: comparable at all, and then, would one more of our cells come out there?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from lossbench import stats
from lossbench.core.format import NamedText, Protocol
from lossbench.core.labels import parse_label
from lossbench.core.model import Cell

if TYPE_CHECKING:
    from lossbench.analysis.results import Results

PUBLISHED_COLUMNS = [
    *("experiment", "loss", "published", "mean", "low", "high", "n", "verdict", "differs", "source"),
    *("dataset", "backbone", "classes", "width"),
]
UNSTATED = "the paper's protocol is not stated"


def judged(results: Results) -> pd.DataFrame:
    """A row a published number and point where its loss was measured."""
    cells = {
        (cell.experiment, cell.dataset.label, cell.backbone.label, cell.classes, cell.width): cell
        for cell in results.cells
        if cell.kind == "train"
    }
    rows = []
    for point in results.points:
        tables = results.outline.published.get(point["experiment"], ())
        here = [table for table in tables if table.classes in (None, point["classes"])]
        for printed, label, value in ((table, *entry) for table in here for entry in table.values.items()):
            measured = results.measured.at("accuracy", point, label)
            if not measured:
                continue
            cell = cells[tuple(point.values())]
            total = int(results.measured.totals[(*point.values(), label)])
            differs = differences(printed.protocol, cell, results.outline.examples.get(cell.dataset.label), total)
            found = stats.reproduction(
                list(measured.values()), value, results.outline.margin, differs=differs, resolution=100 / total
            )
            numbers = {name: getattr(found, name) for name in ("published", "mean", "low", "high", "n", "verdict")}
            rows.append(point | {"loss": label, **numbers, "differs": "; ".join(differs), "source": printed.source})
    return pd.DataFrame(rows, columns=PUBLISHED_COLUMNS)


def differences(protocol: Protocol | str | None, cell: Cell, examples: int | None, total: int) -> list[str]:
    """The fields of a paper's protocol that a cell does not share, in words."""
    if protocol == "same":
        return []
    if not isinstance(protocol, Protocol):
        return [UNSTATED]
    stated: dict[str, Any] = {
        name: getattr(protocol, name)
        for name in Protocol.model_fields
        if name != "other" and getattr(protocol, name) is not None
    }
    if not stated and not protocol.other:
        return [UNSTATED]
    ours = {
        "dataset": cell.dataset.name,
        "train": examples if examples is not None else cell.dataset.options.get("train"),
        "test": total,
        "classes": cell.classes,
        "width": cell.width,
        "steps": cell.schedule.steps + (cell.warm.steps if cell.warm else 0),
        "batch": cell.schedule.batch,
        "lr": cell.schedule.lr,
        "momentum": cell.schedule.momentum,
        "weight_decay": cell.schedule.weight_decay,
        "augment": sorted(cell.dataset.options.get("augment") or []),
    }
    found = []
    for name, there in stated.items():
        if name == "backbone":
            found += _backbone(there, cell)
            continue
        theirs = sorted(there) if isinstance(there, list) else there
        if theirs != ours[name]:
            found.append(f"{name} {_shown(theirs)} there, {_shown(ours[name])} here")
    return found + list(protocol.other)


def _backbone(written: str | NamedText, cell: Cell) -> list[str]:
    """How a stated backbone differs: by name, by options that are stated, or by others that the cell's label has."""
    if isinstance(written, NamedText):
        name, options = written.name, written.options
    else:
        try:
            name, options = parse_label(written)
        except ValueError:  # a paper's own words for it
            name, options = written, {}
    if name != cell.backbone.name:
        return [f"backbone {name} there, {cell.backbone.label} here"]
    there = {**dict.fromkeys(parse_label(cell.backbone.label)[1]), **options}
    here = cell.backbone.options
    return [
        f"backbone {key} {'unstated' if value is None else _shown(value)} there, {_shown(here.get(key))} here"
        for key, value in there.items()
        if here.get(key) != value
    ]


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, list):
        return "+".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
