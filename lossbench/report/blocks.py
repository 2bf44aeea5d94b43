"""What a report is made of, whoever renders it. All text is in one line here, without control characters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lossbench.core import plain

# What a row of finished text may end a number with, and by how much that multiplies it.
FACTORS = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "ms": 1e-3, "µs": 1e-6, "min": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"(?P<less><\s*)?(?P<number>[+-]?\d[\d ,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\W\d]+)?")


@dataclass(frozen=True)
class Prose:
    """A paragraph of plain text; `code` marks a command to be shown as typed."""

    text: str
    code: bool = False

    def __post_init__(self) -> None:
        _plain(self, text=plain.line(self.text))


@dataclass(frozen=True)
class Place:
    """The cells behind a row: those of `loss` at a point of an experiment. None stands for any."""

    experiment: str
    loss: str | None = None
    width: int | None = None
    classes: int | None = None
    dataset: str | None = None
    backbone: str | None = None
    kind: str = "train"

    @classmethod
    def of(cls, row: Mapping[str, Any], *, loss: str | None = None, kind: str = "train") -> Place:
        """The place of a row that names its point and loss; `loss` asks for another loss at the same point."""
        return cls(
            str(row["experiment"]),
            loss or row["loss"],
            int(row["width"]),
            int(row["classes"]),
            row["dataset"],
            row["backbone"],
            kind,
        )


@dataclass(frozen=True)
class Table:
    """Rows of finished text under `columns`: numbers are already words. Columns outside `left` hold numbers.

    `places` names the cells behind each row (the loss first, then what it is compared with); no places, no drill-down.
    `order` gives, by column, the number that each row is sorted by, where the text does not begin with it; `experiment`
    is what the table is about, if it is one alone.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    left: frozenset[str] = frozenset()
    places: tuple[tuple[Place, ...], ...] = ()
    order: tuple[tuple[str, tuple[float | None, ...]], ...] = ()
    experiment: str = ""

    def __post_init__(self) -> None:
        rows = tuple(tuple(map(plain.line, row)) for row in self.rows)
        columns, left = tuple(map(plain.line, self.columns)), frozenset(map(plain.line, self.left))
        order = tuple((plain.line(column), values) for column, values in self.order)
        _plain(self, columns=columns, rows=rows, left=left, order=order, caption=plain.line(self.caption))

    @classmethod
    def of(
        cls,
        rows: Sequence[Mapping[str, str]],
        *,
        left: Sequence[str],
        caption: str = "",
        places: Sequence[Sequence[Place]] = (),
        order: Mapping[str, Sequence[float | None]] | None = None,
        experiment: str = "",
    ) -> Table:
        """A table of one or more rows that have the same keys; the keys are its columns."""
        return cls(
            tuple(rows[0]),
            tuple(tuple(row.values()) for row in rows),
            caption,
            frozenset(left),
            tuple(tuple(found) for found in places),
            tuple((column, tuple(values)) for column, values in (order or {}).items()),
            experiment,
        )

    def rank(self, row: int, column: int) -> float | None:
        """The number by which a cell of a number column is sorted; None for "–" and other words, which come last."""
        stated = dict(self.order).get(self.columns[column])
        value = leading_number(self.rows[row][column]) if stated is None else stated[row]
        return value if value is not None and math.isfinite(value) else None


def leading_number(text: str) -> float | None:
    """The number that a finished text begins with: `+0.25 [+0.04, +0.47]`, `< 0.001`, `9 (min)`, `1.5 MiB`."""
    if not (found := _NUMBER.match(text.strip().replace("−", "-"))):
        return None
    value = float(re.sub(r"[ ,]", "", found["number"])) * FACTORS.get(found["unit"] or "", 1.0)
    return value / 2 if found["less"] else value


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG text, what it shows in a sentence or two, and the same picture for papers and slides."""

    name: str
    svg: str
    caption: str
    saved: Callable[[str], bytes] | None = field(default=None, compare=False)  # as "pdf" or "png", drawn when asked

    def __post_init__(self) -> None:
        _plain(self, caption=plain.line(self.caption))


Block = Prose | Table | Figure


@dataclass(frozen=True)
class Section:
    """A titled run of blocks; `slug` is its address in the page."""

    slug: str
    title: str
    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        _plain(self, title=plain.line(self.title))


def _plain(block: Block | Section, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(block, name, value)  # as a frozen dataclass sets its own fields
