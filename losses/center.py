"""Center loss: softmax plus a pull of every feature towards the centre of its class.

    L = −log softmax(W x + b)_y + λ/(2B) Σ_i ‖x_i − c_{y_i}‖²

λ is the option `strength`. The centres are not trained by gradient; they follow the features of their class by a rule
of their own, once a step:

    c_j ← c_j − α Σ_{i: y_i = j} (c_j − x_i) / (1 + n_j),   n_j the count of class j in the batch

Wen, Zhang, Li & Qiao, "A Discriminative Feature Learning Approach for Deep Face Recognition", ECCV 2016.
"""

import torch
import torch.nn.functional as F
from torch import nn

from lossbench.margin import check_labels, full_precision, init_weight

MARGIN_OFF = {"strength": 0.0}
MARGIN_OFF_EQUALS = "softmax"


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, strength: float = 0.003, alpha: float = 0.5) -> None:
        super().__init__()
        if strength < 0:
            raise ValueError(f"strength must be at least 0, got {strength}")
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha must lie in 0…1, got {alpha}")
        self.strength, self.alpha = strength, alpha
        self.weight = init_weight(classes, features)
        self.bias = nn.Parameter(torch.zeros(classes))
        self.register_buffer("centers", torch.zeros(classes, features))
        self._seen: list = []  # (features, labels) since the last optimizer step

    def logits(self, features):
        return F.linear(features, self.weight, self.bias)

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        if self.training and torch.is_grad_enabled():
            self._seen.append((features.detach(), labels))
        distance = (features - self.centers[labels]).square().sum() / (2 * len(labels))
        return F.cross_entropy(full_precision(self.logits(features)), labels) + self.strength * distance

    @torch.no_grad()
    def advance(self):
        """Move the centres: called once after each optimizer step."""
        for features, labels in self._seen:
            count = torch.bincount(labels, minlength=len(self.centers))
            toward = torch.zeros_like(self.centers).index_add_(0, labels, self.centers[labels] - features)
            self.centers -= self.alpha * toward / (1 + count)[:, None]
        self._seen.clear()
