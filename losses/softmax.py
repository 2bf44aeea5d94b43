"""Softmax: cross entropy of a linear classifier, the baseline of every comparison.

    L = −log softmax(W x + b)_y

With `normalize` the rows of W are divided by their norms and there is no bias: what W-Softmax is at α = 0.

Bridle, "Probabilistic interpretation of feedforward classification network outputs", Neurocomputing 1990.
"""

import torch
import torch.nn.functional as F
from torch import nn

from lossbench.margin import check_labels, full_precision, init_weight


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, bias: bool = True, normalize: bool = False) -> None:
        super().__init__()
        self.weight = init_weight(classes, features)
        self.bias = nn.Parameter(torch.zeros(classes)) if bias and not normalize else None
        self.normalize = normalize

    def logits(self, features):
        weight = F.normalize(self.weight) if self.normalize else self.weight
        return F.linear(features, weight, self.bias)

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        return F.cross_entropy(full_precision(self.logits(features)), labels)
