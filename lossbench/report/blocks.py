"""The parts of a report, independent of the output format. Texts are single lines without control characters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from lossbench.core import plain
from lossbench.core.point import Point

# Units that may follow a number in a finished text, with their factors.
FACTORS = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "ms": 1e-3, "µs": 1e-6, "min": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"(?P<less><\s*)?(?P<number>[+-]?\d[\d ,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\W\d]+)?")


@dataclass(frozen=True)
class Prose:
    """A paragraph of plain text; `lead` opens it in bold, `code` marks a command."""

    text: str
    code: bool = False
    lead: str = ""

    def __post_init__(self) -> None:
        _plain(self, text=plain.line(self.text), lead=plain.line(self.lead))


class Anchor(NamedTuple):
    """The cells behind a row of a table: those of a loss at a point. Timing cells have all losses: None."""

    point: Point
    loss: str | None
    kind: str = "train"


@dataclass(frozen=True)
class Table:
    """Rows of finished text under `columns`. Columns outside `left` hold numbers.

    `anchors` are the cells behind each row (the loss first, then what it is compared with); without them a row links to
    no cells. `order` gives, by column, the numbers to sort by if the text does not begin with them; `experiment` is the
    one that the table is about, if it is only one.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    left: frozenset[str] = frozenset()
    anchors: tuple[tuple[Anchor, ...], ...] = ()
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
        anchors: Sequence[Sequence[Anchor]] = (),
        order: Mapping[str, Sequence[float | None]] | None = None,
        experiment: str = "",
    ) -> Table:
        """A table of at least one row; all rows have the same keys, which are the columns."""
        return cls(
            tuple(rows[0]),
            tuple(tuple(row.values()) for row in rows),
            caption,
            frozenset(left),
            tuple(tuple(found) for found in anchors),
            tuple((column, tuple(values)) for column, values in (order or {}).items()),
            experiment,
        )

    @cached_property
    def _orders(self) -> dict[str, tuple[float | None, ...]]:
        return dict(self.order)

    def rank(self, row: int, column: int) -> float | None:
        """The number by which a table cell is sorted; None for "–" and other words, which come last."""
        stated = self._orders.get(self.columns[column])
        value = leading_number(self.rows[row][column]) if stated is None else stated[row]
        return value if value is not None and math.isfinite(value) else None


def leading_number(text: str) -> float | None:
    """The number that a finished text begins with: `+0.25 [+0.04, +0.47]`, `< 0.001`, `9 (min)`, `1.5 MiB`."""
    if not (found := _NUMBER.match(text.strip().replace("−", "-"))):
        return None
    value = float(found["number"].replace(" ", "").replace(",", "")) * FACTORS.get(found["unit"] or "", 1.0)
    return value / 2 if found["less"] else value


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG text with its caption, and a function that gives it as PDF or PNG."""

    name: str
    svg: str
    caption: str
    saved: Callable[[str], bytes] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        _plain(self, caption=plain.line(self.caption))


Block = Prose | Table | Figure


@dataclass(frozen=True)
class Section:
    """A title and its blocks; `slug` is its address in the page. An appendix is for readers who check a number."""

    slug: str
    title: str
    blocks: tuple[Block, ...]
    appendix: bool = False

    def __post_init__(self) -> None:
        _plain(self, title=plain.line(self.title))


def _plain(block: Block | Section, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(block, name, value)  # as a frozen dataclass sets its own fields
