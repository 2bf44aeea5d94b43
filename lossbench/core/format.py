"""The parts of a suite file that cells, plans and reports keep: schedules, timing, claims, published numbers.

Strict pydantic models; `suite.format` builds the whole file from them. Names of plugins and metrics are only text here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.json_schema import SkipJsonSchema

from lossbench.core.errors import nearest
from lossbench.core.labels import label, parse_label
from lossbench.core.values import shown

Task = Literal["classification", "verification", "retrieval"]

# Upper bounds catch typing errors: no machine can do more than this.
Positive = Annotated[int, Field(ge=1, le=10**9)]
Steps = Annotated[int, Field(ge=1, le=10**8)]
Batch = Annotated[int, Field(ge=1, le=10**6)]
Rate = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]  # a learning rate
WeightDecay = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
Momentum = Annotated[float, Field(ge=0, lt=1)]
Epochs = Annotated[float, Field(gt=0, le=10**6, allow_inf_nan=False)]
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


Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Factor = Annotated[float, Field(gt=0, le=1)]


class Decay(Text):
    """Multiply the learning rate by `factor` every `every` steps."""

    factor: Factor
    every: Steps

    def __str__(self) -> str:
        return f"×{self.factor:g} every {self.every:,} steps"


class Milestones(Text):
    """Multiply the learning rate by `factor` at each of the steps `at`."""

    factor: Factor
    at: Annotated[list[Steps], Field(min_length=1)]

    def __str__(self) -> str:
        return f"×{self.factor:g} at {', '.join(map(str, self.at))}"


class Annealing(Text):
    """Let the learning rate fall to `end` · lr over the whole training, after the warm-up.

    With p the share of these steps that is done, it is lr · (end + (1 − end) · f(p)), where f(p) is (1 + cos πp) / 2
    for cosine, 1 − p for linear and (1 − p)^power for poly.
    """

    shape: Literal["cosine", "linear", "poly"]
    end: Share = 0.0
    power: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] | None = Field(None, description="of poly")

    def __str__(self) -> str:
        power = "" if self.power is None else f" ^{self.power:g}"
        return f"{self.shape}{power}{f' to {self.end:g}' if self.end else ''}"


SHAPES = ("constant", "cosine", "linear", "poly")
POWER = 0.9  # of poly, as usual in segmentation


def _decay_table(written: Any) -> Any:
    """A decay in one form: a table, or None if the learning rate is constant."""
    if isinstance(written, str) and written not in SHAPES:
        raise ValueError(f"unknown decay '{written}'; {nearest(written, SHAPES)}")
    if not isinstance(written, str | dict | Text | None):
        shapes = ", ".join(f"'{shape}'" for shape in SHAPES)
        raise ValueError(f"must be {shapes} or a table such as {{ factor = 0.1, every = 500 }}, got {shown(written)}")
    if isinstance(written, dict) and not written.keys() & {"every", "at", "shape"}:
        raise ValueError("needs one of the keys 'every', 'at' and 'shape'")
    if written == "constant":
        return None
    table = {"shape": written} if isinstance(written, str) else written
    return {"power": POWER, **table} if isinstance(table, dict) and table.get("shape") == "poly" else table


def _decay_form(written: Any) -> str:
    """The form that is used, so that an error refers to this form only; no key of a table has its name."""
    keys = written if isinstance(written, dict) else vars(written) if isinstance(written, Text) else ()
    return "annealing" if "shape" in keys else "milestones" if "at" in keys else "steps"


DecayTable = Annotated[
    Annotated[Decay, Tag("steps")] | Annotated[Milestones, Tag("milestones")] | Annotated[Annealing, Tag("annealing")],
    Discriminator(_decay_form),
]
AnyDecay = Literal["constant", "cosine", "linear", "poly"] | Decay | Milestones | Annealing  # as it may be written
DecayText = Annotated[DecayTable | None, BeforeValidator(_decay_table, json_schema_input_type=AnyDecay)]


def _optimizer_label(written: Any) -> Any:
    """An optimizer in one form: `name[option=value,…]`, the options sorted."""
    if isinstance(written, str):
        name, options = parse_label(written)
    elif isinstance(written, dict) and isinstance(written.get("name"), str):
        name, options = written["name"], {key: value for key, value in written.items() if key != "name"}
    else:
        raise ValueError(f"must be a name, or a table with a name, got {shown(written)}")
    text = label(name, dict(sorted(options.items())))
    if parse_label(text) != (name, options):
        raise ValueError(f"has options that cannot be written as a label, got '{text}'")
    return text


OptimizerText = Annotated[str, BeforeValidator(_optimizer_label, json_schema_input_type=str | NamedText)]
# The keys that have been part of every cell's key from the beginning; the others only where they are not the default.
FIRST_KEYS = ("steps", "batch", "lr", "momentum", "weight_decay", "decay", "evaluations")


class Schedule(Text):
    """The recipe: how one cell is trained."""

    steps: Steps = Field(0, description="optimizer steps; this or `epochs`")  # 0: the size of the data is not known yet
    epochs: Epochs | None = Field(None, description="passes over the training examples, instead of `steps`")
    batch: Batch = 64
    optimizer: OptimizerText = Field("sgd", description="sgd, or any of timm's; a table gives its options")
    lr: Rate = 0.01
    momentum: Momentum = 0.9
    weight_decay: WeightDecay = 5e-4
    decay: DecayText = Field(None, description="how the learning rate falls; default: constant")
    warmup: NonNegative = Field(0, description="steps over which the learning rate rises linearly to lr")
    clip: Rate | None = Field(None, description="the largest norm of the gradient of all parameters")
    loss_lr: Rate = Field(1.0, description="multiplies the learning rate of the loss's own parameters")
    decay_norms: bool = Field(True, description="false: no weight decay on parameters with one dimension")
    per_class: Batch | None = Field(None, description="balanced batches: so many examples of each of their classes")
    evaluations: NonNegative = Field(0, description="points of the learning curve that also score the test set")
    # The version of timm, for its optimizers; filled in when a suite is read.
    timm: SkipJsonSchema[str | None] = None

    @property
    def anneals(self) -> bool:
        """Whether the learning rate at a step depends on the length of the training."""
        return isinstance(self.decay, Annealing)

    def over(self, examples: int | None) -> Schedule:
        """The schedule with its `epochs` of so many training examples as steps; unchanged if it has steps itself."""
        if self.epochs is None or not examples:
            return self
        # The exact product: in floats 1.1 epochs of 10 examples are more than 11.
        steps = math.ceil(Fraction(str(self.epochs)) * examples / self.batch)
        return self.model_copy(update={"steps": steps})

    def changed(self, values: Mapping[str, Any]) -> Schedule:
        """The schedule with other values of some keys, as plain data."""
        if not values:
            return self
        return Schedule.model_validate({**self.model_dump(exclude_unset=True), **values})

    def in_words(self, key: str) -> str:
        """The value of a key as a report states it."""
        value = getattr(self, key)
        missing = "constant" if key == "decay" else "none"
        return missing if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    def recipe(self) -> dict[str, Any]:
        """What a shared warm start takes from it, as plain data; its length only where the learning rate needs it."""
        left = {"epochs", "evaluations", *(() if self.anneals else ("steps",))}
        return self.model_dump(exclude=left)

    def identity(self) -> dict[str, Any]:
        """The part of it that decides a result, as plain data. Epochs are in it as steps."""
        values = self.model_dump(exclude={"epochs"})
        fields = Schedule.model_fields
        return {key: value for key, value in values.items() if key in FIRST_KEYS or value != fields[key].default}


class Timing(Text):
    """A timing cell: `rounds` visits to every loss in shuffled order, `steps` optimizer steps per visit.

    The rounds are spread over several fresh processes: those of one process share its memory layout.
    """

    rounds: Annotated[int, Field(ge=3, le=10_000)] = 15
    steps: Annotated[int, Field(ge=1, le=10_000)] = 5
    processes: Annotated[int, Field(ge=2, le=100)] = Field(
        5, description="that the rounds are spread over; by default at most as many as rounds"
    )

    @model_validator(mode="before")
    @classmethod
    def _fewer_processes(cls, written: Any) -> Any:
        rounds = written.get("rounds") if isinstance(written, dict) else None
        few = isinstance(rounds, int) and 2 <= rounds < cls.model_fields["processes"].default
        return {"processes": rounds, **written} if few else written

    def share(self, process: int) -> int:
        """The rounds of one of the processes, which are numbered from 0; shares differ by at most one round."""
        return self.rounds // self.processes + (process < self.rounds % self.processes)


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
    momentum: Momentum | None = None
    weight_decay: WeightDecay | None = None
    epochs: Epochs | None = Field(None, description="passes over the training examples, instead of `steps`")
    optimizer: OptimizerText | None = Field(None, description="name[option=value], or a table; all options count")
    decay: Annotated[
        Literal["constant"] | DecayTable | None,
        BeforeValidator(
            lambda written: written if written == "constant" else _decay_table(written), json_schema_input_type=AnyDecay
        ),
    ] = Field(None, description="as in a schedule")
    warmup: NonNegative | None = None
    clip: Rate | None = None
    loss_lr: Rate | None = None
    decay_norms: bool | None = None
    per_class: Batch | None = None
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
    case: dict[str, AxisValue] = {}  # the values of the axes that it does not average over; exact, unlike those of `at`
    where: str = ""  # the end of its text in parentheses, which tells it from other cases

    @property
    def said(self) -> str:
        """The statement that it is a case of, or that it is."""
        return self.statement or self.text

    @property
    def along(self) -> str | None:
        """The option or axis of a trend claim; None for other claims."""
        return self.increases_with or self.decreases_with or self.unchanged_with
