"""The JSON schema of a suite file, for editors."""

from __future__ import annotations

from typing import Any

from lossbench.core.format import Schedule
from lossbench.plugins.metrics import METRICS
from lossbench.plugins.registry import Kind, Registry
from lossbench.suite.format import ExperimentText, SuiteFile


def json_schema(registry: Registry) -> dict[str, Any]:
    """The JSON schema of a suite file, for editors."""
    top = SuiteFile.model_json_schema()
    grid, schedule = ExperimentText.model_json_schema(), Schedule.model_json_schema()
    definitions = top.setdefault("$defs", {}) | grid.pop("$defs", {}) | schedule.pop("$defs", {})
    for key, value in schedule["properties"].items():
        sweep = {"type": "array", "items": value, "minItems": 1, "description": f"sweeps '{key}'"}
        schedule["properties"][key] = {"anyOf": [value, sweep]}
    definitions["Schedule"] = schedule
    grid["properties"]["schedule"] = {"$ref": "#/$defs/Schedule"}
    partial = {key: value for key, value in grid.items() if key != "required"}  # overrides are partial
    definitions["Experiment"] = partial
    for table in ("NamedText", "Schedule", "WarmStart"):
        definitions[table].pop("required", None)  # an override need not repeat the rest
    named: tuple[tuple[str, Kind], ...] = (("dataset", "dataset"), ("backbone", "backbone"), ("losses", "loss"))
    for key, kind in named:
        partial["properties"][key]["description"] = f"a {kind}: {', '.join(registry.names(kind))}"
    for key in ("metric", "than_metric"):
        listed = f"{definitions['ClaimText']['properties'][key].get('description', 'a metric')}: {', '.join(METRICS)}"
        definitions["ClaimText"]["properties"][key]["description"] = f"{listed}, or one of your own"
    reference = {"$ref": "#/$defs/Experiment"}
    top["properties"]["defaults"] |= {"additionalProperties": False, **reference}
    top["properties"]["experiment"]["items"] = {**reference, "required": ["name"]}
    profile = definitions["Profile"]["properties"]
    profile["all"] |= reference
    profile["tune"] |= {"additionalProperties": False, "properties": definitions["Tune"]["properties"]}
    profile["experiment"]["additionalProperties"] = reference
    for place in (top["properties"]["defaults"], profile["all"]):
        place.pop("additionalProperties", None)
        place.pop("type", None)
    top["$defs"] = definitions
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "title": "lossbench suite"}
