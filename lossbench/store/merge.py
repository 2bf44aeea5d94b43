"""Merge run folders of one suite: shards, or runs on several machines.

Everything is read, checked and compared before anything is written. An unfinished cell (failed, oom, timeout) is
replaced by a finished one; two results of one cell must be equal, or nothing is merged.
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

RESULTS = ("done", "diverged")  # statuses decided by the cell itself; the others by circumstances
# The fields of SuiteInfo that identify a suite; the others say how and where it was run.
SUITE = ("name", "baseline", "margin", "headline", "claims", "profile", "overrides", "tuning")
# How the suite was written; the key covers everything that decides the result.
WORDING = ("label", "cell", "plan")
MEASURED = ("metrics", "measured", "geometry")  # what was measured is the suite's choice


@dataclass(frozen=True)
class Plan:
    """The plan of a run folder."""

    store: Store
    info: SuiteInfo
    cells: Sequence[Cell]

    @property
    def experiments(self) -> list[str]:
        return list(dict.fromkeys(cell.experiment for cell in self.cells))

    def of(self, experiment: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.experiment == experiment]


@dataclass(frozen=True)
class Found:
    """A valid record, and the run folder that has it."""

    store: Store
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Merged:
    """The outcome of a merge."""

    folder: Path
    copied: int  # records written
    kept: int  # records that existed already
    missing: int  # planned cells without a record in any run


def merge(
    runs: Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    notify: Callable[[str], None] = lambda text: None,
) -> Merged:
    """Merge the records of `runs` into `out`, which may exist; StoreError if they contradict each other."""
    target = Store(out)
    stores: dict[Path, Store] = {}
    for store in (*([target] if _is_run(target) else []), *map(Store, runs)):
        stores.setdefault(store.root.resolve(), store)
    plans = [Plan(store, *store.plan()) for store in stores.values()]
    info, cells = common_plan(plans)
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
    target.prepare(Suite(info, (), _text(plans[0].store)), cells)
    new = {key: found for key, found in chosen.items() if found.store is not target}
    for key, found in new.items():
        _copy(key, found, target)
    return Merged(target.root, len(new), len(chosen) - len(new), len(titles) - len(chosen))


def common_plan(plans: Sequence[Plan]) -> tuple[SuiteInfo, list[Cell]]:
    """The common plan; experiments that one machine had no data for are taken from the others."""
    first = plans[0]
    having: dict[str, Plan] = {}  # by experiment, the first plan that has it
    for plan in plans:
        for name in SUITE:
            if getattr(plan.info, name) != getattr(first.info, name):
                raise StoreError(
                    f"{first.store.root} and {plan.store.root} are runs of different suites: they differ in '{name}'"
                )
        for experiment in plan.experiments:
            known = having.setdefault(experiment, plan)
            if strange := _difference(known.of(experiment), plan.of(experiment)):
                raise StoreError(
                    f"{known.store.root} and {plan.store.root} have different plans: only one has {strange.key} "
                    f"({strange.title}); the suite, a plugin or the data changed between them"
                )
    for plan in plans:
        for experiment, known in having.items():
            if experiment not in plan.experiments and _untuned(experiment, plan.info) not in plan.info.missing:
                raise StoreError(
                    f"{known.store.root} and {plan.store.root} have different plans: only one has the experiment "
                    f"'{experiment}'"
                )
    missing = {name: why for name, why in first.info.missing.items() if name not in having}
    added = [cell for name, plan in having.items() if plan is not first for cell in plan.of(name)]
    examples = {label: count for plan in reversed(plans) for label, count in plan.info.examples.items()}
    looks = {name: max((p.info.looks.get(name, []) for p in plans), key=len) for p in plans for name in p.info.looks}
    return replace(first.info, missing=missing, examples=examples, looks=looks), [*first.cells, *added]


def _untuned(experiment: str, info: SuiteInfo) -> str:
    """The experiment in the suite file that a tuned one belongs to; itself if it is not tuned."""
    known = info.tuning.experiments if info.tuning else {}
    return {tuned: name for name, tuned in known.items()}.get(experiment, experiment)


def better(one: Found | None, other: Found, title: str) -> Found:
    """Which of two records of the same cell to keep; the first if they are equal."""
    if one is None:
        return other
    ends = [found.record["status"] in RESULTS for found in (one, other)]
    if all(ends) and not _agree(one.record, other.record):
        raise StoreError(
            f"{one.record['key']} ({title}) has one result in {one.store.root} and another in {other.store.root}; "
            "nothing was merged: were they run on different machines or versions of torch?"
        )
    return other if ends == [False, True] else one


def _agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two records of one cell have the same result; metrics that both measured with the same code included."""
    codes = [record.get("measured", {}) for record in (one, other)]
    shared = [name for name in one.get("metrics", {}) if name in other.get("metrics", {})]
    shared = [name for name in shared if codes[0].get(name) == codes[1].get(name)]
    return _decided(one, shared) == _decided(other, shared)


def _decided(record: Mapping[str, Any], metrics: Sequence[str]) -> dict[str, Any]:
    decided = {name: value for name, value in result(record).items() if name not in (*WORDING, *MEASURED)}
    files = {name: checksum for name, checksum in record["files"].items() if name != "examples.npz"}
    return decided | {"metrics": {name: record["metrics"][name] for name in metrics}, "files": files}


def _difference(one: Sequence[Cell], other: Sequence[Cell]) -> Cell | None:
    """A cell that only one of the two plans has."""
    keys = {cell.key for cell in one} ^ {cell.key for cell in other}
    return next((cell for cell in (*one, *other) if cell.key in keys), None)


def _is_run(store: Store) -> bool:
    """Whether the target is a run folder; StoreError if it is something else and not empty."""
    if (store.root / "plan.json").exists():
        return True
    try:
        empty = not store.root.exists() or not any(store.root.iterdir())
    except NotADirectoryError:
        empty = False
    if not empty:
        raise StoreError(f"{store.root}: already exists and is not a run folder (it has no plan.json)")
    return False


def _text(store: Store) -> str:
    try:
        return content(store.root / "suite.toml").decode()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{store.root / 'suite.toml'}: cannot be read ({error})") from error


def _copy(key: str, found: Found, target: Store) -> None:
    """Copy a record with its files into the target, and check the copy."""
    source, files = found.store, found.record["files"]
    with target.claim(key) as ours:
        if not ours:
            raise StoreError(f"{target.root}: another run is training {key} there; wait for it, then merge again")
        try:
            correct = source.correct(key) if "correct.npz" in files else None
            checkpoint = source.checkpoint(key) if "checkpoint.pt" in files else None
            record = Record.from_json(found.record)
            named = {name: source.examples(key, name) for name in record.metrics}
            examples = {name: values for name, values in named.items() if values is not None}
            kept = {name: source.kept(key, name, mark) for name, mark in found.record.get("kept", {}).items()}
            log = content(source.log(key)) if source.log(key).is_file() else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{source.cells / key}: cannot be read ({error}); what was merged so far is kept"
            ) from error
        target.write(record, correct, checkpoint, examples=examples, kept=kept)
        arrived = target.read(key) or {}
        if any(arrived.get(name) != value for name, value in found.record.items() if name not in ("checksum", "plan")):
            target.set_aside(key)
            raise StoreError(f"{source.cells / key}: changed while it was merged; merge again")
        if log is not None:
            target.write_log(key, log)
