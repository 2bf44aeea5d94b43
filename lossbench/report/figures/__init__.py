"""Results → drawings, each as SVG, PDF and PNG with the same bytes on every rendering. One function per figure.

A figure is None where it does not apply. A loss looks the same in all figures, by its position in the suite.

`style`       colours, axes, legends, the drawing itself
`marks`       how verdicts are drawn
`places`      the points that figures are drawn for, and their names
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
from lossbench.analysis.series import EVERYWHERE, Along, followed
from lossbench.report.figures import places
from lossbench.report.figures.axes import along_axis
from lossbench.report.figures.cost import memory_bars, pareto, step_phases
from lossbench.report.figures.curves import angles_by_class, learning_curves
from lossbench.report.figures.dots import seed_dots
from lossbench.report.figures.forest import difference_forest, step_time_forest
from lossbench.report.figures.plane import feature_scatter
from lossbench.report.figures.ranking import critical_difference_diagram, pairwise_heatmap
from lossbench.report.figures.statements import statements
from lossbench.report.figures.style import Drawing

# The figures of an experiment: for each, what it could be drawn for; the first to which it applies is drawn.
Variants = Callable[[Results, str], Sequence[Sequence[Any]]]


def once(results: Results, experiment: str) -> list[list[Mapping[str, Any]]]:
    """One figure for an experiment of the first table."""
    return [[EVERYWHERE]] if places.shown(results, experiment) else []


def represented(results: Results, experiment: str) -> list[list[Mapping[str, Any]]]:
    """One figure, at a point of the first table."""
    return [[*places.shown(results, experiment)]]


def apart(*names: str) -> Variants:
    """One figure, for one value of these axes: nothing is averaged over them."""

    def found(results: Results, experiment: str) -> list[list[Mapping[str, Any]]]:
        mine = (point for point in results.points if point["experiment"] == experiment)
        values = dict.fromkeys(tuple(point[name] for name in names) for point in mine)
        return [[dict(zip(names, each, strict=True)) for each in values]]

    return found


def each_axis(results: Results, experiment: str) -> list[list[Along]]:
    """One figure per numeric axis."""
    return [[along] for along in followed(results, experiment)]


# The figures of each section of the report: first those of all results, then those of each experiment.
WHOLE: dict[str, tuple[Callable[[Results], Drawing | None], ...]] = {
    "answer": (difference_forest,),
    "claims": (statements,),
    "datasets": (critical_difference_diagram,),
    "cost": (step_time_forest,),
}
EACH: dict[str, dict[Callable[[Results, str, Any], Drawing | None], Variants]] = {
    "accuracy": {seed_dots: once, learning_curves: once},
    "comparisons": {pairwise_heatmap: represented},
    "axes": {along_axis: each_axis},
    "geometry": {angles_by_class: represented, feature_scatter: apart("dataset")},
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
    """The drawings of one figure for an experiment."""
    kept = []
    for candidates in variants(results, experiment):
        found = (drawing for candidate in candidates if (drawing := figure(results, experiment, candidate)))
        if drawing := next(found, None):
            note = f" One of {len(candidates)} datasets." if len(candidates) > 1 else ""
            kept.append(replace(drawing, caption=f"{drawing.caption}{note}"))
    return kept
