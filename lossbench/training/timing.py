"""Timing cells: the time of a training step with each loss, measured in interleaved rounds.

Rounds visit every loss in shuffled order on the same batches; the ratio to the baseline is paired by round. A round in
which other processes used the same cores is marked and measured again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from lossbench.core.model import Cell, Record
from lossbench.core.streams import derive
from lossbench.data import Dataset
from lossbench.plugins.registry import Registry
from lossbench.training import measure
from lossbench.training.batches import Batches
from lossbench.training.state import TrainState, build

PHASES = ("forward", "backward", "optimizer")
QUIET = 0.95  # the share of a round's wall time that this process must have been running
PATIENCE = 3  # rounds are repeated until there are enough quiet ones, at most this many times as many


def time_losses(cell: Cell, registry: Registry, dataset: Dataset) -> Record:
    """Seconds per step for every loss, by round, split into forward, backward and optimizer."""
    assert cell.timing
    batches = Batches.of(cell, dataset)
    states = {spec.label: build(cell, spec, registry, dataset.in_shape) for spec in cell.losses}
    for state in states.values():
        state.train()
    order = random.Random(derive(cell.seed, "timing"))
    rounds: list[dict[str, list[float]]] = []
    quiet: list[bool] = []
    wanted, steps = cell.timing.rounds, cell.timing.steps
    for number in range(PATIENCE * wanted + 1):
        ready = [batches.at(number * steps + step) for step in range(steps)]
        wall, busy = time.perf_counter(), time.process_time()
        taken = {label: _visit(states[label], ready) for label in order.sample(list(states), len(states))}
        share = (time.process_time() - busy) / (time.perf_counter() - wall)
        if number:  # the first round warms up caches, allocator and kernels
            rounds.append(taken)
            quiet.append(share >= QUIET or cell.device != "cpu")  # a process that waits for a GPU is not disturbed
        if sum(quiet) == wanted:
            break
    kept = chosen(quiet, wanted)
    phases = {
        label: {name: [rounds[place][label][part] for place in kept] for part, name in enumerate(PHASES)}
        for label in states
    }
    seconds = {label: [sum(parts) for parts in zip(*phases[label].values(), strict=True)] for label in states}
    return Record(
        cell,
        "done",
        rounds=seconds,
        timing={"phases": phases, "disturbed": sum(not quiet[place] for place in kept), "repeated": quiet.count(False)},
        seconds={"train": sum(map(sum, seconds.values())) * steps},
    )


def chosen(quiet: Sequence[bool], wanted: int) -> list[int]:
    """Which `wanted` rounds count, in order: the first quiet ones and, if those are too few, the last disturbed ones.

    If there are too few quiet rounds, disturbed rounds are used too, and the record says how many.
    """
    kept = [place for place, good in enumerate(quiet) if good][:wanted]
    disturbed = [place for place, good in enumerate(quiet) if not good]
    return sorted([*kept, *disturbed[len(disturbed) - (wanted - len(kept)) :]])


def _visit(state: TrainState, ready: list[Any]) -> list[float]:
    """Mean seconds of each phase over the batches."""
    spent = [0.0, 0.0, 0.0]

    def timed(phase: int, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        measure.synchronise(state.device)
        spent[phase] += time.perf_counter() - started
        return result

    measure.synchronise(state.device)
    for images, labels in ready:
        value = timed(0, lambda: state.forward(images, labels))  # noqa: B023  # called at once
        timed(1, lambda: state.backward(value))  # noqa: B023  # as above
        timed(2, state.move)
    return [seconds / len(ready) for seconds in spent]
