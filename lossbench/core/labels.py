"""Labels of plugins with options in suites, command line and reports: name[option=value,…]."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any


def label(name: str, options: Mapping[str, Any]) -> str:
    """(name, options) → `name[option=value,…]`, or just the name if there are no options."""
    inside = ",".join(f"{key}={_plain(value)}" for key, value in options.items())
    return f"{name}[{inside}]" if inside else name


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "(" + " ".join(_plain(item) for item in value) + ")"
    return str(value)


def without(text: str, option: str) -> str:
    """A label without one of its options: `digits[classes=5,train=100]` → `digits[train=100]`."""
    name, bracket, inside = text.partition("[")
    kept = ",".join(part for part in inside.removesuffix("]").split(",") if part.partition("=")[0] != option)
    return f"{name}[{kept}]" if bracket and kept else name


def axis_value(value: Any) -> Any:
    """The value of an option or key on an axis: a number or a text; lists and tables as labels write them."""
    if isinstance(value, dict):
        inside = ",".join(f"{key}={_plain(item)}" for key, item in value.items() if key != "name")
        return f"{value['name']}[{inside}]" if "name" in value and inside else value.get("name", inside)
    return _plain(value) if isinstance(value, list | tuple) else value


def parse_label(text: str) -> tuple[str, dict[str, Any]]:
    """`name[option=value,…]` → (name, options); values are read as TOML, else as plain text."""
    match = re.fullmatch(r"\s*([\w.-]+)\s*(?:\[(.*)\])?\s*", text, flags=re.DOTALL)
    if not match:
        raise ValueError(f"'{text}' is not of the form name or name[option=value,…]")
    name, inside = match.groups()
    options: dict[str, Any] = {}
    for part in filter(None, (inside or "").split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise ValueError(f"'{part.strip()}' in '{text}' is not of the form option=value")
        if key in options:
            raise ValueError(f"option '{key}' is given twice in '{text}'")
        options[key] = plain_value(value)
    return name, options


def plain_value(text: str) -> Any:
    """A value that was written as TOML, or as plain text; `(a b)` is a list."""
    if text.startswith("(") and text.endswith(")"):
        return [plain_value(item) for item in text[1:-1].split()]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def distinct(labels: Sequence[str]) -> dict[str, str]:
    """Labels as short as they stay distinct: `cnn[channels=4,depths=(1)]` is `channels=4` beside `channels=6`."""
    try:
        parsed = {label: parse_label(label) for label in labels}
    except ValueError:
        return {label: label for label in labels}
    options = {key for _, given in parsed.values() for key in given}
    differing = [key for key in options if len({str(given.get(key)) for _, given in parsed.values()}) > 1]
    names = {label: name for label, (name, _) in parsed.items()}
    if len(set(names.values())) == len(labels):
        return names
    same = len(set(names.values())) == 1
    found = {}
    for label, name in names.items():
        kept = ",".join(part for part in _options(label) if part.partition("=")[0] in differing)
        found[label] = kept if same and kept else f"{name}[{kept}]" if kept else name
    return found


def _options(label: str) -> list[str]:
    """The options of a label as they are written there."""
    return label.partition("[")[2].removesuffix("]").split(",")
