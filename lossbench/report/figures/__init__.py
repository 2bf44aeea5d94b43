"""Results → drawings, each as SVG, PDF and PNG with the same bytes on every rendering. One function per figure.

A figure is None where it does not apply. A loss looks the same in all figures, by its position in the suite.

`style`       colours, axes, legends, the drawing itself
`statements`  the verdicts on the suite's claims
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
from lossbench.report.figures.curves import angles_by_class, classes_curve, learning_curves, width_curve
from lossbench.report.figures.dots import seed_dots
from lossbench.report.figures.forest import difference_forest, step_time_forest
from lossbench.report.figures.plane import feature_scatter
from lossbench.report.figures.ranking import critical_difference_diagram, pairwise_heatmap
from lossbench.report.figures.statements import statements
from lossbench.report.figures.style import Drawing

# The figures of each section of the report: first those of all results, then those of each experiment.
WHOLE: dict[str, tuple[Callable[[Results], Drawing | None], ...]] = {
    "claims": (statements,),
    "comparisons": (difference_forest,),
    "datasets": (critical_difference_diagram,),
    "cost": (step_time_forest,),
}
EACH: dict[str, tuple[Callable[[Results, str], Drawing | None], ...]] = {
    "accuracy": (seed_dots, learning_curves),
    "comparisons": (pairwise_heatmap,),
    "width": (width_curve,),
    "classes": (classes_curve,),
    "geometry": (angles_by_class, feature_scatter),
    "cost": (step_phases, memory_bars, pareto),
}


def of_section(results: Results, slug: str) -> Iterator[Drawing]:
    """The drawings of one section of the report, in their order."""
    drawings = [figure(results) for figure in WHOLE.get(slug, ())]
    drawings += [figure(results, name) for figure in EACH.get(slug, ()) for name in results.experiments]
    return (drawing for drawing in drawings if drawing)
