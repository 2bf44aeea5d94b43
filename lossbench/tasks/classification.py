"""Classification of held-out images of the classes that the network was trained on."""

from __future__ import annotations

from lossbench.data.dataset import Dataset, Split
from lossbench.metrics import Evaluation
from lossbench.tasks.task import Network, Task


def evaluate(network: Network, dataset: Dataset) -> Evaluation:
    """The prediction of every test image, without any margin."""
    return classified(network, dataset.test)


def classified(network: Network, split: Split) -> Evaluation:
    """The logits of the images of a split, which may be any whose classes the network was trained on."""
    from lossbench.metrics._outputs import Outputs  # a report, which reads the tasks, needs no torch

    features = network.features(split)
    outputs = Outputs(lambda rows: network.logits(features[rows]), split.labels)
    predicted = outputs.examples.predicted
    correct = predicted == split.labels
    return Evaluation(split.labels, features, network.weights, correct=correct, predicted=predicted, outputs=outputs)


TASK = Task(evaluate, headline=("accuracy", "angle"))
