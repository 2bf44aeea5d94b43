"""Results → drawings, each as SVG, PDF and PNG with equal bytes on every rendering. One function a figure.

A figure is None where it does not apply. The same loss has the same look in all of them, by its place in the suite.

`style`       colours, markers, the drawing itself
`statements`  what became of the suite's claims
`forest`      paired differences with the equivalence band; step-time ratios
`dots`        every seed
`ranking`     critical differences over datasets; every pair of an experiment
`curves`      against width, classes and steps; angles by class
`cost`        memory by cause, phases of a step, accuracy against time
`plane`       the features of width 2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lossbench.analysis.results import Results
from lossbench.report.figures.cost import memory_bars, pareto, step_phases
from lossbench.report.figures.curves import angles_by_class, classes_curve, learning_curves, width_curve, width_drawing
from lossbench.report.figures.dots import seed_dots
from lossbench.report.figures.forest import difference_forest, differences, step_time_forest
from lossbench.report.figures.plane import feature_scatter
from lossbench.report.figures.ranking import critical_difference_diagram, pairwise_heatmap
from lossbench.report.figures.statements import statements
from lossbench.report.figures.style import BASELINE_COLOUR, PALETTE, Drawing, Look, colours, looks

# What each section of the report shows: figures of all results, then figures of each experiment.
WHOLE: dict[str, tuple[Callable[[Results], Drawing | None], ...]] = {
    "claims": (statements,),
    "comparisons": (difference_forest,),
    "datasets": (critical_difference_diagram,),
    "cost": (step_time_forest,),
}
EACH: dict[str, tuple[Callable[[Results, str], Drawing | None], ...]] = {
    "accuracy": (seed_dots, learning_curves),
    "comparisons": (pairwise_heatmap,),
    "width": (width_drawing,),
    "classes": (classes_curve,),
    "geometry": (angles_by_class, feature_scatter),
    "cost": (step_phases, memory_bars, pareto),
}


def of_section(results: Results, slug: str) -> Iterator[Drawing]:
    """The drawings of one section of the report, in their order."""
    for figure in WHOLE.get(slug, ()):
        if drawing := figure(results):
            yield drawing
    for each in EACH.get(slug, ()):
        for name in results.experiments:
            if drawing := each(results, name):
                yield drawing


def gallery(results: Results) -> Iterator[Drawing]:
    """Every drawing of a report."""
    for slug in dict.fromkeys([*EACH, *WHOLE]):
        yield from of_section(results, slug)


__all__ = [
    "BASELINE_COLOUR",
    "PALETTE",
    "Drawing",
    "Look",
    "angles_by_class",
    "classes_curve",
    "colours",
    "critical_difference_diagram",
    "difference_forest",
    "differences",
    "feature_scatter",
    "gallery",
    "learning_curves",
    "looks",
    "memory_bars",
    "of_section",
    "pairwise_heatmap",
    "pareto",
    "seed_dots",
    "statements",
    "step_phases",
    "step_time_forest",
    "width_curve",
    "width_drawing",
]
