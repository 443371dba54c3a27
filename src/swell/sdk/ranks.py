"""Waits for the other ranks of a run, where torch.distributed connects them. `session` calls it before a rank
leaves."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

LONGEST_S = 600.0
"""A rank that waits for others longer than this leaves without them."""


def wait_for_all() -> bool:
    """Wait until every rank is here. False: torch.distributed does not connect them, or a rank did not come."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return False
    try:
        return bool(dist.barrier(async_op=True).wait(timedelta(seconds=LONGEST_S)))
    except RuntimeError as error:  # a rank is gone; the ranks that are left have saved already
        print(f"swell: not all ranks came to leave together: {error}", file=sys.stderr)
        return False
