"""Results → the sections of the report. Each is a small function; add one and list it in `SECTIONS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lossbench.analysis.results import Results
from lossbench.report import figures
from lossbench.report.blocks import Section
from lossbench.report.sections.accuracy import accuracy, across_datasets, comparisons, tuning
from lossbench.report.sections.claims import claims, published
from lossbench.report.sections.cost import cost
from lossbench.report.sections.grid import axes, geometry, retrieval, verification
from lossbench.report.sections.overview import environment, findings, validity, warnings

SECTIONS: tuple[Callable[[Results], Section], ...] = (
    *(findings, validity, claims, accuracy, comparisons, tuning, across_datasets, verification, retrieval, axes),
    *(geometry, cost, published, warnings, environment),
)


def sections(results: Results) -> list[Section]:
    """The whole report; figures come before the tables of their section, and empty sections are left out."""
    found = []
    for section in (build(results) for build in SECTIONS):
        drawn = tuple(drawing.block() for drawing in figures.of_section(results, section.slug))
        if drawn or section.blocks:
            found.append(replace(section, blocks=(*drawn, *section.blocks)))
    return found
