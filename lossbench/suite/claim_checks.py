"""The claims of a suite file; a claim that the cells of its experiment cannot answer is a mistake.

All mistakes of a claim are noted. What depends on a part of its experiment that has mistakes itself is not checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from lossbench.core.errors import SuiteError, nearest
from lossbench.core.format import Claim
from lossbench.core.geometry import minimum_width
from lossbench.core.labels import label, parse_label
from lossbench.core.metric import Metric
from lossbench.core.model import Experiment, Spec
from lossbench.core.point import Point, is_number, known_values
from lossbench.core.values import first_repeated
from lossbench.suite.claims import (
    AVERAGED,
    FORMS,
    MARGINS,
    covers,
    default_applies,
    losses_of,
    meaning,
    needing_weights,
    variants,
    without_class_weights,
)
from lossbench.suite.format import ClaimText
from lossbench.suite.metrics import check_margin, check_metric, needs_margin
from lossbench.suite.names import Names, Partial, Path

GRID = ("dataset", "backbone", "widths", "classes", "schedule")  # keys of an experiment that make its grid
LISTS = ("experiment", "better", "not_worse", "loss")  # keys that may be lists: one claim per name
FEWEST_VALUES = {"increases_with": 3, "decreases_with": 3, "unchanged_with": 2}


def read_claims(
    entries: Iterable[tuple[int, ClaimText, Collection[str]]],
    experiments: Mapping[str, Experiment],
    headline: Metric | None,
    margin: float,
    names: Names,
) -> tuple[Claim, ...]:
    """The claims of a suite, with labels as its experiments write them; a claim that no cell can answer is a mistake.

    `entries` are those of the file: their numbers, and keys with mistakes, which are left out. `headline` is None if it
    is wrong; `margin` is that of the suite.
    """
    claims = []
    stated: dict[Any, int] = {}
    for index, entry, wrong in entries:
        path: list[Any] = ["claim", index]
        _check_entry(entry, path, names)
        for claim in each(entry, headline):
            with names.mistakes.noting():
                about = _about(claim, experiments, path, names) if "experiment" not in wrong else Partial()
                found, experiment = resolved(claim, about, headline, path, names, wrong)
                said = meaning(found, experiment, margin)
                if said in stated:
                    raise names.fail(path, f"'{found.text}' repeats claim[{stated[said]}]; remove one")
                stated[said] = index
                claims.append(found)
    return tuple(claims)


def _check_entry(entry: ClaimText, path: Path, names: Names) -> None:
    """A claim has a text, and no list that repeats a name."""
    if not entry.text.strip():
        names.mistakes.note(names.fail([*path, "text"], "is empty; state the claim in words"))
    for key in LISTS:
        listed = getattr(entry, key)
        if isinstance(listed, list) and (repeated := first_repeated(listed)) is not None:
            names.mistakes.note(names.fail([*path, key], f"'{repeated}' is listed twice"))


def _about(claim: Claim, experiments: Mapping[str, Experiment], path: Path, names: Names) -> Partial:
    """The experiment of a claim, as far as it could be read."""
    if claim.experiment in experiments:
        return Partial(experiments[claim.experiment])
    if claim.experiment in names.unread:
        return names.unread[claim.experiment]
    names.mistakes.note(names.no_experiment([*path, "experiment"], claim.experiment, experiments))
    return Partial()


def each(written: ClaimText, headline: Metric | None) -> list[Claim]:
    """The claims of one entry of a suite file: one per combination of names in its lists."""
    keys = [key for key in LISTS if isinstance(getattr(written, key), list)]
    said = written.model_dump(exclude_none=True, exclude_unset=True)
    if headline:
        said = {"metric": headline.name, **said}
    claims = []
    for choice in itertools.product(*(dict.fromkeys(said[key]) for key in keys)):
        chosen = {**dict(zip(keys, choice, strict=True)), "statement": written.text}
        chosen["text"] = f"{written.text} ({', '.join(choice)})" if choice else written.text
        claims.append(Claim.model_validate(said | chosen))
    return claims


def resolved(
    claim: Claim,
    about: Partial,
    headline: Metric | None,
    path: Path,
    names: Names,
    wrong: Collection[str] = (),
) -> tuple[Claim, Experiment]:
    """The claim with the labels of its experiment's losses, and the experiment; all its mistakes are noted.

    What depends on a part of the experiment with mistakes, or on `wrong` keys of the claim, is not checked.
    """
    with names.mistakes.together():
        metrics = _metrics(claim, about, headline, path, names)
        claim = claim.model_copy(update={key: metric.name for key, metric in metrics.items()})
        if not wrong:
            with names.mistakes.noting():
                _check_form(claim, metrics, path, names)
        with names.mistakes.noting():
            _check_place(claim, about, path, names)
        if metric := metrics.get("metric"):
            with names.mistakes.noting():
                _check_margin(claim, metric, None if wrong else headline, path, names)
        with names.mistakes.noting():
            claim = _with_losses(claim, about, metrics, path, names)
    if wrong or about.wrong or about.experiment is None:
        raise SuiteError
    return claim, about.experiment


def _metrics(claim: Claim, about: Partial, headline: Metric | None, path: Path, names: Names) -> dict[str, Metric]:
    """The metrics that a claim names, by key; those with mistakes are left out.

    Whether an experiment has the headline is checked elsewhere.
    """
    found: dict[str, Metric] = {}
    written = {key: getattr(claim, key) for key in ("metric", "than_metric") if key in claim.model_fields_set}
    for key, name in written.items():
        with names.mistakes.noting():
            metric = names.metric(name, [*path, key])
            experiment = about.having(*GRID, "timing", "task")
            if experiment and metric != headline:
                check_metric(metric, experiment, [*path, key], names)
            found[key] = metric
    return found


def _with_losses(claim: Claim, about: Partial, metrics: Mapping[str, Metric], path: Path, names: Names) -> Claim:
    """The claim with the labels of the experiment's losses, which can be compared on these metrics."""
    written = {key: getattr(claim, key) for key in ("better", "not_worse", "than")}
    written |= {f"equivalent[{place}]": name for place, name in enumerate(claim.equivalent or ())}
    given = {key: name for key, name in written.items() if name is not None}
    with names.mistakes.together():
        found = {key: names.mistakes.attempt(_label, name, about, [*path, key], names) for key, name in given.items()}
        trend = claim.loss and names.mistakes.attempt(names.loss, claim.loss, [*path, "loss"])
    labels = {key: name for key, name in found.items() if name is not None}  # all of them
    if claim.along is not None and trend:
        claim = _resolved_trend(claim, claim.along, trend, about, metrics.get("metric"), path, names)
    if claim.equivalent is not None:
        claim = claim.model_copy(update={"equivalent": [labels.pop("equivalent[0]"), labels.pop("equivalent[1]")]})
    elif claim.along is None and "than" not in labels and claim.than_metric is not None:
        labels["than"] = labels.get("better", "")  # the loss itself on another metric
    claim = claim.model_copy(update=labels)
    _check_sides(claim, path, names)
    if (metric := needing_weights([*metrics.values()])) is not None:
        for loss in losses_of(claim):
            if names.weightless(parse_label(loss)[0]):
                names.mistakes.note(names.fail(path, without_class_weights(metric, loss)))
    return claim


def _label(written: str, about: Partial, path: Path, names: Names) -> str:
    """The label of a loss in the claim's experiment; its name has to be right in any case."""
    experiment = about.having("losses")
    return names.one_of(written, experiment.losses, path) if experiment else names.loss(written, path).label


def _check_sides(claim: Claim, path: Path, names: Names) -> None:
    """No loss is compared with itself, except on two metrics."""
    first, second = claim.equivalent or (claim.better or claim.not_worse, claim.than)
    if first is not None and first == second and claim.than_metric in (None, claim.metric):
        raise names.fail(path, f"compares '{first}' with itself")


def _check_place(claim: Claim, about: Partial, path: Path, names: Names) -> None:
    """The width, the number of classes and the other values of a claim are among the experiment's."""
    note = names.mistakes.note
    with names.mistakes.together():
        if (some := about.having("widths")) and claim.width not in (None, *some.widths):
            known = ", ".join(map(str, some.widths))
            problem = f"experiment '{some.name}' has no width {claim.width!r}; known: {known}"
            note(names.fail([*path, "width"], problem))
        if (some := about.having("dataset", "classes")) and claim.classes not in (None, *(ks := _counts(some))):
            known = ", ".join(map(str, ks))
            problem = f"experiment '{some.name}' has no cells with {claim.classes} classes; known: {known}"
            note(names.fail([*path, "classes"], problem))
        experiment = about.having(*GRID)
        if experiment is None:
            return
        for name in claim.at:
            if problem := _misplaced(claim, name, experiment):
                note(names.fail([*path, "at", name], problem))
    if not any(covers(claim, point) for point, *_ in experiment.grid):
        raise names.fail([*path, "at"], f"no point of experiment '{experiment.name}' has all these values")


def _counts(experiment: Experiment) -> list[int]:
    """Its numbers of classes."""
    return list(dict.fromkeys(data.classes for data in experiment.datasets))


def _misplaced(claim: Claim, name: str, experiment: Experiment) -> str:
    """What is wrong with the value of an axis in `at`."""
    value, points = claim.at[name], [point for point, *_ in experiment.grid]
    if name not in experiment.axes:
        return f"experiment '{experiment.name}' has no axis '{name}'; {nearest(name, experiment.axes)}"
    if name in AVERAGED and getattr(claim, name) is not None:
        return f"is given twice, also as '{name}'; remove one"
    if not any(point.lies({name: value}) for point in points):
        known = known_values(value, (point[name] for point in points if name in point))
        return f"experiment '{experiment.name}' has no {name} {value!r}; {known}"
    return ""


def _check_margin(claim: Claim, metric: Metric, headline: Metric | None, path: Path, names: Names) -> None:
    """A margin fits the metric's unit, and metrics that are no scores have one where the claim needs it.

    Without `headline` it is not known whether one is needed.
    """
    if claim.margin is not None:
        check_margin(claim.margin, metric, [*path, "margin"], names)
    elif headline and not default_applies(metric, headline) and any(getattr(claim, key) for key in MARGINS):
        raise names.fail(path, needs_margin(metric))


def _check_form(claim: Claim, metrics: Mapping[str, Metric], path: Path, names: Names) -> None:
    """A claim has one form, the keys that it needs, and no others."""
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
            names.mistakes.note(names.fail(path, f"needs the key '{key}' beside '{form}'"))
    for key in dict.fromkeys(key for parts in FORMS.values() for group in parts for key in group):
        if getattr(claim, key) is not None and key not in (*needed, *allowed):
            names.mistakes.note(names.fail([*path, key], f"cannot be combined with '{form}'"))
    if "than_metric" in metrics and "metric" in metrics:
        first, second = metrics["metric"], metrics["than_metric"]
        if "step_seconds" in (first.name, second.name):
            raise names.fail([*path, "than_metric"], "step times are ratios and cannot be compared with another metric")
        if (first.unit, first.higher_is_better) != (second.unit, second.higher_is_better):
            problem = f"'{second.name}' cannot be compared with '{first.name}': another unit or direction"
            raise names.fail([*path, "than_metric"], problem)


def _resolved_trend(
    claim: Claim, along: str, spec: Spec, about: Partial, metric: Metric | None, path: Path, names: Names
) -> Claim:
    """A claim about the trend of a metric along an option of the loss `spec` or an axis of the grid."""
    written = str(claim.loss)
    experiment = about.having(*GRID, "losses")
    if experiment is None:
        raise SuiteError
    if experiment.tunes and along not in experiment.axes:
        problem = f"tuning chooses the options of '{experiment.name}', so it has no trend along '{along}'"
        raise names.fail(path, f"{problem}; use an axis such as width, or the experiment '{experiment.tunes}'")
    key = next(key for key in FEWEST_VALUES if getattr(claim, key))
    follows_axis = along in experiment.axes
    if follows_axis:
        loss = names.one_of(written, experiment.losses, [*path, "loss"])
        known = _followable(claim, along, experiment, metric, path, names)
        if along == "classes" and set(experiment.widths) == {"min"}:
            claim = claim.model_copy(update={"width": "min"})
    else:
        loss, known = _variants_along(written, spec, along, experiment, [*path, key], [*path, "loss"], names)
    values = known
    if claim.values is not None:
        values = _chosen(claim, along, known, loss, experiment, path, names)
    if len(set(values)) < FEWEST_VALUES[key]:
        problem = f"needs at least {FEWEST_VALUES[key]} values of '{along}', the cells have {_listed(values)}"
        cure = "add a value" if follows_axis else "compare two with 'better' and 'than'"
        raise names.fail([*path, key], f"{problem}; {cure}")
    kept = sorted(set(values)) if claim.values is not None else None
    return claim.model_copy(update={"loss": loss, "values": kept, "follows_axis": follows_axis})


def _variants_along(
    written: str, spec: Spec, along: str, experiment: Experiment, key: Path, path: Path, names: Names
) -> tuple[str, list[float]]:
    """The loss of a trend along one of its options, as its variants match it, and the values of that option."""
    if along not in spec.options:
        hint = nearest(along, [*spec.options, *experiment.axes])
        problem = f"loss '{spec.name}' has no option '{along}', and experiment '{experiment.name}' does not sweep it"
        raise names.fail(key, f"{problem} (as a list, or {{ sweep = [...] }}); {hint}")
    loss = label(spec.name, {name: spec.options[name] for name in parse_label(written)[1]})
    try:
        known = list(variants(experiment.losses, loss, along))
    except ValueError as error:
        raise names.fail(path, error) from error
    if not known:
        hint = nearest(written, [spec.label for spec in experiment.losses])
        raise names.fail(path, f"no cell produces '{written}'; {hint}")
    return loss, known


def _chosen(
    claim: Claim, along: str, known: Sequence[float], loss: str, experiment: Experiment, path: Path, names: Names
) -> list[float]:
    """The `values` of a trend, all of which the experiment has."""
    least = {minimum_width(data.classes) for data in experiment.datasets}
    written = claim.values or []
    wanted = [_width(value, least) if along == "width" else value for value in written]
    with names.mistakes.together():
        for index, value in enumerate(wanted):
            if value not in known:
                problem = f"experiment '{experiment.name}' has no {along} {written[index]!r} for '{loss}'"
                names.mistakes.note(names.fail([*path, "values", index], f"{problem}; known: {_listed(known)}"))
    return [float(value) for value in wanted if value != "min"]


def _followable(
    claim: Claim, along: str, experiment: Experiment, metric: Metric | None, path: Path, names: Names
) -> list[float]:
    """The values of an axis that a trend follows; an error if there can be no trend along it."""
    with names.mistakes.together():
        if metric and metric.name == "step_seconds":
            problem = f"step times are compared within a timing cell, which has one {along}; use 'better' and 'than'"
            names.mistakes.note(names.fail([*path, "metric"], problem))
        for given, place in ((getattr(claim, along, None), [along]), (claim.at.get(along), ["at", along])):
            if given is not None:
                problem = f"cannot be combined with a trend along {along}; use 'values'"
                names.mistakes.note(names.fail([*path, *place], problem))
    if not any(covers(claim, point) for point, *_ in experiment.grid):
        raise SuiteError  # reported at the claim's place
    known = _grid_values(claim, along, experiment)
    if not all(map(is_number, known)):
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
