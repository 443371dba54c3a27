"""Where an epoch continues after a stop within it. `session` calls it."""

from __future__ import annotations

import sys


def batches_to_skip(done: int, size: int, saved_size: int) -> int:
    """How many batches to skip of a loader that starts again with `size` batches (-1: unknown), after `done` of
    `saved_size` batches. The sizes differ if each rank reads a smaller or larger part of the data than before."""
    if not done or size <= 0 or not saved_size or size == saved_size:
        return done
    at = done * size // saved_size
    print(
        f"swell: the epoch has {size} batches now and had {saved_size}; resuming at batch {at}, which "
        "may repeat a part of it. run.batches() resumes at the very sample.",
        file=sys.stderr,
    )
    return at
