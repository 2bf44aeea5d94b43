"""One cell: batches, model, loop, checkpoints, evaluation, timing, memory."""
