"""A suite and synthetic records for it with a known truth."""

from __future__ import annotations

import numpy as np
from conftest import SMALL
from kit.synthetic import processes_of

from lossbench.core.model import Record

CLAIMS = """
[[claim]]
text = "W-Softmax is more accurate"
experiment = "digits"
better = "w_softmax"
than = "softmax"

[[claim]]
text = "Center is more accurate"
experiment = "digits"
better = "center"
than = "softmax"

[[claim]]
text = "W-Softmax has wider angles"
experiment = "digits"
metric = "angle"
better = "softmax"
than = "w_softmax"

[[claim]]
text = "W-Softmax is faster"
experiment = "digits"
metric = "step_seconds"
better = "w_softmax"
than = "softmax"
"""

# Truth, in points above softmax: w_softmax +3, center nothing at all, l_softmax nothing but noise.
SUITE = (
    SMALL.replace('"w_softmax"]', '"w_softmax", "center", "l_softmax"]')
    .replace("seeds = 2", "seeds = 8")
    .replace("widths = [8]", 'widths = ["min", 20]')
    + 'timing = { rounds = 9 }\npublished = { "softmax" = 91.25 }\n'
    + CLAIMS
)
TOTAL = 10_000


def synthetic(cell, rng) -> tuple[Record, np.ndarray | None]:
    environment = {"fingerprint": "abc", "cpu": "test", "cores": 2}
    if cell.kind == "timing":
        base = rng.uniform(1, 1.1, 9)
        factor = {"softmax": 1.0, "w_softmax": 1.5, "center": 1.0, "l_softmax": 1.2}
        losses = [loss.label for loss in cell.losses]
        rounds = {label: list(base * factor[label] * rng.uniform(0.99, 1.01, 9)) for label in losses}
        notes = {"process": processes_of(cell)}
        return Record(cell, "done", rounds=rounds, timing=notes, environment=environment), None
    seed_part = np.random.default_rng(cell.seed).normal(0, 0.5)
    gain = {"softmax": 0, "w_softmax": 3, "center": 0, "l_softmax": rng.normal(0, 1.5)}[cell.loss.name]
    noise = 0 if cell.loss.name in ("softmax", "center") else rng.normal(0, 0.1)
    correct = round(TOTAL * (90 + seed_part + gain + noise) / 100)
    bits = np.arange(TOTAL) < correct
    angle = {"softmax": 40.0}.get(cell.loss.name, 60.0) + rng.normal()
    sizes = {"fc": 4 * cell.width, "classifier": 80, "loss": 0, "model": 999, "optimizer": 5, "peak": 7}
    angles = {"train": [angle - 1] * 10, "test": [angle] * 10}
    return Record(cell, "done", correct=correct, total=TOTAL, angles=angles, bytes=sizes, environment=environment), bits
