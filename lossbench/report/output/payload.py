"""Results → the plain data that the page draws and lists: small tables of numbers, each text and point once.

Rows are lists whose fields are named once, in `FIELDS`; losses, points and metrics are indices into their lists. Every
number is one of `analysis`, rounded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from lossbench import stats
from lossbench.analysis import series
from lossbench.analysis.claims import cells_behind, outcome
from lossbench.analysis.cost import PHASES
from lossbench.analysis.results import Results
from lossbench.core import plain
from lossbench.core.geometry import minimum_width
from lossbench.core.metric import Metric
from lossbench.core.point import SHORT, Point, is_number
from lossbench.report import words
from lossbench.report.blocks import Anchor
from lossbench.report.output.drill import Drill, rounded, significant, thinned
from lossbench.report.palette import looks

VERDICTS = ("better", "worse", "equivalent", "undecided", "not testable")
STEPS = 32  # of a learning curve
MOST_PAIRS = 1_000  # of losses at points; beyond that only one point of each experiment has its pairs
MOST_CLASSES = 20  # with an angle each; of more classes the quartiles are shown
LEDGER = ("fc", "classifier", "loss", "model", "optimizer", "peak")  # columns bytes_…

FIELDS = {
    "means": ("metric", "point", "loss", "n", "mean", "low", "high"),
    "differences": (
        *("metric", "point", "loss", "n", "delta", "low", "high", "verdict", "flags", "level"),
        *("p", "median", "worst", "wins", "needed"),
    ),
    "pairs": ("point", "a", "b", "n", "delta", "low", "high", "verdict"),
    "curves": ("point", "loss", "series", "n", "steps", "means", "lows", "highs"),
    "memory": ("point", "loss", "fc", "classifier", "state", "model", "optimizer", "peak"),
    "phases": ("point", "loss", "rounds", "step", *PHASES),
    "fronts": ("point", "loss", "bytes", "memory", "time"),
    "angles": ("point", "loss", "split", "n", "classes", "values"),
}
Rows = Iterable[list[Any]]


def payload(results: Results, drill: Drill) -> dict[str, Any]:
    """Everything that the page draws and lists."""
    return Payload(results, drill).data()


class Payload:
    """The indices of losses, points and metrics, and the tables that use them."""

    def __init__(self, results: Results, drill: Drill) -> None:
        self.results, self.drill = results, drill
        self.losses = {label: index for index, label in enumerate(results.labels)}
        self.points = {point: index for index, point in enumerate(dict.fromkeys(cell.point for cell in results.cells))}
        shown = [metric for metric in results.metrics.values() if self._is_shown(metric)]
        shown.sort(key=lambda metric: (metric.name != results.headline.name, not metric.compared))
        self.metrics = {metric.name: index for index, metric in enumerate(shown)}

    def data(self) -> dict[str, Any]:
        results, metrics = self.results, self.results.metrics
        tables = {
            **{"means": self.means(), "differences": self.differences(), "pairs": self.pairs()},
            **{"curves": self.curves(), "memory": self.memory(), "phases": self.phases()},
            **{"fronts": self.fronts(), "angles": self.angles()},
        }
        return {
            "losses": [
                {"label": plain.line(label), "marker": look.marker, "dash": look.dash}
                for label, look in looks(results.labels).items()
            ],
            "metrics": [_described(metrics[name]) for name in self.metrics],
            "margin": results.info.margin,
            "verdicts": VERDICTS,
            "points": self.described_points(),
            "along": list(self.along()),
            "fields": FIELDS,
            "tables": {name: list(rows) for name, rows in tables.items()},
            "statements": self.statements(),
            "groups": [
                [self.points[point], None if loss is None else self.losses.get(loss), kind, plain.line(loss or "")]
                for point, loss, kind in self.drill.groups
            ],
            "drill": self.drill.payload(
                {name: _digits(metrics[name].unit) for name in self.metrics if metrics[name].compared}
            ),
        }

    def _is_shown(self, metric: Metric) -> bool:
        """Whether it has values that are not among the bytes, which have a chart of their own."""
        timed = metric.source == "rounds" and (self.results.comparisons["metric"] == metric.name).any()
        known = bool(self.results.measured.values.get(metric.name)) and metric.unit != "bytes"
        twice = metric.name == "accuracy" and self.results.headline.name == "recall@1"  # another name of it
        return bool(timed or known) and not twice

    # --- where

    def described_points(self) -> list[dict[str, Any]]:
        """One entry per planned point: its experiment, a short name, all axes, and whether it represents others."""
        by_experiment: dict[str, list[Point]] = {}
        for point in self.points:
            by_experiment.setdefault(point["experiment"], []).append(point)
        names = {
            point: ", ".join(text)
            for points in by_experiment.values()
            for point, text in zip(points, series.parts(points), strict=True)
        }
        chief = set(self._chief())
        first = {column.point: (place, column.name) for place, column in enumerate(self.results.answer.columns)}
        return [
            {
                "experiment": plain.line(point["experiment"]),
                "name": plain.line(names[point]),
                "where": plain.line(point.told()),
                "dataset": plain.line(point["dataset"].partition("[")[0]),
                "axes": {name: value for name, value in point.items() if is_number(value)},
                **({"chief": 1} if point in chief else {}),
                **({"answer": first[point]} if point in first else {}),  # its place and name in the first table
            }
            for point in self.points
        ]

    def _chief(self) -> Iterator[Point]:
        """The points that represent their experiment: one per dataset and backbone of it."""
        frame = self.results.comparisons
        frame = frame[frame["metric"] == self.results.headline.name]
        for _, group in frame.groupby(["experiment", "dataset", "backbone"], sort=False):
            yield series.at_one_point(group)["point"].iloc[0]

    def along(self) -> Iterator[dict[str, Any]]:
        """The numeric axes of the experiments, each with the lines of points along it."""
        for experiment in self.results.experiments:
            for along in series.followed(self.results, experiment):
                rests = [line.rest for line in along.lines]
                lines = [
                    {
                        "name": plain.line(", ".join(text)),
                        "points": [self.points[point] for point in line.points],
                        "minimum": minimum_width(line.rest["classes"]) if along.axis == "width" else None,
                    }
                    for line, text in zip(along.lines, series.parts(rests), strict=True)
                ]
                yield {
                    "experiment": plain.line(experiment),
                    "axis": along.axis,
                    "symbol": plain.line(SHORT.get(along.axis, along.axis)),
                    "lines": lines,
                }

    # --- tables of numbers

    def means(self) -> Rows:
        """The mean of every metric with its interval, by point and loss."""
        for name, metric in self.metrics.items():
            if self.results.metrics[name].source == "rounds":  # logarithms; their ratios are among the differences
                continue
            digits = _digits(self.results.metrics[name].unit)
            for (point, loss), values in self.results.measured.values.get(name, {}).items():
                found = stats.mean_interval(list(values.values()))
                numbers = [rounded(value, digits) for value in found]
                yield [metric, self.points[point], self.losses[loss], len(values), *numbers]

    def differences(self) -> Rows:
        """Every loss against the baseline."""
        for row in self.results.comparisons.to_dict("records"):
            if row["metric"] not in self.metrics or not words.finite(row["delta"]):
                continue
            digits = _digits(row["unit"])
            needed = [row["seeds_needed"], row["seeds_needed_high"]]
            yield [
                *(self.metrics[row["metric"]], self.points[row["point"]], self.losses[row["loss"]], row["n"]),
                *(rounded(row[name], digits) for name in ("delta", "low", "high")),
                VERDICTS.index(row["verdict"]),
                row["flags"],
                _number(row["level"], 6),
                *(_number(row["p_adjusted"], 4), _number(row["median"], digits), _number(row["worst"], digits)),
                *(_number(row["wins"], 0), [found for found in map(_count, needed) if found]),
            ]

    def pairs(self) -> Rows:
        """Every pair of losses in the headline metric, by point."""
        at = {
            point: len(rows)
            for point, rows in self.results.main_at.items()
            if len(rows) > 2  # two are the comparison with the baseline
        }
        total = sum(count * (count - 1) // 2 for count in at.values())
        chief = set(self._chief())
        digits = _digits(self.results.headline.unit)
        for point in (point for point in at if total <= MOST_PAIRS or point in chief):
            where = {name: value for name, value in point.items() if name != "experiment"}
            for row in series.pairs(self.results, point["experiment"], where).to_dict("records"):
                if words.finite(row["delta"]):
                    yield [
                        *(self.points[point], self.losses[row["a"]], self.losses[row["b"]], row["n"]),
                        *(rounded(row[name], digits) for name in ("delta", "low", "high")),
                        VERDICTS.index(row["verdict"]),
                    ]

    def curves(self) -> Rows:
        """Learning curves: means and intervals over seeds at few of the steps."""
        for point in self.results.points:
            for curve in series.curves(self.results, point):
                few = thinned(len(curve.steps), STEPS)
                numbers = [[significant(value, 4) for value in each[few].tolist()] for each in curve[4:]]
                seeds, steps = int(curve.n[few].max()), curve.steps[few].tolist()
                yield [self.points[point], self.losses[curve.loss], curve.series, seeds, steps, *numbers]

    def memory(self) -> Rows:
        for row in _known(self.results.main):
            if words.finite(row["bytes_model"]):
                numbers = [rounded(row[f"bytes_{name}"], 0) for name in LEDGER]
                yield [self.points[row["point"]], self.losses[row["loss"]], *numbers]

    def phases(self) -> Rows:
        for row in self.results.phases.to_dict("records"):
            numbers = [rounded(row[name], 4) for name in ("step", *PHASES)]
            yield [self.points[row["point"]], self.losses[row["loss"]], row["rounds"], *numbers]

    def fronts(self) -> Rows:
        """The bytes of the head, and the probabilities of being on the front of memory and that of time."""
        for row in self.results.front.to_dict("records"):
            chances = [rounded(row[name], 3) for name in ("front_memory", "front_time")]
            yield [self.points[row["point"]], self.losses[row["loss"]], rounded(row["bytes"], 0), *chances]

    def angles(self) -> Rows:
        """The mean angle of each class in its order; of many classes their quartiles."""
        frame = self.results.class_angles
        for (point, loss, split), group in frame.groupby(["point", "loss", "split"], sort=False):
            found, classes = group["angle"].to_numpy(float), len(group)
            values = np.quantile(found, [0, 0.25, 0.5, 0.75, 1]) if classes > MOST_CLASSES else found
            numbers = [rounded(value, 1) for value in values]
            yield [self.points[point], self.losses[loss], split, int(group["n"].max()), classes, numbers]

    # --- claims

    def statements(self) -> list[dict[str, Any]]:
        """The statements of the suite, each with its cases."""
        found: dict[str, list[dict[str, Any]]] = {}
        claims = zip(self.results.claims.to_dict("records"), self.results.info.claims, strict=True)
        for row, claim in claims:
            behind = [Anchor(at, loss, "train" if loss else "timing") for at, loss in cells_behind(self.results, claim)]
            case = {
                "text": row["text"],
                "verdict": outcome(row),
                "difference": words.difference(row),
                "n": row["n"],
                "evidence": row["evidence"],
                "tested": row["states"],
                "where": row["experiment"],
            }
            case = {key: plain.line(value) if isinstance(value, str) else value for key, value in case.items()}
            found.setdefault(plain.line(row["statement"]), []).append(case | {"groups": self.drill.of(behind)})
        return [{"text": text, "cases": cases} for text, cases in found.items()]


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that may stand inside a script element: no `<`, `>` or `&`, so that nothing in it can end the element."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _described(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "title": plain.line(metric.title.replace("_", " ")),
        "unit": plain.line(metric.unit),
        "up": metric.higher_is_better,
        "score": metric.is_score,
        "digits": words.digits_of(metric.unit),
        "rounds": metric.source == "rounds",
    }


def _known(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of the main table that have finished cells."""
    return frame[frame["n"] > 0].to_dict("records") if len(frame) else []


def _count(value: Any) -> int | None:
    """A number of seeds, where there is one."""
    return int(value) if words.finite(value) else None


def _number(value: Any, digits: int) -> float | int | None:
    return rounded(value, digits) if isinstance(value, int | float) and math.isfinite(value) else None


def _digits(unit: str) -> int:
    """One digit more than texts show."""
    return words.digits_of(unit) + 1
