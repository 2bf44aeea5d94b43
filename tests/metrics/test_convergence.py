"""When a learning curve has converged."""

from __future__ import annotations

import math

import pytest

from lossbench.plugins.metrics import METRICS


def converged(*losses: float) -> float:
    curve = [{"step": 10 * (place + 1), "loss": loss} for place, loss in enumerate(losses)]
    return METRICS["steps_to_converge"].measure({"curve": curve})


@pytest.mark.parametrize(
    ("losses", "step"),
    [
        ((10.0, 5.0, 1.0, 0.0), 30),  # 90 % of the way from 10 to 0 is 1
        ((10.0, 5.0, 1.1, 0.0), 40),
        ((-2.0, -3.0, -12.0), 30),  # a share of the curve's own range, wherever it begins
        ((10.0, 0.0, 8.0), 20),  # what comes after the lowest point does not matter
    ],
)
def test_a_cell_has_converged_when_its_loss_has_gone_nine_tenths_of_its_way_down(losses, step):
    assert converged(*losses) == step


@pytest.mark.parametrize("losses", [(), (3.0,), (1.0, 1.0), (1.0, 2.0, 3.0)])
def test_a_loss_that_never_falls_has_not_converged(losses):
    assert math.isnan(converged(*losses))
