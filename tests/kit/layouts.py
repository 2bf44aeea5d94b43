"""Small datasets in the layouts of their publishers."""

from __future__ import annotations

import gzip
import struct

import numpy as np

RNG = np.random.default_rng(0)


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.tobytes()
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_mnist(root, name="mnist", suffix=""):
    arrays = {}
    for part, count in (("train", 40), ("t10k", 20)):
        arrays[part] = RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8), (np.arange(count) % 10).astype(np.uint8)
        write_idx(root / name / f"{part}-images-idx3-ubyte{suffix}", arrays[part][0])
        write_idx(root / name / f"{part}-labels-idx1-ubyte{suffix}", arrays[part][1])
    return arrays


def write_cifar(root, classes):
    """CIFAR's binary version: label byte(s), then 1,024 red, green and blue bytes, row by row."""
    train = max(20, classes)  # one image of every class at least
    pixels = RNG.integers(0, 256, (train + 10, 3, 32, 32), dtype=np.uint8)
    labels = (np.arange(train + 10) % classes).astype(np.uint8)
    if classes == 10:
        folder, names, columns = "cifar10/cifar-10-batches-bin", [*(f"data_batch_{i}" for i in range(1, 6))], [labels]
        test = "test_batch"
    else:
        folder, names, columns, test = "cifar100/cifar-100-binary", ["train"], [labels // 5, labels], "test"
    rows = np.concatenate([np.stack(columns, 1), pixels.reshape(len(pixels), -1)], 1)
    (root / folder).mkdir(parents=True)
    for name, part in zip(names, np.array_split(rows[:train], len(names)), strict=True):
        part.tofile(root / folder / f"{name}.bin")
    rows[train:].tofile(root / folder / f"{test}.bin")
    return pixels.transpose(0, 2, 3, 1), labels, root / folder
