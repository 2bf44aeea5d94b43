"""What `plan`, `status` and `report` take over 10,000 cells, and how much memory.

    python tests/benchmarks/many.py             (a free core; about a minute, most of it to make the records)

The records are made up, nothing is trained: 10 losses, 5 widths, 4 numbers of classes, 50 seeds; then 7 losses over six
axes, 10 seeds. Prints a Markdown table: figure, measured, wanted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # the made-up runs of the tests

from kit.synthetic import Truth, common, noise, write_run

from lossbench import data
from lossbench.plan.job import with_data
from lossbench.plugins.registry import Registry
from lossbench.suite import reading as suite

LOSSBENCH = str(Path(sys.executable).with_name("lossbench"))
LOSSES = [
    "softmax",
    "center",
    "hinge",
    "l_softmax",
    "a_softmax",
    "w_softmax",
    "cosface",
    "arcface",
    "normface",
    "circle",
]
SUITE = f"""
name = "many"
[[experiment]]
name = "many"
dataset = "digits"
backbone = {{ name = "cnn", channels = 4, depths = [1] }}
widths = [4, 8, 16, 32, 64]
classes = [4, 6, 8, 10]
losses = {LOSSES}
seeds = 50
schedule = {{ steps = 100 }}
"""
SIX = f"""
name = "axes"
[[experiment]]
name = "axes"
dataset = {{ name = "digits", train = [400, 800] }}
backbone = {{ name = "cnn", channels = {{ sweep = [4, 6] }}, depths = [1] }}
widths = [4, 16, 64]
losses = {LOSSES[:7]}
seeds = 10
schedule = {{ steps = [100, 200], lr = [0.01, 0.1], batch = [16, 32, 64] }}
"""


def truth(cell) -> Truth:
    curve = tuple({"step": step, "loss": 1 / step} for step in range(1, 41))
    gain = LOSSES.index(cell.loss.name) / 10
    return Truth(85 + common(cell.seed) + gain + noise(cell, 0.5), angle=40 + noise(cell, 1), curve=curve)


def measured(*arguments: str, cwd: Path) -> tuple[float, float, float]:
    """Seconds of a command as a person waits for it, those of the CPU, and its greatest memory in MiB."""
    started = time.perf_counter()
    process = subprocess.Popen([LOSSBENCH, *arguments], cwd=cwd, stdout=subprocess.DEVNULL)
    _, code, usage = os.wait4(process.pid, 0)
    assert code == 0, arguments
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    registry = Registry()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        print("| figure | seconds | of CPU | wanted | MiB | wanted |\n|---|---:|---:|---:|---:|---:|")
        for name, text in (("many", SUITE), ("axes", SIX)):
            (folder / f"{name}.toml").write_text(text)
            parsed = suite.parse(text, f"{name}.toml", registry, lambda spec: spec.options["classes"] or 10)
            write_run(with_data(parsed, registry, data.data_folder()), folder / "runs" / name, truth, total=600)
            for arguments, wanted in (
                (["plan", f"{name}.toml", "--no-forecast", "--out", "new"], 1.5),
                (["status", name], 3),
                (["report", name], 8),
            ):
                seconds, busy, memory = measured(*arguments, cwd=folder)
                figure = f"`lossbench {' '.join(arguments)}`"
                print(f"| {figure} | {seconds:.1f} | {busy:.1f} | {wanted} | {memory:.0f} | 1024 |", flush=True)
        size = (folder / "reports" / "report.html").stat().st_size / 2**20
        print(f"| report.html of 10,000 cells, MiB | | | | {size:.1f} | |")


if __name__ == "__main__":
    main()
