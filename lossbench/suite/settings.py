"""Trials → settings: which trial of a loss won, and the experiments that are then trained with what was chosen. Pure.

A trial counts when all its seeds finished; the one with the best mean accuracy on the held-out images wins, of equal
ones the earliest, so that a loss stays as it is written unless something is better. Every point of the grid (a dataset,
a width) chooses for itself. A trial that diverged, or whose plugin raised, has lost; one that was killed or ran out of
memory, time or disk has not been tried yet, and nothing is chosen before it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lossbench.core.model import Cell, Experiment, Setting, Spot, Suite

SUFFIX = "-tuned"


class Place(NamedTuple):
    """A loss at a point of an experiment."""

    experiment: str
    dataset: str
    width: int
    loss: str

    @property
    def spot(self) -> Spot:
        return self.dataset, self.width, self.loss


@dataclass
class Trial:
    """How one trial came out."""

    number: int
    setting: Setting  # its loss has the label of the loss that is tuned
    accuracies: list[float] = field(default_factory=list)  # in percent, of the seeds that finished
    lost: int = 0  # seeds that ended otherwise, as they would again
    disturbed: int = 0  # seeds that the environment ended: killed, out of memory or time, disk full
    missing: int = 0  # seeds without a record

    @property
    def mean(self) -> float | None:
        """On the held-out images; None where a seed did not finish: a mean over survivors would flatter it."""
        return None if self.lost or self.left else sum(self.accuracies) / len(self.accuracies)

    @property
    def left(self) -> int:
        """Seeds that are to be trained before anything is chosen."""
        return self.disturbed + self.missing


def tried(cells: Sequence[Cell], records: Mapping[str, Mapping[str, Any]]) -> dict[Place, list[Trial]]:
    """The trials of every loss and point, in their order; a record is asked for `status`, `cause` and `accuracy`."""
    found: dict[Place, dict[int, Trial]] = {}
    for cell in (cell for cell in cells if cell.kind == "trial"):
        label, number = cell.tried
        mine = found.setdefault(Place(cell.experiment, cell.dataset.label, cell.width, label), {})
        loss = replace(cell.loss, label=label)
        trial = mine.setdefault(number, Trial(number, Setting(loss, cell.schedule.lr)))
        record = records.get(cell.key)
        if record is None:
            trial.missing += 1
        elif record["status"] == "done":
            trial.accuracies.append(record["accuracy"])
        elif record.get("cause") == "environment":
            trial.disturbed += 1
        else:
            trial.lost += 1
    return {place: [mine[number] for number in sorted(mine)] for place, mine in found.items()}


def complete(trials: Sequence[Trial]) -> bool:
    """Whether every trial has ended, well or not: before that nothing is chosen."""
    return not any(trial.left for trial in trials)


def winner(trials: Sequence[Trial]) -> Trial | None:
    """The trial with the best mean, of equal ones the earliest; None where none finished."""
    finished = [trial for trial in trials if trial.mean is not None]
    return max(finished, key=lambda trial: (trial.mean, -trial.number), default=None)


def with_tuned(suite: Suite, cells: Sequence[Cell], records: Mapping[str, Mapping[str, Any]]) -> Suite:
    """The suite and the tuned experiments whose settings the records decide, as far as they do."""
    chosen: dict[str, dict[Spot, Setting]] = {}
    for place, trials in tried(cells, records).items():
        if complete(trials) and (best := winner(trials)):
            chosen.setdefault(place.experiment, {})[place.spot] = best.setting
    added = [tuned(each, chosen[each.name]) for each in suite.experiments if each.name in chosen]
    return replace(suite, experiments=(*suite.experiments, *added))


def without_setting(cells: Sequence[Cell], records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for every loss and point of which no trial finished, so that nothing can be chosen."""
    for place, trials in tried(cells, records).items():
        if complete(trials) and winner(trials) is None:
            where = f"{place.experiment}  {place.loss}  M={place.width}  {place.dataset}"
            yield f"not tuned: {where}: none of its {len(trials)} trials finished, so it is left out of {named(place)}"


def waiting(cells: Sequence[Cell], records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A sentence where trials have not been run, as a filter leaves them, and one where the environment ended some."""
    found = tried(cells, records).values()
    missing = sum(any(trial.missing for trial in trials) for trials in found)
    disturbed = sum(any(trial.disturbed for trial in trials) for trials in found)
    if missing:
        yield f"{missing} of {len(found)} losses and points have trials left to run: not tuned yet"
    if disturbed:
        trials = sum(trial.disturbed > 0 for trials in found for trial in trials)
        yield (
            f"{trials} trial{'s were' if trials > 1 else ' was'} lost to the environment (killed, out of memory or "
            f"time, disk full): {disturbed} of {len(found)} losses and points not tuned yet; run again with "
            "--retry-failed"
        )


def named(place: Place) -> str:
    return place.experiment + SUFFIX


def tuned(experiment: Experiment, settings: Mapping[Spot, Setting]) -> Experiment:
    """The same experiment with chosen settings. Step times and published numbers stay with the losses as written."""
    name = experiment.name + SUFFIX
    return replace(
        experiment, name=name, trials=None, tunes=experiment.name, settings=settings, timing=None, published=()
    )


def expected(suite: Suite) -> Suite:
    """The tuned experiments alone, as if every loss came out as it is written: so many cells will follow the trials."""
    follow = [tuned(each, {}) for each in suite.experiments if each.trials]
    return replace(suite, experiments=tuple(replace(each, settings=None) for each in follow))
