"""Results → the sections of the report. Each is a small function; add one and list it in `SECTIONS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from lossbench.analysis.results import Results
from lossbench.report import figures
from lossbench.report.blocks import Figure, Section
from lossbench.report.parallel import render
from lossbench.report.sections.accuracy import accuracy, across_datasets, comparisons, tuning
from lossbench.report.sections.answer import answer
from lossbench.report.sections.claims import claim_cases, claims, published
from lossbench.report.sections.cost import cost, cost_everywhere, memory
from lossbench.report.sections.grid import axes, axis_tables, geometry, retrieval, verification
from lossbench.report.sections.overview import environment, validity, warnings

SECTIONS: tuple[Callable[[Results], Section], ...] = (
    *(answer, claims, cost, axes, tuning, across_datasets, warnings, published, validity, environment),
    # the appendix
    *(comparisons, accuracy, claim_cases, verification, retrieval, axis_tables, cost_everywhere, memory, geometry),
)


def sections(results: Results) -> list[Section]:
    """The whole report."""
    return illustrated(results, written(results))


def written(results: Results) -> list[Section]:
    """The text and tables of the report, which is all that the page shows of them: it draws charts of its own."""
    return [build(results) for build in SECTIONS]


def illustrated(results: Results, built: Sequence[Section]) -> list[Section]:
    """These sections with their figures after their text and tables; empty sections are left out."""
    drawings = [list(figures.of_section(results, section.slug)) for section in built]
    render([drawing for drawn in drawings for drawing in drawn])
    found = [
        replace(section, blocks=(*section.blocks, *_captioned_once(drawing.block() for drawing in drawn)))
        for section, drawn in zip(built, drawings, strict=True)
    ]
    return [section for section in found if section.blocks]


def _captioned_once(found: Iterable[Figure]) -> Iterator[Figure]:
    """The figures of a section; a caption that holds for several stands under the first."""
    before = set[str]()
    for figure in found:
        yield replace(figure, caption="") if figure.caption in before else figure
        before.add(figure.caption)
