"""Verification: whether two images of held-out classes are of the same class.

The score of a pair is the cosine of its features; every fold uses the threshold that is best for all other folds.
Identification is measured beside it, on all test images of the tested classes (`metrics._search`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lossbench.data.dataset import Dataset
from lossbench.metrics import Evaluation, auc, eer, tar
from lossbench.metrics._pairs import LEVEL, Bools, Estimate, Floats, labelled, operating_points
from lossbench.metrics._search import directions
from lossbench.metrics.tar import Rate
from lossbench.tasks.task import Network, Task

FARS = tuple(options["far"] for _, options in tar.NAMES.values())
FEWEST_FOLDS = 3  # below this the spread between folds says next to nothing
_CHUNK = 1 << 21  # numbers of one side's features held at once: 16 MB


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Folds:
    """Accuracies of the F tested folds, each at the threshold that is best for all other folds.

    `mean` ± `error` is what papers on LFW print: the mean of the F accuracies and its standard error sd / √F, sd with
    F − 1 (NaN for a single fold). `correct` has a bit for each pair of the tested folds, in the pairs' own order.
    """

    tested: tuple[int, ...]
    sizes: tuple[int, ...]
    thresholds: tuple[float, ...]
    accuracies: tuple[float, ...]
    mean: float
    error: float
    correct: Bools


@dataclass(frozen=True, eq=False)
class Verification:
    """All scores of one set of pairs; only the accuracy is a mean over folds."""

    positives: int
    negatives: int
    accuracy: Estimate
    folds: Folds
    tar: tuple[Rate, ...]
    eer: Estimate
    auc: Estimate


@dataclass(frozen=True, eq=False)
class PairEvaluation(Evaluation):
    """An evaluation whose bits, scores and labels are those of the pairs of the tested folds."""

    folds: Folds | None = None

    def details(self) -> dict[str, Any]:
        """Every score with its interval, as plain numbers, lists and dictionaries; None for non-finite values."""
        assert self.folds and self.scores is not None and self.same is not None
        found = verify(self.scores, self.same, self.folds)
        plain = asdict(found)
        del plain["folds"]["correct"]  # the record keeps them as bits
        return {name: _finite(value) for name, value in plain.items()}


def evaluate(network: Network, dataset: Dataset) -> PairEvaluation:
    """The cosine of every pair of test images, and whether it is on the right side of its fold's threshold."""
    assert dataset.pairs is not None and dataset.folds is not None
    features = network.features(dataset.test)
    scores, same = cosine_scores(features.cpu().numpy(), dataset.pairs), dataset.pairs[:, 2].astype(bool)
    folds = cross_validated(scores, same, dataset.folds, dataset.tested)
    tested, labels = np.isin(dataset.folds, folds.tested), dataset.test.labels
    # Classes of folds that are not tested may have been trained on.
    unseen = None if dataset.tested is None else np.isin(labels, labels[dataset.pairs[tested, :2]])
    test = PairEvaluation(
        labels,
        features,
        network.weights,
        known=False,
        correct=folds.correct,
        scores=scores[tested],
        same=same[tested],
        unseen=unseen,
        folds=folds,
    )
    return replace(test, counts=_counts(test))


def _counts(test: Evaluation) -> dict[str, int]:
    """The pairs of both kinds; the classes, probes and searches of identification."""
    assert test.same is not None
    same = int(test.same.sum())
    counts = {"same": same, "different": len(test.same) - same}
    if (found := test.searches) is None:
        return counts
    mated = int(found.mated.sum())
    counts |= {"enrolled": found.identities, "single": found.singles, "probes": len(found.rank)}
    return counts | {"mated": mated, "nonmated": len(found.mated) - mated}


TASK = Task(evaluate, headline=("tar@0.01", "eer", "auc"))


def cosine_scores(features: ArrayLike, pairs: ArrayLike) -> Floats:
    """cos(x_i, x_j) (P,) of the pairs (i, j) of rows of `features` (N×M); a third column (the label) is ignored.

    A feature of length 0 has no direction: its score is 0. Only the features of some pairs are held at once in float64.
    """
    rows, chosen = np.asarray(features), np.asarray(pairs)
    if rows.ndim != 2:
        raise ValueError(f"features must be a matrix with one row per image, got shape {rows.shape}")
    if chosen.ndim != 2 or chosen.shape[1] not in (2, 3) or chosen.dtype.kind not in "iu":
        raise ValueError(f"pairs must be integers of shape P×2 or P×3, got {chosen.dtype} of shape {chosen.shape}")
    chosen = chosen[:, :2]
    if chosen.size and (chosen.min() < 0 or chosen.max() >= len(rows)):
        raise ValueError(f"pairs must name rows 0…{len(rows) - 1}, got {chosen.min()}…{chosen.max()}")

    scores = np.empty(len(chosen))
    step = max(1, _CHUNK // max(1, rows.shape[1]))
    for start in range(0, len(chosen), step):
        first, second = (directions(rows[index]) for index in chosen[start : start + step].T)
        scores[start : start + step] = np.einsum("pm,pm->p", first, second)
    return scores.clip(-1, 1)  # rounding may leave the range of a cosine by an ulp


def best_threshold(scores: ArrayLike, same: ArrayLike) -> float:
    """The t at which "same iff score ≥ t" is right for most pairs, by one sort.

    t lies in the middle between two neighbouring distinct scores, or next to the lowest (all are accepted) or above the
    highest (none is). Of equally good ones it is the middle one, which strays least from fold to fold; of an even
    number, the higher of the middle two, which accepts less.
    """
    thresholds, false_accepts, true_accepts = operating_points(*labelled(scores, same))
    right = true_accepts - false_accepts  # and N, wherever the threshold is
    best = np.flatnonzero(right == right.max())
    chosen = int(best[(len(best) - 1) // 2])  # all scores ≥ thresholds[chosen] are accepted, thresholds fall
    if chosen == 0:
        return math.nextafter(float(thresholds[1]), math.inf)
    lowest_accepted = float(thresholds[chosen])
    if chosen == len(thresholds) - 1:
        return math.nextafter(lowest_accepted, -math.inf)
    highest_refused = float(thresholds[chosen + 1])
    middle = lowest_accepted / 2 + highest_refused / 2  # halves first: the sum of the scores might overflow
    return middle if highest_refused < middle <= lowest_accepted else lowest_accepted  # no float lies between


def cross_validated(scores: ArrayLike, same: ArrayLike, folds: ArrayLike, tested: Sequence[int] | None = None) -> Folds:
    """The protocol of LFW: every tested fold is judged at the threshold that is best for all pairs of the other folds.

    `folds` (P,) holds the fold of each pair, `tested` those that are judged (all of them, in rising order). The mean is
    over folds, not over pairs: folds of unequal size count the same.
    """
    values, labels = labelled(scores, same)
    member = np.asarray(folds)
    if member.shape != values.shape or member.dtype.kind not in "iu":
        raise ValueError(f"folds must be {len(values)} integers, got {member.dtype} of shape {member.shape}")
    chosen = np.unique(member).tolist() if tested is None else [int(fold) for fold in tested]
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"tested folds must be one or more, each named once, got {chosen}")

    correct = np.zeros(len(values), dtype=bool)
    thresholds, accuracies, sizes = [], [], []
    for fold in chosen:
        inside = member == fold
        if not inside.any():
            raise ValueError(f"tested fold {fold} has no pairs")
        outside = ~inside
        if not outside.any():
            raise ValueError(f"fold {fold} has no other fold to take its threshold from")
        if labels[outside].all() or not labels[outside].any():
            kind = "different" if labels[outside].all() else "same"
            raise ValueError(f"the folds other than {fold} have no pair that is {kind}, so no threshold can be chosen")
        threshold = best_threshold(values[outside], labels[outside])
        correct[inside] = (values[inside] >= threshold) == labels[inside]
        thresholds.append(threshold)
        accuracies.append(float(correct[inside].mean()))
        sizes.append(int(inside.sum()))

    mean = math.fsum(accuracies) / len(chosen)
    error = float(np.std(accuracies, ddof=1)) / math.sqrt(len(chosen)) if len(chosen) > 1 else math.nan
    bits = correct[np.isin(member, chosen)]
    return Folds(tuple(chosen), tuple(sizes), tuple(thresholds), tuple(accuracies), mean, error, bits)


def accuracy(folds: Folds, level: float = LEVEL) -> Estimate:
    """The mean accuracy of the folds with its t interval over folds (no person is in two folds).

    The spread between folds counts as at least one pair of the smallest fold, so perfect folds do not give an interval
    of zero width. Below three folds it is Wilson's interval of as many pairs as give a mean
    over folds its binomial variance, n = F² / Σ 1/size (all pairs, if folds are of one size). The thresholds
    of the folds come from nearly the same pairs, so at chance level 95 % intervals cover only about 84 %.
    """
    count, mean = len(folds.tested), folds.mean
    if count >= FEWEST_FOLDS:
        error = max(folds.error, 1 / (min(folds.sizes) * math.sqrt(count)))
        half = float(special.stdtrit(count - 1, 1 - level / 2)) * error
        return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half))
    n, z = count**2 / sum(1 / size for size in folds.sizes), float(special.ndtri(1 - level / 2))
    half = z * math.sqrt(mean * (1 - mean) / n + z**2 / (4 * n**2))
    low, high = ((mean + z**2 / (2 * n) + side) / (1 + z**2 / n) for side in (-half, half))
    return Estimate(mean, max(0.0, min(mean, low)), min(1.0, max(mean, high)))  # the ends 0 and 1 without rounding


def verify(scores: ArrayLike, same: ArrayLike, folds: Folds, level: float = LEVEL) -> Verification:
    """All scores of the pairs of the tested folds, from their cosines and labels."""
    values, labels = labelled(scores, same)
    positives = int(labels.sum())
    return Verification(
        positives=positives,
        negatives=len(labels) - positives,
        accuracy=accuracy(folds, level),
        folds=folds,
        tar=tuple(tar.with_interval(values, labels, far, level) for far in FARS),
        eer=eer.with_interval(values, labels, level),
        auc=auc.with_interval(values, labels, level),
    )


def _finite(value: Any) -> Any:
    """A JSON value without NaN or infinity."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
