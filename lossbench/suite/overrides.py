"""`--set key=value`: keys of a suite given on the command line, laid over its profile."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Protocol

from lossbench.core.errors import SuiteError, nearest
from lossbench.core.format import Schedule, Text, Timing
from lossbench.core.labels import parse_label, plain_value
from lossbench.core.values import flaw
from lossbench.plugins.registry import SHARED_DATASET_OPTIONS
from lossbench.suite.explain import validate
from lossbench.suite.format import ExperimentText, Profile, SuiteFile, Tune, WarmStart
from lossbench.suite.mistakes import Mistakes
from lossbench.suite.source import toml_value

SET = "--set"  # the first part of the path of a key that was set
SetLike = Mapping[str, Any] | Sequence[str]  # {"schedule.steps": 100}, or ["schedule.steps=100"]
TABLES: dict[str, type[Text]] = {"schedule": Schedule, "timing": Timing, "warm_start": WarmStart, "tune": Tune}
# The keys that every suite has, for hints and completion; a profile, and so its base, is chosen with --profile.
KEYS = (
    *dict.fromkeys(
        key for model in (ExperimentText, SuiteFile, Profile) for key in model.model_fields if key != "base"
    ),
    *(f"{table}.{key}" for table, model in TABLES.items() for key in model.model_fields),
)
INSTEAD = {"steps": "epochs", "epochs": "steps"}  # a key that another one replaces when a table is laid over
DECAYS = ("shape", "every", "at")  # the keys that distinguish the forms of a decay
LISTS = ("dataset", "backbone", "losses", "optimizer")  # keys of plugins, which may be lists
Path = Sequence[Any]


@dataclass(frozen=True)
class Overrides:
    """Keys that were set: those of the suite itself, and those of its experiments as one more profile."""

    written: list[str] = field(default_factory=list)  # key=value, as `lossbench run --set` takes them
    suite: Mapping[str, Any] = field(default_factory=dict)
    profile: Profile = field(default_factory=Profile)


def parse_set(given: SetLike) -> Overrides:
    """The overrides in `key=value` texts or in a mapping from keys to values; later ones win."""
    if isinstance(given, Mapping):
        written = [f"{key}={_as_text(key, value)}" for key, value in given.items()]
    else:
        written = [given] if isinstance(given, str) else list(given)
    mistakes = Mistakes()
    suite: dict[str, Any] = {}
    profile: dict[str, Any] = {}
    for text in written:
        with mistakes.noting():
            keys, value = _parsed(text)
            head = keys[0]
            if head == "experiment" and keys[1:] and not keys[2:] and not isinstance(value, dict):
                hint = f"write {SET} experiment.{keys[1]}.KEY=…"
                if keys[1] in ExperimentText.model_fields:
                    hint = f"write {SET} experiment.NAME.{keys[1]}=… for one experiment, {SET} {keys[1]}=… for all"
                raise SuiteError(f"{SET} {'.'.join(keys)}: names no key of an experiment; {hint}")
            if head in ("profile", "base") and isinstance(value, str):
                raise SuiteError(f"{SET} {head}: a profile is chosen with --profile {value}")
            if head in Profile.model_fields:
                profile = lay_over(profile, _nested(keys, value))
            elif head in SuiteFile.model_fields:
                suite = lay_over(suite, _nested(keys, value))
            elif head in ExperimentText.model_fields:
                profile = lay_over(profile, _nested(["all", *keys], value))
            else:
                raise SuiteError(f"{SET} {head}: unknown key '{head}'; {_nearest(head)}")
    found = mistakes.attempt(validate, Profile, profile, lambda path: where("", [SET, *path]))
    mistakes.check()
    assert found is not None
    return Overrides(written, suite, found)


def where(source: str, path: Path) -> str:
    """A place as errors name it: `file: dotted.path`, or `--set dotted.path`."""
    if path and path[0] == SET:
        return f"{SET} {_dotted(path[1:])}".rstrip()
    return f"{source}: {_dotted(path)}" if path else source


def assignment(path: Path, value: str) -> str:
    """How a value is written at a place: `--set 'dotted.path=value'`, or `key = value`."""
    return f"{SET} '{_dotted(path[1:])}={value}'" if path[0] == SET else f"{path[-1]} = {value}"


def _dotted(path: Path) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _as_text(key: str, value: Any) -> str:
    if found := flaw(value):
        raise SuiteError(f"{where('', [SET, key, *found[0]])}: {found[1]}")
    return toml_value(value)


def _parsed(text: str) -> tuple[list[str], Any]:
    """`key=value` → the parts of the key and the value."""
    match = re.fullmatch(r"""((?:[^="']|"[^"]*"|'[^']*')*)=(.*)""", text, flags=re.DOTALL)
    if not match:
        raise SuiteError(f"{SET} {text}: is not of the form key=value, such as {SET} schedule.steps=100")
    key, written = (part.strip() for part in match.groups())
    if found := flaw(written) or flaw(key):
        raise SuiteError(f"{SET} {key!r}: {found[1]}")
    if re.search(r"\[\d+\]", key):
        name = key.partition("[")[0].strip()
        whole = f"write the whole list: {assignment([SET, name], '[…]')}"
        instead = f"use its name: {SET} experiment.NAME.seeds=2" if name == "experiment" else whole
        raise SuiteError(f"{SET} {key}: an item of a list cannot be set by its number; {instead}")
    keys = _keys(key)
    try:
        value = plain_value(written)
    except RecursionError:
        value = written
    if value == written and written.startswith(("[", "{", '"', "'")):
        problem = "is not valid TOML: text inside lists and tables needs quotes, and the shell removes outer ones"
        raise SuiteError(f'{SET} {key}: {written} {problem}; an example: {SET} \'losses=["softmax", "arcface"]\'')
    if found := flaw(value):
        raise SuiteError(f"{where('', [SET, *keys, *found[0]])}: {found[1]}")
    return keys, value


def _keys(key: str) -> list[str]:
    """The parts of a dotted key of TOML; parts with other characters than A-Z, a-z, 0-9, _ and - are quoted."""
    try:
        rest = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        problem = f"is not a key such as schedule.steps; quote odd names: {SET} 'experiment.\"a.b\".seeds=2'"
        raise SuiteError(f"{SET} {key}: {problem}") from None
    keys: list[str] = []
    while isinstance(rest, dict):
        keys.append(next(iter(rest)))
        rest = rest[keys[-1]]
    return keys


def _nested(keys: Sequence[str], value: Any) -> Any:
    return reduce(lambda inner, key: {key: inner}, reversed(keys), value)


def _nearest(head: str) -> str:
    """The end of the error about an unknown key; 'lr' finds 'schedule.lr'."""
    full = {option: f"dataset.{option}" for option in SHARED_DATASET_OPTIONS}
    # Who writes 'loss' means 'losses', not that of a warm start.
    full |= {key.rpartition(".")[2]: key for key in reversed(KEYS) if not key.startswith("warm_start.")}
    return re.sub("'(.*)'", lambda found: f"'{full[found[1]]}'", nearest(head, full))


def lay_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key, other values replaced.

    A table with another `name`, and a decay of another form, is replaced as a whole; `epochs` replace `steps`. Options
    without a name are laid over every item of a list of plugins.
    """
    merged = {key: value for key, value in below.items() if INSTEAD.get(key) not in above}
    for key, value in above.items():
        old = merged.get(key)
        if _spreads(value, old) and key in LISTS:
            merged[key] = [_laid(key, item, value) for item in old]  # type: ignore[union-attr]  # it is a list
        else:
            merged[key] = _laid(key, old, value)
    return merged


def _laid(key: str, below: Any, above: Any) -> Any:
    """One value over another."""
    if isinstance(above, dict) and isinstance(below, str):
        below = {"shape": below} if key == "decay" else _table(below)
    if isinstance(above, dict) and isinstance(below, dict) and _same_form(key, above, below):
        return lay_over(below, above)
    return above


def _spreads(above: Any, below: Any) -> bool:
    """Whether a table is laid over every item of a list."""
    return isinstance(below, list) and isinstance(above, dict) and "name" not in above


def spread(layers: Layers, key: str) -> dict[str, list[Any]]:
    """The options that a table sets on every item of the list at `key`, with their places."""
    found: dict[str, list[Any]] = {}
    below: Any = None
    for place, table in layers:
        if key in table:
            options = table[key] if _spreads(table[key], below) else None
            found = {} if options is None else found | {option: [*place, key, option] for option in options}
            below = table[key] if options is None else below
    return found


def _same_form(key: str, above: Mapping[str, Any], below: Mapping[str, Any]) -> bool:
    """Whether a table changes keys of the one below it, rather than replaces it."""
    if key == "decay":
        return all(form in below for form in DECAYS if form in above)
    return above.get("name") in (None, below.get("name"))


def _table(written: str) -> dict[str, Any]:
    """`name[option=value]` as the table that it stands for."""
    try:
        name, options = parse_label(written)
    except ValueError:  # reported with its own place
        return {"name": written}
    return {"name": name, **options}


Layers = Sequence[tuple[list[Any], Mapping[str, Any]]]  # the path of a table, and the table


class Origin(Protocol):
    """The place where a path inside a merged table was written; with other paths, the last place that has any."""

    def __call__(self, path: Path, *others: Path) -> list[Any]: ...


def layered(layers: Layers, here: Path) -> tuple[dict[str, Any], Origin]:
    """The tables laid over each other, and where each key was written; a key that is missing belongs `here`."""

    def origin(path: Path, *others: Path) -> list[Any]:
        path = [part for part in path if part is not None]
        found = (place for place, table in reversed(layers) if any(_has(table, each) for each in (path, *others)))
        return [*next(found, here), *path]

    merged: dict[str, Any] = reduce(lay_over, (table for _, table in layers), {})
    return merged, origin


def _has(value: Any, path: Path) -> bool:
    """Whether a table decides the value at `path`: it contains that key, or something else in place of its table."""
    for part in path:
        if not isinstance(value, Mapping):
            return True
        if isinstance(part, int):  # a table over a list
            continue
        if part not in value:
            return False
        value = value[part]
    return bool(path)
