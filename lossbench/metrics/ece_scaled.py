"""Expected calibration error after temperature scaling, fitted on training images that were held out.

T minimises the NLL of softmax(z / T) over the images that the dataset's option `holdout` keeps out of training; the
error is `ece` of softmax(z / T) on the test set. A scale of the logits that a loss happens to have is so taken out. It
does not exist where nothing is held out: on images that were trained on, T would be too small.
"""

from __future__ import annotations

import math

from lossbench.metrics import Evaluation, ece
from lossbench.metrics._outputs import Outputs

UNIT, BETTER, TASKS = "points", "lower", ("classification",)
TITLE = "ECE, scaled"
REQUIRES = "holdout"
HOTTEST = 1e4  # T is between its inverse and it; logits of held-out images without an error would have T = 0


def measure(test: Evaluation, *, bins: int = 15) -> float | None:
    if test.outputs is None or test.correct is None or test.held_out is None or test.held_out.outputs is None:
        return None
    return ece.expected(test.outputs.confidence(temperature(test.held_out.outputs)), test.correct, bins)


def temperature(held_out: Outputs) -> float:
    """The T with the least NLL, which has one minimum: it is convex in 1/T."""
    from scipy import optimize  # takes a third of a second, which every cell would pay

    reach = math.log(HOTTEST)
    found = optimize.minimize_scalar(lambda log_t: held_out.nll(math.exp(log_t)), bounds=(-reach, reach))
    return math.exp(found.x)
