"""Where an epoch goes on that was stopped within."""

from __future__ import annotations

import sys


def batches_to_skip(done: int, size: int, saved_size: int) -> int:
    """Of a loader that begins anew with `size` batches (-1: unknown), after `done` batches of `saved_size` were done.
    It has more or fewer batches now if each rank reads another part of the data."""
    if not done or size <= 0 or not saved_size or size == saved_size:
        return done
    at = done * size // saved_size
    print(
        f"swell: the epoch has {size} batches now and had {saved_size}; resuming at batch {at}, which "
        "may repeat a part of it. run.batches() resumes at the very sample.",
        file=sys.stderr,
    )
    return at
