"""pytest-benchmark over losses × shapes × implementations × threads.

pytest tests/benchmarks/bench_losses.py --benchmark-group-by=param:shape,param:threads --benchmark-columns=median,iqr
"""

from __future__ import annotations

import pytest
import torch
from contenders import SHAPES, contenders

CASES = [(shape, name) for shape in SHAPES for name in contenders((4, 3, 2))]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("shape", "name"), CASES, ids=str)
@pytest.mark.filterwarnings("ignore")  # pytorch-metric-learning's own
def test_forward_and_backward(benchmark, shape, name, threads):
    loss = name.partition(" ")[0]
    steps = contenders(shape, ["softmax" if loss == "plain" else loss])
    if name not in steps:
        pytest.skip("the B×C×M tensor of Algorithm 1 does not fit")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        benchmark.pedantic(steps[name], rounds=10 if shape[1] < 5000 else 3, iterations=1, warmup_rounds=2)
    finally:
        torch.set_num_threads(before)
