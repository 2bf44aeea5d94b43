"""What can be measured of a loss: where its number stands in a record's row, its unit, and which way is better."""

from __future__ import annotations

from typing import NamedTuple

from lossbench.core.format import VERIFICATION_METRICS


class Metric(NamedTuple):
    """How a metric is read: its column, its unit, and which way is better."""

    column: str
    unit: str
    higher_is_better: bool


METRICS = {
    "accuracy": Metric("accuracy", "points", True),
    "angle": Metric("angle_test", "degrees", False),
    "angle_train": Metric("angle_train", "degrees", False),
    "weight_angle": Metric("weight_angle", "degrees", True),
    "simplex_distance": Metric("simplex_distance", "", False),
    "feature_norm": Metric("norm_test", "", True),
    "step_seconds": Metric("", "%", False),  # paired rounds of timing cells, as a ratio
    "steps_to_converge": Metric("steps_to_converge", "steps", False),
    "fc_bytes": Metric("bytes_fc", "bytes", False),
    "peak_bytes": Metric("bytes_peak", "bytes", False),
    **{name: Metric(name, "points", name != "eer") for name in VERIFICATION_METRICS},
}
SCORES = ("accuracy", *VERIFICATION_METRICS)  # how well a loss does its task, in points
ANGLES = ("angle", "angle_train", "weight_angle", "simplex_distance")  # measured from the class weights of a loss
