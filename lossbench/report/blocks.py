"""What a report is made of, whoever renders it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Prose:
    """A paragraph of plain text; `code` marks a command to be shown as typed."""

    text: str
    code: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of finished text under `columns`: numbers are already words. Columns outside `left` hold numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    left: frozenset[str] = frozenset()

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, str]], *, left: Sequence[str], caption: str = "") -> Table:
        """A table of one or more rows that have the same keys; the keys are its columns."""
        return cls(tuple(rows[0]), tuple(tuple(row.values()) for row in rows), caption, frozenset(left))


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG text, and what it shows in one sentence."""

    name: str
    svg: str
    caption: str


Block = Prose | Table | Figure


@dataclass(frozen=True)
class Section:
    """A titled run of blocks; `slug` is its address in the page."""

    slug: str
    title: str
    blocks: tuple[Block, ...]
