"""The parts of a suite file that cells, plans and reports keep: schedules, timing, claims, published numbers.

Strict pydantic models; `suite.format` builds the whole file from them. Names of plugins and metrics are only text here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Task = Literal["classification", "verification"]

# Upper bounds catch typing errors: no machine can do more than this.
Positive = Annotated[int, Field(ge=1, le=10**9)]
Steps = Annotated[int, Field(ge=1, le=10**8)]
Batch = Annotated[int, Field(ge=1, le=10**6)]
Rate = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]  # a learning rate
WeightDecay = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
NonNegative = Annotated[int, Field(ge=0, le=10**9)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Width = Positive | Literal["min"]


class Text(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NamedText(BaseModel):
    """A table with a `name`; every other key is an option, validated later by the plugin of that name."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Decay(Text):
    """Multiply the learning rate by `factor` every `every` steps."""

    factor: Annotated[float, Field(gt=0, le=1)]
    every: Steps


class Schedule(Text):
    """How one cell is trained: SGD with momentum, `steps` batches, step decay."""

    steps: Steps
    batch: Batch = 64
    lr: Rate = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: WeightDecay = 5e-4
    decay: Decay | None = None
    evaluations: NonNegative = Field(0, description="points of the learning curve that also score the test set")


class Timing(Text):
    """A timing cell: `rounds` visits to every loss in shuffled order, `steps` optimizer steps per visit."""

    rounds: Annotated[int, Field(ge=3, le=10_000)] = 15
    steps: Annotated[int, Field(ge=1, le=10_000)] = 5


class Protocol(Text):
    """The protocol of published numbers, as far as the paper states it; any difference makes them not comparable."""

    dataset: str | None = Field(None, description="name of the dataset")
    train: Positive | None = Field(None, description="training examples")
    test: Positive | None = Field(None, description="test examples, or pairs")
    classes: Positive | None = None
    backbone: str | NamedText | None = Field(None, description="name[option=value], or a table; all options count")
    width: Positive | None = None
    steps: Positive | None = Field(None, description="optimizer steps, including those of a warm start")
    batch: Positive | None = None
    lr: Rate | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    weight_decay: WeightDecay | None = None
    augment: list[str] | None = None
    other: list[str] = Field(default=[], description="differences that no key can state, in words")


Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class PublishedText(Text):
    """Numbers from a paper, with their protocol."""

    values: dict[str, Percent] = Field(description="accuracy in percent by loss")
    protocol: Protocol | Literal["same"] | None = Field(None, description="of the paper; `same`: as in the experiment")
    source: str = Field("", description="where the numbers are from, such as a table")
    classes: Positive | None = Field(None, description="the number of classes they apply to; default: all")


AxisValue = str | bool | int | Number | None  # None: a point without this axis, which no file can write
Option = Annotated[str, Field(min_length=1)]


class ClaimKeys(Text):
    """The keys of a claim, except those that may be lists."""

    text: str
    note: str = Field("", description="a remark that the report prints below the verdicts")
    family: str = Field("", description="p-values are adjusted per family; claims without one form a family")
    metric: str = "accuracy"
    than: str | None = None
    than_metric: str | None = Field(None, description="the metric of `than`; default: that of `better`")
    equivalent: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    margin: Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)] | None = Field(
        None, description="the equivalence margin in the metric's unit; default for scores: that of the suite"
    )
    increases_with: Option | None = Field(None, description="an option of the loss, or an axis of the grid")
    decreases_with: Option | None = Field(None, description="an option of the loss, or an axis of the grid")
    unchanged_with: Option | None = Field(None, description="an option of the loss, or an axis of the grid")
    values: Annotated[list[Number | Literal["min"]], Field(min_length=2)] | None = Field(
        None, description="only these values of the option or axis"
    )
    at: dict[str, AxisValue] = Field(
        default={},
        description="test only at these values of axes; default: one case per dataset, backbone and swept value",
    )
    width: Width | None = Field(None, description="test only at this width; default: all widths of the experiment")
    classes: Positive | None = Field(None, description="test only at this number of classes; default: all of them")


class Claim(ClaimKeys):
    """One claim: about one experiment, and one loss against another or along one of its options."""

    statement: str = ""  # what it is one case of: the text as the suite has it
    experiment: str
    better: str | None = None
    not_worse: str | None = None
    loss: str | None = None
    follows_axis: bool = False  # a trend along an axis of the grid, not along an option of the loss

    @property
    def along(self) -> str | None:
        """The option or axis of a trend claim; None for other claims."""
        return self.increases_with or self.decreases_with or self.unchanged_with
