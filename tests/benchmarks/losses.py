"""How long a loss takes, forward and backward, as a ratio to plain softmax in the same run.

    python tests/benchmarks/losses.py [--threads 1] [--rounds 15] [LOSS …]     a Markdown table, losses × shapes
    python tests/benchmarks/losses.py --step                                   a whole training step, / softmax
    python tests/benchmarks/losses.py --memory                                 peak extra memory at (128, 10575, 512)

Rounds visit all contenders in shuffled order; a figure is the median over rounds of the ratio within a round. Needs
free cores.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import torch
from contenders import PLAIN, SHAPES, Step, batch, contenders, ours

import lossbench
from lossbench.plugins.registry import Registry

ROUND_SECONDS = 0.02  # a visit repeats a short step until it has taken about this long


def ratios(steps: dict[str, Step], rounds: int, base: str = PLAIN) -> dict[str, float]:
    """The median over rounds of each contender's time over that of `base` in the same round."""
    repeats = {}
    for name, step in steps.items():
        step()
        started = time.perf_counter()
        step()
        repeats[name] = max(1, round(ROUND_SECONDS / (time.perf_counter() - started)))
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(steps), len(steps)):
            started = time.perf_counter()
            for _ in range(repeats[name]):
                steps[name]()
            seconds[name].append((time.perf_counter() - started) / repeats[name])
    return {
        name: statistics.median(mine / other for mine, other in zip(seconds[name], seconds[base], strict=True))
        for name in steps
    }


def table(names: list[str] | None, rounds: int) -> None:
    columns = {
        shape: ratios(contenders(shape, names), rounds if shape[1] < 5000 else max(5, rounds // 2)) for shape in SHAPES
    }
    print("| forward + backward / plain softmax, (B, C, M) = | " + " | ".join(map(str, SHAPES)) + " |")
    print("|---|" + "---:|" * len(SHAPES))
    for name in columns[SHAPES[0]]:
        cells = (f"{columns[shape][name]:.2f}" if name in columns[shape] else "–" for shape in SHAPES)
        print(f"| {name} | " + " | ".join(cells) + " |")


def whole_steps(names: list[str], rounds: int) -> None:
    """A training step of `cnn` (channels 16) on a batch of 50 images of MNIST's shape, any loss against softmax."""
    images = torch.randn(50, 1, 28, 28)
    labels = torch.randint(0, 10, (50,))

    def step_of(name: str) -> Step:
        torch.manual_seed(0)
        backbone = lossbench.create_backbone("cnn", (1, 28, 28), 256, channels=16)
        loss = lossbench.create_loss(name, 256, 10)
        optimizer = torch.optim.SGD([*backbone.parameters(), *loss.parameters()], lr=0.001, momentum=0.9)
        advance = getattr(loss, "advance", lambda: None)

        def step() -> None:
            optimizer.zero_grad()
            loss(backbone(images), labels).backward()
            optimizer.step()
            advance()

        return step

    found = ratios({name: step_of(name) for name in names}, rounds, base="softmax")
    print("| loss | whole training step / softmax |\n|---|---:|")
    for name, ratio in found.items():
        print(f"| {name} | {ratio:.3f} |")


def memory(names: list[str]) -> None:
    """The most memory that forward and backward hold at once beyond their inputs, in units of B·C + C·M floats."""
    shape = (128, 10575, 512)
    unit = 4 * (shape[0] * shape[1] + shape[1] * shape[2])
    x, labels, classes = batch(shape)
    print("| loss | peak extra memory / (B·C + C·M floats) |\n|---|---:|")
    for name in names:
        step = ours(name, x, labels, classes)
        step()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            step()
        held = peak = 0
        for event in sorted(
            (e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
        ):
            held += event.nbytes()
            peak = max(peak, held)
        print(f"| {name} | {peak / unit:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("losses", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--step", action="store_true")
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    names = arguments.losses or Registry().names("loss")
    if arguments.step:
        whole_steps(list(dict.fromkeys(["softmax", *names])), arguments.rounds)
    elif arguments.memory:
        memory(names)
    else:
        table(names, arguments.rounds)


if __name__ == "__main__":
    main()
