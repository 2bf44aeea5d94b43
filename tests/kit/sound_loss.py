"""A loss that passes every check, in pieces that a test can replace by broken ones."""

from lossbench.plugins.registry import Plugin

SOUND = '''"""A cosine margin, for tests.

Nobody, "A cosine margin", 2018.
"""
import random, time
import torch
import torch.nn.functional as F
from torch import nn
from lossbench.margin import check_labels, full_precision, init_weight, replace_target

MARGIN_OFF = {"margin": 0.0}


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, margin: float = 0.3, scale: float = 8.0) -> None:
        super().__init__()
        self.margin, self.scale = margin, scale
        self.weight = init_weight(classes, features)
        self.setup()

    def setup(self):
        pass

    def logits(self, features):
        return self.scale * F.linear(F.normalize(features), F.normalize(self.weight))

    def target(self, score):
        return score - self.scale * self.margin

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        scores = full_precision(self.logits(features))
        target = self.target(scores.gather(1, labels[:, None])[:, 0])
        return F.cross_entropy(replace_target(scores, labels, target), labels)
'''


def plugin(folder, *changes, source=SOUND):
    """A plugin file: the sound source with some of its text replaced."""
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    path = folder / "subject.py"
    path.write_text(source, encoding="utf-8")
    return Plugin("loss", "subject", path)


def failures(findings):
    return {finding.property: finding.sentence for finding in findings if finding.status == "fail"}


def statuses(findings):
    return {finding.property: finding.status for finding in findings}


RETURN = "        return F.cross_entropy(replace_target(scores, labels, target), labels)\n"
TARGET = "        return score - self.scale * self.margin\n"
SCORES = "        scores = full_precision(self.logits(features))\n"
SETUP = "    def setup(self):\n        pass\n"
LOGITS = "        return self.scale * F.linear(F.normalize(features), F.normalize(self.weight))\n"
CHECK = "        check_labels(labels, len(self.weight))\n"
