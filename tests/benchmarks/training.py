"""A training step of lossbench against a bare eager loop: one core, batch 50, in one run.

    python tests/benchmarks/training.py             (one free core; about five minutes, of which most is compiling)

Bare: plain torch as a script would have it (NCHW, SGD, softmax, glibc's own allocator settings). The others are cells
of lossbench in the environment of its engine. Each is a process of its own that stays up; rounds visit them in shuffled
order. Printed: ms of CPU time per step (of one thread: the wall time on an idle machine), the median over rounds and,
in brackets, the fastest round; the median over rounds of paired ratios and, in brackets, the ratio of the fastest
rounds; the seconds until the code of a compiled cell is there, compiled (cold) and read from the disk (warm). Images
are noise of 28×28 pixels. Ratios change with the load of other guests on a host: a bare loop moves more memory.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

NETS = {"16 channels (3,3,3)": (16, (3, 3, 3)), "8 channels (1,1,1)": (8, (1, 1, 1))}
WAYS = ("bare", "eager", "channels_last", "compiled")
BATCH, WIDTH, STEPS = 50, 64, 5


def suite(channels: int, depths: tuple[int, ...], way: str) -> dict:
    experiment = {
        "name": "noise",
        "dataset": "digits",
        "backbone": {"name": "cnn", "channels": channels, "depths": list(depths)},
        "widths": [WIDTH],
        "losses": ["softmax"],
        "seeds": 1,
        "schedule": {"steps": STEPS, "batch": BATCH},
        "channels_last": way in ("channels_last", "compiled"),
        "compile": way == "compiled",
    }
    return {"name": "training", "experiment": [experiment]}


def work(net: str, way: str) -> None:
    """The process of one way: for each line that comes in, the mean seconds of a few steps go out."""
    import numpy as np
    import torch

    from lossbench import api
    from lossbench.data.dataset import Dataset, Split
    from lossbench.training import cell as train
    from lossbench.training.batches import Batches

    job = api.prepare(suite(*NETS[net], way))
    (cell,) = job.chosen
    rng = np.random.default_rng(0)
    split = Split.of(rng.integers(0, 256, (BATCH * STEPS, 28, 28, 1)).astype(np.uint8), np.arange(BATCH * STEPS) % 10)
    dataset, ready = Dataset(split, split, 10), 0.0
    torch.set_num_threads(1)
    if way != "bare":
        train.settle(cell)
    if cell.compile:
        from lossbench.training import compiled

        compiled.warm_up()
        started = time.perf_counter()
        train.compile_first(cell, job.registry, dataset)
        ready = time.perf_counter() - started
    state = train.build(cell, cell.loss, job.registry, dataset.in_shape)
    state.train()
    batches = Batches.of(cell, dataset)
    ready_batches = [batches.at(step) for step in range(STEPS)]

    def bare(images: torch.Tensor, labels: torch.Tensor) -> None:
        state.optimizer.zero_grad()
        state.loss(state.backbone(images), labels).backward()
        state.optimizer.step()

    step = bare if way == "bare" else state.update
    for images, labels in ready_batches[:2]:
        step(images, labels)
    print(ready, flush=True)
    for _ in sys.stdin:
        started = time.process_time()
        for images, labels in ready_batches:
            step(images, labels)
        print((time.process_time() - started) / STEPS, flush=True)


def start(net: str, way: str, cache: str) -> subprocess.Popen[str]:
    from lossbench.core.ahead import FIXED

    environment = {**os.environ, "OMP_NUM_THREADS": "1"} if way == "bare" else {**os.environ, **FIXED}
    command = [sys.executable, __file__, "--net", net, "--way", way]
    environment["TORCHINDUCTOR_CACHE_DIR"] = cache
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, **pipes)


def answered(process: subprocess.Popen[str]) -> float:
    assert process.stdout
    return float(process.stdout.readline())


def main(rounds: int) -> None:
    rows, code = [], []
    with tempfile.TemporaryDirectory() as cache:
        for net in NETS:
            first = start(net, "compiled", cache)
            cold = answered(first)
            first.communicate()
            processes = {}
            for way in WAYS:  # one after another: they load torch
                processes[way] = start(net, way, cache)
                ready = answered(processes[way])
            code.append(f"| {net} | {cold:.1f} | {ready:.2f} |")
            taken: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(rounds):
                for way in random.sample(WAYS, len(WAYS)):
                    processes[way].stdin.write("\n")
                    processes[way].stdin.flush()
                    taken[way].append(answered(processes[way]))
            for process in processes.values():
                process.communicate()
            cells = [f"{1000 * statistics.median(taken[way]):.1f} ({1000 * min(taken[way]):.1f})" for way in WAYS]
            for way in WAYS[1:]:
                paired = statistics.median(b / a for b, a in zip(taken["bare"], taken[way], strict=True))
                cells.append(f"{paired:.2f}× ({min(taken['bare']) / min(taken[way]):.2f}×)")
            rows.append(f"| {net} | {' | '.join(cells)} |")
    names = " | ".join(WAYS)
    print(f"| ms per step | {names} | {' | '.join(f'bare / {way}' for way in WAYS[1:])} |")
    print(f"|---|{'---:|' * (2 * len(WAYS) - 1)}")
    print("\n".join(rows))
    print("\n| seconds until the code is there | cold | warm |\n|---|---:|---:|\n" + "\n".join(code))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--net", choices=NETS)
    parser.add_argument("--way", choices=WAYS)
    given = parser.parse_args()
    if given.way:
        work(given.net, given.way)
    else:
        main(given.rounds)
