"""Results → drawings, each as SVG, PDF and PNG with the same bytes on every rendering. One function per figure.

A figure is None where it does not apply. A loss looks the same in all figures, by its position in the suite.

`style`       colours, axes, legends, the drawing itself
`statements`  the verdicts on the suite's claims
`forest`      paired differences with the equivalence band; step-time ratios
`dots`        every seed
`ranking`     critical differences over datasets; every pair of an experiment
`axes`        metric and gain along every numeric axis
`curves`      against steps; angles by class
`cost`        memory by cause, phases of a step, accuracy against time
`plane`       the features of width 2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lossbench.analysis.results import Results
from lossbench.analysis.series import EVERYWHERE, followed
from lossbench.report.figures.axes import along_axis
from lossbench.report.figures.cost import memory_bars, pareto, step_phases
from lossbench.report.figures.curves import angles_by_class, learning_curves
from lossbench.report.figures.dots import seed_dots
from lossbench.report.figures.forest import difference_forest, step_time_forest
from lossbench.report.figures.plane import feature_scatter
from lossbench.report.figures.ranking import critical_difference_diagram, pairwise_heatmap
from lossbench.report.figures.statements import statements
from lossbench.report.figures.style import Drawing

Variants = Callable[[Results, str], Sequence[Any]]  # what a figure is drawn for in an experiment, once each
MOST_VARIANTS = 4


def once(_: Results, __: str) -> list[Mapping[str, Any]]:
    """One figure for all points."""
    return [EVERYWHERE]


def apart(*names: str) -> Variants:
    """One figure per value of these axes: nothing is averaged over them, and each has its own representative point."""

    def found(results: Results, experiment: str) -> list[Mapping[str, Any]]:
        mine = (point for point in results.points if point["experiment"] == experiment)
        values = dict.fromkeys(tuple(point[name] for name in names) for point in mine)
        return [dict(zip(names, each, strict=True)) for each in values]

    return found


# The figures of each section of the report: first those of all results, then those of each experiment.
WHOLE: dict[str, tuple[Callable[[Results], Drawing | None], ...]] = {
    "answer": (difference_forest,),
    "claims": (statements,),
    "datasets": (critical_difference_diagram,),
    "cost": (step_time_forest,),
}
EACH: dict[str, dict[Callable[[Results, str, Any], Drawing | None], Variants]] = {
    "accuracy": {seed_dots: once, learning_curves: apart("dataset")},
    "comparisons": {pairwise_heatmap: apart("dataset", "backbone")},
    "axes": {along_axis: followed},
    "geometry": {angles_by_class: apart("dataset"), feature_scatter: apart("dataset")},
    "memory": {step_phases: apart("dataset"), memory_bars: once, pareto: apart("dataset")},
}


def of_section(results: Results, slug: str) -> Iterator[Drawing]:
    """The drawings of one section of the report, in their order."""
    drawings = [figure(results) for figure in WHOLE.get(slug, ())]
    for figure, variants in EACH.get(slug, {}).items():
        for name in results.experiments:
            drawings += drawn(results, name, figure, variants)
    return (drawing for drawing in drawings if drawing)


def drawn(
    results: Results, experiment: str, figure: Callable[[Results, str, Any], Drawing | None], variants: Variants
) -> list[Drawing]:
    """The drawings of one figure for an experiment, with distinct names; at most `MOST_VARIANTS` of equal names."""
    found: dict[str, list[Drawing]] = {}
    for variant in variants(results, experiment):
        if drawing := figure(results, experiment, variant):
            found.setdefault(drawing.name, []).append(drawing)
    kept = []
    for name, mine in found.items():
        left_out = f" Drawn for {MOST_VARIANTS} of {len(mine)} of these." if len(mine) > MOST_VARIANTS else ""
        for number, drawing in enumerate(mine[:MOST_VARIANTS], 1):
            mark = f"-{number}" if number > 1 else ""
            kept.append(replace(drawing, name=f"{name}{mark}", caption=f"{drawing.caption}{left_out}"))
    return kept
