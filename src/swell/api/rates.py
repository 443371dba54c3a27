"""How fast one user may send requests, and how many may be open. Pure but for the clock it is handed."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from swell.api.bucket import Bucket
from swell.core.accounts import Caller, Way

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


class AtOnce:
    """How many requests of each user are being answered, streams among them. The owner and runs are not counted."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def one(self, caller: Caller | None, most: int) -> Iterator[bool]:
        """False: the user has as many as they may."""
        if caller is None or caller.is_owner or caller.way is Way.RUN:
            yield True
            return
        if self._open[caller.user] >= most:
            yield False
            return
        self._open[caller.user] += 1
        try:
            yield True
        finally:
            self._open[caller.user] -= 1
            if not self._open[caller.user]:
                del self._open[caller.user]
