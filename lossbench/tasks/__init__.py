"""Tasks: what is held out, how a trained network is evaluated, and the main metrics of the report."""

from lossbench.tasks import classification, retrieval, verification

TASKS = {"classification": classification.TASK, "verification": verification.TASK, "retrieval": retrieval.TASK}
