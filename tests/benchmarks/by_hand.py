"""A suite against what a user would write by hand: the same cells, the same schedules, two cores.

    LOSSBENCH_DATA=… python tests/benchmarks/by_hand.py         (two free cores, MNIST; a few minutes)

By hand: one process that trains one cell after the other with both cores, a DataLoader with ToTensor, every loss with a
softmax phase of its own, W-Softmax as Algorithm 1 has it (though for a whole batch at once). Printed: wall seconds of
both, their ratio, and the mean accuracy of each loss, which must agree within the noise of seeds. lossbench runs the
suite three times: eagerly, compiled with an empty cache of code, and compiled again.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

import lossbench
from lossbench.data import data_folder

SEEDS, TRAIN, WARM, STEPS, BATCH, WIDTH, CHANNELS, LR = 3, 5000, 300, 150, 50, 64, 8, 0.02
LOSSES = ("softmax", "l_softmax", "a_softmax", "w_softmax")

SUITE = f"""
name = "by_hand"
[[experiment]]
name = "mnist"
dataset = {{ name = "mnist", train = {TRAIN} }}
backbone = {{ name = "cnn", channels = {CHANNELS} }}
widths = [{WIDTH}]
losses = {list(LOSSES)}
seeds = {SEEDS}
schedule = {{ steps = {STEPS}, batch = {BATCH}, lr = {LR} }}
warm_start = {{ loss = "softmax", steps = {WARM} }}
channels_last = true
"""


class Printed(nn.Module):
    """W-Softmax as Algorithm 1 has it: every example has its own C×M weights, leaning towards the true one."""

    def __init__(self, weight: Tensor, alpha: float = 1.0) -> None:
        super().__init__()
        self.weight, self.alpha = nn.Parameter(weight.clone()), alpha

    def logits(self, features: Tensor) -> Tensor:
        return features @ F.normalize(self.weight).T

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        unit = F.normalize(self.weight)
        leaning = F.normalize(self.alpha * unit[labels][:, None, :] + unit[None, :, :], dim=2)  # B×C×M
        return F.cross_entropy(torch.einsum("bcm,bm->bc", leaning, features), labels)


def images(train: bool, folder: Path) -> torchvision.datasets.MNIST:
    normalise = torchvision.transforms.Normalize(0.5, 128 / 255)  # (v − 127.5) / 128
    transform = torchvision.transforms.Compose([torchvision.transforms.ToTensor(), normalise])
    return torchvision.datasets.MNIST(folder, train=train, transform=transform)


def train(backbone: nn.Module, loss: nn.Module, batches, steps: int) -> None:
    if hasattr(loss, "begin"):
        loss.begin(steps)
    optimizer = torch.optim.SGD([*backbone.parameters(), *loss.parameters()], lr=LR, momentum=0.9, weight_decay=5e-4)
    for x, y in itertools.islice(batches, steps):
        optimizer.zero_grad()
        loss(backbone(x), y).backward()
        optimizer.step()
        if hasattr(loss, "advance"):
            loss.advance()


def train_by_hand(name: str, seed: int, folder: Path) -> float:
    """One cell as a script would train it; its test accuracy in percent."""
    torch.manual_seed(seed)
    chosen = torch.randperm(60_000)[:TRAIN].tolist()
    loader = DataLoader(Subset(images(True, folder), chosen), batch_size=BATCH, shuffle=True, drop_last=True)
    backbone = lossbench.create_backbone("cnn", (1, 28, 28), WIDTH, channels=CHANNELS)
    first = lossbench.create_loss("softmax", WIDTH, 10)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    train(backbone, first, batches, WARM)
    refining = first
    if name == "w_softmax":
        refining = Printed(first.weight.detach())
    elif name != "softmax":
        refining = lossbench.create_loss(name, WIDTH, 10)
        refining.weight.data.copy_(first.weight.data)
    train(backbone, refining, batches, STEPS)
    backbone.eval()
    right = 0
    with torch.no_grad():
        for x, y in DataLoader(images(False, folder), batch_size=500):
            right += int((refining.logits(backbone(x)).argmax(1) == y).sum())
    return right / 100


def timed_run(folder: Path, out: str, *more: str) -> float:
    """Wall seconds of one run of the suite."""
    command = [str(Path(sys.executable).with_name("lossbench")), "run", "by_hand.toml", "-q", "--out", out, *more]
    started = time.perf_counter()
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "code")}
    subprocess.run(command, cwd=folder, env=environment, check=True)
    return time.perf_counter() - started


def main() -> None:
    lossbench.load_dataset("mnist")  # prepared before either is timed, as files are unpacked before torchvision is
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        raw = folder / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for path in (data_folder() / "mnist").iterdir():
            (raw / path.name).symlink_to(path.resolve())
        (folder / "by_hand.toml").write_text(SUITE)
        ours = {
            "eager": timed_run(folder, "eager"),
            "compiled, the code too": timed_run(folder, "first", "--set", "compile=true"),
            "compiled": timed_run(folder, "second", "--set", "compile=true"),
        }
        torch.set_num_threads(2)
        started = time.perf_counter()
        theirs = {name: [train_by_hand(name, seed, folder) for seed in range(SEEDS)] for name in LOSSES}
        by_hand = time.perf_counter() - started
        records = lossbench.load_records(folder / "eager")
    print(f"{len(LOSSES) * SEEDS} cells: by hand {by_hand:.0f} s\n")
    print("| lossbench run (start and report too) | seconds | by hand / lossbench | wanted |\n|---|---:|---:|---:|")
    for way, seconds in ours.items():
        print(f"| {way} | {seconds:.0f} | {by_hand / seconds:.2f} | 4.5 |")
    print("\n| loss | by hand, % | lossbench, eager, % |\n|---|---:|---:|")
    for name in LOSSES:
        mine = records[(records["label"] == name) & (records["kind"] == "train")]["accuracy"].astype(float)
        hand = torch.tensor(theirs[name])
        print(f"| {name} | {hand.mean():.2f} ± {hand.std():.2f} | {mine.mean():.2f} ± {mine.std():.2f} |")


if __name__ == "__main__":
    main()
