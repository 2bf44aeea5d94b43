"""Named random streams: each use of randomness has its own, so that none can shift another.

A stream depends only on (seed, name, position). Two losses trained with one seed therefore get the same initial
backbone, subset and batches, whatever each draws for itself; and a run that resumes at step t draws what it would have
drawn without the interruption.
"""

from __future__ import annotations

import hashlib


def derive(seed: int, *name: str | int) -> int:
    """A 63-bit seed for the stream `name` of `seed`."""
    text = "/".join([str(seed), *(str(part) for part in name)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
