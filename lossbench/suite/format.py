"""The suite file: strict pydantic models, which also give editors their JSON schema.

Names of losses, backbones, datasets and options are plain text here; `reading` looks them up in the registry.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from lossbench.core.format import (
    ClaimKeys,
    NamedText,
    NonNegative,
    Number,
    Percent,
    Positive,
    PublishedText,
    Steps,
    Task,
    Text,
    Timing,
    Width,
)
from lossbench.core.values import shown

UNTUNED = ("steps", "epochs", "evaluations", "timm")  # keys of the schedule that are the same for every trial
MOST_CELLS = 1_000_000  # per suite, counted before its grids are expanded
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]  # becomes part of paths
Plugin = str | NamedText
OneOrMore = str | Annotated[list[str], Field(min_length=1)]


class WarmStart(Text):
    """A first phase shared by all losses: train `loss` for `steps`, then refine with each loss."""

    loss: str | NamedText = "softmax"
    steps: Steps


def _published_form(written: Any) -> str:
    """The form that is used, so that an error refers to this form only."""
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


class ExperimentText(Text):
    """One grid of a suite: datasets × backbones × widths × schedules × losses × seeds."""

    name: Name
    task: Task = Field("classification", description="verification, retrieval: of classes that were not trained on")
    dataset: Plugin | Annotated[list[Plugin], Field(min_length=1)] = Field(
        description="a dataset or several; options that are lists are swept"
    )
    backbone: Plugin | Annotated[list[Plugin], Field(min_length=1)] = Field(
        description="a backbone or several; options that are lists are swept"
    )
    widths: Annotated[list[Width], Field(min_length=1)]
    losses: Annotated[list[Plugin], Field(min_length=1)]
    seeds: Annotated[int, Field(ge=1, le=10_000)] | Annotated[list[NonNegative], Field(min_length=1)]
    schedule: dict[str, Any] = Field(description="keys that are lists are swept")
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
    autocast: Literal["bfloat16"] | None = Field(None, description="run the backbone in low precision")
    channels_last: bool = False
    compile: bool = Field(False, description="train compiled backbones (torch.compile), which needs a C++ compiler")
    metrics: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="what is recorded; default: all built-in metrics of the task"
    )
    keep: list[Literal["predictions", "features", "model"]] = Field(
        default=[], description="what finished cells keep, so that metrics can be added without training again"
    )


class ClaimText(ClaimKeys):
    """A statement that the suite tests. It has one of these forms:

    better, than                     `better` beats `than` on `metric` (with `than_metric`: each on its own)
    not_worse, than                  `not_worse` is at most `margin` worse than `than`
    equivalent                       two losses differ by less than `margin`
    increases_with, decreases_with   `metric` of `loss` (with `than`: minus that of `than`) grows or falls along an
                                     option of the loss, `width` or `classes`
    unchanged_with                   it stays within `margin` of its value at the smallest setting

    A list in `experiment`, `better`, `not_worse` or `loss` makes one claim per name.
    """

    experiment: OneOrMore
    better: OneOrMore | None = None
    not_worse: OneOrMore | None = None
    loss: OneOrMore | None = Field(
        None, description="the loss whose trend is tested; options in brackets restrict its variants"
    )


class ChoicesText(Text):
    """A set of choices in place of a range."""

    choices: Annotated[list[Any], Field(min_length=2)]


def _range_form(written: Any) -> str:
    return "choices" if isinstance(written, dict | ChoicesText) else "range"


def _pair(written: Any) -> Any:
    """A list of two numbers; others get a sentence that says how ranges and choices are written."""
    if not (isinstance(written, list) and len(written) == 2 and all(type(end) in (int, float) for end in written)):
        raise ValueError(f"must be [low, high] or {{ choices = [...] }}, got {shown(written)}")
    return written


RangeText = Annotated[
    Annotated[list[int | Number], Field(min_length=2, max_length=2), BeforeValidator(_pair), Tag("range")]
    | Annotated[ChoicesText, Tag("choices")],
    Discriminator(_range_form),
]


class Tune(Text):
    """Tune every loss at equal cost before it is compared: trials on a held-out part of the training images."""

    trials: Annotated[int, Field(ge=2, le=4096)] = Field(description="per loss; the first is its default")
    validation: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="share of the training images to hold out; no trial uses the test set"
    )
    seeds: Positive = Field(1, description="per trial: the first seeds of the experiment")
    experiments: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="the experiments to tune; default: all"
    )
    lr: RangeText | None = Field(
        None, description="[low, high]: also tune the learning rate; short for `schedule = { lr = [low, high] }`"
    )
    schedule: dict[str, RangeText] = Field(
        default={}, description="by key of the schedule: [low, high], or { choices = [...] }; the same for every loss"
    )
    ranges: dict[str, dict[str, RangeText]] = Field(
        default={},
        description="by loss and option: [low, high], or { choices = [...] }; overrides or extends RANGES",
    )


class Profile(Text):
    """The same suite at another scale: it overrides keys of the experiments."""

    base: str | None = Field(default=None, description="the profile that it is laid over; default: the suite itself")
    all: dict[str, Any] = Field(default={}, description="overrides keys of every experiment")
    experiment: dict[str, dict[str, Any]] = Field(default={}, description="overrides keys of one experiment, by name")
    skip: list[str] = Field(default=[], description="experiments to leave out")
    note: str = Field(default="", description="shown at the start of a run and of its report")
    tune: dict[str, Any] = Field(default={}, description="overrides keys of [tune]")


class SuiteFile(Text):
    """A suite file, as written."""

    name: Name
    title: str = ""
    note: str = Field(default="", description="shown at the start of a run and of its report; a profile's replaces it")
    baseline: str = "softmax"
    headline: str | None = Field(
        None,
        description="the metric of comparisons, tuning, ranks and the margin; default: accuracy, or recall@1 where all "
        "experiments are retrievals",
    )
    margin: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        0.5,
        description="the largest difference in the headline metric that counts as none (default: in points)",
    )
    defaults: dict[str, Any] = Field(default={}, description="any key of an experiment")
    experiment: Annotated[list[dict[str, Any]], Field(min_length=1)]
    claim: list[ClaimText] = Field(default=[])
    tune: Tune | None = None
    profile: dict[str, Profile] = Field(default={})
    auto: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="without --profile, the first of these profiles that this machine can run is used"
    )
