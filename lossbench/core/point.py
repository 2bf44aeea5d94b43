"""A point of an experiment's grid: where losses are compared, seed by seed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lossbench.core.labels import parse_label

AXES = ("dataset", "backbone", "classes", "width")  # of every experiment; those that a suite sweeps follow them
COLUMNS = ("experiment", *AXES)  # of a table with one row per point
SHORT = {"classes": "C", "width": "M"}  # how texts write these axes
MOST_KNOWN = 12  # values of an axis in an error


class Point(Mapping[str, Any]):
    """One value for every axis, and the experiment they belong to. An immutable mapping that can be a dict key."""

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self._hash = hash(tuple(self._values.items()))

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self._hash == other._hash and self._values == other._values

    def __repr__(self) -> str:
        return f"Point({self._values})"

    @property
    def row(self) -> dict[str, Any]:
        """Its columns in a table with one row per point and loss; `flat` adds the swept axes where one is written."""
        return {"point": self, **self.main}

    @property
    def main(self) -> dict[str, Any]:
        """The experiment and the axes that every experiment has."""
        return {name: self._values[name] for name in COLUMNS}

    @property
    def extra(self) -> dict[str, Any]:
        """The axes that its suite sweeps, besides those of every experiment."""
        return {name: value for name, value in self._values.items() if name not in COLUMNS}

    def without(self, *names: str) -> Point:
        return Point({name: value for name, value in self._values.items() if name not in names})

    def of(self, experiment: str) -> Point:
        """The same point in the grid of another experiment."""
        return Point({**self._values, "experiment": experiment})

    def lies(self, at: Mapping[str, Any]) -> bool:
        """Whether it has these values (None: no such axis); a dataset or backbone may be given by its bare name."""
        return all(matches(self.get(name), wanted) for name, wanted in at.items())

    def told(self, names: Iterable[str] | None = None) -> str:
        """These axes as text, by default all of them."""
        chosen = [name for name in self if name != "experiment"] if names is None else names
        return ", ".join(told(name, self[name]) for name in chosen if name in self)


def varied(points: Iterable[Point]) -> list[str]:
    """The axes that distinguish these points: those with several values, or that only some of the points have."""
    found: dict[str, set[Any]] = {}
    distinct = dict.fromkeys(points)
    for point in distinct:
        for name in point:
            found.setdefault(name, set())
    for name, values in found.items():
        values.update(point.get(name) for point in distinct)
    return [name for name, values in found.items() if name != "experiment" and len(values) > 1]


def is_number(value: Any) -> bool:
    """Whether a figure can have an axis with this value; True and False are choices, not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def matches(value: Any, wanted: Any) -> bool:
    """Whether the value of an axis is the wanted one; a label also matches its bare name."""
    if isinstance(value, str) and isinstance(wanted, str):
        return wanted in (value, _name(value))
    return type(value) is not str and type(wanted) is not str and bool(value == wanted)


def told(name: str, value: Any) -> str:
    """The value of an axis as text: `mnist`, `C = 10`, `lr = 0.1`."""
    if isinstance(value, str) and name in AXES:
        return value
    return f"{SHORT.get(name, name)} = {shown(value)}"


def known_values(wanted: Any, values: Iterable[Any]) -> str:
    """The end of an error about a value that an axis does not have: those that it has, the nearest first."""

    def distance(value: Any) -> float:
        if is_number(value) and is_number(wanted):
            return abs(float(value) - float(wanted))
        texts = (str(value), _name(str(value)))
        return -max(difflib.SequenceMatcher(None, text, str(wanted)).ratio() for text in texts)

    found = sorted(dict.fromkeys(values), key=distance)
    return f"known: {', '.join(map(shown, found[:MOST_KNOWN]))}{', …' if len(found) > MOST_KNOWN else ''}"


def shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _name(label: str) -> str:
    try:
        return parse_label(label)[0]
    except ValueError:  # a text that is no label, such as a decay
        return label
