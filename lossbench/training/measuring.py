"""The metrics of a trained network: which of them, from what, and with which code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lossbench.core.metric import BUILT_IN
from lossbench.core.model import Cell, Spec, finite_or_none
from lossbench.core.streams import derive
from lossbench.metrics import Evaluation
from lossbench.plugins.metrics import METRICS, MetricFile, of_spec
from lossbench.plugins.registry import Registry
from lossbench.training.artefacts import restricted
from lossbench.training.state import seed_everything


@dataclass
class Measurements:
    """The values of metrics by name, the identity of their code, and the values per test example of those with any."""

    metrics: dict[str, float | None] = field(default_factory=dict)
    measured: dict[str, str] = field(default_factory=dict)
    examples: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def add(self, name: str, identity: str, found: Any, total: int | None) -> None:
        """Take what a metric has returned: a number, None, or one value for each of `total` test examples."""
        value = as_array(found)
        if value is None or value.shape not in ((), (total,)):
            given = type(found).__name__ if value is None else f"values of shape {value.shape}"
            examples = f", or one value for each of the {total} test examples" if total is not None else ""
            raise ValueError(f"metric '{name}' returns {given}; it must be a number or None{examples}")
        self.metrics[name], self.measured[name] = finite_or_none(float(value.mean())), identity
        if value.shape and np.isfinite(value).all():
            self.examples[name] = rounded(value.astype(np.float64))


def rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values per example as they are kept: with the precision of float32, which is enough for their spread."""
    with np.errstate(over="ignore"):
        short = values.astype(np.float32).astype(np.float64)
    return short if np.isfinite(short).all() else values


def as_array(found: Any) -> NDArray[Any] | None:
    """What a metric has returned as numbers; None if it is something else."""
    if isinstance(found, Tensor):
        found = found.detach().cpu().numpy()
    value = np.asarray(np.nan if found is None else found)
    return value if value.dtype.kind in "biuf" else None


def defaults(task: str) -> list[MetricFile]:
    """The built-in metrics of a task that are measured on its test set."""
    return [metric for metric in METRICS.values() if metric.source == "test" and task in metric.tasks]


def measure_defaults(cell: Cell, test: Evaluation) -> Measurements:
    """The built-in metrics that the cell does not name; the accuracy in any case.

    Only their means are recorded: their values per example would take more space than the rest of the record.
    """
    named = [spec.label for spec in cell.metrics]
    chosen = (metric for metric in defaults(cell.task) if cell.default_metrics or metric.name == "accuracy")
    found = _measured(cell, [(metric, BUILT_IN) for metric in chosen if metric.name not in named], test)
    return replace(found, examples={})


def measure_named(
    cell: Cell, registry: Registry, test: Evaluation | None, record: Mapping[str, Any], wanted: Iterable[Spec]
) -> Measurements:
    """The metrics that a cell names. Their files are first run here, after training, which they thus cannot influence.

    `record` is the content of its record.json, for metrics that are computed from it; these need no `test`.
    """
    return _measured(cell, [(of_spec(registry, spec), spec.source) for spec in wanted], test, record)


def _measured(
    cell: Cell,
    wanted: Iterable[tuple[MetricFile, str]],
    test: Evaluation | None,
    record: Mapping[str, Any] | None = None,
) -> Measurements:
    views: dict[str, Evaluation] = {}
    found = Measurements()
    for metric, identity in wanted:
        seed_everything(derive(cell.seed, "metric", metric.name))  # its value depends on no other metric
        if metric.source == "record":
            found.add(metric.name, identity, metric.measure(record), None)
            continue
        assert test is not None and test.correct is not None
        if metric.needs not in views:
            views[metric.needs] = restricted(test, metric.needs)
        found.add(metric.name, identity, metric.measure(views[metric.needs]), len(test.correct))
        if np.array_equal(found.examples.get(metric.name, ()), 100 * test.correct):
            del found.examples[metric.name]  # every record has these bits
    return found
