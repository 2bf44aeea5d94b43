"""Records → tables, figures, Markdown, HTML. Four layers, each knowing only the one before:

    analysis    records + outline → Results: every number that the report states, as data frames
    sections    Results → Sections of prose, tables and figures; one small function a section
    figures     Results → SVG
    render      Sections → summary.md, report.html

To say more, add a section; nothing else changes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lossbench.errors import StoreError

if TYPE_CHECKING:
    from lossbench.report.blocks import Section


@dataclass(frozen=True)
class Report:
    """A report that was written: what it says, and its files by name."""

    sections: Sequence[Section]
    files: dict[str, Path]


def write(runs: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Report:
    """Write the report of one or more run folders of a suite into `out`."""
    from lossbench.report import render
    from lossbench.report.analysis import analyse
    from lossbench.report.sections import sections

    out = Path(out)
    results = analyse(runs)
    parts = sections(results)
    files: dict[str, bytes] = {
        "summary.md": render.markdown(results, parts).encode(),
        "report.html": render.html(results, parts).encode(),
        "records.csv": results.plain_records.to_csv(index=False, lineterminator="\n").encode(),
        "comparisons.csv": results.comparisons.to_csv(index=False, lineterminator="\n").encode(),
        "claims.csv": results.claims.to_csv(index=False, lineterminator="\n").encode(),
    }
    files |= {f"figures/{figure.name}.svg": figure.svg.encode() for figure in render.figures(parts)}
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            staged = out / f"{name}.part"
            staged.write_bytes(content)
            staged.replace(out / name)
    except OSError as error:
        place = error.filename or out
        raise StoreError(f"{place}: the report cannot be written ({error.strerror}); the records are safe") from error
    return Report(parts, {name: out / name for name in files})
