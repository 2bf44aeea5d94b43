"""The networks learn what they should: a real task to a known accuracy."""

from __future__ import annotations

import pytest

from lossbench.plan.cells import plan
from lossbench.training import cell as train

MNIST = """
name = "mnist"
[[experiment]]
name = "mnist"
dataset = "mnist"
backbone = { name = "cnn", channels = 16 }
widths = [64]
losses = ["softmax"]
seeds = 1
channels_last = true
schedule = { steps = 1800, batch = 100, lr = 0.02, decay = { factor = 0.5, every = 450 } }
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.data("mnist")
def test_three_epochs_of_softmax_on_mnist_reach_99_percent(real_data, read_suite, registry):
    record = train.run(plan(read_suite(MNIST))[0], registry, real_data).record
    assert record.accuracy >= 99.0, record.accuracy
