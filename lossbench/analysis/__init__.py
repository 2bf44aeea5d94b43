"""Records → every number that a report states, each computed once.

`records`      run folders → `RunData`: cells and records, which everything below takes
`measured`     values by metric, point, loss and seed; paired differences
`accuracy`     means over seeds with intervals and ties
`comparisons`  every loss against the baseline, with verdicts
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
