"""Are two images of the same person? Scores of pairs → accuracy over folds, ROC, TAR at a FAR, EER, AUC.

A pair is accepted as *same* if its score is at least a threshold. P pairs of the same class ("positives") and N of
different ones ("negatives") give, at threshold t,

    TPR(t) = TAR(t) = #{positives ≥ t} / P,      FPR(t) = FAR(t) = #{negatives ≥ t} / N,      FNR = 1 − TPR.

Pairs of equal score cannot be told apart by any threshold: they are accepted together or not at all.

Every interval is for the pairs alone, taken as independent draws of positives and of negatives; what another seed of
the training would change is not in it. None is drawn at random: a bootstrap, the usual choice, never looks beyond the
highest negative it has seen and calls 100 % certain, so that where few errors are left (which is where verification is
reported) its 95 % cover far less. Tests measure both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

LEVEL = 0.05
FARS = (0.1, 0.01, 0.001)
FEWEST_FOLDS = 3  # below this the spread between folds says next to nothing
_CHUNK = 1 << 21  # numbers of one side's features held at once: 16 MB

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """A figure with its (1 − level) interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Rate(Estimate):
    """The TAR at one FAR.

    `allowed` false accepts are ⌊far · N⌋; `threshold` is the lowest score accepted (∞: none is). Not `resolved`: fewer
    than 1 / far negatives, so that the value is the TAR without any false accept, whatever its real FAR.
    """

    far: float
    threshold: float
    allowed: int
    resolved: bool


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
    """All figures of one set of scores; those beside the accuracy are of the pairs of the tested folds together."""

    positives: int
    negatives: int
    accuracy: Estimate
    folds: Folds
    tar: tuple[Rate, ...]
    eer: Estimate
    auc: Estimate

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, lists and dictionaries; None for what is not finite. Without `correct`, one bit for a pair."""
        plain = asdict(self)
        del plain["folds"]["correct"]
        return {name: _finite(value) for name, value in plain.items()}


def cosine_scores(features: ArrayLike, pairs: ArrayLike) -> Floats:
    """cos(x_i, x_j) (P,) of the pairs (i, j) of rows of `features` (N×M); a third column (the label) is ignored.

    A feature of length 0 has no direction: its score is 0. Only the features of some pairs are held at once in float64,
    each divided by its largest entry first, so that no square overflows or vanishes.
    """
    rows, chosen = np.asarray(features), np.asarray(pairs)
    if rows.ndim != 2:
        raise ValueError(f"features must be a matrix, a row each, got shape {rows.shape}")
    if chosen.ndim != 2 or chosen.shape[1] not in (2, 3) or chosen.dtype.kind not in "iu":
        raise ValueError(f"pairs must be integers of shape P×2 or P×3, got {chosen.dtype} of shape {chosen.shape}")
    chosen = chosen[:, :2]
    if chosen.size and (chosen.min() < 0 or chosen.max() >= len(rows)):
        raise ValueError(f"pairs must name rows 0…{len(rows) - 1}, got {chosen.min()}…{chosen.max()}")

    scores = np.empty(len(chosen))
    step = max(1, _CHUNK // max(1, rows.shape[1]))
    for start in range(0, len(chosen), step):
        first, second = (_directions(rows[index]) for index in chosen[start : start + step].T)
        scores[start : start + step] = np.einsum("pm,pm->p", first, second)
    return scores.clip(-1, 1)  # rounding may leave the range of a cosine by an ulp


def best_threshold(scores: ArrayLike, same: ArrayLike) -> float:
    """The t at which "same iff score ≥ t" is right for most pairs, by one sort.

    t lies in the middle between two neighbouring distinct scores, or next to the lowest (all are accepted) or above the
    highest (none is). Of equally good ones it is the middle one, which strays least from fold to fold; of an even
    number, the higher of the middle two, which accepts less.
    """
    thresholds, false_accepts, true_accepts = _operating_points(*_labelled(scores, same))
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
    values, labels = _labelled(scores, same)
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
    """The mean accuracy of the folds with its t interval over folds, whose people are apart where pairs share some.

    As one pair is the least step, the spread between folds counts as at least one pair of the smallest; so folds that
    are all perfect are not taken for certain. Below three folds it is Wilson's interval of as many pairs as give a mean
    over folds its binomial variance, n = F² / Σ 1/size (all pairs, if folds are of one size). Folds share most of what
    their thresholds come from, which matters where the threshold is arbitrary: at chance, 95 % cover some 84 %.
    """
    count, mean = len(folds.tested), folds.mean
    if count >= FEWEST_FOLDS:
        error = max(folds.error, 1 / (min(folds.sizes) * math.sqrt(count)))
        half = float(stats.t.ppf(1 - level / 2, count - 1)) * error
        return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half))
    n, z = count**2 / sum(1 / size for size in folds.sizes), float(stats.norm.ppf(1 - level / 2))
    half = z * math.sqrt(mean * (1 - mean) / n + z**2 / (4 * n**2))
    low, high = ((mean + z**2 / (2 * n) + side) / (1 + z**2 / n) for side in (-half, half))
    return Estimate(mean, max(0.0, min(mean, low)), min(1.0, max(mean, high)))  # the ends 0 and 1 without rounding


def roc(scores: ArrayLike, same: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """(FPR, TPR, thresholds), each K + 1 long for K distinct scores: from (0, 0) at t = ∞ to (1, 1) at the lowest."""
    thresholds, false_accepts, true_accepts = _operating_points(*_labelled(scores, same))
    return false_accepts / false_accepts[-1], true_accepts / true_accepts[-1], thresholds


def tar_at_far(scores: ArrayLike, same: ArrayLike, far: float, level: float = LEVEL) -> Rate:
    """The largest TAR at which no more than `far` of the negatives are accepted: an operating point, no interpolation.

    The interval allows for both the threshold and the positives being a sample. Let K(j) be the true accepts while j
    false ones are allowed, K(−1) = 0. Above the threshold whose real FAR is `far` lie J ~ Bin(N, far) of the negatives;
    if J = j, then it lies between the j-th and the next highest negative, and between K(j−1) and K(j) of the positives
    are above it. Clopper and Pearson's bounds, averaged over j:

        Σ_j Pr[J = j] Pr[Bin(P, low) ≥ K(j−1)] = level / 2,      Σ_j Pr[J = j] Pr[Bin(P, high) ≤ K(j)] = level / 2.

    `low` is 0 if Pr[J = 0] ≥ level / 2, that is below 3.7 / far negatives at 95 % (LFW's 3000 at 0.001, too): often
    enough none of them reaches the threshold, and nothing then tells how far above them all it lies.
    """
    if not 0 < far < 1:
        raise ValueError(f"far must lie between 0 and 1, got {far}")
    thresholds, false_accepts, true_accepts = _operating_points(*_labelled(scores, same))
    negatives, positives = int(false_accepts[-1]), int(true_accepts[-1])
    allowed = int(Fraction(str(float(far))) * negatives)  # as written: 0.29 of 100 is 29, and 28 in binary floats
    chosen = int(np.searchsorted(false_accepts, allowed, side="right")) - 1

    def hits(count: Ints) -> Ints:
        return np.where(count < 0, 0, true_accepts[np.searchsorted(false_accepts, count, side="right") - 1])

    count, weight = _likely_counts(negatives, far)
    least, most = hits(count - 1), hits(count)
    low = _least(lambda share: float(weight @ special.bdtrc(least - 1, positives, share)), level / 2)
    high = 1 - _least(lambda rest: float(weight @ (1 - special.bdtrc(most, positives, 1 - rest))), level / 2)
    value = float(true_accepts[chosen]) / positives
    return Rate(value, low, high, far, float(thresholds[chosen]), allowed, allowed > 0)


def eer(scores: ArrayLike, same: ArrayLike, level: float = LEVEL) -> Estimate:
    """The error rate e at which FPR = FNR, on the ROC with straight lines between its points.

    At the threshold where both are e, the false accepts and false rejects of a sample are J ~ Bin(N, e) and
    I ~ Bin(P, e), independent; (J, I) lies on the sample's own line of false rejects against false accepts. The
    interval holds every e for which a fresh (J, I) is neither above that line nor below it too surely:

        Pr[(J, I) on or above] ≥ level / 2,      Pr[(J, I) on or below] ≥ level / 2.

    The first rises with e, the second falls. Scores without an error give 0 and, at 95 % and P = N, an upper bound of
    4.4 / N, where a bootstrap gives 0. Scores of three or four values only may be covered less than the level says.
    """
    _, accepts, hits = _operating_points(*_labelled(scores, same))
    negatives, positives = int(accepts[-1]), int(hits[-1])
    rejects = positives - hits
    excess = accepts / negatives - rejects / positives  # FPR − FNR, from −1 to 1, rising
    after = int(np.argmax(excess >= 0))
    part = excess[after - 1] / (excess[after - 1] - excess[after])
    value = float(accepts[after - 1] + part * (accepts[after] - accepts[after - 1])) / negatives

    def chances(rate: float) -> tuple[float, float]:
        count, weight = _likely_counts(negatives, rate)
        least, most = _rejects_at(accepts, rejects, count)
        above, below = special.bdtrc(least - 1, positives, rate), 1 - special.bdtrc(most, positives, rate)
        return float(weight @ above), float(weight @ below)

    low = _least(lambda rate: chances(rate)[0], level / 2)
    high = 1 - _least(lambda rest: chances(1 - rest)[1], level / 2)
    return Estimate(value, low, high)


def auc(scores: ArrayLike, same: ArrayLike, level: float = LEVEL) -> Estimate:
    """The area under the ROC: how often a positive scores higher than a negative, ties counting half (Mann–Whitney).

    By midranks r among all pairs and r⁺, r⁻ among their own kind, a positive's share of negatives below it is
    V⁺ = (r − r⁺) / N, a negative's of positives above it V⁻ = 1 − (r − r⁻) / P; A = mean V⁺ = mean V⁻, and DeLong's
    variance is var V⁺ / P + var V⁻ / N. The interval is logit A ± z · sd / (A (1 − A)), so it stays within (0, 1).

    Where there is no such variance (A is 0 or 1, all scores equal, one pair of a kind) it is Clopper and Pearson's for
    A as a share of n = min(P, N): as many comparisons that have no pair in common are the least the scores hold. With
    A = 1 that is ((level / 2)^(1/n), 1).
    """
    values, labels = _labelled(scores, same)
    ranks = stats.rankdata(values)
    # Twice the ranks' differences are whole numbers: equal ones have a variance of exactly 0.
    below = ranks[labels] - stats.rankdata(values[labels])
    above = ranks[~labels] - stats.rankdata(values[~labels])
    positives, negatives = len(below), len(above)
    area = float(below.sum()) / (positives * negatives)
    fewest = min(positives, negatives)
    variance = 0.0
    if fewest > 1:
        variance += float(below.var(ddof=1)) / (negatives**2 * positives)
        variance += float(above.var(ddof=1)) / (positives**2 * negatives)
    if variance == 0:
        won = area * fewest
        low = float(stats.beta.ppf(level / 2, won, fewest - won + 1)) if won > 0 else 0.0
        high = float(stats.beta.ppf(1 - level / 2, won + 1, fewest - won)) if won < fewest else 1.0
        return Estimate(area, low, high)
    half = float(stats.norm.ppf(1 - level / 2)) * math.sqrt(variance) / (area * (1 - area))
    middle = math.log(area / (1 - area))
    return Estimate(area, float(special.expit(middle - half)), float(special.expit(middle + half)))


def verify(
    scores: ArrayLike,
    same: ArrayLike,
    folds: ArrayLike,
    tested: Sequence[int] | None = None,
    *,
    fars: Sequence[float] = FARS,
    level: float = LEVEL,
) -> Verification:
    """Everything of this module for one set of scores; all figures are of the pairs of the tested folds alone."""
    found = cross_validated(scores, same, folds, tested)
    judged = np.isin(np.asarray(folds), found.tested)
    values, labels = _labelled(np.asarray(scores)[judged], np.asarray(same)[judged])
    positives = int(labels.sum())
    return Verification(
        positives=positives,
        negatives=len(labels) - positives,
        accuracy=accuracy(found, level),
        folds=found,
        tar=tuple(tar_at_far(values, labels, far, level) for far in fars),
        eer=eer(values, labels, level),
        auc=auc(values, labels, level),
    )


def _labelled(scores: ArrayLike, same: ArrayLike) -> tuple[Floats, Bools]:
    """Scores and labels (P,) that every function of this module can work with."""
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(same)
    if values.ndim != 1 or labels.shape != values.shape:
        raise ValueError(f"scores and labels must be vectors of one length, got {values.shape} and {labels.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"scores must be finite, {int((~np.isfinite(values)).sum())} of {len(values)} are not")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("labels must be true (same) or false (different)")
    labels = labels.astype(bool)
    if labels.all() or not labels.any():
        raise ValueError("labels must hold pairs of both kinds, same and different")
    return values, labels


def _operating_points(values: Floats, labels: Bools) -> tuple[Floats, Ints, Ints]:
    """Thresholds ∞ and the distinct scores, falling; false and true accepts at each (score ≥ t). All K + 1 long."""
    order = np.argsort(-values)
    falling = values[order]
    last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))  # of each group of equal scores
    accepted = np.append(0, last + 1)
    true_accepts = np.append(0, np.cumsum(labels[order], dtype=np.int64)[last])
    return np.append(np.inf, falling[last]), accepted - true_accepts, true_accepts


def _likely_counts(total: int, share: float) -> tuple[Ints, Floats]:
    """The values of Bin(total, share) that matter, with their probabilities; by Bernstein, 1e-7 at most is left out."""
    mean, reach = total * share, 7 * math.sqrt(total * share * (1 - share)) + 10
    count = np.arange(max(0, math.floor(mean - reach)), min(total, math.ceil(mean + reach)) + 1)
    more = special.bdtrc(np.append(count[0] - 1, count), total, share)  # Pr[Bin > j], as everywhere in this module
    return count, more[:-1] - more[1:]


def _rejects_at(accepts: Ints, rejects: Ints, count: Ints) -> tuple[Floats, Floats]:
    """The least and the most false rejects on the line through the operating points, at `count` false accepts.

    Equal scores of both kinds make the line slant: between two of its points, the whole numbers next to it.
    """
    first = np.searchsorted(accepts, count, side="left")  # the first point with so many false accepts, or more
    last = np.searchsorted(accepts, count, side="right") - 1  # the last with so many, or fewer
    met = first <= last
    gap = np.where(met, 1, accepts[first] - accepts[last])
    least = rejects[last] + (count - accepts[last]) * (rejects[first] - rejects[last]) / gap
    most = np.where(met, rejects[first], least)
    return np.ceil(least - 1e-9), np.floor(most + 1e-9)  # what rounding makes of a whole number is one


def _least(rising: Callable[[float], float], target: float) -> float:
    """The least x in [0, 1] at which a rising function reaches its target, by halving."""
    if rising(0.0) >= target:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(32):  # to 2e-10
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) >= target else (middle, high)
    return high


def _directions(rows: NDArray[Any]) -> Floats:
    """Rows of length 1, in float64; zero rows stay zero."""
    wide = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(wide).all():
        raise ValueError("features must be finite")
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    wide = wide / np.where(largest > 0, largest, 1.0)
    length = np.sqrt(np.einsum("pm,pm->p", wide, wide))[:, None]
    return np.asarray(wide / np.where(length > 0, length, 1.0))


def _finite(value: Any) -> Any:
    """A JSON value without NaN or infinity."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
