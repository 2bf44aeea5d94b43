"""What a trained network is asked to do: what is held out, how it is evaluated, which metrics a report leads with."""

from lossbench.tasks import classification, verification

TASKS = {"classification": classification.TASK, "verification": verification.TASK}
