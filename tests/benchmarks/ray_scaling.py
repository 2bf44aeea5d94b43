"""Sixteen equal cells on a Ray cluster of one node with one CPU, and of two: how much faster are two?

    python tests/benchmarks/ray_scaling.py      (two free cores, extra `ray`; about five minutes)

A real cluster on this machine: a head without CPUs and one-CPU nodes. Timed is the whole run, from the command to its
last record: that the driver starts and joins (about 6 s here) and that each node loads torch before its first cell
(about 6 s) is in it, so cells take some seconds. Both clusters are timed in turn, `ROUNDS` times;
printed is the ratio of each pair, and whether the records of both are equal.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from lossbench import api
from lossbench.core.model import result
from lossbench.store.records import Store

ROUNDS = 1

SUITE = """
name = "scaling"
[[experiment]]
name = "scaling"
dataset = "digits"
backbone = { name = "cnn", channels = 16, depths = [1, 1, 1] }
widths = [64]
losses = ["softmax"]
seeds = 16
schedule = { steps = 1200, batch = 64 }
"""


@contextmanager
def cluster_of(nodes: int) -> Iterator[str]:
    """The address of a cluster with so many one-CPU nodes."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(nodes):
            made.add_node(num_cpus=1)
        yield made.address
    finally:
        ray.shutdown()
        made.shutdown()


def run(suite: Path, address: str, out: Path) -> float:
    started = time.perf_counter()
    ran = api.run(suite, engine="ray", address=address, out=out, reports=None)
    assert not ran.unfinished
    return time.perf_counter() - started


def timed(suite: Path, nodes: int, out: Path) -> tuple[float, dict[str, object]]:
    """Seconds of a run on a new cluster, and its results."""
    with cluster_of(nodes) as address:
        seconds = run(suite, address, out)
    return seconds, {key: result(record) for key, record in Store(out).scan()[0].items()}


def main() -> None:
    ratios, equal = [], []
    with tempfile.TemporaryDirectory() as scratch:
        suite = Path(scratch) / "scaling.toml"
        suite.write_text(SUITE)
        for index in range(ROUNDS):
            one, first = timed(suite, 1, Path(scratch) / f"{index}-one")
            two, second = timed(suite, 2, Path(scratch) / f"{index}-two")
            ratios.append(one / two)
            equal.append(first == second and len(first) == 16)
            print(f"one node {one:.1f} s, two nodes {two:.1f} s, ratio {one / two:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f} (wanted: 1.6); records equal to the bit: {all(equal)}")


if __name__ == "__main__":
    main()
