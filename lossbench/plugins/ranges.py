"""Search spaces for tuning: a range of an option, or a list of choices. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lossbench.core.errors import nearest

FACTOR = 10  # a range whose ends differ by at least this factor is logarithmic
DIGITS = 3  # significant digits of a tuned value, so that people can write it down


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, inclusive; `whole` for an int option, evenly spaced in log if `logarithmic`."""

    low: float
    high: float
    whole: bool = False
    logarithmic: bool = False

    def at(self, share: float) -> float:
        """The value at a `share` (0…1) of the range."""
        # Half a step more at both ends makes all whole numbers equally likely.
        low, high = (self.low - 0.5, self.high + 0.5) if self.whole else (self.low, self.high)
        value = low * (high / low) ** share if self.logarithmic else low + share * (high - low)
        value = round(value) if self.whole else float(f"{value:.{DIGITS}g}")
        return min(max(value, self.low), self.high)

    def __str__(self) -> str:
        return f"{self.low:g}…{self.high:g}{' (log)' if self.logarithmic else ''}"


@dataclass(frozen=True)
class Choices:
    """Values to choose from, all equally likely."""

    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.values))


Space = Mapping[str, Range | Choices]  # by option


class RangeError(ValueError):
    """An invalid range, of `option`."""

    def __init__(self, option: str | None, message: str) -> None:
        super().__init__(message)
        self.option = option


def read(written: Any, parsers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Range | Choices]:
    """Ranges as a plugin or a suite writes them; `parsers` turns a value into that of an option, or raises ValueError.

    A plugin writes (low, high) for a range and a list for choices. TOML has no tuples: a suite writes [low, high] and
    {choices = […]}, converted before this is called.
    """
    if not isinstance(written, Mapping):
        raise RangeError(None, 'must map options to ranges, such as {"m": (0.05, 0.5)}')
    found: dict[str, Range | Choices] = {}
    for name, given in written.items():
        if name not in parsers:
            raise RangeError(None, f"unknown option '{name}'; {nearest(str(name), parsers)}")
        try:
            found[name] = _one(given, parsers[name])
        except ValueError as error:
            raise RangeError(name, str(error)) from error
    return found


def rising(low: float, high: float) -> tuple[float, float]:
    """The ends of a range; ValueError unless low < high."""
    if not low < high:
        raise ValueError(f"must have low < high, got {low:g} and {high:g}")
    return low, high


def _one(given: Any, parse: Callable[[Any], Any]) -> Range | Choices:
    if isinstance(given, tuple):
        if len(given) != 2 or not all(_is_number(end) for end in given):
            raise ValueError(f"must be two numbers that are 0 or from 1e-100 to 1e100 in size, got {list(given)!r}")
        low, high = rising(*(parse(end) for end in given))
        whole = not _takes(parse, low + 0.5)
        return Range(low, high, whole=whole, logarithmic=low > 0 and high / low >= FACTOR)
    if isinstance(given, list):
        values = tuple(parse(value) for value in given)
        if len(values) < 2 or any(value in values[:place] for place, value in enumerate(values)):
            raise ValueError(f"must be two or more different choices, got {given!r}")
        return Choices(values)
    raise ValueError(f"must be a range (low, high) or a list of choices, got {given!r}")


def _is_number(value: Any) -> bool:
    # Differences and ratios of two such numbers are finite too.
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and (value == 0 or 1e-100 <= abs(value) <= 1e100)
    )


def _takes(parse: Callable[[Any], Any], value: Any) -> bool:
    try:
        parse(value)
    except ValueError:
        return False
    return True
