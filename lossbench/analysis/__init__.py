"""Records → every number that a report states, each computed once.

`records`      run folders → `RunData`: cells and records, which everything below takes
`measured`     values by metric, point, loss and seed; paired differences
`accuracy`     means over seeds with intervals
`readiness`    which networks have learned enough: at chance, undertrained
`verdicts`     one interval and one verdict for every comparison, in families
`comparisons`  every loss against the baseline
`answer`       which loss to use, per task: the first screen of a report
`claims`       the claims of the suite; `claim_tests`: how one is tested
`published`    numbers from papers
`tuning`       default against tuned settings
`ranks`        losses across datasets
`cost`         phases of a step, Pareto fronts
`angles`       angles by class
`verification` intervals over test pairs
`warnings`     where a number means less than it seems to
`results`      `Results`: all of the above, each computed once
`series`       further data for figures
`compare`      two runs, before and after a change
"""
