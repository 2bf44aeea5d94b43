"""Run folders whose every number is known beforehand: records are written, nothing is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lossbench.core.model import Cell, Record, Suite
from lossbench.core.streams import derive
from lossbench.plan.cells import plan
from lossbench.store.records import Store

ENVIRONMENT = {"fingerprint": "abc", "cpu": "test", "cores": 2}


@dataclass
class Truth:
    """What one cell came to."""

    accuracy: float = 90.0
    angle: float = 40.0
    angle_train: float | None = None
    status: str = "done"
    curve: tuple[dict[str, float], ...] = ()
    environment: dict[str, Any] = field(default_factory=lambda: dict(ENVIRONMENT))
    peak: int = 1000
    bits: np.ndarray | None = None
    verification: dict[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


def common(seed: int) -> float:
    """What a seed does to every loss alike."""
    return float(np.random.default_rng(1000 + seed).normal(0, 0.5))


def draws(cell: Cell) -> np.random.Generator:
    """A cell's own randomness; the same whenever it is asked for, whatever else goes into its key."""
    name = f"{cell.kind} {cell.dataset.name} {cell.loss.label} {cell.width} {cell.classes}"
    return np.random.default_rng(derive(cell.seed, name))


def noise(cell: Cell, scale: float) -> float:
    """What is particular to a cell."""
    return float(draws(cell).normal(0, scale))


def write_run(
    suite: Suite,
    folder: Path,
    truth: Callable[[Cell], Truth | None],
    *,
    total: int = 10_000,
    times: dict[str, float] | None = None,
) -> Path:
    """A run of the suite in which each cell came to its truth (None: it was not run); `times` are those of losses."""
    store = Store(folder)
    cells = plan(suite)
    store.prepare(suite, cells)
    for cell in cells:
        if cell.kind == "timing":
            store.write(timing_record(cell, times or {}))
            continue
        found = truth(cell)
        if found is None:
            continue
        if found.status != "done":
            store.write(Record(cell, found.status, error="made up", environment=found.environment))
            continue
        correct = round(total * found.accuracy / 100)
        bits = np.arange(total) < correct if found.bits is None else found.bits
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
        )
        store.write(record, bits)
    return store.root


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
        timing={"phases": phases, "disturbed": 0, "repeated": 0},
        environment=ENVIRONMENT,
    )
