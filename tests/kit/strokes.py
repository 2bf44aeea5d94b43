"""A small verification set of our own, and a suite that trains on it."""

from __future__ import annotations

from pathlib import Path

from lossbench.plugins.registry import Registry

STROKES = '''"""Strokes."""
from pathlib import Path
from typing import Literal
import numpy as np
from lossbench.data.dataset import Dataset, Split
from lossbench.data.pairs import drawn_pairs

def drawn(angles, each, seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[-8:8, -8:8] + 0.5
    angle = np.repeat(angles, each)[:, None, None]
    ink = np.abs(np.cos(angle) * y - np.sin(angle) * x) < 1.5
    images = (255 * ink * rng.uniform(0.5, 1, ink.shape)).astype(np.uint8)[..., None]
    return images, np.repeat(np.arange(len(angles)), each)

def load(root: Path, *, task: Literal["classification", "verification"] = "classification") -> Dataset:
    train = Split.of(*drawn(np.pi * np.arange(12) / 12, 10, 0))
    test = Split.of(*drawn(np.pi * (np.arange(24) + 0.5) / 24, 10, 1))
    if task == "classification":
        return Dataset(train, train, 12)
    pairs, folds = drawn_pairs(test.labels, 40)
    return Dataset(train, test, 12, pairs, folds)
'''

VERIFICATION = """
name = "strokes"
[[experiment]]
name = "strokes"
task = "verification"
dataset = "strokes"
backbone = { name = "cnn", channels = 8, depths = [1, 1] }
widths = [16]
losses = ["softmax", "cosface[s=8.0,m=0.1]"]
seeds = 1
schedule = { steps = 60, batch = 24, lr = 0.05, evaluations = 2 }
"""


def strokes_in(folder: Path) -> Registry:
    """The direction of a stroke is its class; 12 to learn, 24 others to verify."""
    (folder / "datasets").mkdir()
    (folder / "datasets" / "strokes.py").write_text(STROKES)
    return Registry([folder])
