"""A grid of options, widths and classes with a known truth, for tests of claims."""

from __future__ import annotations

import math

from conftest import SMALL
from kit.synthetic import Truth, common, noise

GRID = (
    SMALL.replace('"w_softmax"]', '{ name = "w_softmax", alpha = [0.5, 1.0, 1.5, 2.0] }, "center"]')
    .replace("seeds = 2", "seeds = 6\nclasses = [4, 6, 8, 10]\ntiming = { rounds = 9 }")
    .replace("widths = [8]", 'widths = [4, 8, 16, "min"]')
)


def claim(body: str) -> str:
    return f'\n[[claim]]\ntext = "t"\nexperiment = "digits"\n{body}\n'


def truth(cell):
    """Accuracy falls with alpha by 1 a unit and rises with width by 0.5 a doubling; the gain of w_softmax[alpha=1.0]
    over softmax is k/10 points; center equals softmax; the angle is larger on test by 2 degrees."""
    gain = 0.0
    if cell.loss.name == "w_softmax":
        gain = cell.classes / 10 + 1 - cell.loss.options["alpha"]
    accuracy = 85 + common(cell.seed) + 0.5 * math.log2(cell.width) + gain + noise(cell, 0.02)
    return Truth(accuracy, angle=40 + noise(cell, 0.3), angle_train=38 + noise(cell, 0.3))
