"""The claims of a suite; a claim that the cells of its experiment cannot answer is an error before anything trains."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lossbench.core.errors import nearest
from lossbench.core.format import Claim
from lossbench.core.geometry import minimum_width
from lossbench.core.labels import label, parse_label
from lossbench.core.metric import Metric
from lossbench.core.model import Experiment, Spec
from lossbench.core.point import Point, shown, told
from lossbench.core.values import first_repeated
from lossbench.suite.format import ClaimText
from lossbench.suite.metrics import check_margin, check_metric, needs_margin
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
LISTS = ("experiment", "better", "not_worse", "loss")  # keys that may be lists: one claim per name
MARGINS = ("not_worse", "equivalent", "unchanged_with")  # the forms with a margin of equivalence
AVERAGED = ("width", "classes")  # axes over which a claim takes the mean within each seed, unless it names a value
FEWEST_VALUES = {"increases_with": 3, "decreases_with": 3, "unchanged_with": 2}


def read_claims(
    entries: Iterable[tuple[int, ClaimText]],
    experiments: Mapping[str, Experiment],
    headline: Metric,
    margin: float,
    names: Names,
) -> tuple[Claim, ...]:
    """The claims of a suite, with labels as its experiments write them; a claim that no cell can answer is an error.

    `entries` are those of the file with their numbers, `margin` is that of the suite.
    """
    claims = []
    stated: dict[Any, int] = {}
    checked = names.mistakes.every(lambda at: _entry(*at, names), entries)
    for index, claim in ((index, claim) for index, entry in checked for claim in each(entry, headline.name)):
        path: list[Any] = ["claim", index]
        with names.mistakes.noting():
            if claim.experiment not in experiments:
                raise names.no_experiment([*path, "experiment"], claim.experiment, experiments)
            found = resolved(claim, experiments[claim.experiment], headline, path, names)
            said = meaning(found, experiments[claim.experiment], margin)
            if said in stated:
                raise names.fail(path, f"'{found.text}' repeats claim[{stated[said]}]; remove one")
            stated[said] = index
            claims.append(found)
    return tuple(claims)


def _entry(index: int, entry: ClaimText, names: Names) -> tuple[int, ClaimText]:
    """A claim as the file has it, with its number; it has a text, and no list that repeats a name."""
    if not entry.text.strip():
        raise names.fail(["claim", index, "text"], "is empty; state the claim in words")
    if repeated := twice(entry):
        raise names.fail(["claim", index, repeated[0]], f"'{repeated[1]}' is listed twice")
    return index, entry


def each(written: ClaimText, headline: str) -> list[Claim]:
    """The claims of one entry of a suite file: one per combination of names in its lists."""
    keys = [key for key in LISTS if isinstance(getattr(written, key), list)]
    said = {"metric": headline, **written.model_dump(exclude_none=True, exclude_unset=True)}
    claims = []
    for choice in itertools.product(*(said[key] for key in keys)):
        chosen = {**dict(zip(keys, choice, strict=True)), "statement": written.text}
        chosen["text"] = f"{written.text} ({', '.join(choice)})" if choice else written.text
        claims.append(Claim.model_validate(said | chosen))
    return claims


def twice(written: ClaimText) -> tuple[str, str] | None:
    """A list of an entry that repeats a name, and that name."""
    lists = {key: names for key in LISTS if isinstance(names := getattr(written, key), list)}
    return next(((key, name) for key, names in lists.items() if (name := first_repeated(names)) is not None), None)


def meaning(claim: Claim, experiment: Experiment, margin: float) -> Any:
    """What a resolved claim tests: equal for two claims if and only if they are the same test."""
    about = frozenset(point for point, *_ in experiment.grid if covers(claim, point))
    form = next(key for key in FORMS if getattr(claim, key) is not None)
    losses = frozenset(claim.equivalent or ()), claim.better, claim.not_worse, claim.loss, claim.than, claim.along
    asked = claim.margin or (margin if form in MARGINS else None)
    values = frozenset(claim.values) if claim.values is not None else None
    return claim.experiment, form, losses, claim.metric, claim.than_metric or claim.metric, asked, about, values


def check_variants(claims: Sequence[Claim], experiments: Mapping[str, Experiment], path: Path, names: Names) -> None:
    """A profile may leave out values of an option, but the variants of a trend may still differ in that option only."""
    for claim in claims:
        if claim.along is not None and not claim.follows_axis and claim.experiment in experiments:
            try:
                variants(experiments[claim.experiment].losses, str(claim.loss), claim.along)
            except ValueError as error:
                raise names.fail(path, f"claim '{claim.text}': {error}") from error


def resolved(claim: Claim, experiment: Experiment, headline: Metric, path: Path, names: Names) -> Claim:
    """The claim with the labels of the experiment's losses; an error if no cell can answer it."""
    found = _resolved(claim, experiment, headline, path, names)
    metrics = [names.metric(written, path) for written in (found.metric, found.than_metric) if written is not None]
    if (metric := _needing_weights(metrics)) is not None:
        for written in losses_of(found):
            if names.weightless(parse_label(written)[0]):
                raise names.fail(path, without_class_weights(metric, written))
    return found


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
        metric = _needing_weights([each for each in metrics if each.name in (claim.metric, claim.than_metric)])
        if metric is not None and any(_means(written, spec) for written in losses_of(claim)):
            needed.setdefault(spec.label, f"claim '{claim.text}' {without_class_weights(metric, spec.label)}")
    return needed


def without_class_weights(metric: str, loss: str) -> str:
    """The end of the error about a claim on a loss without class weights."""
    return f"is about '{metric}', which needs class weights, and loss '{loss}' has none"


def _needing_weights(metrics: Sequence[Metric]) -> str | None:
    return next((metric.name for metric in metrics if metric.needs_class_weights), None)


def _means(written: str, spec: Spec) -> bool:
    if written == spec.label:
        return True
    name, options = parse_label(written)
    return name == spec.name and all(spec.options.get(key) == value for key, value in options.items())


def _resolved(claim: Claim, experiment: Experiment, headline: Metric, path: Path, names: Names) -> Claim:
    for key in ("metric", "than_metric"):
        if (written := getattr(claim, key)) is not None:
            metric = names.metric(written, [*path, key])
            check_metric(metric, experiment, [*path, key], names)
            claim = claim.model_copy(update={key: metric.name})
    _check_form(claim, path, names)
    _check_place(claim, experiment, path, names)
    _check_margin(claim, headline, path, names)

    def named(key: str, written: str | None) -> str | None:
        return None if written is None else names.one_of(written, experiment.losses, [*path, key])

    if claim.along is not None:
        if experiment.tunes and claim.along not in experiment.axes:
            problem = f"tuning chooses the options of '{experiment.name}', so it has no trend along '{claim.along}'"
            raise names.fail(path, f"{problem}; use an axis such as width, or the experiment '{experiment.tunes}'")
        found = claim.model_copy(update={"than": named("than", claim.than)})
        return _resolved_trend(found, claim.along, experiment, path, names)
    if claim.equivalent is not None:
        pair = [str(named(f"equivalent[{place}]", written)) for place, written in enumerate(claim.equivalent)]
        if pair[0] == pair[1]:
            raise names.fail(path, f"compares '{pair[0]}' with itself")
        return claim.model_copy(update={"equivalent": pair})
    form = "better" if claim.better is not None else "not_worse"
    first = named(form, getattr(claim, form))
    than = first if claim.than is None else named("than", claim.than)
    if first == than and claim.than_metric in (None, claim.metric):
        raise names.fail(path, f"compares '{first}' with itself")
    return claim.model_copy(update={form: first, "than": than})


def _check_place(claim: Claim, experiment: Experiment, path: Path, names: Names) -> None:
    """The width and the number of classes of a claim are among the experiment's."""
    if claim.width is not None and claim.width not in experiment.widths:
        widths = ", ".join(str(width) for width in experiment.widths)
        problem = f"experiment '{experiment.name}' has no width {claim.width!r}; known: {widths}"
        raise names.fail([*path, "width"], problem)
    points = [point for point, *_ in experiment.grid]
    ks = list(dict.fromkeys(point["classes"] for point in points))
    if claim.classes is not None and claim.classes not in ks:
        known = ", ".join(map(str, ks))
        problem = f"experiment '{experiment.name}' has no cells with {claim.classes} classes; known: {known}"
        raise names.fail([*path, "classes"], problem)
    for name, value in claim.at.items():
        if name not in experiment.axes:
            problem = f"experiment '{experiment.name}' has no axis '{name}'; {nearest(name, experiment.axes)}"
            raise names.fail([*path, "at", name], problem)
        if name in AVERAGED and getattr(claim, name) is not None:
            raise names.fail([*path, "at", name], f"is given twice, also as '{name}'; remove one")
        if not any(point.lies({name: value}) for point in points):
            known = ", ".join(dict.fromkeys(shown(point[name]) for point in points if name in point))
            problem = f"experiment '{experiment.name}' has no {name} {value!r}; known: {known}"
            raise names.fail([*path, "at", name], problem)
    if not any(covers(claim, point) for point in points):
        raise names.fail([*path, "at"], f"no point of experiment '{experiment.name}' has all these values")


def cases(claim: Claim, experiment: Experiment) -> list[Claim]:
    """One claim per dataset, backbone and value of a swept axis that it is about: nothing is averaged over these."""
    points = [point for point, *_ in experiment.grid if covers(claim, point)]
    if claim.follows_axis:
        points = [point for point in points if claim.along in point]
    apart = [name for name in experiment.axes if name not in (*AVERAGED, claim.along)]
    found = list(dict.fromkeys(tuple((name, point.get(name)) for name in apart) for point in points))
    if len(found) < 2:
        return [claim]
    differing = [name for name in apart if len({dict(case)[name] for case in found}) > 1]

    def case_of(values: Mapping[str, Any]) -> Claim:
        named = ", ".join(told(name, values[name]) for name in differing if values[name] is not None)
        return claim.model_copy(update={"at": {**claim.at, **values}, "text": f"{claim.text} ({named})"})

    return [case_of(dict(case)) for case in found]


def _check_margin(claim: Claim, headline: Metric, path: Path, names: Names) -> None:
    """A margin fits the metric's unit, and metrics that are no scores have one where the claim needs it."""
    metric = names.metric(claim.metric, path)
    if claim.margin is not None:
        check_margin(claim.margin, metric, [*path, "margin"], names)
    elif not default_applies(metric, headline) and any(getattr(claim, key) for key in MARGINS):
        raise names.fail(path, needs_margin(metric))


def default_applies(metric: Metric, headline: Metric) -> bool:
    """Whether the suite's margin, which is in the unit of the headline, is one for this metric, too."""
    return metric.name == headline.name or metric.unit == headline.unit == "points"


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


def _check_form(claim: Claim, path: Path, names: Names) -> None:
    given = [key for key in FORMS if getattr(claim, key) is not None]
    if len(given) != 1:
        known = ", ".join(f"'{form}'" for form in FORMS)
        problem = f"has both '{given[0]}' and '{given[1]}'; choose one" if given else f"needs one of the keys {known}"
        raise names.fail(path, problem)
    form = given[0]
    needed, allowed = FORMS[form]
    if form == "better" and claim.than_metric is not None:
        needed, allowed = (), ("than", "than_metric")  # a loss against itself on another metric
    for key in needed:
        if getattr(claim, key) is None:
            raise names.fail(path, f"needs the key '{key}' beside '{form}'")
    for key in dict.fromkeys(key for parts in FORMS.values() for group in parts for key in group):
        if getattr(claim, key) is not None and key not in (*needed, *allowed):
            raise names.fail([*path, key], f"cannot be combined with '{form}'")
    if claim.than_metric is not None:
        if "step_seconds" in (claim.metric, claim.than_metric):
            raise names.fail([*path, "than_metric"], "step times are ratios and cannot be compared with another metric")
        first, second = (names.metric(written, path) for written in (claim.metric, claim.than_metric))
        if (first.unit, first.higher_is_better) != (second.unit, second.higher_is_better):
            problem = f"'{claim.than_metric}' cannot be compared with '{claim.metric}': another unit or direction"
            raise names.fail([*path, "than_metric"], problem)


def _resolved_trend(claim: Claim, along: str, experiment: Experiment, path: Path, names: Names) -> Claim:
    key = next(key for key in FEWEST_VALUES if getattr(claim, key))
    written = str(claim.loss)
    follows_axis = along in experiment.axes
    if follows_axis:
        loss = names.one_of(written, experiment.losses, [*path, "loss"])
        known = _followable(claim, along, experiment, path, names)
        if along == "classes" and set(experiment.widths) == {"min"}:
            claim = claim.model_copy(update={"width": "min"})
    else:
        spec = names.loss(written, [*path, "loss"])
        met = {name: spec.options[name] for name in parse_label(written)[1]}
        if along not in spec.options:
            hint = nearest(along, [*spec.options, *experiment.axes])
            problem = (
                f"loss '{spec.name}' has no option '{along}', and experiment '{experiment.name}' does not sweep it"
            )
            raise names.fail([*path, key], f"{problem} (as a list, or {{ sweep = [...] }}); {hint}")
        loss = label(spec.name, met)
        try:
            known = list(variants(experiment.losses, loss, along))
        except ValueError as error:
            raise names.fail([*path, "loss"], error) from error
        if not known:
            hint = nearest(written, [spec.label for spec in experiment.losses])
            raise names.fail([*path, "loss"], f"no cell produces '{written}'; {hint}")
    values = known
    if claim.values is not None:
        least = {minimum_width(data.classes) for data in experiment.datasets}
        wanted = [_width(value, least) if along == "width" else value for value in claim.values]
        for index, value in enumerate(wanted):
            if value not in known:
                problem = f"experiment '{experiment.name}' has no {along} {claim.values[index]!r} for '{loss}'"
                raise names.fail([*path, "values", index], f"{problem}; known: {_listed(known)}")
        values = [float(value) for value in wanted if value != "min"]
    if len(set(values)) < FEWEST_VALUES[key]:
        problem = f"needs at least {FEWEST_VALUES[key]} values of '{along}', the cells have {_listed(values)}"
        cure = "add a value" if follows_axis else "compare two with 'better' and 'than'"
        raise names.fail([*path, key], f"{problem}; {cure}")
    kept = sorted(set(values)) if claim.values is not None else None
    return claim.model_copy(update={"loss": loss, "values": kept, "follows_axis": follows_axis})


def _followable(claim: Claim, along: str, experiment: Experiment, path: Path, names: Names) -> list[float]:
    """The values of an axis that a trend follows; an error if there can be no trend along it."""
    if claim.metric == "step_seconds":
        problem = f"step times are compared within a timing cell, which has one {along}; use 'better' and 'than'"
        raise names.fail([*path, "metric"], problem)
    for given, place in ((getattr(claim, along, None), [along]), (claim.at.get(along), ["at", along])):
        if given is not None:
            raise names.fail([*path, *place], f"cannot be combined with a trend along {along}; use 'values'")
    known = _grid_values(claim, along, experiment)
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        raise names.fail(path, f"the values of '{along}' are not numbers, so there is no trend along it")
    return known


def _grid_values(claim: Claim, along: str, experiment: Experiment) -> list[Any]:
    """The values of an axis that a claim may follow; of the width, those common to all numbers of classes."""
    points = [point for point, *_ in experiment.grid if covers(claim, point) and along in point]
    if along != "width":
        return list(dict.fromkeys(point[along] for point in points))
    by_rest: dict[Point, set[int]] = {}
    for point in points:
        by_rest.setdefault(point.without("width"), set()).add(point["width"])
    return sorted(set.intersection(*by_rest.values())) if by_rest else []


def _width(value: Any, least: set[int]) -> Any:
    """`min` is one width only if there is one number of classes."""
    return float(next(iter(least))) if value == "min" and len(least) == 1 else value


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values) or "none"


def covers(claim: Claim, point: Point) -> bool:
    """Whether a claim is about a point of the grid."""
    width = minimum_width(point["classes"]) if claim.width == "min" else claim.width
    return (
        claim.experiment == point["experiment"]
        and width in (None, point["width"])
        and claim.classes in (None, point["classes"])
        and point.lies(claim.at)
    )
