"""Turn a pydantic error into one sentence per mistake: the place, the problem, the nearest valid value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

import pydantic

from lossbench.core.errors import SuiteError, closest, nearest
from lossbench.core.format import Schedule
from lossbench.core.values import shown
from lossbench.suite.format import UNTUNED, ExperimentText, Profile, SuiteFile, Tune

Model = TypeVar("Model", bound=pydantic.BaseModel)


def validate(model: type[Model], raw: Mapping[str, Any], where: Callable[[Sequence[Any]], str]) -> Model:
    """`raw` as a model; SuiteError names the place (as `where` formats it) of every mistake."""
    try:
        return model.model_validate(raw)
    except pydantic.ValidationError as error:
        problems = error.errors(include_url=False)
        wrong = FormatError(*(f"{where(path)}: {_sentence(same, model)}" for path, same in _mistakes(problems, raw)))
        wrong.places = [problem["loc"] for problem in problems]
        raise wrong from error


class FormatError(SuiteError):
    """A table does not fit its model; each of `places` begins with a key that is wrong or missing."""

    places: Sequence[tuple[Any, ...]] = ()

    def keys(self, known: Collection[str], raw: Mapping[str, Any]) -> set[str]:
        """The keys of the table `raw` that are wrong or missing, and those that an unknown key may be meant as."""
        found = {str(place[0]) for place in self.places if place}
        return found | {meant for key in found if (meant := closest(key, known)) and meant not in raw}


def _mistakes(problems: Sequence[Any], raw: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """The problems that are one mistake each, with their path: in a union, those of the branch that fits best."""
    found = [(_real_path(problem, raw), problem) for problem in problems]
    groups: dict[tuple[Any, ...], tuple[list[Any], list[Any]]] = {}
    for path, problem in found:
        missing = problem["type"] == "missing"
        branch = len(problem["loc"]) > len(path) + missing  # of a union: other problems may be of another branch
        below = any(len(other) > len(path) and other[: len(path)] == path for other, _ in found)
        if (below and (branch or not missing)) or (missing and _misspelt(problem["loc"][-1], path, found)):
            continue
        key = problem["loc"][-1] if missing and not branch else None
        groups.setdefault((*path, key), (path, []))[1].append(problem)
    return iter(groups.values())


def _misspelt(key: str, path: list[Any], found: Sequence[tuple[list[Any], Any]]) -> bool:
    """Whether an unknown key of the table at `path` looks like `key`."""
    unknown = [
        str(there[-1]) for there, problem in found if problem["type"] == "extra_forbidden" and there[:-1] == path
    ]
    return closest(key, unknown) is not None


def _real_path(problem: Any, raw: Any) -> list[Any]:
    """The key's path in the file: pydantic's own without the names of union branches."""
    path: list[Any] = []
    here = raw
    *inner, last = problem["loc"]
    for part in inner:
        if (isinstance(here, dict) and part in here) or (isinstance(here, list) and isinstance(part, int)):
            path.append(part)
            here = here[part]
    if problem["type"] == "missing":
        return path
    if (isinstance(here, dict) and last in here) or (isinstance(here, list) and isinstance(last, int)):
        path.append(last)
    return path


_EXPECTED: dict[str, Callable[[dict[str, Any]], str]] = {
    "int_type": lambda _: "a whole number",
    "int_from_float": lambda _: "a whole number",
    "float_type": lambda _: "a number",
    "bool_type": lambda _: "true or false",
    "string_type": lambda _: "text",
    "list_type": lambda _: "a list",
    "dict_type": lambda _: "a table",
    "model_type": lambda _: "a table",
    "model_attributes_type": lambda _: "a table",
    "literal_error": lambda context: str(context["expected"]),
    "greater_than_equal": lambda context: f"at least {_bound(context['ge'])}",
    "greater_than": lambda context: f"greater than {_bound(context['gt'])}",
    "less_than_equal": lambda context: f"at most {_bound(context['le'])}",
    "less_than": lambda context: f"less than {_bound(context['lt'])}",
    "too_short": lambda context: f"a list of at least {_items(context['min_length'])}",
    "too_long": lambda context: f"a list of at most {_items(context['max_length'])}",
    "finite_number": lambda _: "a finite number",
    "string_too_short": lambda _: "text that is not empty",
    "string_pattern_mismatch": lambda _: "made of letters, digits, '.', '_' and '-'",
}
SCALARS = {"text", "true or false", "a whole number", "a number"}  # what a value of an axis may be


def _items(count: int) -> str:
    return "one item" if count == 1 else f"{count} items"


def _bound(value: float) -> str:
    return f"{value:g}" if value < 10**6 else f"{int(value):,}"


def _sentence(problems: Sequence[Any], model: type[pydantic.BaseModel]) -> str:
    problem = problems[0]
    for item in problems:
        if item["type"] == "missing":
            return f"needs the key '{item['loc'][-1]}'"
    if problem["type"] == "extra_forbidden":
        key = str(problem["loc"][-1])
        table = _table_at(model, problem["loc"][:-1])
        return f"unknown key '{key}'; {_home(key, table) or nearest(key, table.model_fields)}"
    if problem["type"] == "value_error":  # a sentence of our own
        return str(problem["ctx"]["error"])
    expected = []
    for item in problems:
        describe = _EXPECTED.get(item["type"])
        expected.append(describe(item.get("ctx", {})) if describe else str(item["msg"]))
    wanted = "one value" if {*expected} >= SCALARS else " or ".join(dict.fromkeys(expected))
    key = problem["loc"][-1]
    if model is SuiteFile and len(problem["loc"]) == 1 and isinstance(problem["input"], dict | list):
        wanted += {"a list": f" ([[{key}]])", "a table": f" ([{key}])"}.get(wanted, "")
    swept = model is ExperimentText and key == "schedule"
    hint = "; to sweep one of its keys, give that key a list" if swept and isinstance(problem["input"], list) else ""
    return f"must be {wanted}, got {shown(problem['input'])}{hint}"


def _home(key: str, table: type[pydantic.BaseModel]) -> str:
    """Where a key belongs that is in the wrong table."""
    homes: dict[type[pydantic.BaseModel], str] = {
        ExperimentText: "in [[experiment]] or [defaults]",
        Schedule: "in 'schedule'",
        SuiteFile: "at the top level",
    }
    if table is Profile:
        homes = {ExperimentText: "in 'all' or 'experiment.NAME'", Schedule: "in 'all.schedule'"}
    elif table is Tune:
        if key in UNTUNED:
            return "it cannot be tuned: it is the same for every trial"
        homes = {Schedule: "in 'tune.schedule'"}
    elif table not in homes:
        return ""
    return next((f"it belongs {home}" for model, home in homes.items() if key in model.model_fields), "")


def _table_at(model: type[pydantic.BaseModel], path: Sequence[Any]) -> type[pydantic.BaseModel]:
    """The model of the table at `path`."""
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            model = next(_models(model.model_fields[part].annotation), model)
    return model


def _models(annotation: Any) -> Iterator[type[pydantic.BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
