"""Timing cells: the time of a training step with each loss, measured in interleaved rounds.

Rounds visit every loss in shuffled order on the same batches; the ratio to the baseline is paired by round. A round in
which other processes used the same cores is marked and measured again.

The memory layout of a process makes one loss faster and another slower in all its rounds. So the rounds are spread over
several fresh processes (not forks of one process, which share its layout); each measures a share of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
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

Share = Mapping[str, Any]  # what one process measures, as plain data


def time_share(cell: Cell, registry: Registry, dataset: Dataset, process: int) -> Share:
    """The rounds of one process of a timing cell: seconds per step of every loss, by phase and round."""
    assert cell.timing
    batches = Batches.of(cell, dataset)
    order = random.Random(derive(cell.seed, "timing", process))
    shuffled = order.sample(cell.losses, len(cell.losses))  # where a loss lies in memory depends on when it was built
    states = {spec.label: build(cell, spec, registry, dataset.in_shape) for spec in shuffled}
    for state in states.values():
        state.train()
    rounds: list[dict[str, list[float]]] = []
    quiet: list[bool] = []
    wanted, steps = cell.timing.share(process), cell.timing.steps
    for number in range(PATIENCE * wanted + 1):
        first = (number * cell.timing.processes + process) * steps  # no other round of any process has these batches
        ready = [batches.at(first + step) for step in range(steps)]
        wall, busy = time.perf_counter(), time.process_time()
        taken = {label: _visit(states[label], ready) for label in order.sample(list(states), len(states))}
        share = (time.process_time() - busy) / (time.perf_counter() - wall)
        if number:  # the first round warms up caches, allocator and kernels
            rounds.append(taken)
            quiet.append(share >= QUIET or cell.device != "cpu")  # a process that waits for a GPU is not disturbed
        if sum(quiet) == wanted:
            break
    kept = chosen(quiet, wanted)
    return {
        "phases": {
            spec.label: {name: [rounds[place][spec.label][part] for place in kept] for part, name in enumerate(PHASES)}
            for spec in cell.losses
        },
        "disturbed": sum(not quiet[place] for place in kept),
        "repeated": quiet.count(False),
    }


def joined(cell: Cell, shares: Sequence[Share]) -> Record:
    """The record of a timing cell from the shares of its processes: all rounds, and the process of each."""
    assert cell.timing
    labels = [spec.label for spec in cell.losses]
    phases = {
        label: {name: [seconds for share in shares for seconds in share["phases"][label][name]] for name in PHASES}
        for label in labels
    }
    rounds = {label: [sum(parts) for parts in zip(*phases[label].values(), strict=True)] for label in labels}
    return Record(
        cell,
        "done",
        rounds=rounds,
        timing={
            "phases": phases,
            "process": [number for number in range(len(shares)) for _ in range(cell.timing.share(number))],
            **{name: sum(share[name] for share in shares) for name in ("disturbed", "repeated")},
        },
        seconds={"train": sum(map(sum, rounds.values())) * cell.timing.steps},
        bytes={"peak": max(share["peak"] for share in shares)},
        environment=shares[0]["environment"],
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
