"""The JSON schema of report.json, for programs that read it; `lossbench schema report` prints it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lossbench.analysis.accuracy import MEANS
from lossbench.analysis.claims import CLAIM_COLUMNS
from lossbench.analysis.comparisons import COMPARISON_COLUMNS
from lossbench.analysis.cost import FRONT_COLUMNS, PHASE_COLUMNS
from lossbench.analysis.measured import POINT
from lossbench.analysis.published import PUBLISHED_COLUMNS
from lossbench.analysis.tuning import TUNING_COLUMNS
from lossbench.core.model import LEDGER
from lossbench.report.output.data import VERSION

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
TEXT_COLUMNS = (
    *("experiment", "dataset", "backbone", "loss", "baseline", "metric", "unit", "verdict", "text", "states"),
    *("evidence", "family", "statement", "note", "differs", "source", "task", "chosen"),
)
MEANINGS = {
    "delta": "the loss minus the baseline (a claim: its difference, or the slope of its trend), in `unit`",
    "low": "lower end of the 95 % interval",
    "high": "upper end of the 95 % interval",
    "p_holm": "p after Holm's adjustment over the family: an experiment and metric, or the claims of a family",
    "dz": "the difference in standard deviations of the paired differences",
    "tost_p": "p of the test for equivalence within the suite's margin",
    "n": "paired seeds; paired rounds for step times",
    "seeds_needed": "for 80 % chance to decide an open question; null where it is decided, or above 10,000",
    "accuracy": "mean in percent at the last step",
    "seed_se": "standard error over seeds, in points",
    "test_se": "standard error that the size of the test set leaves, in points",
    "ties": "losses share a letter if and only if they are not significantly different",
    "front_memory": "chance to be on the Pareto front of accuracy and memory, among all losses and widths",
    "front_time": "chance to be on the Pareto front of accuracy and step time, among the losses of one timing cell",
    "rounds": "of the timing cell that the medians are over",
    "step": "milliseconds a step",
    "default": "mean accuracy of the loss as the suite writes it, in percent on the test set",
    "tuned": "mean accuracy with the chosen setting, in percent on the test set",
    "chosen": "the tuned options with the values chosen for them",
    "trial": "the number of the trial that won; 1 is the loss as the suite writes it",
    "failed": "trials that did not finish on every seed",
    "left": "trials that were not run yet, or that were killed or ran out of memory, time or disk",
    "validation": "mean accuracy of the winning trial on the held-out images, in percent",
}
MAIN_COLUMNS = (
    *(*POINT, "loss", "task", "n", "failures", "accuracy", "low", "high", "seed_se", "test_se", "ties", "minimum"),
    *(*MEANS, *(f"bytes_{name}" for name in LEDGER)),
)


def json_schema() -> Schema:
    """The schema of the version that this lossbench writes. Null stands for what was not measured."""
    whole = {
        "version": {"const": VERSION, "description": "raised when a key changes its meaning or goes"},
        "suite": TEXT,
        "title": TEXT,
        "profile": {"type": ["string", "null"]},
        "note": {**TEXT, "description": "what a reader must know first, such as which data stands in; may be empty"},
        "command": {**TEXT, "description": "runs the suite again"},
        "baseline": {**TEXT, "description": "the label that every comparison is against"},
        "margin": {"type": "number", "description": "accuracy points that count as no difference"},
        "level": {"type": "number"},
        "runs": TEXTS,
        "statuses": {"type": "object", "additionalProperties": {"type": "integer"}},
        "missing": {"type": "object", "additionalProperties": TEXT, "description": "experiments not run, and why"},
        "damaged": {"type": "object", "additionalProperties": TEXT},
        "losses": TEXTS,
        "main": _rows(MAIN_COLUMNS),
        "comparisons": _rows(COMPARISON_COLUMNS),
        "claims": _rows(CLAIM_COLUMNS),
        "published": _rows(PUBLISHED_COLUMNS),
        "tuning": {"anyOf": [{"type": "null"}, _tuning()]},
        "ranks": {"anyOf": [{"type": "null"}, _ranks()]},
        "phases": _rows(PHASE_COLUMNS),
        "front": _rows(FRONT_COLUMNS),
        "threats": {"type": "array", "items": _object({"guard": TEXT, "where": TEXT, "text": TEXT})},
        "environments": {"type": "array", "items": {"type": "object"}},
        "sections": {
            "type": "array",
            "items": _object({"slug": TEXT, "title": TEXT, "blocks": {"type": "array", "items": {"anyOf": _blocks()}}}),
        },
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "lossbench report", **_object(whole)}


def _object(properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _rows(columns: Sequence[str]) -> Schema:
    """An array of rows with these columns, all of them there."""

    def column(name: str) -> Schema:
        types = ["string"] if name in TEXT_COLUMNS else ["number"]
        if name == "ties":  # letters in the main table, a count in comparisons
            types = ["string", "number"]
        return {"type": [*types, "null"]} | ({"description": MEANINGS[name]} if name in MEANINGS else {})

    return {"type": "array", "items": _object({name: column(name) for name in columns})}


def _ranks() -> Schema:
    numbers = {"type": "array", "items": {"type": ["number", "null"]}}
    single = {"type": ["number", "null"]}
    return _object(
        {
            "datasets": TEXTS,
            "losses": TEXTS,
            "means": {"type": "array", "items": numbers},
            "ranks": numbers,
            "n": {"type": "integer", "description": "the number of datasets, never of seeds"},
            **dict.fromkeys(("chi2", "f", "p", "critical_difference"), single),
            "groups": {"type": ["array", "null"], "items": {"type": "array"}},
        }
    )


def _tuning() -> Schema:
    words = {"type": "object", "additionalProperties": TEXT}
    return _object(
        {
            "trials": {"type": "integer", "description": "for every loss at every point"},
            "seeds": {"type": "integer", "description": "of every trial"},
            "validation": {"type": "number", "description": "share of the training images that is held out"},
            "lr": {**TEXT, "description": "the range of the learning rate; empty: it is not tuned"},
            "ranges": {"type": "object", "additionalProperties": words, "description": "by loss and option"},
            "experiments": {**words, "description": "the tuned experiment by the one that it tunes"},
            "losses": _rows(TUNING_COLUMNS),
        }
    )


def _blocks() -> list[Schema]:
    rows = {"type": "array", "items": TEXTS}
    return [
        _object({"kind": {"const": "prose"}, "text": TEXT, "code": {"type": "boolean"}}),
        _object({"kind": {"const": "figure"}, "name": TEXT, "caption": TEXT}),
        _object({"kind": {"const": "table"}, "columns": TEXTS, "rows": rows, "caption": TEXT}),
    ]
