"""How a training leaves: its exit code, and how long its last report may take. `session` and `steps` use it."""

from __future__ import annotations

import time

from swell.sdk.link import Link

EXIT_STOPPED = 85
"""Left as asked; to be continued. 0 is finished, anything else is a failure."""

LEAVING_S = 3.0
"""A run that leaves reports its last epoch first: the daemon has just asked for the stop, so it answers."""


def patience_at_end_s(link: Link | None, began_s: float) -> float:
    """How long to wait for the last report: half a per cent of the run's time (since `began_s`, monotonic), at least a
    second if the daemon answered quickly so far, and 0 if the report would not arrive in that time anyway."""
    if link is None or not link.healthy:
        return 0.0
    share_s = min(LEAVING_S, 0.005 * (time.monotonic() - began_s))
    if link.latency_s < 0.25:
        return max(1.0, share_s)
    return share_s if link.latency_s < share_s else 0.0
