"""Arrays → intervals, tests, verdicts. Pure functions over numpy and scipy: no I/O, no data frames, no global state.

`pairs`      one loss against another, paired by seed: interval, verdict, what one seed changes; step times
`exact`      signed ranks, for datasets; no p where none below the level is attainable
`planning`   power: what n seeds can show
`testset`    how much the choice of test examples matters
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
from lossbench.stats.exact import pairs_needed, rank_biserial, signed_rank
from lossbench.stats.pairs import (
    FEWEST_SEEDS,
    LEVEL,
    Paired,
    Verdict,
    correlation,
    holm,
    largest_deviation,
    log_times,
    mean_interval,
    mean_intervals,
    one_seed_decides,
    paired,
    verdict,
    wins,
)
from lossbench.stats.pareto import pareto_chance, pareto_front
from lossbench.stats.planning import SeedsNeeded, detectable_effect, equivalence_power, power, seeds_needed
from lossbench.stats.published import prediction_interval, reproduction
from lossbench.stats.testset import example_error
from lossbench.stats.trends import Trend, coefficients, trend

__all__ = [
    "FEWEST_DATASETS",
    "FEWEST_SEEDS",
    "LEVEL",
    "DatasetMeans",
    "Friedman",
    "Paired",
    "RankedPair",
    "SeedsNeeded",
    "Trend",
    "Verdict",
    "coefficients",
    "correlation",
    "critical_difference",
    "detectable_effect",
    "equivalence_power",
    "example_error",
    "friedman",
    "holm",
    "largest_deviation",
    "log_times",
    "mean_interval",
    "mean_intervals",
    "one_seed_decides",
    "over_datasets",
    "paired",
    "pairs_needed",
    "pairwise",
    "pareto_chance",
    "pareto_front",
    "power",
    "prediction_interval",
    "rank_biserial",
    "reproduction",
    "seeds_needed",
    "signed_rank",
    "tie_groups",
    "trend",
    "verdict",
    "wins",
]
