"""Who is behind a page of the dashboard: a one-time code, exchanged for a session that ends by itself.

No token ever gets into a browser's storage or history. A session is a text that carries its user and its own end,
signed with the daemon's token: it needs no storing, outlives a restart of the daemon, and ends when that changes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import NamedTuple

from swell.api.auth import same
from swell.core.accounts import Way

CODE_S = 60.0
SESSION_S = 12 * 3600.0
MAX_CODES = 1000
_PREFIX = "ui-"
_FIELDS = 5


class Holder(NamedTuple):
    """How its user was known when they logged in. A session that a token opened gives what that token does, as long as
    it does: it is no way to more than the token's role, nor beyond its end."""

    way: Way
    user: str
    token: str = ""


class Sessions:
    """Keeps codes in memory: after a restart of the daemon a new one is needed."""

    def __init__(self, secret: str, now_s: Callable[[], float]) -> None:
        self._secret = secret
        self._now_s = now_s
        self._codes: dict[str, tuple[float, Holder]] = {}  # by hash: (valid until, holder)

    def new_code(self, holder: Holder) -> str:
        """Valid once, for a minute. The page that uses it acts in this user's name."""
        now = self._now_s()
        alive = [(key, kept) for key, kept in self._codes.items() if kept[0] > now]
        self._codes = dict(alive[-MAX_CODES + 1 :])
        code = secrets.token_urlsafe(24)
        self._codes[_hash(code)] = now + CODE_S, holder
        return code

    def redeem(self, code: str) -> Holder | None:
        """Its holder; None: it is not valid."""
        until_s, holder = self._codes.pop(_hash(code), (0.0, None))
        return holder if until_s > self._now_s() else None

    def open(self, holder: Holder) -> tuple[str, float]:
        """A session of this user and when it ends."""
        ends_s = int(self._now_s() + SESSION_S)
        body = f"{ends_s}.{secrets.token_hex(8)}.{holder.way}.{holder.user.encode().hex()}.{holder.token}"
        return f"{_PREFIX}{body}.{self._signature(body)}", float(ends_s)

    def holder(self, given: str) -> Holder | None:
        """Whose session this bearer is; None: it is none of ours, or it has ended."""
        if not given.startswith(_PREFIX):
            return None
        body, _, signature = given.removeprefix(_PREFIX).rpartition(".")
        if not same(signature, self._signature(body)):
            return None
        fields = body.split(".")
        if len(fields) != _FIELDS:  # an earlier version's: its page logs in again
            return None
        ends, _, way, user, token = fields
        return Holder(Way(way), bytes.fromhex(user).decode(), token) if int(ends) > self._now_s() else None

    def _signature(self, body: str) -> str:
        return hmac.new(
            self._secret.encode(), f"ui-session:{body}".encode(errors="replace"), hashlib.sha256
        ).hexdigest()


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode(errors="replace")).hexdigest()
