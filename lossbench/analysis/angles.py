"""The mean angle between the features of each class and its weight."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
import pandas as pd

from lossbench.analysis.measured import POINT, LossAt, losses_at
from lossbench.analysis.records import RunData


def by_class(data: RunData) -> pd.DataFrame:
    """One row per point, loss, split and class: the mean angle over the `n` seeds that have one, in degrees."""
    rows = []
    by_loss: dict[LossAt, list[dict[str, list[float | None]]]] = {}
    for at, found in zip(losses_at(data.trained), data.trained["angles"], strict=True):
        by_loss.setdefault(at, []).append(found)
    for point in data.points:
        for label in (label for label in data.labels if (point, label) in by_loss):
            for split in ("train", "test"):
                for number, angles in enumerate(zip_longest(*(one.get(split, []) for one in by_loss[point, label]))):
                    if known := [angle for angle in angles if angle is not None]:
                        mine = {"loss": label, "split": split, "class": number, "n": len(known)}
                        mean = float(np.add.reduce(known) / len(known))  # as np.mean, in a third of the time
                        rows.append({**point.row, **mine, "angle": mean})
    return pd.DataFrame(rows, columns=[*POINT, "loss", "split", "class", "n", "angle"])
