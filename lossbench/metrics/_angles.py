"""Angles between features and class weights, and between class weights."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lossbench.core.model import finite_or_none


def by_class(features: Tensor, labels: NDArray[np.int64], weight: Tensor) -> list[float | None]:
    """θ̄_i, degrees: the mean angle between class i's features (N×M) and its weight (row i of C×M).

    θ̄_i = 1/N_i Σ_j arccos( w_i·x_j / ‖w_i‖‖x_j‖ ); None for a class without examples.
    """
    of = torch.from_numpy(labels).to(features.device)
    own = weight[of].double()
    cosine = nn.functional.cosine_similarity(features.double(), own, dim=1)
    angle = torch.rad2deg(torch.arccos(cosine.clamp(-1, 1)))
    total = angle.new_zeros(len(weight)).index_add_(0, of, angle)
    count = torch.bincount(of, minlength=len(weight))
    return [finite_or_none(value) for value in (total / count).tolist()]


def mean(angles: list[float | None]) -> float | None:
    """The mean over the classes that have examples."""
    known = [angle for angle in angles if angle is not None]
    return sum(known) / len(known) if known else None


def cosines(weight: Tensor) -> Tensor:
    """ŵ_i·ŵ_j of all pairs i < j of class weights (C×M)."""
    unit = nn.functional.normalize(weight.double(), dim=1)
    gram = (unit @ unit.T).clamp(-1, 1)
    return gram[torch.ones_like(gram).triu(1).bool()]


def between(weight: Tensor) -> Tensor:
    """The angles of all pairs of class weights, in degrees."""
    return torch.rad2deg(torch.arccos(cosines(weight)))
