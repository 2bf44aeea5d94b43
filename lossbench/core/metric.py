"""What suites, plans and reports know about a metric, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

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
    step_of: str = "example"
    compared: bool = True
    needs_class_weights: bool = False
    requires: str = ""
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


def suffices(kept: Iterable[str], needs: str) -> bool:
    """Whether what a cell has kept (levels of NEEDS) is enough for a metric."""
    return any(NEEDS.index(level) >= NEEDS.index(needs) for level in kept)
