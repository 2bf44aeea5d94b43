"""Prototype loss (CPL, GCPL): softmax of the negative squared distances to one learned prototype a class.

    cpl   L = −log softmax(−‖x − c_j‖²/T)_y
    gcpl  L = the same + λ · mean ½ ‖x − c_y‖²

T is the option `temperature`, λ the option `strength`. The prototypes are the class weights and the nearest one is
predicted; there is no softmax layer. Scores leave out ‖x‖²/T, which is the same for all classes: with long features,
it would drown the differences in rounding.

Yang, Zhang, Yin & Liu, "Robust Classification with Convolutional Prototype Learning", CVPR 2018.
"""

import math
from typing import Literal

import torch.nn.functional as F
from torch import nn

from lossbench.margin import check_labels, full_precision, init_weight

RANGES = {"temperature": (0.1, 10.0), "strength": (0.0001, 0.1)}


class Loss(nn.Module):
    def __init__(
        self,
        features: int,
        classes: int,
        *,
        form: Literal["cpl", "gcpl"] = "gcpl",
        temperature: float = 1.0,
        strength: float = 0.001,
    ) -> None:
        super().__init__()
        if form not in ("cpl", "gcpl"):
            raise ValueError(f"form must be cpl or gcpl, got {form!r}")
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        if not 0 <= strength < math.inf:
            raise ValueError(f"strength must be at least 0, got {strength}")
        self.form, self.temperature, self.strength = form, temperature, strength
        self.weight = init_weight(classes, features)

    def logits(self, features):
        """(2 x·c_j − ‖c_j‖²)/T: −‖x − c_j‖²/T but for a term that all classes share."""
        inner = full_precision(F.linear(features, self.weight))
        return (2 * inner - full_precision(self.weight).square().sum(1)) / self.temperature

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        loss = F.cross_entropy(self.logits(features), labels)
        if self.form == "gcpl":
            away = full_precision(features) - full_precision(self.weight[labels])
            loss = loss + self.strength / 2 * away.square().sum(1).mean()
        return loss
