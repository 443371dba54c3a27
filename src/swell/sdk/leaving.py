"""The way out of a training: with which exit code, and how long its last report may take."""

from __future__ import annotations

import time

from swell.sdk.link import Link

EXIT_STOPPED = 85
"""Left as asked; to be continued. 0 is finished, anything else is a failure."""

LEAVING_S = 3.0
"""A run that leaves reports its last epoch first: the daemon has just asked for the stop, so it answers."""


def patience_at_end_s(link: Link | None, began_s: float) -> float:
    """The last report is worth half a per cent of the run (since `began_s`, monotonic); a second, if the daemon
    has been quick so far; and nothing, if it would not arrive in that time anyway."""
    if link is None or not link.healthy:
        return 0.0
    share_s = min(LEAVING_S, 0.005 * (time.monotonic() - began_s))
    if link.latency_s < 0.25:
        return max(1.0, share_s)
    return share_s if link.latency_s < share_s else 0.0
