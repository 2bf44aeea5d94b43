"""Run folders with known numbers: records are written, nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from lossbench.analysis.results import Results
from lossbench.core.model import Cell, Record, Suite
from lossbench.core.streams import derive
from lossbench.plan.cells import plan
from lossbench.store.records import Store, tabulated
from lossbench.suite.settings import scored, tuned_experiments

ENVIRONMENT = {"fingerprint": "abc", "cpu": "test", "cores": 2}


@dataclass
class Truth:
    """The result of one cell."""

    accuracy: float = 90.0
    angle: float = 40.0
    angle_train: float | None = None
    status: str = "done"
    error: str = "made up"
    curve: tuple[dict[str, float], ...] = ()
    environment: dict[str, Any] = field(default_factory=lambda: dict(ENVIRONMENT))
    peak: int = 1000
    bits: np.ndarray | None = None
    verification: dict[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    step_seconds: float | None = None
    counts: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def common(seed: int) -> float:
    """The effect of a seed, equal for every loss."""
    return float(np.random.default_rng(1000 + seed).normal(0, 0.5))


def draws(cell: Cell) -> np.random.Generator:
    """The random generator of a cell; independent of what else is in its key."""
    name = f"{cell.kind} {cell.dataset.name} {cell.loss.label} {cell.width} {cell.classes}"
    return np.random.default_rng(derive(cell.seed, name))


def noise(cell: Cell, scale: float) -> float:
    """Noise of one cell."""
    return float(draws(cell).normal(0, scale))


def records_of(
    cells: Iterable[Cell], truth: Callable[[Cell], Truth | None], total: int, times: dict[str, float]
) -> Iterator[tuple[Record, np.ndarray | None]]:
    """The record of each cell with its correctness bits; `times` are those of losses."""
    for cell in cells:
        if cell.kind == "timing":
            yield timing_record(cell, times), None
            continue
        found = truth(cell)
        if found is None:
            continue
        if found.status != "done":
            yield Record(cell, found.status, error=found.error, environment=found.environment), None
            continue
        bits = np.arange(total) < round(total * found.accuracy / 100) if found.bits is None else found.bits
        train = found.angle - 1 if found.angle_train is None else found.angle_train
        record = Record(
            cell,
            "done",
            correct=int(bits.sum()),
            total=len(bits),
            angles={"train": [train] * cell.classes, "test": [found.angle] * cell.classes},
            bytes={"fc": 4 * cell.width, "classifier": 80, "loss": 0, "model": 999, "optimizer": 5, "peak": found.peak},
            curve=found.curve,
            environment=found.environment,
            verification=found.verification,
            flags=found.flags,
            seconds={"step_median": found.step_seconds},
            counts=found.counts,
            metrics=found.metrics,
        )
        yield record, bits


def planned(suite: Suite, truth: Callable[[Cell], Truth | None], total: int) -> list[Cell]:
    """The cells of the suite, with the tuned cells that the made-up trials decide."""
    cells = plan(suite)
    if not suite.info.tuning:
        return cells
    trials = records_of([cell for cell in cells if cell.kind == "trial"], truth, total, {})
    records = {record.cell.key: record.to_json() for record, _ in trials}
    return plan(suite, tuned_experiments(suite.experiments, cells, scored(cells, records, suite.info.headline_metric)))


def write_run(
    suite: Suite,
    folder: Path,
    truth: Callable[[Cell], Truth | None],
    *,
    total: int = 10_000,
    times: dict[str, float] | None = None,
) -> Path:
    """A run of the suite in which each cell has its true result; None: it was not run."""
    store = Store(folder)
    cells = planned(suite, truth, total)
    with patch("os.fsync"):  # most of the time, and nothing here outlives a crash; benchmarks use it too
        store.prepare(suite, cells)
        for record, bits in records_of(cells, truth, total, times or {}):
            store.write(record, bits)
    return store.root


def analysed(
    suite: Suite,
    truth: Callable[[Cell], Truth | None],
    *,
    total: int = 10_000,
    times: dict[str, float] | None = None,
) -> Results:
    """The results of such a run without a folder, so without correctness bits."""
    cells = tuple(planned(suite, truth, total))
    records = {record.cell.key: record.to_json() for record, _ in records_of(cells, truth, total, times or {})}
    trials = scored([cell for cell in cells if cell.trial is not None], records, suite.info.headline_metric)
    return Results(suite.info, ("runs/made-up",), cells, tabulated(cells, records, suite.info.metrics), {}, trials)


def processes_of(cell: Cell) -> list[int]:
    """The process of each round of a timing cell."""
    return [process for process in range(cell.timing.processes) for _ in range(cell.timing.share(process))]


def timing_record(cell: Cell, times: dict[str, float]) -> Record:
    """A timing cell whose losses take `times` (1 by default) with little noise, mostly in the backward pass."""
    rng = draws(cell)
    rounds = cell.timing.rounds
    drift = rng.uniform(1, 1.1, rounds)
    seconds = {spec.label: drift * times.get(spec.label, 1.0) * rng.uniform(0.99, 1.01, rounds) for spec in cell.losses}
    shares = {"forward": 0.3, "backward": 0.6, "optimizer": 0.1}
    phases = {label: {name: list(share * taken) for name, share in shares.items()} for label, taken in seconds.items()}
    return Record(
        cell,
        "done",
        rounds={label: list(taken) for label, taken in seconds.items()},
        timing={"phases": phases, "process": processes_of(cell), "disturbed": 0, "repeated": 0},
        environment=ENVIRONMENT,
    )
