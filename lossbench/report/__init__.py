"""Records → tables, figures, Markdown, HTML and files for programs.

    sections    results → sections of prose, tables and figures; one function per section
    figures     results → drawings as SVG, PDF and PNG
    output      sections and results → summary.md, appendix.md, report.html, tables/*.tex, CSV files and report.json

Every number comes from `analysis`. To extend the report, add a section.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lossbench.core.beside import beside
from lossbench.core.errors import StoreError
from lossbench.core.files import staged
from lossbench.store.records import Store, uncollected

if TYPE_CHECKING:
    from lossbench.report.blocks import Section
    from lossbench.store.records import Plan


MAIN_FILES = ("summary.md", "appendix.md", "report.html", "report.json")


@dataclass(frozen=True)
class Report:
    """A written report: its sections, and its files by name."""

    sections: Sequence[Section]
    files: dict[str, Path]


def check_folder(out: str | os.PathLike[str]) -> None:
    """Raise StoreError if no report can be written to `out`; called before a run. Leaves no files behind."""
    out = Path(out)
    nearest = next(folder for folder in (out, *out.parents) if os.path.lexists(folder))
    try:
        with tempfile.NamedTemporaryFile(prefix=".lossbench-", dir=nearest) as trial:
            trial.write(b"a report will follow")
        for name in MAIN_FILES:
            if (out / name).is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{name} is a directory")
    except OSError as error:
        raise StoreError(f"{out}: cannot write the report there ({error.strerror}); choose another folder") from error


def write(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    formats: Sequence[str] = (),
    plans: Sequence[Plan] | None = None,
) -> Report:
    """Write the report of one or more run folders of a suite into `out`; figures as SVG and in `formats` (pdf, png).

    `plans` holds the plan of each run; absent: the last plan of each folder.
    """
    out = Path(out)
    parts, files = rendered(runs, formats, plans)
    try:
        for folder in {(out / name).parent for name in files}:
            folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with staged(out / name) as staging:
                staging.write_bytes(content)
    except OSError as error:
        place = error.filename or out
        raise StoreError(f"{place}: cannot write the report ({error.strerror}); the records are safe") from error
    return Report(parts, {name: out / name for name in files})


def differing(
    runs: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str], formats: Sequence[str] = ()
) -> dict[str, str]:
    """The files in `out` that are out of date, each with `missing` or `differs`."""
    found = {}
    for name, content in rendered(runs, formats)[1].items():
        path = Path(out) / name
        try:
            if path.read_bytes() != content:
                found[name] = "differs"
        except FileNotFoundError:
            found[name] = "missing"
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    return found


@uncollected()
def rendered(
    runs: Sequence[str | os.PathLike[str]], formats: Sequence[str] = (), plans: Sequence[Plan] | None = None
) -> tuple[list[Section], dict[str, bytes]]:
    """The sections of the report of these runs, and the contents of its files by name."""
    # Read while this process imports pandas and matplotlib.
    scans = [beside(partial(Store(run).scan, checkpoints=False)) for run in runs]
    from lossbench.analysis.results import analyse
    from lossbench.report.blocks import Figure
    from lossbench.report.output import data, html, latex, markdown
    from lossbench.report.sections import illustrated, written

    results = analyse(runs, plans, scans)
    texts = written(results)
    page = beside(lambda: html.html(results, texts))
    parts = illustrated(results, texts)
    files: dict[str, bytes] = {
        **{name: _encoded(text) for name, text in markdown.documents(results, parts).items()},
        **data.files(results, parts),
        "report.html": _encoded(page()),
    }
    for figure in (block for part in parts for block in part.blocks if isinstance(block, Figure)):
        files[f"figures/{figure.name}.svg"] = figure.svg.encode()
        files |= {f"figures/{figure.name}.{kind}": figure.saved(kind) for kind in formats if figure.saved}
    files |= {f"tables/{name}": _encoded(text) for name, text in latex.documents(parts).items()}
    return parts, files


def _encoded(text: str) -> bytes:
    """UTF-8; what cannot be encoded, such as file names in another encoding, is escaped."""
    return text.encode(errors="backslashreplace")
