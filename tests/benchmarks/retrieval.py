"""What retrieval takes, in time and memory, against a plain numpy search and pytorch-metric-learning.

    python tests/benchmarks/retrieval.py [IMAGES]          (a free core; about a minute for 10,000)

IMAGES test images are each a query against all others: features of 128 numbers, 100 classes. Times are of the process
on one core, the best of three, all in the same run; memory is what a call adds at its peak. Prints a Markdown table.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from lossbench.metrics._search import retrieve

CLASSES, WIDTH = 100, 128


def drawn(images: int) -> tuple[torch.Tensor, np.ndarray]:
    """Features around random centres, of middling difficulty."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, images)
    features = rng.normal(size=(CLASSES, WIDTH))[labels] + 3 * rng.normal(size=(images, WIDTH))
    return torch.from_numpy(features.astype(np.float32)), labels


def ours(features: torch.Tensor, labels: np.ndarray) -> tuple[float, float, float]:
    found = retrieve(features, labels)
    return float((found.first == 1).mean()), float(found.map_at_r.mean()), float(found.r_precision.mean())


def plain(features: torch.Tensor, labels: np.ndarray) -> tuple[float, float, float]:
    """The whole matrix of cosines and a full sort of every row."""
    rows = features.numpy()
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -np.inf)
    hits = labels[np.argsort(-cosines, axis=1, kind="stable")[:, :-1]] == labels[:, None]
    relevant = hits.sum(1)
    ranks = np.arange(1, hits.shape[1] + 1)
    within = hits & (ranks <= relevant[:, None])
    mean = (np.cumsum(hits, axis=1) / ranks * within).sum(1) / relevant
    return float(hits[:, 0].mean()), float(mean.mean()), float((within.sum(1) / relevant).mean())


def theirs(features: torch.Tensor, labels: np.ndarray) -> tuple[float, float, float]:
    """pytorch-metric-learning, with its own search where faiss is not installed."""
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    names = ("precision_at_1", "mean_average_precision_at_r", "r_precision")
    search = CustomKNN(CosineSimilarity(), batch_size=256)
    calculator = AccuracyCalculator(include=names, k="max_bin_count", device=torch.device("cpu"), knn_func=search)
    found = calculator.get_accuracy(features, torch.from_numpy(labels))
    first, mean, precision = (float(found[name]) for name in names)
    return first, mean, precision


Search = Callable[[torch.Tensor, np.ndarray], tuple[float, float, float]]


def added(search: Search, features: torch.Tensor, labels: np.ndarray) -> tuple[list[float], int]:
    """The result, and the bytes that a process of its own adds at its peak (Linux)."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        before = _peak()
        found = search(features, labels)
        os.write(writer, json.dumps([found, _peak() - before]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        found, size = json.load(answer)
    return found, size


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def seconds(search: Search, features: torch.Tensor, labels: np.ndarray, times: int) -> float:
    """Of the process, the least of several calls."""
    best = float("inf")
    for _ in range(times):
        before = time.process_time()
        search(features, labels)
        best = min(best, time.process_time() - before)
    return best


def main() -> None:
    images = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    torch.set_num_threads(1)
    features, labels = drawn(images)
    print(f"{images:,} queries × {images:,} images, {WIDTH} numbers, {CLASSES} classes, one core\n")
    print("| search | seconds | ratio | peak, MB | R@1, MAP@R, R-precision |\n|---|--:|--:|--:|---|")
    first = 0.0
    for name, search in (("lossbench", ours), ("pytorch-metric-learning", theirs), ("plain numpy", plain)):
        found, size = added(search, features, labels)
        took = seconds(search, features, labels, 1 if search is plain else 3)
        first = first or took
        values = ", ".join(f"{value:.6f}" for value in found)
        print(f"| {name} | {took:.2f} | {took / first:.1f} | {size / 1e6:.0f} | {values} |")


if __name__ == "__main__":
    main()
