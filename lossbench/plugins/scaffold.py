"""A first draft of a plugin: a loss that works, passes `lossbench check` and waits to be changed."""

from __future__ import annotations

import keyword
from pathlib import Path

from lossbench.core.errors import PluginError
from lossbench.plugins.registry import FOLDER, Registry

LOSS = '''\
"""{name}: softmax over cosines, the cosine to the true class lowered by a margin (say here what yours does).

    L = −log softmax(s·z)_y,   z_y = cos θ_y − m,   z_j = cos θ_j  (j ≠ y)

Wang et al., "CosFace: Large Margin Cosine Loss for Deep Face Recognition", CVPR 2018 (cite your own source here).
"""

import torch.nn.functional as F
from torch import nn

from lossbench.margin import check_labels, full_precision, init_weight, replace_target

MARGIN_OFF = {{"m": 0.0}}  # the options at which no margin is left: `lossbench check` tests what the margin does
RANGES = {{"m": (0.1, 0.5), "s": (4.0, 64.0)}}  # what may be tuned: (low, high), or a list of choices


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, m: float = 0.35, s: float = 16.0) -> None:  # m, s: its options
        super().__init__()
        self.m, self.s = m, s
        self.weight = init_weight(classes, features)  # one row a class

    def logits(self, features):  # for prediction: knows neither labels nor margin
        return self.s * F.linear(F.normalize(features), F.normalize(self.weight))

    def forward(self, features, labels):  # for training
        check_labels(labels, len(self.weight))
        scores = full_precision(self.logits(features))
        target = scores.gather(1, labels[:, None])[:, 0] - self.s * self.m
        return F.cross_entropy(replace_target(scores, labels, target), labels)
'''


def new_loss(name: str, folder: Path | str) -> Path:
    """Write `folder`/losses/`name`.py, a working loss; PluginError if that name cannot be had. Overwrites nothing."""
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name) or name.startswith("_"):
        raise PluginError(f"'{name}' cannot name a loss: use letters, digits and _, and begin with a letter")
    path = Path(folder) / FOLDER["loss"] / f"{name}.py"
    if path.exists():
        raise PluginError(f"{path}: is already there, and is left as it is")
    if name in Registry().names("loss"):
        raise PluginError(f"'{name}' is the name of a loss that is there already; choose another")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(LOSS.format(name=name))
    except OSError as error:
        raise PluginError(f"{path}: cannot be written ({error.strerror})") from error
    return path
