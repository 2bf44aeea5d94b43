"""Retrieval: every test image is a query against all other test images, which are of classes that were not trained on.

A query is correct if the nearest other image, by cosine, is of its class: recall@1. `metrics._search` has the rest.
"""

from __future__ import annotations

from lossbench.data.dataset import Dataset
from lossbench.metrics import Evaluation
from lossbench.metrics._search import retrieve
from lossbench.tasks.task import Network, Task


def evaluate(network: Network, dataset: Dataset) -> Evaluation:
    """The ranks of the images of its own class for every query; images that are alone in their class are counted."""
    features, labels = network.features(dataset.test), dataset.test.labels
    found = retrieve(features, labels)
    counts = {"queries": len(found.queries), "gallery": len(labels) - 1, "alone": len(found.alone)}
    return Evaluation(
        labels,
        features,
        network.weights,
        known=False,
        correct=found.first == 1,
        retrieved=found,
        counts=counts | {"relevant": int(found.relevant.sum())},  # pairs of a query and an image of its class
    )


TASK = Task(evaluate, headline=("recall@1", "recall@5", "recall@10", "map@r", "r_precision"))
