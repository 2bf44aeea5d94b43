"""The metrics that can be measured for a cell, read from the files of `lossbench/metrics` without running them.

A metric is one file; its stem is its name, the first line of its docstring its summary. It declares, as literals,

    UNIT      "points" (percent of a score), "degrees", "nats", "steps", "seconds", "bytes", "%", or "" (plain number)
    BETTER    "higher" or "lower"
    TASKS     the tasks in which it is measured

and `measure(test, *, options)`, which gets a `lossbench.metrics.Evaluation` and returns a number (None or NaN: it does
not exist for this network). Records, tables, comparisons with the baseline, claims and `lossbench compare` follow from
that. Where the defaults do not fit, a file also declares

    TITLE     the heading of its column in a report; default: the name
    NAMES     {name: (title, options)}: several metrics from one function with different options
    COLUMN    its column in tables of records; default: the name
    STEP      what one test example is worth, times the number of examples; default: 0, the metric is continuous
    STEP_OF   "class": STEP is divided by the test examples of a class instead of by all
    COMPARED  False: every record has it, but only claims compare it
    NEEDS_CLASS_WEIGHTS   True: it does not exist for a loss without class weights
    REQUIRES  "holdout": it does not exist unless the dataset has this option
    FROM      "record": `measure` gets the record as record.json holds it; "rounds": it is the ratio of paired rounds of
              timing cells, and no cell has a value of its own
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lossbench.core.errors import PluginError
from lossbench.plugins.registry import Plugin, Registry

DIRECTIONS = ("higher", "lower")
SOURCES = ("test", "record", "rounds")


@dataclass(frozen=True)
class Metric:
    """How a metric is read, compared and computed; the fields are those that its file declares."""

    name: str
    plugin: Plugin
    options: Mapping[str, Any]
    title: str
    unit: str
    higher_is_better: bool
    tasks: tuple[str, ...]
    column: str
    step: float = 0.0
    step_of: str = "example"
    compared: bool = True
    needs_class_weights: bool = False
    requires: str = ""
    source: str = "test"

    @property
    def is_score(self) -> bool:
        """Whether it says how well a loss does its task, in points: the suite's margin applies to it."""
        return self.unit == "points"

    @property
    def measure(self) -> Callable[[Any], float | None]:
        """The function of its file, with the options of this metric."""
        return partial(self.plugin.load(), **self.options)


def metrics_of(registry: Registry) -> dict[str, Metric]:
    """Every metric of the registry by name, in alphabetical order of their files."""
    return {metric.name: metric for name in registry.names("metric") for metric in _declared(registry, name)}


def _declared(registry: Registry, name: str) -> list[Metric]:
    plugin = registry.find("metric", name)
    said = plugin.constants
    for key in ("UNIT", "BETTER", "TASKS"):
        if key not in said:
            raise PluginError(f"{plugin.path}: a metric needs {key}, as a literal")
    for key, known in (("BETTER", DIRECTIONS), ("FROM", SOURCES)):
        if key in said and said[key] not in known:
            raise PluginError(f"{plugin.path}: {key} must be one of {', '.join(known)}, got {said[key]!r}")
    shared = {
        "unit": said["UNIT"],
        "higher_is_better": said["BETTER"] == "higher",
        "tasks": tuple(said["TASKS"]),
        "step": float(said.get("STEP", 0.0)),
        "step_of": said.get("STEP_OF", "example"),
        "compared": said.get("COMPARED", True),
        "needs_class_weights": said.get("NEEDS_CLASS_WEIGHTS", False),
        "requires": said.get("REQUIRES", ""),
        "source": said.get("FROM", "test"),
    }
    names = said.get("NAMES", {name: (said.get("TITLE", name), {})})
    return [
        Metric(inner, plugin, options, title, column=said.get("COLUMN", inner), **shared)
        for inner, (title, options) in names.items()
    ]


METRICS = metrics_of(Registry())
SCORES = tuple(name for name, metric in METRICS.items() if metric.is_score)
COMPARED = tuple(name for name, metric in METRICS.items() if metric.compared and metric.source != "rounds")


def columns(source: str) -> list[str]:
    """The columns of the metrics that are measured from the test set, or derived from the record."""
    return [metric.column for metric in METRICS.values() if metric.source == source]
