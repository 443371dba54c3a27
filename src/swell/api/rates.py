"""How fast one user may send requests. Pure but for the clock it is handed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from swell.api.bucket import Bucket

BURST_S = 10.0
"""What a user did not use for so long they may send at once."""
MAX_USERS = 10_000


class Rates:
    """One bucket per user: it fills with `per_s` requests per second, up to those of BURST_S."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def wait_s(self, user: str, per_s: float) -> int:
        """Count a request; the whole seconds after which the user may send another, 0: this one is within the limit."""
        now, most = self._now_s(), max(1.0, per_s * BURST_S)
        bucket = self._buckets.pop(user, None) or Bucket(left=most, seen_s=now)
        self._buckets[user] = bucket
        if len(self._buckets) > MAX_USERS:
            self._buckets.popitem(last=False)
        bucket.refill(now, per_s, most)
        wait_s = bucket.wait_s(per_s)
        if not wait_s:
            bucket.left -= 1.0
        return wait_s
