"""All mistakes of a suite at once: what is wrong in one part does not hide what is wrong in another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from lossbench.core.errors import SuiteError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Mistakes:
    """The mistakes found so far. A mistake that several experiments or profiles inherit is one mistake."""

    def __init__(self) -> None:
        self.found: dict[str, None] = {}
        self._noted = 0  # also counts mistakes that were known already

    def note(self, error: SuiteError) -> None:
        self.found |= dict.fromkeys(error.mistakes)
        self._noted += 1

    @contextmanager
    def noting(self, only: Sequence[str] | None = None) -> Iterator[None]:
        """Note what is wrong in the block (`only` in these places), and go on after it."""
        before = dict(self.found)
        try:
            yield
        except SuiteError as error:
            self.note(error)
        if only is not None:
            self.found = before | {mistake: None for mistake in self.found if mistake.startswith(tuple(only))}

    @contextmanager
    def noting_in(self, wrong: set[str], part: str) -> Iterator[None]:
        """Note what is wrong in the block, and go on after it; `part` is then among the `wrong` ones."""
        before = self._noted
        with self.noting():
            yield
        if self._noted > before:
            wrong.add(part)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Raise at the end of the block if a mistake was noted in it; the error states none, they are noted already."""
        before = self._noted
        yield
        if self._noted > before:
            raise SuiteError

    def attempt(self, function: Callable[..., Result], *arguments: Any) -> Result | None:
        """The result of `function`; None if something is wrong."""
        with self.noting():
            return function(*arguments)
        return None

    def every(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results of `function` for the items in which nothing is wrong."""
        results = []
        for item in items:
            with self.noting():
                results.append(function(item))
        return results

    def check(self, places: Callable[[], Sequence[str]] = lambda: ()) -> None:
        """Raise all mistakes, in the order of the places that they begin with."""
        if self.found:
            order = {place: number for number, place in enumerate(places())}

            def number(mistake: str) -> int:
                at = max((place for place in order if mistake.startswith(place)), key=len, default="")
                return order.get(at, len(order))

            raise SuiteError(*sorted(self.found, key=number))


def paths(raw: Any) -> Iterator[list[Any]]:
    """The path of everything in a suite file, in its order; experiments by name."""
    for key, value in raw.items():
        for path in _below(value):
            if key == "experiment" and path and isinstance(name := _name(value[path[0]]), str):
                path[0] = name
            yield [key, *path]


def _name(experiment: Any) -> Any:
    return experiment.get("name") if isinstance(experiment, Mapping) else None


def _below(value: Any) -> Iterator[list[Any]]:
    yield []
    if isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from ([key, *path] for path in _below(item))
