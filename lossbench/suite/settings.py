"""Trials → settings: which trial of a loss won, and the tuned experiments that follow. Pure.

A trial counts if all its seeds finished. The one with the best mean of the headline metric on the held-out images
wins; ties go to the earliest, so a loss keeps its defaults unless something is better. The choice is made per point of
the grid.
A trial that diverged or whose plugin raised has lost. One that was killed or ran out of memory, time or disk has not
been tried yet, and nothing is chosen before it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lossbench.core.current import stale
from lossbench.core.format import Schedule
from lossbench.core.metric import Metric
from lossbench.core.model import Cell, Experiment, LossAt, Setting
from lossbench.plugins.metrics import value_in

SUFFIX = "-tuned"
Records = Mapping[str, Mapping[str, Any]]  # by key; `status`, `cause` and `score` are read


@dataclass
class Trial:
    """The outcome of one trial over its seeds."""

    number: int
    setting: Setting
    schedule: Schedule  # with the keys that the setting changes
    scores: list[float] = field(default_factory=list)  # of the seeds that finished; larger is better
    lost: int = 0  # seeds that failed and would fail again
    disturbed: int = 0  # seeds ended by the environment: killed, out of memory or time, disk full
    missing: int = 0  # seeds without a record

    @property
    def mean(self) -> float | None:
        """On the held-out images; None if a seed did not finish: a mean over the others would be biased."""
        return None if self.lost or self.left else sum(self.scores) / len(self.scores)

    @property
    def left(self) -> int:
        """Seeds that must still be trained before anything is chosen."""
        return self.disturbed + self.missing


def scored(cells: Sequence[Cell], records: Records, headline: Metric) -> dict[str, dict[str, Any]]:
    """What `tried` needs of these records (contents of record.json); a trial without a score has lost.

    A trial whose metric was measured with other code has no record yet.
    """
    found = {}
    for cell in cells:
        record = records.get(cell.key)
        if record is None or stale(cell, record):
            continue
        value = value_in(record, headline, cell) if record["status"] == "done" else None
        status = "diverged" if value is None and record["status"] == "done" else record["status"]
        score = None if value is None else headline.sign * value
        found[cell.key] = {"status": status, "cause": record.get("cause"), "score": score}
    return found


def tried(cells: Sequence[Cell], records: Records) -> dict[LossAt, list[Trial]]:
    """The trials of every loss at every point, by trial number."""
    defaults = {cell.point: cell.schedule for cell in cells if cell.kind == "train"}
    found: dict[LossAt, dict[int, Trial]] = {}
    for cell in cells:
        if cell.trial is None:
            continue
        mine = found.setdefault((cell.point, cell.loss.label), {})
        if cell.trial not in mine:
            setting = Setting(cell.loss, _changed(cell.schedule, defaults[cell.point]))
            mine[cell.trial] = Trial(cell.trial, setting, cell.schedule)
        trial = mine[cell.trial]
        record = records.get(cell.key)
        if record is None:
            trial.missing += 1
        elif record["status"] == "done":
            trial.scores.append(record["score"])
        elif record.get("cause") == "environment":
            trial.disturbed += 1
        else:
            trial.lost += 1
    return {place: [mine[number] for number in sorted(mine)] for place, mine in found.items()}


def _changed(schedule: Schedule, default: Schedule) -> dict[str, Any]:
    """The keys that a trial changes. It may have fewer steps, as some images are held out, and evaluates only once."""
    left = {"steps", "epochs", "evaluations"}
    before = default.model_dump()
    return {key: value for key, value in schedule.model_dump(exclude=left).items() if value != before[key]}


def complete(trials: Sequence[Trial]) -> bool:
    """Whether every trial has ended; nothing is chosen before."""
    return not any(trial.left for trial in trials)


def winner(trials: Sequence[Trial]) -> Trial | None:
    """The trial with the best mean, the earliest of equal ones; None if none finished."""
    finished = [trial for trial in trials if trial.mean is not None]
    return max(finished, key=lambda trial: (trial.mean, -trial.number), default=None)


def tuned_experiments(
    experiments: Sequence[Experiment], cells: Sequence[Cell], records: Records
) -> tuple[Experiment, ...]:
    """The tuned experiments, with every setting that the trials have decided so far."""
    chosen = {
        place: best.setting
        for place, trials in tried(cells, records).items()
        if complete(trials) and (best := winner(trials))
    }
    names = {point["experiment"] for point, _ in chosen}
    return tuple(tuned(each, chosen) for each in experiments if each.name in names)


def tuned(experiment: Experiment, settings: Mapping[LossAt, Setting] | None = None) -> Experiment:
    """The tuned counterpart of an experiment; without `settings` every loss keeps its defaults.

    Step times and published numbers belong to the defaults and stay with them.
    """
    name = experiment.name + SUFFIX
    return replace(
        experiment, name=name, trials=None, tunes=experiment.name, settings=settings, timing=None, published=()
    )


def notices(cells: Sequence[Cell], records: Records) -> Iterator[str]:
    """One sentence per loss and point without a finished trial, and one each for trials left to run or disturbed."""
    found = tried(cells, records)
    for (point, loss), trials in found.items():
        if complete(trials) and winner(trials) is None:
            where = f"{point['experiment']}  {loss}  {point.told()}"
            tuned_name = point["experiment"] + SUFFIX
            yield f"not tuned: {where}: none of its {len(trials)} trials finished; {tuned_name} leaves it out"
    missing = sum(any(trial.missing for trial in trials) for trials in found.values())
    disturbed = sum(any(trial.disturbed for trial in trials) for trials in found.values())
    if missing:
        yield f"not tuned yet: {missing} of {len(found)} losses and points still have trials to run"
    if disturbed:
        lost = sum(trial.disturbed > 0 for trials in found.values() for trial in trials)
        were = f"{lost} trial{'s were' if lost > 1 else ' was'} killed or ran out of memory, time or disk"
        yield f"not tuned yet: {disturbed} of {len(found)} losses and points; {were}: run again with --retry-failed"
