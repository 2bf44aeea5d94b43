"""The time of a training step against that of the baseline, from paired rounds of timing cells."""

UNIT, BETTER, TASKS = "%", "lower", ("classification", "verification", "retrieval")
FROM = "rounds"
COLUMN = ""
