"""Arrays → intervals, tests, verdicts. Pure functions over numpy and scipy: no I/O, no data frames, no global state.

`pairs`      one loss against another, paired by seed: t interval, equivalence, Holm, verdicts; time ratios
`exact`      the same without a distribution: sign flips, signed ranks; no p where none below the level is attainable
`planning`   power: what n seeds can show
`testset`    how much the choice of test examples matters
`ties`       which losses of a table do not differ
`datasets`   over datasets, by ranks; N is the number of datasets
`trends`     along the values of an option
`pareto`     the front of accuracy against cost
`published`  a number from a paper against our own runs

Randomness comes in as a numpy Generator. A number is NaN where there are too few data for it.
"""

from lossbench.stats.datasets import (
    FEWEST_DATASETS,
    DatasetMeans,
    Friedman,
    RankedPair,
    critical_difference,
    friedman,
    over_datasets,
    pairwise,
    tie_groups,
)
from lossbench.stats.exact import pairs_needed, rank_biserial, sign_flip, signed_rank
from lossbench.stats.pairs import (
    FEWEST_SEEDS,
    LEVEL,
    Rope,
    beyond,
    claim_verdict,
    correlation,
    holm,
    log_times,
    mean_interval,
    noninferior,
    paired,
    rope,
    time_ratio,
    tost,
    verdict,
    wins,
)
from lossbench.stats.pareto import pareto_chance, pareto_front
from lossbench.stats.planning import detectable_effect, equivalence_power, power, seeds_for_equivalence, seeds_needed
from lossbench.stats.published import prediction_interval, reproduction
from lossbench.stats.testset import test_set_noise_dominates, two_way
from lossbench.stats.ties import letter_groups, pair_p_values, tie_letters
from lossbench.stats.trends import Trend, trend, trend_evidence

__all__ = [
    "FEWEST_DATASETS",
    "FEWEST_SEEDS",
    "LEVEL",
    "DatasetMeans",
    "Friedman",
    "RankedPair",
    "Rope",
    "Trend",
    "beyond",
    "claim_verdict",
    "correlation",
    "critical_difference",
    "detectable_effect",
    "equivalence_power",
    "friedman",
    "holm",
    "letter_groups",
    "log_times",
    "mean_interval",
    "noninferior",
    "over_datasets",
    "pair_p_values",
    "paired",
    "pairs_needed",
    "pairwise",
    "pareto_chance",
    "pareto_front",
    "power",
    "prediction_interval",
    "rank_biserial",
    "reproduction",
    "rope",
    "seeds_for_equivalence",
    "seeds_needed",
    "sign_flip",
    "signed_rank",
    "test_set_noise_dominates",
    "tie_groups",
    "tie_letters",
    "time_ratio",
    "tost",
    "trend",
    "trend_evidence",
    "two_way",
    "verdict",
    "wins",
]
