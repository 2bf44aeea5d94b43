"""The metrics in a record (the content of record.json), and whether they are those that a plan asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lossbench.core.metric import BUILT_IN
from lossbench.core.model import Cell, Spec


def values(record: Mapping[str, Any]) -> dict[str, float | None]:
    """The metrics in a record by name; older records state them in other fields."""
    older = {name: value for name, value in _before_metrics(record).items() if value is not None}
    return {"accuracy": record["accuracy"], **older, **record.get("metrics", {})}


def _before_metrics(record: Mapping[str, Any]) -> dict[str, float | None]:
    angles = {split: [angle for angle in record["angles"].get(split, []) if angle is not None] for split in OLD_ANGLES}
    geometry = {OLD_GEOMETRY.get(name, name): value for name, value in record["geometry"].items()}
    pairs = record["verification"]
    shares = {"auc": pairs["auc"]["value"], "eer": pairs["eer"]["value"]} if pairs else {}
    shares |= {f"tar@{rate['far']:g}": rate["value"] for rate in pairs.get("tar", ())}
    return {
        **{OLD_ANGLES[split]: sum(mine) / len(mine) if mine else None for split, mine in angles.items()},
        **geometry,
        **{name: None if share is None else 100 * share for name, share in shares.items()},
    }


OLD_ANGLES = {"train": "angle_train", "test": "angle"}
OLD_GEOMETRY = {"norm_train": "feature_norm_train", "norm_test": "feature_norm"}


def current(cell: Cell, record: Mapping[str, Any]) -> dict[str, float | None]:
    """The values of the metrics that a cell asks for, as far as its record has them from the planned code."""
    with_code = record.get("measured") or {}
    asked = {spec.label: spec.source for spec in cell.metrics}
    return {
        name: value
        for name, value in values(record).items()
        if with_code.get(name, BUILT_IN) == asked.get(name, BUILT_IN)
        and (name in asked or cell.default_metrics or name == "accuracy")
    }


def stale(cell: Cell, record: Mapping[str, Any]) -> list[Spec]:
    """The metrics that a cell asks for and its record does not have, or has from other code."""
    if record["status"] != "done":
        return []
    known = current(cell, record).keys()
    return [spec for spec in cell.metrics if spec.label not in known]
