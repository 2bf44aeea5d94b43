"""What suites, plans and reports know about a metric, as plain data; and the values that a record has of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lossbench.core.model import Cell, Spec

# What a metric is computed from; each level contains the ones before it.
NEEDS = ("predictions", "features", "model")
# The identity of the metrics that come with lossbench: PROTOCOL in `core.model` covers their code.
BUILT_IN = "lossbench"


@dataclass(frozen=True)
class Metric:
    """How a metric is called, tabulated and compared; `lossbench.plugins.metrics` explains the fields."""

    name: str
    title: str
    unit: str
    higher_is_better: bool
    tasks: tuple[str, ...]
    column: str
    step: float = 0.0
    compared: bool = True
    needs_class_weights: bool = False
    source: str = "test"
    needs: str = "features"

    @property
    def is_score(self) -> bool:
        """Whether it says how well a loss does its task, in points."""
        return self.unit == "points"

    @property
    def sign(self) -> int:
        """Times this, larger is better."""
        return 1 if self.higher_is_better else -1

    def to_json(self) -> dict[str, Any]:
        return {name.name: getattr(self, name.name) for name in fields(Metric)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Metric:
        known = {name.name for name in fields(cls)}  # a newer version may have more
        return cls(**{name: value for name, value in data.items() if name in known} | {"tasks": tuple(data["tasks"])})


def values(record: Mapping[str, Any]) -> dict[str, float | None]:
    """The metrics in a record (the content of record.json) by name; older records state them in other fields."""
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


def suffices(kept: Iterable[str], needs: str) -> bool:
    """Whether what a cell has kept (levels of NEEDS) is enough for a metric."""
    return any(NEEDS.index(level) >= NEEDS.index(needs) for level in kept)
