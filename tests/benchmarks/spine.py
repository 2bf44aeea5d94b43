"""What the harness costs over the training itself, as ratios to a baseline in the same run.

    python tests/benchmarks/spine.py            (two free cores; about two minutes)

Prints a Markdown table: figure, measured, wanted.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from lossbench import data
from lossbench.engines import scheduler
from lossbench.engines.local import Local
from lossbench.engines.protocol import Resources, RunContext
from lossbench.engines.servers import Servers
from lossbench.plan import cells as plan
from lossbench.plan.job import with_data
from lossbench.plugins.registry import Registry
from lossbench.store.records import Store
from lossbench.suite import reading as suite
from lossbench.training import cell as train
from lossbench.training.batches import Batches
from lossbench.training.state import build

LOSSBENCH = str(Path(sys.executable).with_name("lossbench"))

SUITE = """
name = "cost"
[[experiment]]
name = "cost"
dataset = "digits"
backbone = {backbone}
widths = [64]
losses = ["softmax"]
seeds = {seeds}
schedule = {{ steps = {steps}, batch = 64{recipe} }}
"""


CNN = '{ name = "cnn", channels = 16, depths = [1, 1, 1] }'
TIMM = '{ name = "timm", model = "resnet10t" }'


ADAMW = ', optimizer = "adamw", lr = 0.001, decay = "cosine", warmup = 10, clip = 1.0'


def planned(registry: Registry, seeds: int, steps: int, backbone: str = CNN, recipe: str = ""):
    text = SUITE.format(seeds=seeds, steps=steps, backbone=backbone, recipe=recipe)
    parsed = with_data(suite.parse(text, "cost.toml", registry, lambda spec: 10), registry, data.data_folder())
    return parsed, plan.plan(parsed)


def startup(*command: str) -> float:
    """Median seconds of a command, as a person waits for it."""
    times = []
    for _ in range(9):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def first_step(rounds: int = 5) -> float:
    """Median seconds from the start of `lossbench run` until its first cell, of one step, has ended."""
    waits = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            text = SUITE.format(seeds=1, steps=200, backbone=CNN, recipe="") + "warm_start = { steps = 1 }\n"
            Path(folder, "cost.toml").write_text(text)
            started = time.perf_counter()
            process = subprocess.Popen([LOSSBENCH, "run", "cost.toml", "--out", "run", "-q", "--no-report"], cwd=folder)
            while not any(Path(folder).glob("run/cells/*/record.json")):
                assert process.poll() is None
                time.sleep(0.005)
            waits.append(time.perf_counter() - started)
            process.wait()
    return statistics.median(waits)


def loop_ratio(registry: Registry, steps: int = 150, rounds: int = 9, recipe: str = "") -> float:
    """Our training loop against one written by hand on the same tensors: median ratio of interleaved rounds."""
    cell = planned(registry, 1, steps, recipe=recipe)[1][0]
    schedule = cell.schedule
    dataset = data.load_dataset("digits")
    images = torch.from_numpy(dataset.train.images).permute(0, 3, 1, 2)
    labels = torch.from_numpy(dataset.train.labels)
    torch.set_num_threads(1)

    def ours() -> float:
        state = build(cell, cell.loss, registry, dataset.in_shape)
        started = time.perf_counter()
        train.train(state, Batches(dataset.train, 64, 0), cell, dataset)
        return time.perf_counter() - started

    def bare() -> float:
        state = build(cell, cell.loss, registry, dataset.in_shape)
        backbone, loss, optimizer = state.backbone.train(), state.loss.train(), state.optimizer
        parameters = [*backbone.parameters(), *loss.parameters()]
        scheduler = None
        if schedule.warmup:
            rise = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / schedule.warmup, 1.0, schedule.warmup - 1)
            fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - schedule.warmup)
            scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], [schedule.warmup])
        rng = np.random.default_rng(0)
        order = torch.from_numpy(np.concatenate([rng.permutation(len(labels)) for _ in range(steps)]))
        started = time.perf_counter()
        for step in range(steps):
            index = order[step * 64 : (step + 1) * 64]
            value = loss(backbone((images[index].float() - 127.5) / 128), labels[index])
            optimizer.zero_grad()
            value.backward()
            if schedule.clip:
                torch.nn.utils.clip_grad_norm_(parameters, schedule.clip)
            optimizer.step()
            if scheduler:
                scheduler.step()
        return time.perf_counter() - started

    ours(), bare()
    return statistics.median(ours() / bare() for _ in range(rounds))


def isolation(registry: Registry, backbone: str, count: int = 12, steps: int = 60) -> float:
    """Seconds that a cell takes beyond its training, when each has a process of its own."""
    parsed, todo = planned(registry, count, steps, backbone)
    with tempfile.TemporaryDirectory() as folder:
        seconds = _run(parsed, todo, registry, Path(folder), jobs=1)
        training = sum(record["seconds"]["train"] for record in Store(folder).scan()[0].values())
        return (seconds - training) / count


def _run(parsed, todo, registry: Registry, folder: Path, jobs: int) -> float:
    """Seconds to train cells with servers that are up."""
    store = Store(folder)
    store.prepare(parsed, todo)
    engine = Local(Resources(jobs=jobs))
    with contextlib.closing(Servers(registry)) as servers:
        servers.start(todo[:1])
        started = time.perf_counter()
        with engine.open(todo, RunContext(store, registry, data.data_folder(), servers)):
            scheduler.execute(todo, engine, store, scheduler.Rules())
        return time.perf_counter() - started


def start(registry: Registry, backbone: str) -> float:
    """Median seconds until a cell's process has its network and loss and has run both once on two images."""
    _, todo = planned(registry, 1, 1, backbone)
    waits = []
    with contextlib.closing(Servers(registry)) as servers:
        servers.start(todo)
        for _ in range(9):
            began = time.perf_counter()
            assert not servers.preflight(todo, data.data_folder())
            waits.append(time.perf_counter() - began)
    return statistics.median(waits)


def scaling(registry: Registry, rounds: int = 3) -> float:
    """Throughput of -j 2 over -j 1 for eight equal cells."""
    ratios = []
    parsed, todo = planned(registry, 8, 300)
    for _ in range(rounds):
        seconds = {}
        for jobs in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                seconds[jobs] = _run(parsed, todo, registry, Path(folder), jobs)
        ratios.append(seconds[1] / seconds[2])
    return statistics.median(ratios)


def main() -> None:
    registry = Registry()
    print("| figure | measured | wanted |\n|---|---:|---:|")
    print(f"| `lossbench --help`, seconds | {startup(LOSSBENCH, '--help'):.2f} | ≤ 0.30 |", flush=True)
    print(f"| `lossbench list`, seconds | {startup(LOSSBENCH, 'list'):.2f} | ≤ 0.30 |", flush=True)
    print(f"| `import torch` alone, seconds | {startup(sys.executable, '-c', 'import torch'):.2f} | |", flush=True)
    print(f"| start of a run until its first cell trains, seconds | {first_step():.2f} | ≤ 2.50 |", flush=True)
    print(f"| isolation, seconds per cell over its training | {isolation(registry, CNN):.2f} | ≤ 0.20 |", flush=True)
    print(f"| start of a cell with `cnn`, seconds | {start(registry, CNN):.2f} | ≤ 0.20 |", flush=True)
    print(f"| start of a cell with `timm`, seconds | {start(registry, TIMM):.2f} | ≤ 0.20 |", flush=True)
    print(f"| training loop / bare loop | {loop_ratio(registry):.3f} | ≤ 1.03 |", flush=True)
    ratio = loop_ratio(registry, recipe=ADAMW)
    print(f"| the same with AdamW, cosine, warm-up and clipping | {ratio:.3f} | ≤ 1.03 |", flush=True)
    print(f"| throughput of -j 2 / -j 1 | {scaling(registry):.2f} | ≥ 1.70 |", flush=True)


if __name__ == "__main__":
    main()
