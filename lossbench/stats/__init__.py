"""Arrays → intervals, tests, verdicts. Pure functions over numpy and scipy: no I/O, no frames, no global state.

`pairs`        one loss against another, paired by seed: t interval, d_z, wins; Holm
`exact`        the same without a distribution: sign flips, signed ranks; silent where no p could reach the level
`equivalence`  too small to matter? TOST, ROPE
`planning`     what n seeds can show
`testset`      what the size of the test set leaves open
`ties`         which losses of a table cannot be told apart
`datasets`     over datasets, by ranks; N is the number of datasets
`trends`       along the values of an option
`cost`         time ratios, the Pareto front
`published`    a number from a paper
`verdicts`     the words

Randomness comes in as a numpy Generator. Where data are too few for a number, it is NaN.
"""

from lossbench.stats.cost import FEWEST_FOR_FRONT, pareto_chance, pareto_front, time_ratio
from lossbench.stats.datasets import (
    FEWEST_DATASETS,
    DatasetMeans,
    Friedman,
    RankedPair,
    average_ranks,
    critical_difference,
    friedman,
    friedman_of_ranks,
    nemenyi,
    over_datasets,
    pairwise,
    tie_groups,
)
from lossbench.stats.equivalence import Rope, beyond, noninferior, rope, tost
from lossbench.stats.exact import Exact, pairs_needed, rank_biserial, sign_flip, signed_rank
from lossbench.stats.pairs import FEWEST_SEEDS, LEVEL, Paired, Wins, correlation, holm, mean_interval, paired, wins
from lossbench.stats.planning import detectable_effect, equivalence_power, power, seeds_for_equivalence, seeds_needed
from lossbench.stats.published import FEWEST_FOR_PREDICTION, Reproduction, prediction_interval, reproduction
from lossbench.stats.testset import (
    FEWEST_FOR_BOOTSTRAP,
    McNemar,
    TwoWay,
    mcnemar,
    test_set_error,
    test_set_noise_dominates,
    two_way,
    two_way_bootstrap,
    wilson,
)
from lossbench.stats.ties import letter_groups, pair_p_values, tie_letters
from lossbench.stats.trends import Direction, Trend, spearman, trend, trend_evidence
from lossbench.stats.verdicts import ClaimVerdict, PublishedVerdict, Verdict, claim_verdict, verdict

__all__ = [
    "FEWEST_DATASETS",
    "FEWEST_FOR_BOOTSTRAP",
    "FEWEST_FOR_FRONT",
    "FEWEST_FOR_PREDICTION",
    "FEWEST_SEEDS",
    "LEVEL",
    "ClaimVerdict",
    "DatasetMeans",
    "Direction",
    "Exact",
    "Friedman",
    "McNemar",
    "Paired",
    "PublishedVerdict",
    "RankedPair",
    "Reproduction",
    "Rope",
    "Trend",
    "TwoWay",
    "Verdict",
    "Wins",
    "average_ranks",
    "beyond",
    "claim_verdict",
    "correlation",
    "critical_difference",
    "detectable_effect",
    "equivalence_power",
    "friedman",
    "friedman_of_ranks",
    "holm",
    "letter_groups",
    "mcnemar",
    "mean_interval",
    "nemenyi",
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
    "spearman",
    "test_set_error",
    "test_set_noise_dominates",
    "tie_groups",
    "tie_letters",
    "time_ratio",
    "tost",
    "trend",
    "trend_evidence",
    "two_way",
    "two_way_bootstrap",
    "verdict",
    "wilson",
    "wins",
]
