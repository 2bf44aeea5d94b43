"""A point of an experiment's grid: where losses are compared, seed by seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

AXES = ("dataset", "backbone", "classes", "width")
COLUMNS = ("experiment", *AXES)  # of a table with one row per point


class Point(Mapping[str, Any]):
    """One value for every axis, and the experiment they belong to. An immutable mapping that can be a dict key.

    `Point(row)` takes the values of `COLUMNS` from anything that has them: a table row, a cell's summary, a point.
    """

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: values[name] for name in COLUMNS}
        self._hash = hash(tuple(self._values.values()))

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self._values == other._values

    def __repr__(self) -> str:
        return f"Point({self._values})"
