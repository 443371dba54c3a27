"""Wrong tokens: how many a peer may try. Pure but for the clock it is handed."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from swell.api.bucket import Bucket

BURST = 20
"""Wrong tokens in a row; then one more every second."""
PER_S = 1.0
MAX_PEERS = 10_000


@dataclass(slots=True)
class _Peer(Bucket):
    tried: set[bytes] = field(default_factory=set)


class Attempts:
    """A peer that tries many different tokens is refused for a while, right or wrong. One that repeats the same
    wrong token (a client with an old one) guesses nothing: it only gets 429 instead of 401, and others behind the same
    address are not locked out."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._peers: OrderedDict[str, _Peer] = OrderedDict()

    def locked_s(self, peer: str) -> int:
        """Seconds for which requests from this peer are refused unread; 0: they are read."""
        known = self._refilled(peer)
        return known.wait_s(PER_S) if known and len(known.tried) >= BURST else 0

    def wrong(self, peer: str, token: str) -> int:
        """Note a wrong token; the seconds after which the peer may try again, 0 if it may at once."""
        known = self._refilled(peer) or self._new(peer)
        wait_s = known.wait_s(PER_S)
        if not wait_s:
            known.left -= 1
        if len(known.tried) < BURST:
            known.tried.add(hashlib.blake2b(token.encode(errors="replace"), digest_size=8).digest())
        return wait_s

    def _refilled(self, peer: str) -> _Peer | None:
        known = self._peers.get(peer)
        if known is None:
            return None
        known.refill(self._now_s(), PER_S, BURST)
        if known.left >= BURST:
            del self._peers[peer]
            return None
        return known

    def _new(self, peer: str) -> _Peer:
        if len(self._peers) >= MAX_PEERS:
            self._peers.popitem(last=False)
        known = self._peers[peer] = _Peer(left=float(BURST), seen_s=self._now_s())
        return known
