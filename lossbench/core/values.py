"""Values that a suite may contain: those that TOML, JSON and a line of text can all express. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

MOST_NESTED = 32
MOST_TEXT, MOST_PROSE = 1000, 10_000  # characters of a name or an option, of a claim or a note
MOST_SHOWN = 100  # characters of a wrong value in an error
PROSE = frozenset({"title", "text", "note", "source", "other"})  # keys whose text may have several lines
UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, lone surrogates, line and paragraph separators


def flaw(value: Any) -> tuple[list[Any], str] | None:
    """The first invalid part of `value`: its path inside the value, and what is wrong with it."""
    return next(flaws(value), None)


def flaws(value: Any) -> Iterator[tuple[list[Any], str]]:
    """All invalid parts of `value`."""
    return _flaws(value, [], prose=False)


def _flaws(value: Any, path: list[Any], *, prose: bool) -> Iterator[tuple[list[Any], str]]:
    if isinstance(value, str):
        if len(value) > (most := MOST_PROSE if prose else MOST_TEXT):
            yield path, f"has {len(value):,} characters; the most is {most:,}"
        bad = (one for one in value if unicodedata.category(one) in UNPRINTABLE and not (prose and one in "\n\t"))
        if not value.isprintable() and (found := next(bad, None)):
            yield path, f"has the unprintable character U+{ord(found):04X}"
    elif isinstance(value, dict | list | tuple):
        if len(path) > MOST_NESTED:
            yield path[:1], f"is nested more than {MOST_NESTED} levels deep"
            return
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ((path, f"the key {shown(key)} {problem}") for _, problem in _flaws(key, path, prose=False))
            yield from _flaws(item, [*path, key], prose=key in PROSE or (prose and isinstance(key, int)))
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            yield path, "is a whole number of more than 64 bits"
    elif value is not None and not isinstance(value, float):
        yield path, f"is a {type(value).__name__}; a suite may contain text, numbers, true, false, lists and tables"


def frozen(value: Any) -> Any:
    """A hashable form of a value, equal exactly if the values are equal."""
    if isinstance(value, dict):
        return frozenset((key, frozen(item)) for key, item in value.items())
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def first_repeated(items: Sequence[Any]) -> Any:
    """The first item that occurs a second time; None if there is none."""
    seen: set[Any] = set()
    return next((item for item in items if item in seen or seen.add(item)), None)  # type: ignore[func-returns-value]  # add is None


def shown(value: Any) -> str:
    """A value for an error message: one line, not too long."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


def as_json(value: Any) -> Any:
    """The value of an option with lists in place of tuples."""
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value
