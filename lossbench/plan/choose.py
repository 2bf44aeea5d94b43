"""Which profile of a suite's `auto` list can run here: the first whose device and data are available. Pure.

- Device: a profile with an experiment on `device = "cuda"` needs a GPU.
- Data: of the experiments that need files (digits and glyphs need none), at least one has them or can fetch them; the
  others are reported as not run. A profile without any experiment that needs files can always run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

SHOWN = 3  # names of datasets in a sentence


@dataclass(frozen=True)
class Needs:
    """What one profile needs."""

    profile: str
    gpu: bool
    lacking: Mapping[str, Sequence[str]]  # missing datasets, by experiment that needs files


@dataclass(frozen=True)
class Situation:
    """What this machine has."""

    gpu: bool
    folder: str  # the data folder as a user would write it
    fetch: bool  # whether downloads are allowed
    obtainable: Collection[str]  # datasets that can be fetched
    failed: Collection[str] = ()  # datasets whose download failed


@dataclass(frozen=True)
class Choice:
    """The chosen profile, and why: words that follow a colon."""

    profile: str
    why: str


def choose(candidates: Sequence[Needs], here: Situation) -> tuple[Choice | None, str]:
    """The first candidate that can run, or None; and why those before it cannot."""
    obstacles: dict[str, None] = {}
    for needs in candidates:
        obstacle = _obstacle(needs, here)
        if not obstacle:
            return Choice(needs.profile, _why(needs, here, list(obstacles))), _joined(obstacles)
        obstacles[obstacle] = None
    return None, _joined(obstacles)


def _obstacle(needs: Needs, here: Situation) -> str:
    if needs.gpu and not here.gpu:
        return "no GPU"
    if not needs.lacking or any(set(names) <= set(here.obtainable) for names in needs.lacking.values()):
        return ""
    missing = list(dict.fromkeys(name for names in needs.lacking.values() for name in names))
    are = "are" if len(missing) > 1 else "is"
    if not here.fetch:
        return f"{_listed(missing)} {are} not in {here.folder} (--no-fetch)"
    if any(name in here.failed for name in missing):
        return f"{_listed(missing)} {are} not in {here.folder} and could not be fetched"
    return f"{_listed(missing)} {are} neither in {here.folder} nor reachable"


def _why(needs: Needs, here: Situation, obstacles: Sequence[str]) -> str:
    said = [_joined(obstacles)] if obstacles else []
    if needs.gpu:
        said.append("a GPU is available")
    if any(not names for names in needs.lacking.values()):
        said.append(f"data in {here.folder}")
    return "; ".join(said) or "the first that can run here"


def _joined(obstacles: Iterable[str]) -> str:
    return ", and ".join(obstacles)


def _listed(names: Sequence[str]) -> str:
    if len(names) <= SHOWN + 1:
        return ", ".join(names)
    return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN} more datasets"
