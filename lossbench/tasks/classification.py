"""Classification of held-out images of the classes that the network was trained on."""

from __future__ import annotations

from lossbench.data.dataset import Dataset
from lossbench.metrics import Evaluation
from lossbench.tasks.task import Network, Task


def evaluate(network: Network, dataset: Dataset) -> Evaluation:
    """The prediction of every test image, without any margin."""
    features, labels = network.features(dataset.test), dataset.test.labels
    predicted = network.predicted(features)
    return Evaluation(labels, features, network.weights, correct=predicted == labels, predicted=predicted)


TASK = Task(evaluate, headline=("accuracy", "angle"))
