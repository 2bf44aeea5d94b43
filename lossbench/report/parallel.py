"""Drawings made on several cores: they take most of the time of a small report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lossbench.core.beside import beside, cores
from lossbench.report.figures.style import Drawing

FEWEST = 4  # drawings for which further processes pay


def render(drawings: Sequence[Drawing]) -> None:
    """Render the SVG of every drawing; the bytes are the same as if each were rendered when asked for."""
    workers = max(1, min(cores(), len(drawings) // 2)) if len(drawings) >= FEWEST else 1
    first, *others = (drawings[start::workers] for start in range(workers))
    found = [beside(partial(_rendered, share)) for share in others]
    _rendered(first)
    for share, svgs in zip(others, found, strict=True):
        for drawing, svg in zip(share, svgs(), strict=True):
            drawing.__dict__["svg"] = svg  # its cached property


def _rendered(drawings: Sequence[Drawing]) -> list[str]:
    return [drawing.svg for drawing in drawings]
