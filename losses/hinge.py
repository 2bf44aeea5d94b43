"""Hinge: the multi-class support vector machine's loss on a linear classifier.

    one_vs_rest     L = 1/B Σ_i Σ_j max(0, 1 − t_ij z_ij)^p,   t = +1 for the label, else −1   (p = 1 or 2, as in Caffe)
    crammer_singer  L = 1/B Σ_i max(0, 1 + max_{j ≠ y} z_ij − z_iy)                            (p is not used)

z = W x + b. Scores that win by more than 1 get no gradient at all.

Crammer & Singer, "On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines", JMLR 2001;
one against the rest in a deep net: Tang, "Deep Learning using Linear Support Vector Machines", ICML Workshop 2013.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from lossbench.margin import check_labels, full_precision, init_weight, replace_target


class Loss(nn.Module):
    def __init__(
        self,
        features: int,
        classes: int,
        *,
        form: Literal["one_vs_rest", "crammer_singer"] = "one_vs_rest",
        p: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if form not in ("one_vs_rest", "crammer_singer"):
            raise ValueError(f"form must be one_vs_rest or crammer_singer, got {form!r}")
        if p not in (1, 2):
            raise ValueError(f"p must be 1 or 2, got {p}")
        self.form, self.p = form, p
        self.weight = init_weight(classes, features)
        self.bias = nn.Parameter(torch.zeros(classes)) if bias else None

    def logits(self, features):
        return F.linear(features, self.weight, self.bias)

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        logits = full_precision(self.logits(features))
        target = logits.gather(1, labels[:, None]).squeeze(1)
        if self.form == "crammer_singer":
            rivals = replace_target(logits, labels, torch.full_like(target, -math.inf))
            return (1 + rivals.amax(1) - target).relu().mean()
        short = (1 + replace_target(logits, labels, -target)).relu()
        return (short if self.p == 1 else short.square()).sum() / len(labels)
