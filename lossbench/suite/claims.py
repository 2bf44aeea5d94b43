"""What a claim is about: points of the grid, variants of a loss, and the cases that it is tested in."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from lossbench.core.format import Claim
from lossbench.core.geometry import minimum_width
from lossbench.core.labels import label, parse_label
from lossbench.core.metric import Metric
from lossbench.core.model import Experiment, Spec, distinguished
from lossbench.core.point import Point
from lossbench.suite.names import Names, Path

# By form, which is named by its first key: other keys that it needs, and keys that it may have.
FORMS = {
    "better": (("than",), ("than_metric",)),
    "not_worse": (("than",), ("margin",)),
    "equivalent": ((), ("margin",)),
    "increases_with": (("loss",), ("than", "values")),
    "decreases_with": (("loss",), ("than", "values")),
    "unchanged_with": (("loss",), ("than", "values", "margin")),
}
MARGINS = ("not_worse", "equivalent", "unchanged_with")  # the forms with a margin of equivalence
AVERAGED = ("width", "classes")  # axes over which a claim takes the mean within each seed, unless it names a value


def covers(claim: Claim, point: Point) -> bool:
    """Whether a claim is about a point of the grid."""
    width = minimum_width(point["classes"]) if claim.width == "min" else claim.width
    return (
        claim.experiment == point["experiment"]
        and width in (None, point["width"])
        and claim.classes in (None, point["classes"])
        and point.lies(claim.at)
        and all(point.get(name) == value for name, value in claim.case.items())
    )


def cases(claim: Claim, experiment: Experiment) -> list[Claim]:
    """One claim per dataset, backbone and value of a swept axis that it is about: nothing is averaged over these."""
    points = [point for point, *_ in experiment.grid if covers(claim, point)]
    if claim.follows_axis:
        points = [point for point in points if claim.along in point]
    apart = [name for name in experiment.axes if name not in (*AVERAGED, claim.along)]
    distinct = dict.fromkeys(tuple((name, point.get(name)) for name in apart) for point in points)
    return distinguished([claim.model_copy(update={"case": dict(case)}) for case in distinct]) or [claim]


def meaning(claim: Claim, experiment: Experiment, margin: float) -> Any:
    """What a resolved claim tests: equal for two claims if and only if they are the same test."""
    about = frozenset(point for point, *_ in experiment.grid if covers(claim, point))
    form = next(key for key in FORMS if getattr(claim, key) is not None)
    losses = frozenset(claim.equivalent or ()), claim.better, claim.not_worse, claim.loss, claim.than, claim.along
    asked = claim.margin or (margin if form in MARGINS else None)
    values = frozenset(claim.values) if claim.values is not None else None
    return claim.experiment, form, losses, claim.metric, claim.than_metric or claim.metric, asked, about, values


def variants(specs: Sequence[Spec], loss: str, option: str) -> dict[float, str]:
    """The labels of a loss by the value of one of its options, in the order of the values.

    `loss` is `name[option=value,…]`; only variants with these options count, and they may differ in `option` only.
    """
    name, met = parse_label(loss)
    mine = [spec for spec in specs if spec.name == name and all(spec.options.get(key) == met[key] for key in met)]
    others = [{key: value for key, value in spec.options.items() if key != option} for spec in mine]
    if odd := next((rest for rest in others if rest != others[0]), None):
        key = next(key for key in odd if odd[key] != others[0][key])
        written = label(name, {**met, key: odd[key]})
        raise ValueError(f"variants of '{loss}' also differ in '{key}'; fix it, as in '{written}'")
    by_value: dict[float, str] = {}
    for spec in mine:
        value = spec.options[option]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"the values of '{option}' are not numbers, so there is no trend along it")
        by_value[float(value)] = spec.label
    return dict(sorted(by_value.items()))


def check_variants(claims: Sequence[Claim], experiments: Mapping[str, Experiment], path: Path, names: Names) -> None:
    """A profile may leave out values of an option, but the variants of a trend may still differ in that option only."""
    for claim in claims:
        if claim.along is not None and not claim.follows_axis and claim.experiment in experiments:
            try:
                variants(experiments[claim.experiment].losses, str(claim.loss), claim.along)
            except ValueError as error:
                names.mistakes.note(names.fail(path, f"claim '{claim.text}': {error}"))


def relabelled(claim: Claim, before: Experiment, after: Experiment) -> Claim:
    """The claim with the labels of another profile, which may write the options of a loss differently."""
    labels = {
        old.label: new.label
        for old in before.losses
        for new in after.losses
        if old.matches(new) and old.label != new.label
    }
    # Along an option, `loss` is not a label but what its variants match.
    named = ("better", "not_worse", "than", *(["loss"] if claim.follows_axis else []))
    given = {key: getattr(claim, key) for key in named}
    changed: dict[str, Any] = {key: labels[written] for key, written in given.items() if written in labels}
    if claim.equivalent is not None:
        changed["equivalent"] = [labels.get(written, written) for written in claim.equivalent]
    return claim.model_copy(update=changed)


def losses_of(claim: Claim) -> list[str]:
    """The losses that a claim names; along an option, the label that its variants match."""
    return [
        written
        for written in (claim.better, claim.not_worse, claim.loss, claim.than, *(claim.equivalent or ()))
        if written is not None
    ]


def of_angles(claims: Sequence[Claim], specs: Sequence[Spec], metrics: Sequence[Metric]) -> dict[str, str]:
    """Why losses need class weights, by label: the first claim about angles that names each."""
    needed: dict[str, str] = {}
    for claim, spec in itertools.product(claims, specs):
        metric = needing_weights([each for each in metrics if each.name in (claim.metric, claim.than_metric)])
        if metric is not None and any(_means(written, spec) for written in losses_of(claim)):
            needed.setdefault(spec.label, f"claim '{claim.text}' {without_class_weights(metric, spec.label)}")
    return needed


def without_class_weights(metric: str, loss: str) -> str:
    """The end of the error about a claim on a loss without class weights."""
    return f"is about '{metric}', which needs class weights, and loss '{loss}' has none"


def needing_weights(metrics: Sequence[Metric]) -> str | None:
    return next((metric.name for metric in metrics if metric.needs_class_weights), None)


def _means(written: str, spec: Spec) -> bool:
    if written == spec.label:
        return True
    name, options = parse_label(written)
    return name == spec.name and all(spec.options.get(key) == value for key, value in options.items())


def default_applies(metric: Metric, headline: Metric) -> bool:
    """Whether the suite's margin, which is in the unit of the headline, is one for this metric, too."""
    return metric.name == headline.name or metric.unit == headline.unit == "points"
