"""Metric files: what can be measured for a cell. They are read as text; only `measure` runs one.

A metric is one file; its stem is its name, the first line of its docstring its summary. It declares, as literals,

    UNIT      "points" (percent of a score), "degrees", "nats", "steps", "seconds", "bytes", "%", or "" (plain number)
    BETTER    "higher" or "lower"
    TASKS     the tasks in which it is measured

and `measure(test, *, options)`, which gets a `lossbench.metrics.Evaluation` and returns a number (None or NaN: it does
not exist for this network) or one value per test example, whose mean is the metric. Records, tables, comparisons with
the baseline, claims and `lossbench compare` follow from that. Where the defaults do not fit, a file also declares

    TITLE     the heading of its column in a report; default: the name
    NAMES     {name: (title, options)}: several metrics from one function with different options
    AT        an option that may follow @ in the name, a whole number from 1 or a rate between 0 and 1: with AT = "far",
              tar@1e-4 is tar[far=1e-4]; TITLE is then a format, as "TAR at FAR {far:g}"
    COLUMN    its column in tables of records; default: the name
    STEP      what one test example is worth, times the number of examples; default: 0, the metric is continuous
    STEP_OF   "class": STEP is divided by the test examples of a class instead of by all
    COMPARED  False: every record has it, but only claims compare it
    NEEDS     what it is computed from: "predictions" (labels, predictions, logits, pair scores), "features" (these and
              features and class weights, also of training images; default), "model" (these and the network)
    NEEDS_CLASS_WEIGHTS   True: it does not exist for a loss without class weights
    REQUIRES  "holdout" or "evaluations": it does not exist unless the dataset has this option, or the schedule this key
    FROM      "record": `measure` gets the record as record.json holds it; "rounds": it is the ratio of paired rounds of
              timing cells, and no cell has a value of its own; "curves": `analysis/target.py` computes it from the
              learning curves of all cells at a point
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, get_args

from lossbench.core.current import current
from lossbench.core.errors import PluginError, nearest
from lossbench.core.format import Task
from lossbench.core.labels import label, parse_label
from lossbench.core.metric import NEEDS, Metric
from lossbench.core.model import Cell, Spec
from lossbench.core.values import as_json, flaw
from lossbench.plugins.registry import OptionError, Plugin, Registry

DIRECTIONS = ("higher", "lower")
SOURCES = ("test", "record", "rounds", "curves")
# Columns of the tables of a report that are no metrics. Axes of the grid can have any other name.
TAKEN = (
    *("key", "status", "error", "cause", "experiment", "task", "dataset", "backbone", "width", "classes", "loss"),
    *("label", "seed", "kind", "trial", "correct", "total", "fingerprint", "flags", "options", "curve", "angles"),
    *("features", "rounds", "timing", "environment", "verification", "counts", "point", "n", "failures", "value"),
    *("low", "high", "median", "worst", "seed_se", "test_se", "minimum"),
)


@dataclass(frozen=True, kw_only=True)
class MetricFile(Metric):
    """A metric with the file and the options that compute it."""

    plugin: Plugin
    options: Mapping[str, Any]  # those that its name states

    @property
    def plain(self) -> Metric:
        return Metric(**{field.name: getattr(self, field.name) for field in fields(Metric)})

    @property
    def measure(self) -> Callable[[Any], Any]:
        """The function of its file, with the options of this metric."""
        return partial(self.plugin.load(), **self.options)


def find(registry: Registry, written: str) -> MetricFile:
    """The metric that a suite names: `name`, `name[option=value]`, `name@value`, or one of the NAMES of a file."""
    if (known := _by_name(registry, written)) is not None:
        return known
    name, at, value = written.partition("@")
    try:
        if at and name in registry.names("metric") and (option := registry.find("metric", name).constants.get("AT")):
            name, options = parse_label(f"{name}[{option}={value}]")
        else:
            name, options = parse_label(written)
    except ValueError as error:
        if "@" in written:
            raise PluginError(f"unknown metric '{written}'; {nearest(written, known_names(registry))}") from error
        raise PluginError(str(error)) from error
    if name not in registry.names("metric"):
        raise PluginError(f"unknown metric '{written}'; {nearest(written, known_names(registry))}")
    plugin = registry.find("metric", name)
    for key, value in options.items():
        if wrong := flaw(value):
            raise OptionError(key, f"option '{key}' of metric '{name}' {wrong[1]}")
    if not options:
        names = ", ".join(metric.name for metric in declared(plugin))
        other = f", or another {option} after the @" if (option := plugin.constants.get("AT")) else ""
        raise PluginError(f"unknown metric '{written}'; known: {names}{other}")
    values = plugin.parse_options(options)
    if list(options) == [option := str(plugin.constants.get("AT"))]:
        return _at(plugin, option, values[option])
    shown = label(name, {key: values[key] for key in values if key in options})
    return _metric(plugin, shown, shown, {key: values[key] for key in options}, column=shown)


def _at(plugin: Plugin, option: str, value: float) -> MetricFile:
    """The metric at one value of its option AT, under its one name."""
    rate = isinstance(value, float)
    if not (0 < value < 1 if rate else value >= 1):
        wanted = "between 0 and 1" if rate else "1 or more"
        raise OptionError(option, f"option '{option}' of metric '{plugin.name}' must be {wanted}, got {value}")
    name = f"{plugin.name}@{value:g}" if float(f"{value:g}") == value else f"{plugin.name}@{value}"
    known = {metric.name: metric for metric in declared(plugin)}
    title = str(plugin.constants.get("TITLE", name)).format(**{option: value})
    return known.get(name) or _metric(plugin, name, title, {option: value}, column=name)


def spec_of(metric: MetricFile) -> Spec:
    """The metric as a cell names it, with the identity of its code."""
    options = {key: as_json(value) for key, value in metric.plugin.parse_options(metric.options).items()}
    return Spec(metric.plugin.name, options, metric.name, metric.plugin.identity(options))


def of_spec(registry: Registry, spec: Spec) -> MetricFile:
    """The metric that a cell names."""
    return _metric(registry.find("metric", spec.name), spec.label, spec.label, spec.options)


def known_names(registry: Registry) -> list[str]:
    """The names of all metrics; broken files have none."""
    found = []
    for name in registry.names("metric"):
        try:
            found += [metric.name for metric in declared(registry.find("metric", name))]
        except PluginError:  # it matters to those who name it
            continue
    return found


def _by_name(registry: Registry, written: str) -> MetricFile | None:
    """A metric that a file declares under this very name: usually the file of that name."""
    if written in registry.names("metric"):
        return {metric.name: metric for metric in declared(registry.find("metric", written))}.get(written)
    for name in registry.names("metric"):
        plugin = registry.find("metric", name)
        try:
            if written in plugin.constants.get("NAMES", ()):
                return next(metric for metric in declared(plugin) if metric.name == written)
        except PluginError:
            continue
    return None


def declared(plugin: Plugin) -> list[MetricFile]:
    """The metrics of one file."""
    names = plugin.constants.get("NAMES", {plugin.name: (plugin.constants.get("TITLE", plugin.name), {})})
    return [_metric(plugin, name, title, options) for name, (title, options) in names.items()]


def _metric(
    plugin: Plugin, name: str, title: str, options: Mapping[str, Any], *, column: str | None = None
) -> MetricFile:
    said = plugin.constants
    if said.get("FROM") not in ("rounds", "curves") and not plugin.defined:
        raise PluginError(f"{plugin.path}: defines no 'measure', so it is not a metric")
    for key in ("UNIT", "BETTER", "TASKS"):
        if key not in said:
            raise PluginError(f"{plugin.path}: a metric needs {key}, as a literal")
    sources = SOURCES if plugin.built_in else SOURCES[:2]
    for key, known in (("BETTER", DIRECTIONS), ("FROM", sources), ("NEEDS", NEEDS)):
        if key in said and said[key] not in known:
            raise PluginError(f"{plugin.path}: {key} must be one of {', '.join(known)}, got {said[key]!r}")
    tasks = (said["TASKS"],) if isinstance(said["TASKS"], str) else tuple(said["TASKS"])
    for task in tasks:
        if task not in get_args(Task):
            raise PluginError(f"{plugin.path}: TASKS: unknown task {task!r}; {nearest(str(task), get_args(Task))}")
    column = column or said.get("COLUMN", name)
    if not plugin.built_in and column in TAKEN:
        raise PluginError(f"{plugin.path}: tables have another column called '{column}'; rename the file")
    return MetricFile(
        name=name,
        title=title,
        unit=str(said["UNIT"]),
        higher_is_better=said["BETTER"] == "higher",
        tasks=tasks,
        column=column,
        step=float(said.get("STEP", 0.0)),
        step_of=said.get("STEP_OF", "example"),
        compared=said.get("COMPARED", True),
        needs_class_weights=said.get("NEEDS_CLASS_WEIGHTS", False),
        requires=said.get("REQUIRES", ""),
        source=said.get("FROM", "test"),
        needs=said.get("NEEDS", "features"),
        plugin=plugin,
        options=options,
    )


def built_in(registry: Registry) -> dict[str, MetricFile]:
    """The metrics that come with lossbench by name, in alphabetical order of their files."""
    plugins = (registry.find("metric", name) for name in registry.built_in("metric"))
    return {metric.name: metric for plugin in plugins for metric in declared(plugin)}


METRICS = built_in(Registry())


def value_in(record: Mapping[str, Any], metric: Metric, cell: Cell) -> float | None:
    """The value of a metric in a record of a cell, if it is from the code that the cell names."""
    if metric.source == "record" and metric.name in METRICS:
        found: float | None = METRICS[metric.name].measure(record)
        return found
    return current(cell, record).get(metric.name)


def columns(metrics: Iterable[Metric], source: str) -> list[str]:
    """The columns of the metrics that are measured from the test set, or derived from the record."""
    return [metric.column for metric in metrics if metric.source == source]
