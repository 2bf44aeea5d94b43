"""The seconds until a cell first reaches the baseline's final accuracy minus one point: see `analysis/target.py`."""

UNIT, BETTER, TASKS = "seconds", "lower", ("classification", "verification", "retrieval")
FROM = "curves"
COLUMN = ""
REQUIRES = "evaluations"
