"""What the intervals of TAR, EER and AUC promise: they agree with drawing, and cover as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from kit.pairs import normal_scores, within

from lossbench.metrics import auc, eer, tar


def test_the_interval_of_a_tar_agrees_with_drawing_its_two_sources():
    """The threshold's rank is J ~ Bin(N, far), the positives' share above it a beta variate; quantiles by drawing."""
    rng = np.random.default_rng(17)
    scores, same = normal_scores(rng, 80, 200, 2)
    positives, negatives = np.sort(scores[same]), np.sort(scores[~same])[::-1]
    rank = rng.binomial(200, 0.1, size=400_000)
    most = (positives[:, None] > negatives).sum(0)[rank]  # above the next highest negative: K(j)
    least = (positives[:, None] > negatives).sum(0)[rank - 1]
    found = tar.with_interval(scores, same, 0.1)
    assert found.low == pytest.approx(np.quantile(rng.beta(least, 81 - least), 0.025), abs=0.003)
    assert found.high == pytest.approx(np.quantile(rng.beta(most + 1, 80 - most), 0.975), abs=0.003)


def test_the_interval_of_an_eer_agrees_with_drawing_its_two_errors():
    """At either end, a fresh (J, I) is beyond the sample's line with the chance of one tail."""
    rng = np.random.default_rng(18)
    scores, same = normal_scores(rng, 60, 90, 1.5)
    scores = np.round(scores * 4)  # some ties
    found = eer.with_interval(scores, same)
    accepts, hits = [
        np.array([(scores[kind] >= t).sum() for t in [99, *sorted(set(scores), reverse=True)]])
        for kind in (~same, same)
    ]
    for rate, beyond in ((found.low, 1), (found.high, -1)):
        false_accepts, false_rejects = rng.binomial(90, rate, size=200_000), rng.binomial(60, rate, size=200_000)
        # Along the line, accepts + hits rises: the excess of a point is its place relative to the line on its diagonal.
        place = np.interp(false_accepts + 60 - false_rejects, accepts + hits, accepts)
        share = np.mean(beyond * (false_accepts - place) >= -1e-9)
        assert share == pytest.approx(0.025, abs=0.0015)


def test_an_eer_without_errors_is_bounded_in_closed_form():
    """No error at all: on or below the line are J = 0 or I = 0."""
    for positives, negatives in ((30, 30), (10, 200)):
        same = np.arange(positives + negatives) < positives
        high = eer.with_interval(same, same).high
        none = (1 - high) ** positives, (1 - high) ** negatives
        assert none[0] + none[1] - none[0] * none[1] == pytest.approx(0.025)


def test_a_tar_without_misses_has_the_interval_of_clopper_and_pearson():
    scores = np.append(np.zeros(1000), np.ones(80))
    found = tar.with_interval(scores, scores > 0, 0.1)
    oracle = scipy.stats.binomtest(80, 80).proportion_ci()
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("positives", "negatives", "distance", "far"),
    [(100, 100, 2, 0.1), (40, 300, 3, 0.02), (300, 300, 4.5, 0.1), (100, 200, 3, 0.01), (200, 100, 3, 0.001)],
)
def test_the_interval_of_a_tar_covers_at_least_as_often_as_it_says(positives, negatives, distance, far):
    rng = np.random.default_rng(19)
    truth, tries = scipy.stats.norm.sf(scipy.stats.norm.isf(far) - distance), 250
    missed = 0
    for _ in range(tries):
        found = tar.with_interval(*normal_scores(rng, positives, negatives, distance), far)
        missed += not found.low <= truth <= found.high
    assert missed / tries <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / tries)


@pytest.mark.slow
@pytest.mark.parametrize(("positives", "negatives", "distance"), [(100, 100, 0), (40, 150, 2), (100, 100, 4)])
def test_the_interval_of_an_eer_covers_at_least_as_often_as_it_says(positives, negatives, distance):
    rng = np.random.default_rng(20)
    truth, tries = scipy.stats.norm.sf(distance / 2), 150
    missed = 0
    for _ in range(tries):
        found = eer.with_interval(*normal_scores(rng, positives, negatives, distance))
        missed += not found.low <= truth <= found.high
    assert missed / tries <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / tries)


@pytest.mark.slow
@pytest.mark.parametrize(("positives", "negatives", "distance"), [(100, 100, 0), (100, 100, 2), (60, 300, 3)])
def test_the_interval_of_an_area_covers_as_often_as_it_says(positives, negatives, distance):
    rng = np.random.default_rng(21)
    truth, tries = scipy.stats.norm.cdf(distance / math.sqrt(2)), 800
    covered = 0
    for _ in range(tries):
        found = auc.with_interval(*normal_scores(rng, positives, negatives, distance))
        covered += found.low <= truth <= found.high
    assert within(covered, tries, 0.95)


@pytest.mark.slow
def test_a_bootstrap_would_cover_less_where_few_errors_are_left():
    """Why the intervals are not drawn at random: 300 + 300 pairs, FAR 1 %, and a TAR near its ceiling."""
    rng = np.random.default_rng(23)
    for distance, far in ((3, 0.01), (4.5, 0.1)):
        truth, tries, replicates = scipy.stats.norm.sf(scipy.stats.norm.isf(far) - distance), 150, 300
        missed = 0
        for _ in range(tries):
            scores, same = normal_scores(rng, 300, 300, distance)
            order = np.argsort(-scores)
            drawn = rng.multinomial(300, np.full(300, 1 / 300), size=(2, replicates))
            counts = np.zeros((2, replicates, 600), dtype=np.int64)
            counts[0][:, same[order]], counts[1][:, ~same[order]] = drawn
            hits, accepts = counts.cumsum(-1)
            rates = np.where(accepts <= far * 300, hits, 0).max(1) / 300
            low, high = np.quantile(rates, [0.025, 0.975])
            missed += not low <= truth <= high
        assert missed / tries > 0.05
