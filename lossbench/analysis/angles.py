"""The mean angle between the features of each class and its weight."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
import pandas as pd

from lossbench.analysis.measured import POINT
from lossbench.analysis.records import RunData, points


def by_class(data: RunData) -> pd.DataFrame:
    """One row per point, loss, split and class: the mean angle over the `n` seeds that have one, in degrees."""
    rows = []
    for point, group in points(data.trained):
        by_label = group["angles"].groupby(group["label"]).agg(list)
        for label in (label for label in data.labels if label in by_label.index):
            for split in ("train", "test"):
                for number, angles in enumerate(zip_longest(*(found.get(split, []) for found in by_label[label]))):
                    if known := [angle for angle in angles if angle is not None]:
                        found = {"loss": label, "split": split, "class": number, "n": len(known)}
                        rows.append({**point.row, **found, "angle": float(np.mean(known))})
    return pd.DataFrame(rows, columns=[*POINT, "loss", "split", "class", "n", "angle"])
