"""Several run folders of one plan → one: what shards, or the same suite on several machines, have made.

Everything is read, checked and compared before anything is written. A cell that only did not come to its end (failed,
oom, timeout) gives way to one that did; two results of one cell must be equal, or nothing is merged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lossbench.core.errors import StoreError
from lossbench.core.files import content
from lossbench.core.model import Cell, Record, Suite, SuiteInfo, result
from lossbench.store.records import Store

RESULTS = ("done", "diverged")  # statuses that the cell decides; the others are what happened to it
# The parts of an outline that tell one suite from another; the others say how and where it was run.
SUITE = ("name", "baseline", "margin", "claims", "profile", "tuning")
# What a record says of its cell: the key stands for all that decides, the rest is how the suite was written.
WORDING = ("label", "cell", "plan")


@dataclass(frozen=True)
class Plan:
    """The plan of a run folder."""

    store: Store
    outline: SuiteInfo
    cells: Sequence[Cell]

    @property
    def experiments(self) -> list[str]:
        return list(dict.fromkeys(cell.experiment for cell in self.cells))

    def of(self, experiment: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.experiment == experiment]


@dataclass(frozen=True)
class Found:
    """A sound record, and the run folder that has it."""

    store: Store
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Merged:
    """What a merge came to."""

    folder: Path
    copied: int  # records that were written
    kept: int  # records that were there already
    missing: int  # cells of the plan that no run has a record of


def merge(
    runs: Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    notify: Callable[[str], None] = lambda text: None,
) -> Merged:
    """Bring the records of `runs` together in `out`, which may be there already; StoreError when they contradict."""
    target = Store(out)
    stores: dict[Path, Store] = {}
    for store in (*([target] if _is_run(target) else []), *map(Store, runs)):
        stores.setdefault(store.root.resolve(), store)
    plans = [Plan(store, *store.plan()) for store in stores.values()]
    outline, cells = common_plan(plans)
    records: dict[Path, dict[str, dict[str, Any]]] = {}
    for place, store in stores.items():
        records[place], damaged = store.scan()
        for name, why in damaged.items():
            notify(f"{store.cells / name}: {why}; left out")
    titles = {cell.key: cell.title for cell in cells}
    chosen: dict[str, Found] = {}
    for place, store in stores.items():
        for key in (key for key in titles if key in records[place]):
            chosen[key] = better(chosen.get(key), Found(store, records[place][key]), titles[key])
    target.prepare(Suite(outline, (), _text(plans[0].store)), cells)
    new = {key: found for key, found in chosen.items() if found.store is not target}
    for key, found in new.items():
        _copy(key, found, target)
    return Merged(target.root, len(new), len(chosen) - len(new), len(titles) - len(chosen))


def common_plan(plans: Sequence[Plan]) -> tuple[SuiteInfo, list[Cell]]:
    """The plan that all have; experiments that one machine had no data for are taken from the others."""
    first = plans[0]
    having: dict[str, Plan] = {}  # by experiment, the first plan that has it
    for plan in plans:
        for name in SUITE:
            if getattr(plan.outline, name) != getattr(first.outline, name):
                raise StoreError(
                    f"{first.store.root} and {plan.store.root} are runs of different suites: they differ in '{name}'"
                )
        for experiment in plan.experiments:
            known = having.setdefault(experiment, plan)
            if strange := _difference(known.of(experiment), plan.of(experiment)):
                raise StoreError(
                    f"{known.store.root} and {plan.store.root} have different plans: only one has {strange.key} "
                    f"({strange.title}); the suite, a plugin or the data has changed between them"
                )
    for plan in plans:
        for experiment, known in having.items():
            if experiment not in plan.experiments and _untuned(experiment, plan.outline) not in plan.outline.missing:
                raise StoreError(
                    f"{known.store.root} and {plan.store.root} have different plans: only one has the experiment "
                    f"'{experiment}'"
                )
    missing = {name: why for name, why in first.outline.missing.items() if name not in having}
    added = [cell for name, plan in having.items() if plan is not first for cell in plan.of(name)]
    return replace(first.outline, missing=missing), [*first.cells, *added]


def _untuned(experiment: str, outline: SuiteInfo) -> str:
    """The experiment of the suite file that a tuned one belongs to; itself, if it is no tuned one."""
    known = outline.tuning.experiments if outline.tuning else {}
    return {tuned: name for name, tuned in known.items()}.get(experiment, experiment)


def better(one: Found | None, other: Found, title: str) -> Found:
    """The record to keep of two of the same cell; the first where they are equal."""
    if one is None:
        return other
    ends = [found.record["status"] in RESULTS for found in (one, other)]
    if all(ends) and _decided(one.record) != _decided(other.record):
        raise StoreError(
            f"{one.record['key']} ({title}) has one result in {one.store.root} and another in {other.store.root}; "
            "nothing was merged: were they run on different machines or versions of torch?"
        )
    return other if ends == [False, True] else one


def _decided(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result(record).items() if name not in WORDING}


def _difference(one: Sequence[Cell], other: Sequence[Cell]) -> Cell | None:
    """A cell that only one of the two has."""
    keys = {cell.key for cell in one} ^ {cell.key for cell in other}
    return next((cell for cell in (*one, *other) if cell.key in keys), None)


def _is_run(store: Store) -> bool:
    """Whether the target holds a run already; anything else that is there is not ours to fill."""
    if (store.root / "plan.json").exists():
        return True
    try:
        empty = not store.root.exists() or not any(store.root.iterdir())
    except NotADirectoryError:
        empty = False
    if not empty:
        raise StoreError(f"{store.root}: is there and is not a run folder (it has no plan.json)")
    return False


def _text(store: Store) -> str:
    try:
        return content(store.root / "suite.toml").decode()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{store.root / 'suite.toml'}: cannot be read ({error})") from error


def _copy(key: str, found: Found, target: Store) -> None:
    """Put a record with its files into the target, and see that it arrived as it was."""
    source, files = found.store, found.record["files"]
    with target.claim(key) as ours:
        if not ours:
            raise StoreError(f"{target.root}: a run is at work there on {key}; wait for it, then merge again")
        try:
            correct = source.correct(key) if "correct.npz" in files else None
            checkpoint = source.checkpoint(key) if "checkpoint.pt" in files else None
            record = Record.from_json(found.record)
            log = content(source.log(key)) if source.log(key).is_file() else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{source.cells / key}: cannot be read ({error}); what was merged so far is kept"
            ) from error
        target.write(record, correct, checkpoint)
        arrived = target.read(key) or {}
        if any(arrived.get(name) != value for name, value in found.record.items() if name != "checksum"):
            target.set_aside(key)
            raise StoreError(f"{source.cells / key}: changed while it was merged; merge again")
        if log is not None:
            target.write_log(key, log)
