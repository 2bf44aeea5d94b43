"""What the data path costs: opening, batches against a step and against a DataLoader, preparing.

    LOSSBENCH_DATA=… python tests/benchmarks/data.py [--prepare]

Ratios are of medians over interleaved rounds in one process with one thread; MNIST must be there. `--prepare` also
prepares MNIST and LFW from their files, into a scratch folder.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torchvision
from torch.utils.data import DataLoader

import lossbench
from lossbench.data import data_folder
from lossbench.training.batches import Batches
from lossbench.training.state import TrainState

BATCH, STEPS, ROUNDS = 50, 20, 15


def timed(work, *arguments, **options) -> float:
    started = time.perf_counter()
    work(*arguments, **options)
    return time.perf_counter() - started


def state_for(in_shape) -> TrainState:
    torch.manual_seed(0)
    backbone = lossbench.create_backbone("cnn", in_shape, 64, channels=16)
    loss = lossbench.create_loss("softmax", 64, 10)
    optimizer = torch.optim.SGD([*backbone.parameters(), *loss.parameters()], lr=0.01, momentum=0.9)
    return TrainState(backbone, loss, optimizer, width=64, classes=10)


def loader(folder: Path) -> DataLoader:
    """The same images as everyone would feed them: torchvision's MNIST, ToTensor, a DataLoader."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for path in (data_folder() / "mnist").iterdir():
        (raw / path.name).symlink_to(path.resolve())
    images = torchvision.datasets.MNIST(folder, train=True, transform=torchvision.transforms.ToTensor())
    return DataLoader(images, batch_size=BATCH, shuffle=True)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--prepare", action="store_true")
    torch.set_num_threads(1)
    mnist = lossbench.load_dataset("mnist")
    opening = statistics.median(timed(lossbench.load_dataset, "mnist") for _ in range(ROUNDS))
    print(f"opening MNIST, prepared: {1000 * opening:.1f} ms")
    for name, options in (("omniglot", {"task": "verification"}), ("lfw", {"task": "verification", "size": 64})):
        if (data_folder() / name).is_dir():
            lossbench.load_dataset(name, **options)
            opening = statistics.median(timed(lossbench.load_dataset, name, **options) for _ in range(ROUNDS))
            print(f"opening {name}, prepared: {1000 * opening:.1f} ms")
    ours, steps = Batches(mnist.train, BATCH, 0), itertools.count()
    trained = state_for(mnist.in_shape)
    ready = [ours.at(next(steps)) for _ in range(STEPS)]
    for images, labels in ready:
        trained.update(images, labels)
    with tempfile.TemporaryDirectory() as folder:
        theirs = itertools.chain.from_iterable(itertools.repeat(loader(Path(folder))))
        next(theirs)
        rounds = []
        for _ in range(ROUNDS):
            rounds.append(
                (
                    timed(lambda: [ours.at(next(steps)) for _ in range(STEPS)]),
                    timed(lambda: [next(theirs) for _ in range(STEPS)]),
                    timed(lambda: [trained.update(images, labels) for images, labels in ready]),
                )
            )
    batches, loaded, step = (statistics.median(column) / STEPS for column in zip(*rounds, strict=True))
    print(f"a batch of {BATCH}: {1e6 * batches:.0f} µs, {100 * batches / step:.2f} % of a step ({1000 * step:.1f} ms)")
    print(f"a DataLoader with ToTensor: {1e6 * loaded:.0f} µs, {loaded / batches:.1f} times ours")
    with_augment = Batches(mnist.train, BATCH, 0, ("flip", "crop"))
    extra = statistics.median(
        timed(lambda: [with_augment.at(next(steps)) for _ in range(STEPS)]) / STEPS for _ in range(ROUNDS)
    )
    print(f"with flip and crop: {1e6 * extra:.0f} µs, {100 * extra / step:.2f} % of a step")
    if arguments.parse_args().prepare:
        for name, options in (("mnist", {}), ("lfw", {"task": "verification"}), ("glyphs", {"classes": 1000})):
            with tempfile.TemporaryDirectory() as scratch:
                if (source := data_folder() / name).is_dir():
                    (Path(scratch) / name).symlink_to(source.resolve())
                elif name != "glyphs":
                    continue
                seconds = timed(lossbench.load_dataset, name, data=scratch, **options)
                size = lossbench.load_dataset(name, data=scratch, **options)
                count, pixels = len(size.train) + len(size.test), "×".join(map(str, size.train.whole.shape[1:]))
                print(f"preparing {name} ({count:,} images of {pixels}): {seconds:.1f} s")


if __name__ == "__main__":
    main()
