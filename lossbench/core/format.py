"""What a suite file may say: strict pydantic models, which also give editors their JSON schema.

Names of losses, backbones, datasets, metrics and options are only text here; `suite` asks the registry about them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

Task = Literal["classification", "verification"]

# Upper bounds only keep a slip of the pen from asking for more than any machine has.
MOST_CELLS = 1_000_000  # of a suite, counted before its grids are expanded
Positive = Annotated[int, Field(ge=1, le=10**9)]
Steps = Annotated[int, Field(ge=1, le=10**8)]
Batch = Annotated[int, Field(ge=1, le=10**6)]
Rate = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]  # a learning rate
WeightDecay = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
NonNegative = Annotated[int, Field(ge=0, le=10**9)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]  # becomes part of paths
Number = Annotated[float, Field(allow_inf_nan=False)]
Width = Positive | Literal["min"]


class _Text(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NamedText(BaseModel):
    """A table with a `name`; every other key is an option, judged later by the plugin that has that name."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Decay(_Text):
    """Multiply the learning rate by `factor` every `every` steps."""

    factor: Annotated[float, Field(gt=0, le=1)]
    every: Steps


class Schedule(_Text):
    """How one cell is trained: SGD with momentum, `steps` batches, step decay."""

    steps: Steps
    batch: Batch = 64
    lr: Rate = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: WeightDecay = 5e-4
    decay: Decay | None = None
    evaluations: NonNegative = Field(0, description="points of the learning curve that score the test set too")


class WarmStart(_Text):
    """A phase that all losses share: train `loss` for `steps`, then refine with each loss."""

    loss: str | NamedText = "softmax"
    steps: Steps


class Timing(_Text):
    """A timing cell: `rounds` visits to every loss in shuffled order, `steps` optimizer steps a visit."""

    rounds: Annotated[int, Field(ge=3, le=10_000)] = 15
    steps: Annotated[int, Field(ge=1, le=10_000)] = 5


class Protocol(_Text):
    """How published numbers came about, as far as the paper tells; what differs from a cell makes them incomparable."""

    dataset: str | None = Field(None, description="its name")
    train: Positive | None = Field(None, description="training examples")
    test: Positive | None = Field(None, description="test examples, or pairs")
    classes: Positive | None = None
    backbone: str | NamedText | None = Field(None, description="name[option=value], or a table; all options count")
    width: Positive | None = None
    steps: Positive | None = Field(None, description="optimizer steps, those of a warm start included")
    batch: Positive | None = None
    lr: Rate | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    weight_decay: WeightDecay | None = None
    augment: list[str] | None = None
    other: list[str] = Field(default=[], description="differences that no key can state, in words")


Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class PublishedText(_Text):
    """Numbers of a paper, with the protocol that they belong to."""

    values: dict[str, Percent] = Field(description="accuracy in percent by loss")
    protocol: Protocol | Literal["same"] | None = Field(None, description="the paper's; `same` as the experiment's")
    source: str = Field("", description="where the numbers are printed")
    classes: Positive | None = Field(None, description="they belong to this number of classes; absent: to all")


def _published_form(written: Any) -> str:
    """Which of the forms is meant: with all tried, the wrong one's complaint would be shown."""
    if isinstance(written, list):
        return "tables"
    table = isinstance(written, PublishedText) or (isinstance(written, dict) and "values" in written)
    return "table" if table else "values"


Published = Annotated[
    Annotated[dict[str, Percent], Tag("values")]
    | Annotated[PublishedText, Tag("table")]
    | Annotated[list[PublishedText], Tag("tables")],
    Discriminator(_published_form),
]


class ExperimentText(_Text):
    """One grid of a suite: dataset × backbone × widths × losses × seeds."""

    name: Name
    task: Task = Field("classification", description="verification: tell pairs of unseen classes apart")
    dataset: str | NamedText
    backbone: str | NamedText
    widths: Annotated[list[Width], Field(min_length=1)]
    losses: Annotated[list[str | NamedText], Field(min_length=1)]
    seeds: Annotated[int, Field(ge=1, le=10_000)] | Annotated[list[NonNegative], Field(min_length=1)]
    schedule: Schedule
    classes: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1)] | None = Field(
        None, description="train on the first k classes only, for each k of this list"
    )
    warm_start: WarmStart | None = None
    timing: Timing | None = None
    published: Published = Field(
        default={}, description="accuracy in percent by loss, as a paper prints it; or tables with values and protocol"
    )
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    device: Literal["cpu", "cuda"] = "cpu"
    autocast: Literal["bfloat16"] | None = Field(None, description="the backbone's products in low precision")
    channels_last: bool = False


OneOrMore = str | Annotated[list[str], Field(min_length=1)]


Option = Annotated[str, Field(min_length=1)]


class _ClaimKeys(_Text):
    """What a claim says besides the names that a suite file may list."""

    text: str
    note: str = Field("", description="what a reader should know of it; the report says it below the verdicts")
    family: str = Field("", description="p values of one family are adjusted together; absent: with all that name none")
    metric: str = "accuracy"
    than: str | None = None
    than_metric: str | None = Field(None, description="the metric of `than`; absent: that of `better`")
    equivalent: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    margin: Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)] | None = Field(
        None, description="how much counts as no difference, in the metric's unit; for scores the suite's by default"
    )
    increases_with: Option | None = Field(None, description="an option of the loss, or `width`, or `classes`")
    decreases_with: Option | None = Field(None, description="an option of the loss, or `width`, or `classes`")
    unchanged_with: Option | None = Field(None, description="an option of the loss, or `width`, or `classes`")
    values: Annotated[list[Number | Literal["min"]], Field(min_length=2)] | None = Field(
        None, description="only these values of the option, of `width` or `classes`"
    )
    width: Width | None = Field(None, description="test it at this width; absent: over all widths of the experiment")
    classes: Positive | None = Field(None, description="test it at this number of classes; absent: over all of them")


class ClaimText(_ClaimKeys):
    """A statement that the suite tests. It has one of these forms:

    better, than                     `better` beats `than` on `metric` (with `than_metric`: each on its own)
    not_worse, than                  `not_worse` is as good as `than`, or better, but for `margin`
    equivalent                       two losses differ by less than `margin`
    increases_with, decreases_with   `metric` of `loss` (with `than`: minus that of `than`) grows or falls along an
                                     option of the loss, `width` or `classes`
    unchanged_with                   it stays within `margin` of what it is at the least value

    Where `experiment`, `better`, `not_worse` or `loss` is a list, it is one claim for each of its names.
    """

    experiment: OneOrMore
    better: OneOrMore | None = None
    not_worse: OneOrMore | None = None
    loss: OneOrMore | None = Field(None, description="whose trend; options written here are met by all its variants")


class Claim(_ClaimKeys):
    """One claim: about one experiment, and one loss against another or along one of its options."""

    statement: str = ""  # what it is one case of: the text as the suite has it
    experiment: str
    better: str | None = None
    not_worse: str | None = None
    loss: str | None = None

    @property
    def along(self) -> str | None:
        """What the claim follows a metric along, if it does."""
        return self.increases_with or self.decreases_with or self.unchanged_with


class ChoicesText(_Text):
    """A set of choices in place of a range."""

    choices: Annotated[list[Any], Field(min_length=2)]


def _range_form(written: Any) -> str:
    return "choices" if isinstance(written, dict | ChoicesText) else "range"


RangeText = Annotated[
    Annotated[list[int | Number], Field(min_length=2, max_length=2), Tag("range")]
    | Annotated[ChoicesText, Tag("choices")],
    Discriminator(_range_form),
]


class Tune(_Text):
    """Tune every loss at equal cost before it is compared: trials on a held-out part of the training images."""

    trials: Annotated[int, Field(ge=2, le=4096)] = Field(description="for every loss; the first is its default")
    validation: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="share of the training images, held out; the test set is never seen"
    )
    seeds: Positive = Field(1, description="of each trial: the first seeds of the experiment")
    experiments: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="which are tuned; absent: all"
    )
    lr: Annotated[list[Rate], Field(min_length=2, max_length=2)] | None = Field(
        None, description="[low, high]: the learning rate is tuned too, in the same range for every loss"
    )
    ranges: dict[str, dict[str, RangeText]] = Field(
        default={},
        description="by loss and option: [low, high], or { choices = [...] }; over or beside what the loss declares",
    )


class Profile(_Text):
    """The same suite at another scale: tables laid over the experiments' own."""

    all: dict[str, Any] = Field(default={}, description="laid over every experiment, over its own keys too")
    experiment: dict[str, dict[str, Any]] = Field(default={}, description="laid over one experiment, by its name")
    skip: list[str] = Field(default=[], description="experiments left out")
    note: str = Field(default="", description="what a reader must know; it opens a run and its report")
    tune: dict[str, Any] = Field(default={}, description="laid over [tune]")


class SuiteFile(_Text):
    """A suite file, as written."""

    name: Name
    title: str = ""
    baseline: str = "softmax"
    margin: Annotated[
        float, Field(gt=0, le=100, allow_inf_nan=False, description="accuracy points that count as no difference")
    ] = 0.5
    defaults: dict[str, Any] = Field(default={}, description="any key of an experiment")
    experiment: Annotated[list[dict[str, Any]], Field(min_length=1)]
    claim: list[ClaimText] = []
    tune: Tune | None = None
    profile: dict[str, Profile] = {}
    auto: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="profiles; without --profile the first one that this machine can run is chosen"
    )
