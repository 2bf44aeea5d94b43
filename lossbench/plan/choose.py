"""Which profile of a suite can run here: the first of its `auto` list whose device and data are available. Pure.

- The device: an experiment with `device = "cuda"` needs a GPU; a profile with such an experiment is passed over where
  there is none.
- The data: of the experiments that need files (digits and glyphs need none), at least one has them here, or they can be
  fetched. The others are reported as not run and do not stand in the way. A profile none of whose experiments needs
  files can always run; one that needs files for some, and has them for none of those, is passed over, even if the rest
  of it could run: what is left of it is not what it was written for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

SHOWN = 3  # names of datasets in a sentence


@dataclass(frozen=True)
class Needs:
    """What one profile needs of a machine."""

    profile: str
    gpu: bool
    lacking: Mapping[str, Sequence[str]]  # by experiment, of those that need files: the datasets that are not here


@dataclass(frozen=True)
class Situation:
    """What this machine has."""

    gpu: bool
    folder: str  # where data lies, as a person would write it
    fetch: bool  # whether anything may be fetched
    obtainable: Collection[str]  # datasets that can be fetched
    failed: Collection[str] = ()  # datasets whose download was tried and failed


@dataclass(frozen=True)
class Choice:
    """The profile that was chosen, and why, in words that follow a colon."""

    profile: str
    why: str


def choose(candidates: Sequence[Needs], here: Situation) -> tuple[Choice | None, str]:
    """The first candidate that can run, or None; and what stands in the way of those before it."""
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
        return f"{_listed(missing)} {are} not in {here.folder} (nothing is fetched: --no-fetch)"
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
