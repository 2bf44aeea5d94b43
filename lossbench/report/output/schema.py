"""The models of report.json: `data` writes through them, and `lossbench schema report` prints their JSON schema.

Columns of tables are those of the frames of `analysis`; the CSV files have the same. Null means not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, core_schema

from lossbench.analysis.accuracy import means
from lossbench.analysis.claims import CLAIM_COLUMNS
from lossbench.analysis.comparisons import COMPARISON_COLUMNS
from lossbench.analysis.cost import FRONT_COLUMNS, PHASE_COLUMNS
from lossbench.analysis.measured import POINT
from lossbench.analysis.published import PUBLISHED_COLUMNS
from lossbench.analysis.tuning import TUNING_COLUMNS
from lossbench.plugins.metrics import METRICS

VERSION = 2  # of report.json: raised when a key is removed or changes its meaning, not when one is added

MAIN_COLUMNS = (
    *(*POINT, "loss", "n", "failures", "accuracy", "value", "low", "high", "median", "worst", "seed_se"),
    *("test_se", "flags", "task"),
    *(*means(METRICS.values()), "minimum"),
)
TEXT_COLUMNS = (
    *("experiment", "dataset", "backbone", "loss", "baseline", "metric", "unit", "verdict", "text", "states"),
    *("evidence", "family", "statement", "note", "differs", "source", "task", "chosen", "flags"),
)
MEANINGS = {
    "delta": "the loss minus the baseline (a claim: its difference, or the slope of its trend), in `unit`",
    "low": "lower end of the interval: simultaneous over the family in comparisons and claims, else 95 %",
    "high": "upper end of the interval",
    "level": "1 minus the level of the interval: 0.05 divided by the number of comparisons in the family",
    "p": "two-sided p, not adjusted",
    "p_adjusted": "p times the number of comparisons in the family, at most 1",
    "family": "the comparisons whose intervals hold together: those of an experiment and metric, or of claims",
    "dz": "the difference in standard deviations of the paired differences",
    "flags": "what weakens a verdict: one seed decides, undertrained, at chance",
    "median": "the median over seeds",
    "worst": "the worst seed",
    "n": "paired seeds; processes for step times",
    "seeds_needed": "for 80 % power to decide an undecided comparison; null below five seeds, or above 10,000",
    "seeds_needed_high": "upper end of the range of seeds needed, which allows for the uncertainty of the estimates",
    "wins": "paired seeds on which the loss is better",
    "ties": "paired seeds on which both are equal",
    "accuracy": "mean in percent at the last step",
    "value": "mean of the headline metric; low, high, median, worst, seed_se and test_se belong to it",
    "seed_se": "standard error over seeds, in the unit of the headline metric",
    "test_se": "standard error due to the size of the test set, in the unit of the headline metric",
    "front_memory": "probability of being on the Pareto front of headline metric and memory, among losses and widths",
    "front_time": "probability of being on the Pareto front of the headline metric and step time, in a timing cell",
    "rounds": "rounds of the timing cell",
    "step": "milliseconds per step, median over rounds",
    "default": "mean of the headline metric with the default setting, on the test set",
    "tuned": "mean of the headline metric with the chosen setting, on the test set",
    "chosen": "the tuned options with the values chosen for them",
    "trial": "the number of the winning trial; 1 is the default setting",
    "failed": "trials that did not finish on every seed",
    "left": "trials not run yet, killed, or out of memory, time or disk",
    "validation": "mean of the headline metric of the winning trial on the held-out images",
}


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Row(BaseModel):
    """A row of a table; what is not listed is a swept axis or a metric of the suite's own."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, str | bool | int | float | None]


@dataclass(frozen=True)
class Columns:
    """Annotates a list of rows that have these columns, each text or a number, or null, and those that `Row` allows."""

    names: Sequence[str]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text, number = str | None, int | float | None
        fields: dict[str, Any] = {
            name: (text if name in TEXT_COLUMNS else number, Field(description=MEANINGS.get(name)))
            for name in self.names
            if name != "point"
        }
        return core_schema.list_schema(handler.generate_schema(create_model("Row", __base__=Row, **fields)))


class Warned(Strict):
    guard: str
    where: str
    text: str


class Ranks(Strict):
    task: str = Field(description="the task it is about; empty where each dataset has one")
    backbone: str = Field(description="the backbone it is about; empty where each dataset has one")
    averaged: list[str] = Field(description="the axes over whose values accuracies are averaged within a dataset")
    datasets: list[str]
    losses: list[str]
    means: list[list[float | None]]
    ranks: list[float | None]
    n: int = Field(description="the number of datasets, never of seeds")
    chi2: float | None
    f: float | None
    p: float | None
    critical_difference: float | None
    groups: list[list[str]] | None


class Tuning(Strict):
    trials: int = Field(description="per loss and point")
    seeds: int = Field(description="per trial")
    validation: float = Field(description="share of the training images that is held out")
    lr: str = Field(description="the range of the learning rate; empty: not tuned")
    schedule: dict[str, str] = Field(description="the ranges of the tuned keys of the schedule, as text")
    ranges: dict[str, dict[str, str]] = Field(description="by loss and option")
    experiments: dict[str, str] = Field(description="name of the experiment → name of its tuned counterpart")
    losses: Annotated[list[Any], Columns(TUNING_COLUMNS)]


class ProseBlock(Strict):
    kind: Literal["prose"]
    text: str
    code: bool


class FigureBlock(Strict):
    kind: Literal["figure"]
    name: str
    caption: str


class TableBlock(Strict):
    kind: Literal["table"]
    columns: list[str]
    rows: list[list[str]]
    caption: str


class SectionData(Strict):
    slug: str
    title: str
    appendix: bool
    blocks: list[Annotated[ProseBlock | FigureBlock | TableBlock, Field(discriminator="kind")]]


class ReportData(Strict):
    """Everything that a report states."""

    version: Literal[2] = Field(description="raised when a key is removed or changes its meaning")
    suite: str
    title: str
    profile: str | None
    overrides: list[str] = Field(description="keys of the suite given with --set, as key=value")
    note: str = Field(description="shown first in the report, such as which data are a stand-in; may be empty")
    command: str = Field(description="runs the suite again")
    baseline: str = Field(description="the loss that every comparison is against")
    headline: str = Field(description="the metric of comparisons, ranks, tuning and the margin")
    margin: float = Field(description="the difference in the headline metric that counts as equivalent, in its unit")
    metrics: list[dict[str, Any]] = Field(description="name, title, unit, direction and column of every metric")
    level: float
    runs: list[str]
    statuses: dict[str, int]
    missing: dict[str, str] = Field(description="experiments not run, and why")
    damaged: dict[str, str]
    losses: list[str]
    main: Annotated[list[Any], Columns(MAIN_COLUMNS)]
    comparisons: Annotated[list[Any], Columns(COMPARISON_COLUMNS)]
    claims: Annotated[list[Any], Columns(CLAIM_COLUMNS)]
    published: Annotated[list[Any], Columns(PUBLISHED_COLUMNS)]
    tuning: Tuning | None
    ranks: Ranks | None = Field(description="the first of `rankings`")
    rankings: list[Ranks] = Field(description="one, or one per task and backbone where a dataset has several")
    phases: Annotated[list[Any], Columns(PHASE_COLUMNS)]
    front: Annotated[list[Any], Columns(FRONT_COLUMNS)]
    threats: list[Warned]
    environments: list[dict[str, Any]]
    sections: list[SectionData]


class _Untitled(GenerateJsonSchema):
    """Without a title per key, which would only repeat the key."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """The JSON schema of the version that this lossbench writes."""
    found = ReportData.model_json_schema(schema_generator=_Untitled)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found, "title": "lossbench report"}
