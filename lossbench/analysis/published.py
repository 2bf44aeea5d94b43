"""Published numbers against measured ones: whether they are comparable, and whether our runs reproduce them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lossbench import stats
from lossbench.analysis.records import RunData
from lossbench.core.format import NamedText, Protocol
from lossbench.core.labels import label, parse_label
from lossbench.core.model import Cell
from lossbench.core.point import AXES

NUMBERS = ("published", "mean", "low", "high", "n", "verdict")
PUBLISHED_COLUMNS = ["point", "experiment", "loss", *NUMBERS, "differs", "source", *AXES]
MARGIN = 0.5  # points, where the suite's margin is one of another metric
UNSTATED = "the paper's protocol is not stated"


def judged(data: RunData) -> pd.DataFrame:
    """One row per published number and point where its loss was measured."""
    cells = {cell.point: cell for cell in data.cells if cell.kind == "train"}
    rows = []
    for point in data.points:
        tables = data.info.published.get(point["experiment"], ())
        here = [table for table in tables if table.classes in (None, point["classes"])]
        for table, loss, value in ((each, *entry) for each in here for entry in each.values.items()):
            measured = list(data.measured.at("accuracy", point, loss).values())
            if not measured:
                continue
            cell = cells[point]
            total = int(data.measured.totals[point, loss])
            differs = differences(table.protocol, cell, data.info.examples.get(cell.dataset.label), total)
            resolution = data.measured.resolution("accuracy", [point], loss)
            found = stats.reproduction(measured, value, margin(data), differs=differs, resolution=resolution)
            numbers = {name: getattr(found, name) for name in NUMBERS}
            rows.append({**point.row, "loss": loss, **numbers, "differs": "; ".join(differs), "source": table.source})
    return pd.DataFrame(rows, columns=PUBLISHED_COLUMNS)


def margin(data: RunData) -> float:
    """The largest half-width, in points, of a prediction interval that can reproduce a number."""
    return data.margin("accuracy") or MARGIN


def differences(protocol: Protocol | str | None, cell: Cell, examples: int | None, total: int) -> list[str]:
    """How a cell deviates from the protocol of a paper, in words."""
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
        **{name: value for name, value in cell.schedule if name in Protocol.model_fields},
        "clip": cell.schedule.clip or "none",
        "per_class": cell.schedule.per_class or "none",
        "steps": cell.total_steps,
        "epochs": _epochs(protocol, cell, examples),
        "decay": cell.schedule.decay or "constant",
        "augment": sorted(cell.dataset.options.get("augment") or []),
    }
    found = []
    for name, there in stated.items():
        if name == "backbone":
            found += _backbone(there, cell)
            continue
        theirs = sorted(there) if isinstance(there, list) else there
        if theirs != ours[name]:
            found.append(f"{name} {_shown(theirs)} in the paper, {_shown(ours[name])} here")
    return found + list(protocol.other)


def _epochs(protocol: Protocol, cell: Cell, examples: int | None) -> float | None:
    """The epochs of a cell: those of the paper if they come to its steps, as a last batch may begin another epoch."""
    if not examples:
        return None
    stated = cell.schedule.model_copy(update={"epochs": protocol.epochs}).over(examples)
    same = protocol.epochs is not None and stated.steps == cell.total_steps
    return protocol.epochs if same else round(cell.total_steps * cell.schedule.batch / examples, 2)


def _backbone(written: str | NamedText, cell: Cell) -> list[str]:
    """How the stated backbone differs: in its name, in a stated option, or in an option that only the cell states."""
    if isinstance(written, NamedText):
        name, options = written.name, written.options
    else:
        try:
            name, options = parse_label(written)
        except ValueError:  # a paper's own words for it
            name, options = written, {}
    if name != cell.backbone.name:
        return [f"backbone {name} in the paper, {cell.backbone.label} here"]
    unstated = f"as in {label(name, options)}"
    there = {**dict.fromkeys(parse_label(cell.backbone.label)[1]), **options}
    here = cell.backbone.options
    return [
        f"backbone {key} {unstated if value is None else _shown(value)} in the paper, {_shown(here.get(key))} here"
        for key, value in there.items()
        if here.get(key) != value
    ]


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, list):
        return "+".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
