"""How far the class weights are from a simplex, in which all angles between two of them are equal and widest.

With c_ij = ŵ_i·ŵ_j over all pairs i < j: √mean (c_ij + 1/(C−1))², which is zero if and only if the weights form a
simplex, in any rotation.
"""

from __future__ import annotations

from lossbench.metrics import Evaluation, _angles

UNIT, BETTER, TASKS = "", "lower", ("classification", "verification", "retrieval")
COMPARED = False
NEEDS_CLASS_WEIGHTS = True


def measure(test: Evaluation) -> float | None:
    if test.weights is None:
        return None
    return (_angles.cosines(test.weights) + 1 / (len(test.weights) - 1)).square().mean().sqrt().item()
