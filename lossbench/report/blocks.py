"""What a report is made of, whoever renders it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prose:
    """A paragraph of plain text; `code` marks a command to be shown as typed."""

    text: str
    code: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of finished text under `columns`; numbers are already words. `emphasis` lists the rows to set apart."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    right: frozenset[str] = frozenset()  # columns aligned to the right: numbers


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
